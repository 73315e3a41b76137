"""What defines the density, and the questions to one leaf, all of whose rewards are read.

Functions here are compiled by Numba.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from frugalrl.admission.compiled import Real, Whole, inlined, vectorised
from frugalrl.admission.forest import (
    EPANECHNIKOV,
    GAUSSIAN,
    LEAF,
    START,
    TOPHAT,
    Forest,
    forest_at,
    leaf_end,
)
from frugalrl.admission.lanes import LANES, first_near, least_distance


class Mass(NamedTuple):
    """What defines the reward density estimate."""

    kernel: int
    bandwidth: float
    half_width: float


@inlined
def cumulative(kernel: Whole, t: Real) -> Real:
    """F(t) of the kernel at unit bandwidth."""
    if kernel == GAUSSIAN:
        return 0.5 * math.erfc(-t * 0.7071067811865476)
    t = min(max(t, -1.0), 1.0)
    if kernel == TOPHAT:
        return 0.5 + 0.5 * t
    return 0.5 + t * (0.75 - 0.25 * t * t)


@inlined
def reward_mass(mass: Mass, distance: Real) -> Real:
    """Mass that one reward, this far from the middle of the interval, puts into it."""
    upper = cumulative(mass.kernel, (mass.half_width - distance) / mass.bandwidth)
    lower = cumulative(mass.kernel, (-mass.half_width - distance) / mass.bandwidth)
    return upper - lower


@inlined
def _difference(reward: Real, other: Real) -> Real:
    """What one reward is above another, taken first of all.

    Compiled apart from sums whose order is free: beside 1e16, half a width would be lost.
    """
    return reward - other


@vectorised
def leaf_mass(table: Any, mass: Mass, leaf: Whole, reward: Real) -> Real:
    """Mass of a leaf, reward by reward."""
    f = forest_at(table)
    start, end = f.leaf_span[leaf, START], leaf_end(f, leaf)
    total = 0.0
    if mass.kernel == GAUSSIAN:
        for i in range(start, end):
            total += reward_mass(mass, f.leaf_reward[leaf, i] - reward)
        return total
    # What `reward_mass` does, without a branch a reward.
    per_bandwidth = 1.0 / mass.bandwidth
    linear, cubic = (0.75, 0.25) if mass.kernel == EPANECHNIKOV else (0.5, 0.0)
    for i in range(start, end):
        distance = _difference(f.leaf_reward[leaf, i], reward)
        upper = min(max((mass.half_width - distance) * per_bandwidth, -1.0), 1.0)
        lower = min(max((-mass.half_width - distance) * per_bandwidth, -1.0), 1.0)
        total += linear * (upper - lower) - cubic * (upper**3 - lower**3)
    return total


@inlined
def oldest_in_leaf(f: Forest, leaf: Whole, reward: Real, within: Real) -> Whole:
    """Place of the oldest member that is at most `within` away; LEAF if there is none."""
    start, end = np.int64(f.leaf_span[leaf, START]), np.int64(leaf_end(f, leaf))
    for block in range(start // LANES * LANES, end, LANES):
        asked_from, asked_to = max(start - block, 0), min(end - block, LANES)
        first = leaf * LEAF + block
        found = first_near(f.leaf_reward, first, asked_from, asked_to, reward, within)
        if found < LANES:  # members are in order of age
            return block + found
    return np.int64(LEAF)


@inlined
def nearest_in_leaf(f: Forest, leaf: Whole, reward: Real) -> Real:
    """Distance from `reward` to the nearest reward of a leaf."""
    start, end = np.int64(f.leaf_span[leaf, START]), np.int64(leaf_end(f, leaf))
    nearest = np.inf
    for block in range(start // LANES * LANES, end, LANES):
        asked_from, asked_to = max(start - block, 0), min(end - block, LANES)
        first = leaf * LEAF + block
        distance = least_distance(f.leaf_reward, first, asked_from, asked_to, reward)
        nearest = min(nearest, distance)
    return nearest
