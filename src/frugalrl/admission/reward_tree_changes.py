"""Insertion into and removal from the trees of `reward_tree`."""

from __future__ import annotations

import numpy as np

from frugalrl.admission.compiled import Real, Whole, compiled
from frugalrl.admission.reward_tree import (
    CHILD,
    COUNT,
    FAN,
    FIRST_MOMENT,
    HI,
    HI_SLOT,
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
    SLOT,
    STAMP,
    Forest,
)


@compiled
def _take_leaf(f: Forest) -> Whole:
    """An unused leaf; the caller has seen to it that there is one."""
    leaf = f.counters[LEAF_FREE]
    if leaf >= 0:
        f.counters[LEAF_FREE] = f.leaf_whole[leaf, 0, 0]
    else:
        leaf = f.counters[LEAF_USED]
        f.counters[LEAF_USED] += 1
    f.counters[LEAF_ROOM] -= 1
    f.leaf_size[leaf] = 0
    return leaf


@compiled
def _give_back_leaf(f: Forest, leaf: Whole) -> None:
    f.leaf_whole[leaf, 0, 0] = f.counters[LEAF_FREE]
    f.counters[LEAF_FREE] = leaf
    f.counters[LEAF_ROOM] += 1


@compiled
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


@compiled
def _give_back_inner(f: Forest, node: Whole) -> None:
    f.inner_whole[node, 0, 0] = f.counters[INNER_FREE]
    f.counters[INNER_FREE] = node
    f.counters[INNER_ROOM] += 1


@compiled
def _summarise_leaf(f: Forest, node: Whole, c: Whole) -> None:
    """Write the summary of a leaf into its parent."""
    real, whole = f.inner_real, f.inner_whole
    leaf = whole[node, CHILD, c]
    size = f.leaf_size[leaf]
    real[node, LO, c] = f.leaf_reward[leaf, 0]
    real[node, HI, c] = f.leaf_reward[leaf, size - 1]
    real[node, FIRST_MOMENT, c] = np.nan
    whole[node, COUNT, c] = size
    whole[node, HI_SLOT, c] = f.leaf_whole[leaf, SLOT, size - 1]
    oldest = 0
    for i in range(1, size):
        if f.leaf_whole[leaf, STAMP, i] < f.leaf_whole[leaf, STAMP, oldest]:
            oldest = i
    whole[node, OLDEST, c] = f.leaf_whole[leaf, STAMP, oldest]
    whole[node, OLDEST_SLOT, c] = f.leaf_whole[leaf, SLOT, oldest]


@compiled
def _summarise_inner(f: Forest, node: Whole, c: Whole) -> None:
    """Write the summary of an inner node into its parent."""
    real, whole = f.inner_real, f.inner_whole
    child = whole[node, CHILD, c]
    size = f.inner_size[child, 0]
    real[node, LO, c] = real[child, LO, 0]
    real[node, HI, c] = real[child, HI, size - 1]
    real[node, FIRST_MOMENT, c] = np.nan
    whole[node, HI_SLOT, c] = whole[child, HI_SLOT, size - 1]
    count = np.int64(0)
    oldest = 0
    for i in range(size):
        count += whole[child, COUNT, i]
        if whole[child, OLDEST, i] < whole[child, OLDEST, oldest]:
            oldest = i
    whole[node, COUNT, c] = count
    whole[node, OLDEST, c] = whole[child, OLDEST, oldest]
    whole[node, OLDEST_SLOT, c] = whole[child, OLDEST_SLOT, oldest]


@compiled
def _summarise(f: Forest, node: Whole, c: Whole) -> None:
    if f.inner_size[node, 1] == 1:
        _summarise_leaf(f, node, c)
    else:
        _summarise_inner(f, node, c)


@compiled
def _add_to_summary(f: Forest, node: Whole, c: Whole, reward: Real, slot: Whole) -> None:
    """Follow the insertion of the youngest member below a child."""
    real, whole = f.inner_real, f.inner_whole
    real[node, FIRST_MOMENT, c] = np.nan
    whole[node, COUNT, c] += 1
    if reward < real[node, LO, c]:
        real[node, LO, c] = reward
    high = real[node, HI, c]
    if reward > high or (reward == high and slot > whole[node, HI_SLOT, c]):
        real[node, HI, c] = reward
        whole[node, HI_SLOT, c] = slot


@compiled
def _take_from_summary(f: Forest, node: Whole, c: Whole, reward: Real, slot: Whole) -> None:
    """Follow the removal of a member below a child that is not empty."""
    real, whole = f.inner_real, f.inner_whole
    is_at_the_edge = reward == real[node, LO, c] or reward == real[node, HI, c]
    if is_at_the_edge or whole[node, OLDEST_SLOT, c] == slot:
        _summarise(f, node, c)
    else:
        real[node, FIRST_MOMENT, c] = np.nan
        whole[node, COUNT, c] -= 1


@compiled
def _open_child_place(f: Forest, node: Whole, c: Whole) -> None:
    """Move the children from c on one to the right."""
    size = f.inner_size[node, 0]
    for i in range(size, c, -1):
        f.inner_real[node, LO, i] = f.inner_real[node, LO, i - 1]
        f.inner_real[node, HI, i] = f.inner_real[node, HI, i - 1]
    for row in range(FIRST_MOMENT, f.inner_real.shape[1]):
        for i in range(size, c, -1):
            f.inner_real[node, row, i] = f.inner_real[node, row, i - 1]
    for row in range(f.inner_whole.shape[1]):
        for i in range(size, c, -1):
            f.inner_whole[node, row, i] = f.inner_whole[node, row, i - 1]
    f.inner_size[node, 0] = size + 1


@compiled
def _close_child_place(f: Forest, node: Whole, c: Whole) -> None:
    """Move the children after c one to the left, over c."""
    size = f.inner_size[node, 0] - 1
    for row in range(f.inner_real.shape[1]):
        for i in range(c, size):
            f.inner_real[node, row, i] = f.inner_real[node, row, i + 1]
    for row in range(f.inner_whole.shape[1]):
        for i in range(c, size):
            f.inner_whole[node, row, i] = f.inner_whole[node, row, i + 1]
    f.inner_size[node, 0] = size


@compiled
def _copy_rewards(
    f: Forest, source: Whole, start: Whole, target: Whole, at: Whole, n: Whole
) -> None:
    for i in range(n):
        f.leaf_reward[target, at + i] = f.leaf_reward[source, start + i]
        f.leaf_whole[target, STAMP, at + i] = f.leaf_whole[source, STAMP, start + i]
        f.leaf_whole[target, SLOT, at + i] = f.leaf_whole[source, SLOT, start + i]


@compiled
def _copy_children(
    f: Forest, source: Whole, start: Whole, target: Whole, at: Whole, n: Whole
) -> None:
    for row in range(f.inner_real.shape[1]):
        for i in range(n):
            f.inner_real[target, row, at + i] = f.inner_real[source, row, start + i]
    for row in range(f.inner_whole.shape[1]):
        for i in range(n):
            f.inner_whole[target, row, at + i] = f.inner_whole[source, row, start + i]


@compiled
def _split_child(f: Forest, node: Whole, c: Whole) -> None:
    """Give the upper half of a full child to a new right neighbour."""
    child = f.inner_whole[node, CHILD, c]
    _open_child_place(f, node, c + 1)
    if f.inner_size[node, 1] == 1:
        half = LEAF // 2
        right = _take_leaf(f)
        _copy_rewards(f, child, half, right, 0, LEAF - half)
        f.leaf_size[child], f.leaf_size[right] = half, LEAF - half
    else:
        half = FAN // 2
        right = _take_inner(f, f.inner_size[child, 1])
        _copy_children(f, child, half, right, 0, FAN - half)
        f.inner_size[child, 0], f.inner_size[right, 0] = half, FAN - half
    f.inner_whole[node, CHILD, c + 1] = right
    _summarise(f, node, c)
    _summarise(f, node, c + 1)


@compiled
def _child_size(f: Forest, node: Whole, c: Whole) -> Whole:
    child = f.inner_whole[node, CHILD, c]
    if f.inner_size[node, 1] == 1:
        return np.int64(f.leaf_size[child])
    return np.int64(f.inner_size[child, 0])


@compiled
def _merge_child(f: Forest, node: Whole, c: Whole) -> None:
    """Join child c with its right neighbour if the two are small, so that space is used."""
    if c < 0 or c + 1 >= f.inner_size[node, 0]:
        return
    is_above_leaves = f.inner_size[node, 1] == 1
    most = LEAF // 2 if is_above_leaves else FAN // 2
    mine = _child_size(f, node, c)
    if mine > most or mine + _child_size(f, node, c + 1) > most:
        return
    left, right = f.inner_whole[node, CHILD, c], f.inner_whole[node, CHILD, c + 1]
    other = _child_size(f, node, c + 1)
    if is_above_leaves:
        _copy_rewards(f, right, 0, left, mine, other)
        f.leaf_size[left] = mine + other
        _give_back_leaf(f, right)
    else:
        _copy_children(f, right, 0, left, mine, other)
        f.inner_size[left, 0] = mine + other
        _give_back_inner(f, right)
    _close_child_place(f, node, c + 1)
    _summarise(f, node, c)


@compiled
def _child_for(f: Forest, node: Whole, reward: Real, slot: Whole) -> Whole:
    """The first child that does not end before (reward, slot), else the last."""
    last = f.inner_size[node, 0] - 1
    c = 0
    while c < last and f.inner_real[node, HI, c] < reward:
        c += 1
    while (
        c < last and f.inner_real[node, HI, c] == reward and f.inner_whole[node, HI_SLOT, c] < slot
    ):
        c += 1
    return c


@compiled
def _place_in_leaf(f: Forest, leaf: Whole, reward: Real, slot: Whole) -> Whole:
    """Position of the first member that does not come before (reward, slot)."""
    size = f.leaf_size[leaf]
    i = 0
    while i < size and f.leaf_reward[leaf, i] < reward:
        i += 1
    while i < size and f.leaf_reward[leaf, i] == reward and f.leaf_whole[leaf, SLOT, i] < slot:
        i += 1
    return i


@compiled
def new_tree(f: Forest) -> Whole:
    """An empty tree: a root with one empty leaf."""
    root = _take_inner(f, 1)
    f.inner_whole[root, CHILD, 0] = _take_leaf(f)
    f.inner_size[root, 0] = 1
    return root


@compiled
def tree_insert(f: Forest, root: Whole, reward: Real, slot: Whole, stamp: Whole) -> Whole:
    """Insert a reward; returns the root, which may be a new one."""
    if f.inner_size[root, 0] == FAN:
        child = root
        root = _take_inner(f, f.inner_size[child, 1] + 1)
        f.inner_whole[root, CHILD, 0] = child
        f.inner_size[root, 0] = 1
        _summarise(f, root, 0)
    path = f.counters[PATH:]
    node = root
    depth = 0
    while True:
        c = _child_for(f, node, reward, slot)
        is_above_leaves = f.inner_size[node, 1] == 1
        if _child_size(f, node, c) == (LEAF if is_above_leaves else FAN):
            # Full children are split on the way down, so a parent always has a place left.
            _split_child(f, node, c)
            c = _child_for(f, node, reward, slot)
        path[2 * depth] = node
        path[2 * depth + 1] = c
        depth += 1
        child = f.inner_whole[node, CHILD, c]
        if is_above_leaves:
            break
        node = child
    at = _place_in_leaf(f, child, reward, slot)
    size = f.leaf_size[child]
    for i in range(size, at, -1):
        f.leaf_reward[child, i] = f.leaf_reward[child, i - 1]
        f.leaf_whole[child, STAMP, i] = f.leaf_whole[child, STAMP, i - 1]
        f.leaf_whole[child, SLOT, i] = f.leaf_whole[child, SLOT, i - 1]
    f.leaf_reward[child, at] = reward
    f.leaf_whole[child, STAMP, at] = stamp
    f.leaf_whole[child, SLOT, at] = slot
    f.leaf_size[child] = size + 1
    if size == 0:  # the first reward of a new tree: there is no summary to add to yet
        _summarise(f, node, c)
        return root
    for d in range(depth):
        _add_to_summary(f, path[2 * d], path[2 * d + 1], reward, slot)
    return root


@compiled
def tree_remove(f: Forest, root: Whole, reward: Real, slot: Whole) -> Whole:
    """Remove a reward that is there; returns the root, or -1 when the tree is empty and gone."""
    path = f.counters[PATH:]
    node = root
    depth = 0
    while True:
        c = _child_for(f, node, reward, slot)
        path[2 * depth] = node
        path[2 * depth + 1] = c
        depth += 1
        child = f.inner_whole[node, CHILD, c]
        if f.inner_size[node, 1] == 1:
            break
        node = child
    size = f.leaf_size[child] - 1
    for i in range(_place_in_leaf(f, child, reward, slot), size):
        f.leaf_reward[child, i] = f.leaf_reward[child, i + 1]
        f.leaf_whole[child, STAMP, i] = f.leaf_whole[child, STAMP, i + 1]
        f.leaf_whole[child, SLOT, i] = f.leaf_whole[child, SLOT, i + 1]
    f.leaf_size[child] = size
    for d in range(depth - 1, -1, -1):
        node, c = path[2 * d], path[2 * d + 1]
        if _child_size(f, node, c) > 0:
            _take_from_summary(f, node, c, reward, slot)
            if _child_size(f, node, c) <= (LEAF if f.inner_size[node, 1] == 1 else FAN) // 2:
                _merge_child(f, node, c)
                _merge_child(f, node, c - 1)
            continue
        if f.inner_size[node, 1] == 1:
            _give_back_leaf(f, f.inner_whole[node, CHILD, c])
        else:
            _give_back_inner(f, f.inner_whole[node, CHILD, c])
        _close_child_place(f, node, c)
    while f.inner_size[root, 1] > 1 and f.inner_size[root, 0] == 1:
        child = f.inner_whole[root, CHILD, 0]
        _give_back_inner(f, root)
        root = child
    if f.inner_size[root, 0] == 0:
        _give_back_inner(f, root)
        return np.int64(-1)
    return root
