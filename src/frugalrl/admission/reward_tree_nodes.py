"""The nodes of the trees of `reward_tree`: taken, summarised, split, merged and given back."""

from __future__ import annotations

from typing import Any

import numpy as np

from frugalrl.admission.compiled import Real, Whole, compiled, inlined
from frugalrl.admission.forest import (
    COUNT,
    FAN,
    FIRST_MOMENT,
    HI_STAMP,
    INNER_FREE,
    INNER_ROOM,
    INNER_USED,
    LEAF,
    LEAF_FREE,
    LEAF_ROOM,
    LEAF_USED,
    LO,
    OLDEST_SLOT,
    SIZE,
    SLOT,
    STAMP,
    START,
    SUMMARY_ROWS,
    Forest,
    forest_at,
    leaf_end,
)
from frugalrl.admission.lanes import LANES, count_below, index_of_least

REFRESHED = 4096
"""One change in so many has the moments computed anew. A change adds a rounding error of 1e-16 of
the largest term; some thousands of them are nothing beside the 1e-9 that is promised."""


@inlined
def take_leaf(f: Forest) -> Whole:
    """An unused leaf; the caller has seen to it that there is one."""
    leaf = f.counters[LEAF_FREE]
    if leaf >= 0:
        f.counters[LEAF_FREE] = f.leaf_whole[leaf, 0, 0]
    else:
        leaf = f.counters[LEAF_USED]
        f.counters[LEAF_USED] += 1
    f.counters[LEAF_ROOM] -= 1
    f.leaf_span[leaf, START] = 0
    f.leaf_span[leaf, SIZE] = 0
    return leaf


@inlined
def give_back_leaf(f: Forest, leaf: Whole) -> None:
    """Keep an empty leaf for the next one that is needed."""
    f.leaf_whole[leaf, 0, 0] = f.counters[LEAF_FREE]
    f.counters[LEAF_FREE] = leaf
    f.counters[LEAF_ROOM] += 1


@inlined
def take_inner(f: Forest, level: Whole) -> Whole:
    """An unused inner node; the caller has seen to it that there is one."""
    node = f.counters[INNER_FREE]
    if node >= 0:
        f.counters[INNER_FREE] = f.inner_child[node, 0]
    else:
        node = f.counters[INNER_USED]
        f.counters[INNER_USED] += 1
    f.counters[INNER_ROOM] -= 1
    f.inner_size[node, 0] = 0
    f.inner_size[node, 1] = level
    return node


@inlined
def give_back_inner(f: Forest, node: Whole) -> None:
    """Keep an empty inner node for the next one that is needed."""
    f.inner_child[node, 0] = f.counters[INNER_FREE]
    f.counters[INNER_FREE] = node
    f.counters[INNER_ROOM] += 1


@inlined
def comes_before(reward: Real, stamp: Whole, other_reward: Real, other_stamp: Whole) -> Any:
    """Whether one (reward, stamp) comes before another."""
    return reward < other_reward or (reward == other_reward and stamp < other_stamp)


@compiled
def _summarise_leaf(table: Any, node: Whole, c: Whole) -> None:
    """Write the summary of a leaf into its parent."""
    f = forest_at(table)
    real, whole = f.inner_real, f.inner_whole
    leaf = f.inner_child[node, c]
    start = f.leaf_span[leaf, START]
    low = f.leaf_reward[leaf, start]
    high, high_stamp = low, f.leaf_whole[leaf, start, STAMP]
    for i in range(start + 1, leaf_end(f, leaf)):
        reward = f.leaf_reward[leaf, i]
        low = min(low, reward)
        if reward >= high:  # members are in order of age, so of equal ones the last is the highest
            high, high_stamp = reward, f.leaf_whole[leaf, i, STAMP]
    real[node, c, LO] = low
    f.inner_high[node, c] = high
    real[node, c, FIRST_MOMENT] = np.nan
    whole[node, c, COUNT] = f.leaf_span[leaf, SIZE]
    whole[node, c, HI_STAMP] = high_stamp
    f.inner_oldest[node, c] = f.leaf_whole[leaf, start, STAMP]
    whole[node, c, OLDEST_SLOT] = f.leaf_whole[leaf, start, SLOT]


@inlined
def _summarise_oldest(f: Forest, node: Whole, c: Whole) -> None:
    """Write the oldest member of a child into its parent."""
    whole = f.inner_whole
    child = f.inner_child[node, c]
    if f.inner_size[node, 1] == 1:
        start = f.leaf_span[child, START]
        f.inner_oldest[node, c] = f.leaf_whole[child, start, STAMP]
        whole[node, c, OLDEST_SLOT] = f.leaf_whole[child, start, SLOT]
        return
    size = np.int64(f.inner_size[child, 0])
    oldest = index_of_least(f.inner_oldest, np.int64(child) * FAN, np.int64(0), size)
    f.inner_oldest[node, c] = f.inner_oldest[child, oldest]
    whole[node, c, OLDEST_SLOT] = whole[child, oldest, OLDEST_SLOT]


@compiled
def _summarise_inner(table: Any, node: Whole, c: Whole) -> None:
    """Write the summary of an inner node into its parent."""
    f = forest_at(table)
    real, whole = f.inner_real, f.inner_whole
    child = f.inner_child[node, c]
    size = f.inner_size[child, 0]
    real[node, c, LO] = real[child, 0, LO]
    f.inner_high[node, c] = f.inner_high[child, size - 1]
    real[node, c, FIRST_MOMENT] = np.nan
    whole[node, c, HI_STAMP] = whole[child, size - 1, HI_STAMP]
    count = np.int64(0)
    for i in range(size):
        count += whole[child, i, COUNT]
    whole[node, c, COUNT] = count
    _summarise_oldest(f, node, c)


@compiled
def summarise(table: Any, node: Whole, c: Whole) -> None:
    """Write the summary of a child into its parent."""
    f = forest_at(table)
    if f.inner_size[node, 1] == 1:
        _summarise_leaf(table, node, c)
    else:
        _summarise_inner(table, node, c)


@inlined
def _shift_moments(
    f: Forest, node: Whole, c: Whole, reward: Real, stamp: Whole, sign: Real
) -> None:
    """Add a reward to the moments of a child, or take it from them."""
    if stamp % REFRESHED == 0:
        f.inner_real[node, c, FIRST_MOMENT] = np.nan
        return
    distance = reward - 0.5 * (f.inner_real[node, c, LO] + f.inner_high[node, c])
    power = sign
    for row in range(FIRST_MOMENT, f.inner_real.shape[2]):
        power *= distance
        f.inner_real[node, c, row] += power


@inlined
def add_to_summary(f: Forest, node: Whole, c: Whole, reward: Real, stamp: Whole) -> None:
    """Follow the insertion of the youngest member below a child."""
    real, whole = f.inner_real, f.inner_whole
    whole[node, c, COUNT] += 1
    low, high = real[node, c, LO], f.inner_high[node, c]
    if reward >= high:  # and younger than any other of the same reward
        whole[node, c, HI_STAMP] = stamp
    if low <= reward <= high:
        _shift_moments(f, node, c, reward, stamp, 1.0)
    else:
        real[node, c, LO] = min(low, reward)
        f.inner_high[node, c] = max(high, reward)
        real[node, c, FIRST_MOMENT] = np.nan


@inlined
def take_from_summary(f: Forest, node: Whole, c: Whole, reward: Real, stamp: Whole) -> None:
    """Follow the removal of a member below a child that is not empty."""
    _shift_moments(f, node, c, reward, stamp, -1.0)
    f.inner_whole[node, c, COUNT] -= 1
    if f.inner_oldest[node, c] == stamp:
        _summarise_oldest(f, node, c)


@compiled
def _move_children(
    table: Any, source: Whole, start: Whole, target: Whole, at: Whole, n: Whole
) -> None:
    """Copy the summaries of n children; within one node, to the left or to other places only."""
    f = forest_at(table)
    for i in range(n):
        f.inner_high[target, at + i] = f.inner_high[source, start + i]
        f.inner_child[target, at + i] = f.inner_child[source, start + i]
        f.inner_oldest[target, at + i] = f.inner_oldest[source, start + i]
        for row in range(f.inner_real.shape[2]):
            f.inner_real[target, at + i, row] = f.inner_real[source, start + i, row]
        for row in range(SUMMARY_ROWS):
            f.inner_whole[target, at + i, row] = f.inner_whole[source, start + i, row]


@compiled
def _open_child_place(table: Any, node: Whole, c: Whole) -> None:
    """Move the children from c on one to the right."""
    f = forest_at(table)
    size = f.inner_size[node, 0]
    for i in range(size, c, -1):
        _move_children(table, node, i - 1, node, i, np.int64(1))
    f.inner_size[node, 0] = size + 1


@compiled
def close_child_place(table: Any, node: Whole, c: Whole) -> None:
    """Move the children after c one to the left, over c."""
    f = forest_at(table)
    size = f.inner_size[node, 0] - 1
    _move_children(table, node, c + 1, node, c, size - c)
    f.inner_size[node, 0] = size


@inlined
def move_reward(f: Forest, source: Whole, start: Whole, target: Whole, at: Whole) -> None:
    """Copy a member to a place in the same leaf or in another."""
    f.leaf_reward[target, at] = f.leaf_reward[source, start]
    f.leaf_whole[target, at, SLOT] = f.leaf_whole[source, start, SLOT]
    f.leaf_whole[target, at, STAMP] = f.leaf_whole[source, start, STAMP]


@compiled
def move_to_front(table: Any, leaf: Whole) -> None:
    """Let a leaf's members begin at its first place."""
    f = forest_at(table)
    start = f.leaf_span[leaf, START]
    if start > 0:
        for i in range(f.leaf_span[leaf, SIZE]):
            move_reward(f, leaf, start + i, leaf, np.int64(i))
        f.leaf_span[leaf, START] = 0


@inlined
def _count_in_leaf_below(f: Forest, leaf: Whole, reward: Real) -> Whole:
    """How many rewards of a full leaf are below this one."""
    below = np.int64(0)
    for i in range(0, LEAF, LANES):
        below += count_below(f.leaf_reward, leaf * LEAF + i, np.int64(LANES), 0.0, reward)
    return below


@compiled
def _split_leaf(table: Any, leaf: Whole) -> Whole:
    """Give the upper half of a full leaf to a new one, both in order of age; returns that."""
    f = forest_at(table)
    right = take_leaf(f)
    # The highest reward of the lower half, and how many of those that equal it belong there.
    border, below_border = -np.inf, np.int64(0)
    for i in range(LEAF):
        reward = f.leaf_reward[leaf, i]
        below = _count_in_leaf_below(f, leaf, reward)
        if below < LEAF // 2 and reward >= border:
            border, below_border = reward, below
    equals = LEAF // 2 - below_border
    low = high = np.int64(0)
    for i in range(LEAF):
        reward = f.leaf_reward[leaf, i]
        is_equal = reward == border and equals > 0
        if is_equal:
            equals -= 1
        if is_equal or reward < border:
            move_reward(f, leaf, i, leaf, low)
            low += 1
        else:
            move_reward(f, leaf, i, right, high)
            high += 1
    f.leaf_span[leaf, SIZE] = low
    f.leaf_span[right, SIZE] = high
    return right


@compiled
def split_child(table: Any, node: Whole, c: Whole) -> None:
    """Give the upper half of a full child to a new right neighbour."""
    f = forest_at(table)
    child = np.int64(f.inner_child[node, c])
    high, high_stamp = f.inner_high[node, c], f.inner_whole[node, c, HI_STAMP]
    _open_child_place(table, node, c + 1)
    if f.inner_size[node, 1] == 1:
        right = _split_leaf(table, child)
    else:
        half = FAN // 2
        right = take_inner(f, np.int64(f.inner_size[child, 1]))
        _move_children(table, child, np.int64(half), right, np.int64(0), np.int64(FAN - half))
        f.inner_size[child, 0], f.inner_size[right, 0] = half, FAN - half
    f.inner_child[node, c + 1] = right
    summarise(table, node, c)
    summarise(table, node, c + 1)
    # What belonged to the child must belong to one of the two: the next one may be full as well.
    f.inner_high[node, c + 1] = high
    f.inner_whole[node, c + 1, HI_STAMP] = high_stamp


@inlined
def child_size(f: Forest, node: Whole, c: Whole) -> Whole:
    """How many members or children a child has."""
    child = f.inner_child[node, c]
    if f.inner_size[node, 1] == 1:
        return np.int64(f.leaf_span[child, SIZE])
    return np.int64(f.inner_size[child, 0])


@compiled
def _merge_leaves(table: Any, left: Whole, right: Whole) -> None:
    """Take the members of another leaf in, in order of age; together they fit."""
    f = forest_at(table)
    move_to_front(table, left)
    mine, other = f.leaf_span[left, SIZE] - 1, f.leaf_span[right, SIZE] - 1
    start = f.leaf_span[right, START]
    # From the youngest on, so that nothing is overwritten before it has moved.
    for place in range(mine + other + 1, -1, -1):
        if other < 0:
            break
        is_mine = mine >= 0 and (
            f.leaf_whole[left, mine, STAMP] > f.leaf_whole[right, start + other, STAMP]
        )
        if is_mine:
            move_reward(f, left, mine, left, place)
            mine -= 1
        else:
            move_reward(f, right, start + other, left, place)
            other -= 1
    f.leaf_span[left, SIZE] += f.leaf_span[right, SIZE]


@compiled
def merge_child(table: Any, node: Whole, c: Whole) -> None:
    """Join child c with its right neighbour if the two are small, so that space is used."""
    f = forest_at(table)
    if c < 0 or c + 1 >= f.inner_size[node, 0]:
        return
    is_above_leaves = f.inner_size[node, 1] == 1
    most = LEAF // 2 if is_above_leaves else FAN // 2
    mine = child_size(f, node, c)
    if mine > most or mine + child_size(f, node, c + 1) > most:
        return
    left = np.int64(f.inner_child[node, c])
    right = np.int64(f.inner_child[node, c + 1])
    if is_above_leaves:
        _merge_leaves(table, left, right)
        give_back_leaf(f, right)
    else:
        other = np.int64(f.inner_size[right, 0])
        _move_children(table, right, np.int64(0), left, mine, other)
        f.inner_size[left, 0] = mine + other
        give_back_inner(f, right)
    close_child_place(table, node, c + 1)
    summarise(table, node, c)
