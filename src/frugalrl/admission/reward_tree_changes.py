"""Insertion into and removal from the trees of `reward_tree`."""

from __future__ import annotations

from typing import Any

import numpy as np

from frugalrl.admission.compiled import Real, Whole, compiled, inlined
from frugalrl.admission.forest import (
    CLOCK,
    FAN,
    HI_STAMP,
    LEAF,
    PATH,
    SIZE,
    SLOT,
    STAMP,
    START,
    Forest,
    forest_at,
    is_leaf,
    leaf_end,
    root_of,
    tree_of_leaf,
    tree_of_node,
)
from frugalrl.admission.lanes import count_below
from frugalrl.admission.reward_tree_nodes import (
    add_to_summary,
    child_size,
    close_child_place,
    comes_before,
    give_back_inner,
    give_back_leaf,
    merge_child,
    move_reward,
    move_to_front,
    split_child,
    summarise,
    take_from_summary,
    take_inner,
    take_leaf,
)


@inlined
def _child_for(f: Forest, node: Whole, reward: Real, stamp: Whole) -> Whole:
    """The first child that may hold (reward, stamp), else the last."""
    last = np.int64(f.inner_size[node, 0]) - 1
    c = count_below(f.inner_high, node * FAN, last, 0.0, reward)
    while c < last and comes_before(
        f.inner_high[node, c], f.inner_whole[node, c, HI_STAMP], reward, stamp
    ):
        c += 1
    return c


@compiled
def new_tree(table: Any) -> Whole:
    """An empty tree, of one leaf."""
    return tree_of_leaf(take_leaf(forest_at(table)))


@compiled
def _new_root(table: Any, child: Whole, level: Whole) -> Whole:
    """A root with this one child."""
    f = forest_at(table)
    root = take_inner(f, level)
    f.inner_child[root, 0] = child
    f.inner_size[root, 0] = 1
    summarise(table, root, np.int64(0))
    return root


@compiled
def _append(table: Any, leaf: Whole, reward: Real, slot: Whole, stamp: Whole) -> None:
    """Put a reward into a leaf that has a place left, as the youngest."""
    f = forest_at(table)
    if leaf_end(f, leaf) == LEAF:
        move_to_front(table, leaf)
    end = leaf_end(f, leaf)
    f.leaf_reward[leaf, end] = reward
    f.leaf_whole[leaf, end, SLOT] = slot
    f.leaf_whole[leaf, end, STAMP] = stamp
    f.leaf_span[leaf, SIZE] += 1


@compiled
def tree_insert(table: Any, tree: Whole, reward: Real, slot: Whole) -> Whole:
    """Insert a reward as the youngest, with the next stamp; returns the tree that it is then."""
    f = forest_at(table)
    stamp = f.counters[CLOCK]
    f.counters[CLOCK] += 1
    root = root_of(tree)
    if is_leaf(tree):
        if f.leaf_span[root, SIZE] < LEAF:
            _append(table, root, reward, slot, stamp)
            return tree
        root = _new_root(table, root, np.int64(1))
    elif f.inner_size[root, 0] == FAN:
        root = _new_root(table, root, np.int64(f.inner_size[root, 1] + 1))
    path = f.counters[PATH:]
    node = root
    depth = 0
    while True:
        c = _child_for(f, node, reward, stamp)
        is_above_leaves = f.inner_size[node, 1] == 1
        if child_size(f, node, c) == (LEAF if is_above_leaves else FAN):
            # Full children are split on the way down, so a parent always has a place left.
            split_child(table, node, c)
            c = _child_for(f, node, reward, stamp)
        path[2 * depth] = node
        path[2 * depth + 1] = c
        depth += 1
        child = np.int64(f.inner_child[node, c])
        if is_above_leaves:
            break
        node = child
    _append(table, child, reward, slot, stamp)
    for d in range(depth):
        add_to_summary(f, path[2 * d], path[2 * d + 1], reward, stamp)
    return tree_of_node(root)


@inlined
def _remove_from_leaf(f: Forest, leaf: Whole, stamp: Whole) -> None:
    """Take a member out; those older than it move up, which for the oldest is none."""
    start = f.leaf_span[leaf, START]
    place = start
    while f.leaf_whole[leaf, place, STAMP] != stamp:
        place += 1
    for i in range(place, start, -1):
        move_reward(f, leaf, i - 1, leaf, i)
    f.leaf_span[leaf, START] = start + 1
    f.leaf_span[leaf, SIZE] -= 1


@compiled
def tree_remove(table: Any, tree: Whole, reward: Real, stamp: Whole) -> Whole:
    """Remove a reward that is there; returns the tree, or -1 when it is empty and gone."""
    f = forest_at(table)
    root = root_of(tree)
    if is_leaf(tree):
        _remove_from_leaf(f, root, stamp)
        if f.leaf_span[root, SIZE] > 0:
            return tree
        give_back_leaf(f, root)
        return np.int64(-1)
    path = f.counters[PATH:]
    node = root
    depth = 0
    while True:
        c = _child_for(f, node, reward, stamp)
        path[2 * depth] = node
        path[2 * depth + 1] = c
        depth += 1
        child = np.int64(f.inner_child[node, c])
        if f.inner_size[node, 1] == 1:
            break
        node = child
    _remove_from_leaf(f, child, stamp)
    for d in range(depth - 1, -1, -1):
        node, c = path[2 * d], path[2 * d + 1]
        size = child_size(f, node, c)
        if size > 0:
            take_from_summary(f, node, c, reward, stamp)
            if size <= (LEAF if f.inner_size[node, 1] == 1 else FAN) // 2:
                merge_child(table, node, c)
                merge_child(table, node, c - 1)
            continue
        if f.inner_size[node, 1] == 1:
            give_back_leaf(f, np.int64(f.inner_child[node, c]))
        else:
            give_back_inner(f, np.int64(f.inner_child[node, c]))
        close_child_place(table, node, c)
    # A root with one child gives way to it; it had two at the least.
    while f.inner_size[root, 0] == 1:
        child, level = np.int64(f.inner_child[root, 0]), f.inner_size[root, 1]
        give_back_inner(f, root)
        if level == 1:
            return tree_of_leaf(child)
        root = child
    return tree_of_node(root)
