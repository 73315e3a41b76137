"""Rewards of one crowded cell in order, with the answers to every question kept in the nodes.

A B+ tree over (reward, stamp), stamps being given in order of age. Each child's summary, kept in
its parent, holds bounds of the child's rewards, their count, its oldest member, and the first
moments of its rewards about the middle of its bounds. A kernel's cumulative distribution is a
polynomial (or, for the Gaussian, close to its Taylor polynomial) on any child that no breakpoint of
the kernel cuts, so the moments give that child's mass exactly and only the few leaves that are cut
are read reward by reward. All questions and changes cost O(log n).

In a crowded cell time goes into waiting for memory, so a change touches little of a node, and what
a search reads is in rows of its own. A leaf keeps its members in order of age, not of reward: the
oldest, which is the one to be replaced, leaves by moving the leaf's start, and a new one is
appended. Bounds widen when a reward comes and stay when one goes. Moments are computed when first
asked for, from what lies below; they follow a change, or are marked as outdated (NaN): always where
bounds have moved, and every so often elsewhere, so that rounding errors do not pile up.

All trees of a filter live in one set of arrays (`forest`). Functions here are compiled by Numba.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from frugalrl.admission.compiled import Real, Whole, compiled, inlined
from frugalrl.admission.forest import (
    COUNT,
    FAN,
    FIRST_MOMENT,
    GAUSSIAN,
    LEAF,
    LO,
    OLDEST_SLOT,
    PENDING,
    SLOT,
    STACK,
    STAMP,
    START,
    TOPHAT,
    Forest,
    expect_rewards,
    forest_at,
    is_leaf,
    leaf_end,
    root_of,
)
from frugalrl.admission.lanes import count_below, index_of_least
from frugalrl.admission.reward_leaf import (
    Mass,
    cumulative,
    leaf_mass,
    nearest_in_leaf,
    oldest_in_leaf,
    reward_mass,
)

GAUSSIAN_REACH = 8.0
"""Distance, in bandwidths, beyond which the Gaussian's mass is below 1e-15; the others reach 1."""
GAUSSIAN_WIDEST = 0.66
"""Width, in bandwidths, up to which the Gaussian's Taylor polynomial is used (`forest.MOMENTS`)."""

_BINOMIAL = np.array([[math.comb(k, j) for j in range(12)] for k in range(12)], dtype=np.float64)
_INVERSE_FACTORIAL = np.array([1.0 / math.factorial(k) for k in range(12)])


@compiled
def _sum_leaf_moments(table: Any, node: Whole, c: Whole) -> None:
    """Compute the moments of a leaf from its rewards."""
    f = forest_at(table)
    real, leaf = f.inner_real, f.inner_child[node, c]
    middle = 0.5 * (real[node, c, LO] + f.inner_high[node, c])
    for k in range(1, real.shape[2] - FIRST_MOMENT + 1):
        total = 0.0
        for i in range(f.leaf_span[leaf, START], leaf_end(f, leaf)):
            total += (f.leaf_reward[leaf, i] - middle) ** k
        real[node, c, FIRST_MOMENT + k - 1] = total


@compiled
def _sum_inner_moments(table: Any, node: Whole, c: Whole) -> None:
    """Compute the moments of an inner node from those of its children."""
    f = forest_at(table)
    real, child = f.inner_real, f.inner_child[node, c]
    middle = 0.5 * (real[node, c, LO] + f.inner_high[node, c])
    for k in range(1, real.shape[2] - FIRST_MOMENT + 1):
        total = 0.0
        for i in range(f.inner_size[child, 0]):
            shift = 0.5 * (real[child, i, LO] + f.inner_high[child, i]) - middle
            # Binomial theorem, by Horner's rule, moves the moment to the new middle.
            moved = float(f.inner_whole[child, i, COUNT])
            for j in range(1, k + 1):
                moved = moved * shift + _BINOMIAL[k, j] * real[child, i, FIRST_MOMENT + j - 1]
            total += moved
        real[node, c, FIRST_MOMENT + k - 1] = total


@compiled
def _bring_up_to_date(table: Any, node: Whole, c: Whole) -> None:
    """Compute the moments of a child, and first those below it that are outdated."""
    f = forest_at(table)
    todo = f.counters[PENDING:]
    todo[0] = FAN * node + c
    waiting = 1
    while waiting:
        node, c = todo[waiting - 1] // FAN, todo[waiting - 1] % FAN
        if f.inner_size[node, 1] == 1:
            _sum_leaf_moments(table, node, c)
            waiting -= 1
            continue
        child = np.int64(f.inner_child[node, c])
        found = waiting
        for i in range(f.inner_size[child, 0]):
            if math.isnan(f.inner_real[child, i, FIRST_MOMENT]):
                todo[waiting] = FAN * child + i
                waiting += 1
        if waiting == found:
            _sum_inner_moments(table, node, c)
            waiting -= 1


@inlined
def _cumulative_sum(table: Any, mass: Mass, node: Whole, c: Whole, t: Real) -> Real:
    """Sum of F(t - d) over a child's rewards, d their distance from its middle in bandwidths."""
    f = forest_at(table)
    real = f.inner_real
    count = float(f.inner_whole[node, c, COUNT])
    if mass.kernel != GAUSSIAN:
        if t >= 1.0:
            return count
        if t <= -1.0:
            return 0.0
    if math.isnan(real[node, c, FIRST_MOMENT]):
        _bring_up_to_date(table, node, c)
    per_bandwidth = 1.0 / mass.bandwidth
    if mass.kernel == GAUSSIAN:
        density = 0.3989422804014327 * math.exp(-0.5 * t * t)
        total = 0.0
        # The k-th derivative of F is, up to sign, Hermite polynomial k-1 times the density.
        before, hermite = 0.0, 1.0
        scale = 1.0
        for k in range(1, 12):
            scale *= per_bandwidth
            moment = scale * real[node, c, FIRST_MOMENT + k - 1]
            total += hermite * moment * _INVERSE_FACTORIAL[k]
            before, hermite = hermite, t * hermite - (k - 1) * before
        return count * cumulative(GAUSSIAN, t) - density * total
    first = per_bandwidth * real[node, c, FIRST_MOMENT]
    if mass.kernel == TOPHAT:
        return count * (0.5 + 0.5 * t) - 0.5 * first
    second = per_bandwidth**2 * real[node, c, FIRST_MOMENT + 1]
    third = per_bandwidth**3 * real[node, c, FIRST_MOMENT + 2]
    return (
        count * (0.5 + t * (0.75 - 0.25 * t * t))
        - 0.75 * (1.0 - t * t) * first
        - 0.75 * t * second
        + 0.25 * third
    )


@inlined
def _child_mass(table: Any, mass: Mass, node: Whole, c: Whole, middle: Real) -> Real:
    """Mass of a child that one polynomial covers, its middle this far from the interval's."""
    upper = _cumulative_sum(table, mass, node, c, (mass.half_width - middle) / mass.bandwidth)
    lower = _cumulative_sum(table, mass, node, c, (-mass.half_width - middle) / mass.bandwidth)
    return upper - lower


@inlined
def _is_one_piece(mass: Mass, low: Real, high: Real) -> Any:
    """Whether one polynomial gives the mass of every reward between these distances."""
    h, beta = mass.bandwidth, mass.half_width
    if mass.kernel == GAUSSIAN:
        return high - low <= GAUSSIAN_WIDEST * h
    inner, outer = abs(h - beta), h + beta
    if low >= -inner and high <= inner:
        return True
    return (low >= inner and high <= outer) or (low >= -outer and high <= -inner)


@compiled
def tree_mass(table: Any, mass: Mass, tree: Whole, reward: Real, limit: Real, margin: Real) -> Real:
    """Sum of the mass that all rewards of the tree put into the interval around `reward`.

    As soon as it is certain, by more than `margin`, on which side of `limit` the sum lies, some
    number on that side is returned; with a `limit` of NaN, always the sum itself. A child's mass
    lies between its count times that of its furthest reward and its count times that of its
    nearest, since all three kernels fall off from the middle.
    """
    if is_leaf(tree):
        return leaf_mass(table, mass, root_of(tree), reward)
    f = forest_at(table)
    reach = mass.half_width + (GAUSSIAN_REACH if mass.kernel == GAUSSIAN else 1.0) * mass.bandwidth
    stack, bounds = f.counters[STACK:], f.bounds
    node = root_of(tree)
    waiting = np.int64(0)
    total = least = most = 0.0  # of what is known, and at least and at most of what waits
    while True:
        size = np.int64(f.inner_size[node, 0])
        for c in range(count_below(f.inner_high, node * FAN, size - 1, reward, -reach), size):
            high = f.inner_high[node, c] - reward
            if high < -reach:
                break
            low = f.inner_real[node, c, LO] - reward
            if low > reach:
                break
            count = float(f.inner_whole[node, c, COUNT])
            bounds[waiting, 0] = count * reward_mass(mass, max(high, -low))
            bounds[waiting, 1] = count * reward_mass(mass, max(0.0, low, -high))
            least += bounds[waiting, 0]
            most += bounds[waiting, 1]
            stack[waiting] = FAN * node + c
            waiting += 1
            if total + least - margin >= limit:
                return total + least
            if f.inner_size[node, 1] == 1:
                leaf = np.int64(f.inner_child[node, c])
                expect_rewards(f, leaf)
        node = np.int64(-1)
        while node < 0:
            if total + least - margin >= limit:
                return total + least
            if total + most + margin < limit:
                return total + most
            if waiting == 0:
                return total
            waiting -= 1
            least -= bounds[waiting, 0]
            most -= bounds[waiting, 1]
            parent, c = stack[waiting] // FAN, stack[waiting] % FAN
            low = f.inner_real[parent, c, LO] - reward
            high = f.inner_high[parent, c] - reward
            child = np.int64(f.inner_child[parent, c])
            if _is_one_piece(mass, low, high):
                # The very middle that the moments are about, whatever rounding made of it.
                middle = 0.5 * (f.inner_real[parent, c, LO] + f.inner_high[parent, c]) - reward
                total += _child_mass(table, mass, parent, c, middle)
            elif f.inner_size[parent, 1] == 1:
                total += leaf_mass(table, mass, child, reward)
            else:
                node = child


@inlined
def _lies_within(f: Forest, node: Whole, c: Whole, reward: Real, within: Real) -> Any:
    """Whether every reward of a child is at most `within` away."""
    low, high = f.inner_real[node, c, LO] - reward, f.inner_high[node, c] - reward
    return low >= -within and high <= within


@compiled
def tree_oldest(table: Any, tree: Whole, reward: Real, within: Real) -> Whole:
    """Slot of the oldest member whose reward is at most `within` away; -1 if there is none."""
    f = forest_at(table)
    if is_leaf(tree):
        i = oldest_in_leaf(f, root_of(tree), reward, within)
        return np.int64(f.leaf_whole[root_of(tree), i, SLOT]) if i < LEAF else np.int64(-1)
    stack = f.counters[STACK:]
    stack[0] = root_of(tree)
    waiting = 1
    best_stamp = np.int64(9223372036854775807)
    best_slot = np.int64(-1)
    while waiting:
        waiting -= 1
        node = stack[waiting]
        size = np.int64(f.inner_size[node, 0])
        first = count_below(f.inner_high, node * FAN, size - 1, reward, -within)
        last = count_below(f.inner_high, node * FAN, size - 1, reward, within)
        while last + 1 < size and f.inner_real[node, last + 1, LO] - reward <= within:
            last += 1  # rewards that equal the upper end go on
        # All children between the first and the last lie within as a whole; these two may as well.
        start = first if _lies_within(f, node, first, reward, within) else first + 1
        end = last + 1 if _lies_within(f, node, last, reward, within) else last
        if start < end:
            c = index_of_least(f.inner_oldest, node * FAN, start, end)
            if f.inner_oldest[node, c] < best_stamp:
                best_stamp = np.int64(f.inner_oldest[node, c])
                best_slot = np.int64(f.inner_whole[node, c, OLDEST_SLOT])
        for c in range(first, last + 1, max(1, last - first)):
            if start <= c < end or f.inner_oldest[node, c] >= best_stamp:
                continue
            child = np.int64(f.inner_child[node, c])
            if f.inner_size[node, 1] > 1:
                stack[waiting] = child
                waiting += 1
                continue
            i = oldest_in_leaf(f, child, reward, within)
            if i < LEAF and f.leaf_whole[child, i, STAMP] < best_stamp:
                best_stamp = np.int64(f.leaf_whole[child, i, STAMP])
                best_slot = np.int64(f.leaf_whole[child, i, SLOT])
    return best_slot


@inlined
def _gap(f: Forest, node: Whole, c: Whole, reward: Real) -> Real:
    """Distance from `reward` to a child's bounds; 0 between them."""
    return max(0.0, f.inner_real[node, c, LO] - reward, reward - f.inner_high[node, c])


@compiled
def tree_nearest_distance(table: Any, tree: Whole, reward: Real) -> Real:
    """Distance from `reward` to the nearest reward of the tree."""
    f = forest_at(table)
    if is_leaf(tree):
        return nearest_in_leaf(f, root_of(tree), reward)
    stack, gaps = f.counters[STACK:], f.bounds
    node = root_of(tree)
    waiting = np.int64(0)
    best = np.inf
    while True:
        size = np.int64(f.inner_size[node, 0])
        middle = count_below(f.inner_high, node * FAN, size - 1, 0.0, reward)
        # The next reward below or above is in the child where this one belongs or, if that has none
        # on that side, in its neighbour. The child is visited first, and may rule them out.
        for c in (middle - 1, middle + 1, middle):
            if 0 <= c < size:
                gaps[waiting, 0] = _gap(f, node, c, reward)
                stack[waiting] = FAN * node + c
                waiting += 1
        node = np.int64(-1)
        while node < 0:
            if waiting == 0:
                return best
            waiting -= 1
            if gaps[waiting, 0] >= best:
                continue
            parent, c = stack[waiting] // FAN, stack[waiting] % FAN
            child = np.int64(f.inner_child[parent, c])
            if f.inner_size[parent, 1] > 1:
                node = child
                continue
            best = min(best, nearest_in_leaf(f, child, reward))
