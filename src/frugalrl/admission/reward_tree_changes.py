"""Insertion into and removal from the trees of `reward_tree`."""

from __future__ import annotations

from typing import Any

import numpy as np

from frugalrl.admission.compiled import Real, Whole, compiled, inlined
from frugalrl.admission.reward_tree import (
    CHILD,
    COUNT,
    FAN,
    FIRST_MOMENT,
    HI,
    HI_STAMP,
    INNER_FREE,
    INNER_ROOM,
    INNER_USED,
    LEAF,
    LEAF_FREE,
    LEAF_ROOM,
    LEAF_USED,
    LO,
    OLDEST,
    OLDEST_SLOT,
    PATH,
    SIZE,
    SLOT,
    STAMP,
    START,
    Forest,
    expect_leaf,
    expect_node,
    forest_at,
    leaf_end,
)

REFRESHED = 4096
"""One change in so many has the moments computed anew. A change adds a rounding error of 1e-16 of
the largest term; some thousands of them are nothing beside the 1e-9 that is promised."""


@inlined
def _take_leaf(f: Forest) -> Whole:
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
def _give_back_leaf(f: Forest, leaf: Whole) -> None:
    f.leaf_whole[leaf, 0, 0] = f.counters[LEAF_FREE]
    f.counters[LEAF_FREE] = leaf
    f.counters[LEAF_ROOM] += 1


@inlined
def _take_inner(f: Forest, level: Whole) -> Whole:
    """An unused inner node; the caller has seen to it that there is one."""
    node = f.counters[INNER_FREE]
    if node >= 0:
        f.counters[INNER_FREE] = f.inner_whole[node, 0, 0]
    else:
        node = f.counters[INNER_USED]
        f.counters[INNER_USED] += 1
    f.counters[INNER_ROOM] -= 1
    f.inner_size[node, 0] = 0
    f.inner_size[node, 1] = level
    return node


@inlined
def _give_back_inner(f: Forest, node: Whole) -> None:
    f.inner_whole[node, 0, 0] = f.counters[INNER_FREE]
    f.counters[INNER_FREE] = node
    f.counters[INNER_ROOM] += 1


@inlined
def _comes_before(reward: Real, stamp: Whole, other_reward: Real, other_stamp: Whole) -> Any:
    """Whether one (reward, stamp) comes before another."""
    return reward < other_reward or (reward == other_reward and stamp < other_stamp)


@compiled
def _summarise_leaf(table: Any, node: Whole, c: Whole) -> None:
    """Write the summary of a leaf into its parent."""
    f = forest_at(table)
    real, whole = f.inner_real, f.inner_whole
    leaf = whole[node, CHILD, c]
    start = f.leaf_span[leaf, START]
    low = f.leaf_reward[leaf, start]
    high, high_stamp = low, f.leaf_whole[leaf, start, STAMP]
    for i in range(start + 1, leaf_end(f, leaf)):
        reward = f.leaf_reward[leaf, i]
        low = min(low, reward)
        if reward >= high:  # members are in order of age, so of equal ones the last is the highest
            high, high_stamp = reward, f.leaf_whole[leaf, i, STAMP]
    real[node, LO, c] = low
    real[node, HI, c] = high
    real[node, FIRST_MOMENT, c] = np.nan
    whole[node, COUNT, c] = f.leaf_span[leaf, SIZE]
    whole[node, HI_STAMP, c] = high_stamp
    whole[node, OLDEST, c] = f.leaf_whole[leaf, start, STAMP]
    whole[node, OLDEST_SLOT, c] = f.leaf_whole[leaf, start, SLOT]


@inlined
def _summarise_oldest(f: Forest, node: Whole, c: Whole) -> None:
    """Write the oldest member of a child into its parent."""
    whole = f.inner_whole
    child = whole[node, CHILD, c]
    if f.inner_size[node, 1] == 1:
        start = f.leaf_span[child, START]
        whole[node, OLDEST, c] = f.leaf_whole[child, start, STAMP]
        whole[node, OLDEST_SLOT, c] = f.leaf_whole[child, start, SLOT]
        return
    oldest = 0
    for i in range(1, f.inner_size[child, 0]):
        if whole[child, OLDEST, i] < whole[child, OLDEST, oldest]:
            oldest = i
    whole[node, OLDEST, c] = whole[child, OLDEST, oldest]
    whole[node, OLDEST_SLOT, c] = whole[child, OLDEST_SLOT, oldest]


@compiled
def _summarise_inner(table: Any, node: Whole, c: Whole) -> None:
    """Write the summary of an inner node into its parent."""
    f = forest_at(table)
    real, whole = f.inner_real, f.inner_whole
    child = whole[node, CHILD, c]
    size = f.inner_size[child, 0]
    real[node, LO, c] = real[child, LO, 0]
    real[node, HI, c] = real[child, HI, size - 1]
    real[node, FIRST_MOMENT, c] = np.nan
    whole[node, HI_STAMP, c] = whole[child, HI_STAMP, size - 1]
    count = np.int64(0)
    for i in range(size):
        count += whole[child, COUNT, i]
    whole[node, COUNT, c] = count
    _summarise_oldest(f, node, c)


@compiled
def _summarise(table: Any, node: Whole, c: Whole) -> None:
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
        f.inner_real[node, FIRST_MOMENT, c] = np.nan
        return
    distance = reward - 0.5 * (f.inner_real[node, LO, c] + f.inner_real[node, HI, c])
    power = sign
    for row in range(FIRST_MOMENT, f.inner_real.shape[1]):
        power *= distance
        f.inner_real[node, row, c] += power


@inlined
def _add_to_summary(f: Forest, node: Whole, c: Whole, reward: Real, stamp: Whole) -> None:
    """Follow the insertion of the youngest member below a child."""
    real, whole = f.inner_real, f.inner_whole
    whole[node, COUNT, c] += 1
    low, high = real[node, LO, c], real[node, HI, c]
    if reward >= high:  # and younger than any other of the same reward
        whole[node, HI_STAMP, c] = stamp
    if low <= reward <= high:
        _shift_moments(f, node, c, reward, stamp, 1.0)
    else:
        real[node, LO, c] = min(low, reward)
        real[node, HI, c] = max(high, reward)
        real[node, FIRST_MOMENT, c] = np.nan


@inlined
def _take_from_summary(f: Forest, node: Whole, c: Whole, reward: Real, stamp: Whole) -> None:
    """Follow the removal of a member below a child that is not empty."""
    _shift_moments(f, node, c, reward, stamp, -1.0)
    f.inner_whole[node, COUNT, c] -= 1
    if f.inner_whole[node, OLDEST, c] == stamp:
        _summarise_oldest(f, node, c)


@compiled
def _move_children(
    table: Any, source: Whole, start: Whole, target: Whole, at: Whole, n: Whole
) -> None:
    """Copy the summaries of n children; within one node, to the left or to other places only."""
    f = forest_at(table)
    for row in range(f.inner_real.shape[1]):
        for i in range(n):
            f.inner_real[target, row, at + i] = f.inner_real[source, row, start + i]
    for row in range(f.inner_whole.shape[1]):
        for i in range(n):
            f.inner_whole[target, row, at + i] = f.inner_whole[source, row, start + i]


@compiled
def _open_child_place(table: Any, node: Whole, c: Whole) -> None:
    """Move the children from c on one to the right."""
    f = forest_at(table)
    size = f.inner_size[node, 0]
    for i in range(size, c, -1):
        _move_children(table, node, i - 1, node, i, 1)
    f.inner_size[node, 0] = size + 1


@compiled
def _close_child_place(table: Any, node: Whole, c: Whole) -> None:
    """Move the children after c one to the left, over c."""
    f = forest_at(table)
    size = f.inner_size[node, 0] - 1
    _move_children(table, node, c + 1, node, c, size - c)
    f.inner_size[node, 0] = size


@inlined
def _move_reward(f: Forest, source: Whole, start: Whole, target: Whole, at: Whole) -> None:
    f.leaf_reward[target, at] = f.leaf_reward[source, start]
    f.leaf_whole[target, at, SLOT] = f.leaf_whole[source, start, SLOT]
    f.leaf_whole[target, at, STAMP] = f.leaf_whole[source, start, STAMP]


@compiled
def _move_to_front(table: Any, leaf: Whole) -> None:
    """Let a leaf's members begin at its first place."""
    f = forest_at(table)
    start = f.leaf_span[leaf, START]
    if start > 0:
        for i in range(f.leaf_span[leaf, SIZE]):
            _move_reward(f, leaf, start + i, leaf, i)
        f.leaf_span[leaf, START] = 0


@compiled
def _split_leaf(table: Any, leaf: Whole) -> Whole:
    """Give the upper half of a full leaf to a new one, both in order of age; returns that."""
    f = forest_at(table)
    right = _take_leaf(f)
    is_low = np.empty(LEAF, dtype=np.bool_)
    for i in range(LEAF):
        below = 0
        for j in range(LEAF):
            below += _comes_before(
                f.leaf_reward[leaf, j],
                f.leaf_whole[leaf, j, STAMP],
                f.leaf_reward[leaf, i],
                f.leaf_whole[leaf, i, STAMP],
            )
        is_low[i] = below < LEAF // 2
    low = high = 0
    for i in range(LEAF):
        if is_low[i]:
            _move_reward(f, leaf, i, leaf, low)
            low += 1
        else:
            _move_reward(f, leaf, i, right, high)
            high += 1
    f.leaf_span[leaf, SIZE] = low
    f.leaf_span[right, SIZE] = high
    return right


@compiled
def _split_child(table: Any, node: Whole, c: Whole) -> None:
    """Give the upper half of a full child to a new right neighbour."""
    f = forest_at(table)
    child = np.int64(f.inner_whole[node, CHILD, c])
    high, high_stamp = f.inner_real[node, HI, c], f.inner_whole[node, HI_STAMP, c]
    _open_child_place(table, node, c + 1)
    if f.inner_size[node, 1] == 1:
        right = _split_leaf(table, child)
    else:
        half = FAN // 2
        right = _take_inner(f, f.inner_size[child, 1])
        _move_children(table, child, half, right, 0, FAN - half)
        f.inner_size[child, 0], f.inner_size[right, 0] = half, FAN - half
    f.inner_whole[node, CHILD, c + 1] = right
    _summarise(table, node, c)
    _summarise(table, node, c + 1)
    # What belonged to the child must belong to one of the two: the next one may be full as well.
    f.inner_real[node, HI, c + 1] = high
    f.inner_whole[node, HI_STAMP, c + 1] = high_stamp


@inlined
def _child_size(f: Forest, node: Whole, c: Whole) -> Whole:
    child = f.inner_whole[node, CHILD, c]
    if f.inner_size[node, 1] == 1:
        return np.int64(f.leaf_span[child, SIZE])
    return np.int64(f.inner_size[child, 0])


@compiled
def _merge_leaves(table: Any, left: Whole, right: Whole) -> None:
    """Take the members of another leaf in, in order of age; together they fit."""
    f = forest_at(table)
    _move_to_front(table, left)
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
            _move_reward(f, left, mine, left, place)
            mine -= 1
        else:
            _move_reward(f, right, start + other, left, place)
            other -= 1
    f.leaf_span[left, SIZE] += f.leaf_span[right, SIZE]


@compiled
def _merge_child(table: Any, node: Whole, c: Whole) -> None:
    """Join child c with its right neighbour if the two are small, so that space is used."""
    f = forest_at(table)
    if c < 0 or c + 1 >= f.inner_size[node, 0]:
        return
    is_above_leaves = f.inner_size[node, 1] == 1
    most = LEAF // 2 if is_above_leaves else FAN // 2
    mine = _child_size(f, node, c)
    if mine > most or mine + _child_size(f, node, c + 1) > most:
        return
    left = np.int64(f.inner_whole[node, CHILD, c])
    right = np.int64(f.inner_whole[node, CHILD, c + 1])
    if is_above_leaves:
        _merge_leaves(table, left, right)
        _give_back_leaf(f, right)
    else:
        other = f.inner_size[right, 0]
        _move_children(table, right, 0, left, mine, other)
        f.inner_size[left, 0] = mine + other
        _give_back_inner(f, right)
    _close_child_place(table, node, c + 1)
    _summarise(table, node, c)


@inlined
def _child_for(f: Forest, node: Whole, reward: Real, stamp: Whole) -> Whole:
    """The first child that may hold (reward, stamp), else the last."""
    last = f.inner_size[node, 0] - 1
    c = 0
    while c < last and _comes_before(
        f.inner_real[node, HI, c], f.inner_whole[node, HI_STAMP, c], reward, stamp
    ):
        c += 1
    return c


@compiled
def new_tree(table: Any) -> Whole:
    """An empty tree: a root with one empty leaf."""
    f = forest_at(table)
    root = _take_inner(f, 1)
    f.inner_whole[root, CHILD, 0] = _take_leaf(f)
    f.inner_size[root, 0] = 1
    return root


@compiled
def tree_insert(table: Any, root: Whole, reward: Real, slot: Whole, stamp: Whole) -> Whole:
    """Insert a reward that is younger than all others; returns the root, maybe a new one."""
    f = forest_at(table)
    if f.inner_size[root, 0] == FAN:
        child = root
        root = _take_inner(f, f.inner_size[child, 1] + 1)
        f.inner_whole[root, CHILD, 0] = child
        f.inner_size[root, 0] = 1
        _summarise(table, root, 0)
    path = f.counters[PATH:]
    node = root
    depth = 0
    while True:
        expect_node(f, node)
        c = _child_for(f, node, reward, stamp)
        is_above_leaves = f.inner_size[node, 1] == 1
        if _child_size(f, node, c) == (LEAF if is_above_leaves else FAN):
            # Full children are split on the way down, so a parent always has a place left.
            _split_child(table, node, c)
            c = _child_for(f, node, reward, stamp)
        path[2 * depth] = node
        path[2 * depth + 1] = c
        depth += 1
        child = np.int64(f.inner_whole[node, CHILD, c])
        if is_above_leaves:
            break
        node = child
    if leaf_end(f, child) == LEAF:
        _move_to_front(table, child)
    end = leaf_end(f, child)
    f.leaf_reward[child, end] = reward
    f.leaf_whole[child, end, SLOT] = slot
    f.leaf_whole[child, end, STAMP] = stamp
    f.leaf_span[child, SIZE] += 1
    if f.leaf_span[child, SIZE] == 1:  # the first of a new tree: there is no summary to add to yet
        _summarise(table, node, c)
        return root
    for d in range(depth):
        _add_to_summary(f, path[2 * d], path[2 * d + 1], reward, stamp)
    return root


@inlined
def _remove_from_leaf(f: Forest, leaf: Whole, stamp: Whole) -> None:
    """Take a member out; those older than it move up, which for the oldest is none."""
    start = f.leaf_span[leaf, START]
    place = start
    while f.leaf_whole[leaf, place, STAMP] != stamp:
        place += 1
    for i in range(place, start, -1):
        _move_reward(f, leaf, i - 1, leaf, i)
    f.leaf_span[leaf, START] = start + 1
    f.leaf_span[leaf, SIZE] -= 1


@compiled
def tree_remove(table: Any, root: Whole, reward: Real, stamp: Whole) -> Whole:
    """Remove a reward that is there; returns the root, or -1 when the tree is empty and gone."""
    f = forest_at(table)
    path = f.counters[PATH:]
    node = root
    depth = 0
    while True:
        expect_node(f, node)
        c = _child_for(f, node, reward, stamp)
        path[2 * depth] = node
        path[2 * depth + 1] = c
        depth += 1
        child = np.int64(f.inner_whole[node, CHILD, c])
        if f.inner_size[node, 1] == 1:
            expect_leaf(f, child)
            break
        node = child
    _remove_from_leaf(f, child, stamp)
    for d in range(depth - 1, -1, -1):
        node, c = path[2 * d], path[2 * d + 1]
        size = _child_size(f, node, c)
        if size > 0:
            _take_from_summary(f, node, c, reward, stamp)
            if size <= (LEAF if f.inner_size[node, 1] == 1 else FAN) // 2:
                _merge_child(table, node, c)
                _merge_child(table, node, c - 1)
            continue
        if f.inner_size[node, 1] == 1:
            _give_back_leaf(f, np.int64(f.inner_whole[node, CHILD, c]))
        else:
            _give_back_inner(f, np.int64(f.inner_whole[node, CHILD, c]))
        _close_child_place(table, node, c)
    while f.inner_size[root, 1] > 1 and f.inner_size[root, 0] == 1:
        child = np.int64(f.inner_whole[root, CHILD, 0])
        _give_back_inner(f, root)
        root = child
    if f.inner_size[root, 0] == 0:
        _give_back_inner(f, root)
        return np.int64(-1)
    return root
