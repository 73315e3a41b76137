"""Rewards of one crowded cell in order, with the answers to every question kept in the nodes.

A B+ tree over (reward, slot). Each child's summary, kept in its parent, holds the child's smallest
and largest reward, its count, its oldest member, and the first moments of its rewards about the
middle of the child. A kernel's cumulative distribution is a polynomial (or, for the Gaussian, close
to its Taylor polynomial) on any child that no breakpoint of the kernel cuts, so the moments give
that child's mass exactly and only the few leaves that are cut are read reward by reward. All
questions and changes cost O(log n).

Summaries are always computed anew from what lies below them, never added to and subtracted from, so
rounding errors do not pile up over a long run.

All trees of a filter live in one set of arrays (`Forest`). Functions here are compiled by Numba.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

FAN = 32
"""Most children of an inner node."""
LEAF = 64
"""Most rewards in a leaf."""
MOST_LEVELS = 12
"""Far more than 2**31 rewards need."""

EPANECHNIKOV, TOPHAT, GAUSSIAN = 0, 1, 2
MOMENTS = (3, 1, 11)
"""Moments that each kernel needs: its polynomial's degree. For the Gaussian, a Taylor polynomial of
degree 11 over a third of a bandwidth either way is exact to 1e-11."""
GAUSSIAN_REACH = 8.0
"""Distance, in bandwidths, beyond which the Gaussian's mass is below 1e-15; the others reach 1."""
GAUSSIAN_WIDEST = 0.66
"""Width, in bandwidths, up to which that Taylor polynomial is used."""

# Rows of a child's summary.
LO, HI, FIRST_MOMENT = 0, 1, 2  # in Forest.inner_real
CHILD, COUNT, HI_SLOT, OLDEST, OLDEST_SLOT = 0, 1, 2, 3, 4  # in Forest.inner_whole
# Rows of a leaf's whole numbers.
STAMP, SLOT = 0, 1

# Places in Forest.counters; density.py uses those from OTHER_COUNTERS on.
CLOCK, INNER_USED, INNER_FREE, INNER_ROOM, LEAF_USED, LEAF_FREE, LEAF_ROOM = 0, 1, 2, 3, 4, 5, 6
OTHER_COUNTERS = 8
PATH = 16  # scratch: nodes and child positions on the way down
STACK = PATH + 2 * MOST_LEVELS  # scratch: nodes still to visit
COUNTERS = STACK + MOST_LEVELS * FAN

_BINOMIAL = np.array([[math.comb(k, j) for j in range(12)] for k in range(12)], dtype=np.float64)
_INVERSE_FACTORIAL = np.array([1.0 / math.factorial(k) for k in range(12)])


class Forest(NamedTuple):
    """The arrays that all trees share."""

    inner_real: NDArray[np.float64]
    """(nodes, 2 + moments, FAN): LO, HI and moments of each child."""
    inner_whole: NDArray[np.int64]
    """(nodes, 5, FAN): CHILD, COUNT, HI_SLOT, OLDEST, OLDEST_SLOT of each child."""
    inner_size: NDArray[np.int32]
    """(nodes, 2): number of children; level, 1 when the children are leaves."""
    leaf_reward: NDArray[np.float64]
    """(leaves, LEAF): rewards, ascending."""
    leaf_whole: NDArray[np.int64]
    """(leaves, 2, LEAF): STAMP and SLOT of each reward."""
    leaf_size: NDArray[np.int32]
    """(leaves,): number of rewards."""
    counters: NDArray[np.int64]


class Mass(NamedTuple):
    """What defines the reward density estimate."""

    kernel: int
    bandwidth: float
    half_width: float


@njit(cache=True, nogil=True, error_model="numpy")
def cumulative(kernel: int, t: float) -> float:
    """F(t) of the kernel at unit bandwidth."""
    if kernel == GAUSSIAN:
        return 0.5 * math.erfc(-t * 0.7071067811865476)
    if t >= 1.0:
        return 1.0
    if t <= -1.0:
        return 0.0
    if kernel == TOPHAT:
        return 0.5 + 0.5 * t
    return 0.5 + t * (0.75 - 0.25 * t * t)


@njit(cache=True, nogil=True, error_model="numpy")
def reward_mass(mass: Mass, distance: float) -> float:
    """Mass that one reward, this far from the middle of the interval, puts into it."""
    upper = cumulative(mass.kernel, (mass.half_width - distance) / mass.bandwidth)
    lower = cumulative(mass.kernel, (-mass.half_width - distance) / mass.bandwidth)
    return upper - lower


@njit(cache=True, nogil=True, error_model="numpy")
def _cumulative_sum(f: Forest, mass: Mass, node: int, c: int, t: float) -> float:
    """Sum of F(t - d) over a child's rewards, d their distance from its middle in bandwidths."""
    real = f.inner_real
    count = float(f.inner_whole[node, COUNT, c])
    if mass.kernel == GAUSSIAN:
        density = 0.3989422804014327 * math.exp(-0.5 * t * t)
        total = 0.0
        # The k-th derivative of F is, up to sign, Hermite polynomial k-1 times the density.
        before, hermite = 0.0, 1.0
        for k in range(1, 12):
            total += hermite * real[node, FIRST_MOMENT + k - 1, c] * _INVERSE_FACTORIAL[k]
            before, hermite = hermite, t * hermite - (k - 1) * before
        return count * cumulative(GAUSSIAN, t) - density * total
    if t >= 1.0:
        return count
    if t <= -1.0:
        return 0.0
    first = real[node, FIRST_MOMENT, c]
    if mass.kernel == TOPHAT:
        return count * (0.5 + 0.5 * t) - 0.5 * first
    second = real[node, FIRST_MOMENT + 1, c]
    third = real[node, FIRST_MOMENT + 2, c]
    return (
        count * (0.5 + t * (0.75 - 0.25 * t * t))
        - 0.75 * (1.0 - t * t) * first
        - 0.75 * t * second
        + 0.25 * third
    )


@njit(cache=True, nogil=True, error_model="numpy")
def _is_cut(t_low: float, t_high: float) -> bool:
    """Whether a breakpoint of a compact kernel, -1 or 1, lies strictly between the two."""
    return (t_low < 1.0 < t_high) or (t_low < -1.0 < t_high)


@njit(cache=True, nogil=True, error_model="numpy")
def tree_mass(f: Forest, mass: Mass, root: int, reward: float) -> float:
    """Sum of the mass that all rewards of the tree put into the interval around `reward`."""
    h, beta = mass.bandwidth, mass.half_width
    reach = beta + (GAUSSIAN_REACH if mass.kernel == GAUSSIAN else 1.0) * h
    stack = f.counters[STACK:]
    stack[0] = root
    waiting = 1
    total = 0.0
    while waiting:
        waiting -= 1
        node = stack[waiting]
        for c in range(f.inner_size[node, 0]):
            high = f.inner_real[node, HI, c] - reward
            if high < -reach:
                continue
            low = f.inner_real[node, LO, c] - reward
            if low > reach:
                break
            if mass.kernel == GAUSSIAN:
                as_a_whole = high - low <= GAUSSIAN_WIDEST * h
            else:
                as_a_whole = not (
                    _is_cut((beta - high) / h, (beta - low) / h)
                    or _is_cut((-beta - high) / h, (-beta - low) / h)
                )
            if as_a_whole:
                middle = 0.5 * (low + high)
                total += _cumulative_sum(f, mass, node, c, (beta - middle) / h)
                total -= _cumulative_sum(f, mass, node, c, (-beta - middle) / h)
            elif f.inner_size[node, 1] == 1:
                leaf = f.inner_whole[node, CHILD, c]
                for i in range(f.leaf_size[leaf]):
                    distance = f.leaf_reward[leaf, i] - reward
                    if distance > reach:
                        break
                    if distance >= -reach:
                        total += reward_mass(mass, distance)
            else:
                stack[waiting] = f.inner_whole[node, CHILD, c]
                waiting += 1
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def tree_oldest(f: Forest, root: int, reward: float, within: float) -> int:
    """Slot of the oldest member whose reward is at most `within` away; -1 if there is none."""
    stack = f.counters[STACK:]
    stack[0] = root
    waiting = 1
    best_stamp = np.int64(9223372036854775807)
    best_slot = np.int64(-1)
    while waiting:
        waiting -= 1
        node = stack[waiting]
        for c in range(f.inner_size[node, 0]):
            high = f.inner_real[node, HI, c] - reward
            if high < -within:
                continue
            low = f.inner_real[node, LO, c] - reward
            if low > within:
                break
            if f.inner_whole[node, OLDEST, c] >= best_stamp:
                continue
            if low >= -within and high <= within:
                best_stamp = f.inner_whole[node, OLDEST, c]
                best_slot = f.inner_whole[node, OLDEST_SLOT, c]
            elif f.inner_size[node, 1] == 1:
                leaf = f.inner_whole[node, CHILD, c]
                for i in range(f.leaf_size[leaf]):
                    inside = abs(f.leaf_reward[leaf, i] - reward) <= within
                    if inside and f.leaf_whole[leaf, STAMP, i] < best_stamp:
                        best_stamp = f.leaf_whole[leaf, STAMP, i]
                        best_slot = f.leaf_whole[leaf, SLOT, i]
            else:
                stack[waiting] = f.inner_whole[node, CHILD, c]
                waiting += 1
    return best_slot


@njit(cache=True, nogil=True, error_model="numpy")
def tree_nearest_distance(f: Forest, root: int, reward: float) -> float:
    """Distance from `reward` to the nearest reward of the tree."""
    node = root
    best = np.inf
    while True:
        size = f.inner_size[node, 0]
        c = 0
        while c < size and f.inner_real[node, HI, c] < reward:
            c += 1
        if c > 0:
            best = min(best, abs(f.inner_real[node, HI, c - 1] - reward))
        if c == size:
            return best
        if f.inner_real[node, LO, c] >= reward:
            return min(best, abs(f.inner_real[node, LO, c] - reward))
        child = f.inner_whole[node, CHILD, c]
        if f.inner_size[node, 1] == 1:
            for i in range(f.leaf_size[child]):
                best = min(best, abs(f.leaf_reward[child, i] - reward))
            return best
        node = child
