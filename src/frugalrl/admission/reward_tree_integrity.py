"""Whether the trees of `reward_tree` are sound; see `integrity`, which has checked all else."""

from __future__ import annotations

from typing import Any

import numpy as np

from frugalrl.admission import density
from frugalrl.admission.compiled import Real, Whole, compiled, inlined
from frugalrl.admission.density import CELL, HEAD, STAMP_IN_TREE, phi_at
from frugalrl.admission.forest import (
    CLOCK,
    COUNT,
    FAN,
    FIRST_MOMENT,
    FURTHEST,
    HI_STAMP,
    LEAF,
    LO,
    MOST_LEVELS,
    OLDEST_SLOT,
    SIZE,
    SLOT,
    STAMP,
    START,
    Forest,
    forest_at,
    is_leaf,
    root_of,
)
from frugalrl.admission.reward_tree_nodes import comes_before


@compiled
def trees_are_sound(table: Any, is_free_cell: Any, is_taken_node: Any, is_taken_leaf: Any) -> bool:
    """Whether the trees of all cells are whole and share nothing.

    Nodes and leaves that are free come marked as taken; those of the trees are marked too.
    """
    phi = phi_at(table)
    f = phi.forest
    # Nodes in the order they are met, which is from above, and what must hold below each of them.
    met = np.empty(len(is_taken_node), dtype=np.int64)
    cell_of = np.empty(len(is_taken_node), dtype=np.int64)
    floor_reward = np.empty(len(is_taken_node), dtype=np.float64)
    floor_stamp = np.empty(len(is_taken_node), dtype=np.int64)
    found = 0
    for cell in range(len(is_free_cell)):
        tree, count = -1 - np.int64(phi.cells[cell, HEAD]), phi.cells[cell, density.COUNT]
        if is_free_cell[cell] or tree < 0:
            continue
        root = root_of(tree)
        if is_leaf(tree):
            if not _take(root, is_taken_leaf) or f.leaf_span[root, SIZE] != count:
                return False
            if not _members_fit(table, root, np.int64(cell)):
                return False
            continue
        if not _take(root, is_taken_node) or not _root_fits(f, root, count):
            return False
        met[found] = root
        found += 1
        cell_of[root], floor_reward[root], floor_stamp[root] = cell, -np.inf, -1
    visited = 0
    while visited < found:
        node = met[visited]
        visited += 1
        low_reward, low_stamp = floor_reward[node], floor_stamp[node]
        for c in range(f.inner_size[node, 0]):
            child = np.int64(f.inner_child[node, c])
            if f.inner_size[node, 1] == 1:
                if not _take(child, is_taken_leaf):
                    return False
                if not _leaf_fits(table, node, np.int64(c), cell_of[node], low_reward, low_stamp):
                    return False
            else:
                if not _take(child, is_taken_node) or not _node_fits(table, node, np.int64(c)):
                    return False
                met[found] = child
                found += 1
                cell_of[child] = cell_of[node]
                floor_reward[child], floor_stamp[child] = low_reward, low_stamp
            low_reward = f.inner_high[node, c]
            low_stamp = np.int64(f.inner_whole[node, c, HI_STAMP])
    return True


@inlined
def _take(place: Whole, is_taken: Any) -> Any:
    """Take something that is there and that nobody else has."""
    if not 0 <= place < len(is_taken) or is_taken[place]:
        return False
    is_taken[place] = True
    return True


@inlined
def _root_fits(f: Forest, root: Whole, count: Whole) -> Any:
    """Whether a root may have its place, and its children hold what its cell counts."""
    # Below the most, because the next insertion may put another root on top.
    if not 1 <= f.inner_size[root, 1] < MOST_LEVELS or not 1 <= f.inner_size[root, 0] <= FAN:
        return False
    held = np.int64(0)
    for c in range(f.inner_size[root, 0]):
        held += f.inner_whole[root, c, COUNT]
    return held == count


@inlined
def _bounds_fit(f: Forest, node: Whole, c: Whole) -> Any:
    """Whether sums over a child stay finite; the first moment may be NaN, which is outdated."""
    # What is no number after it was computed anew would be computed for ever.
    reach = 4.0 * FURTHEST * f.inner_whole[node, c, COUNT]
    return (
        abs(f.inner_high[node, c]) <= FURTHEST
        and abs(f.inner_real[node, c, LO]) <= FURTHEST
        and not abs(f.inner_real[node, c, FIRST_MOMENT]) > reach
    )


@compiled
def _node_fits(table: Any, node: Whole, c: Whole) -> bool:
    """Whether a child that is a node is one level lower, and is what its summary says."""
    f = forest_at(table)
    child = np.int64(f.inner_child[node, c])
    size = np.int64(f.inner_size[child, 0])
    # The level falls on the way down, so the way has an end.
    if f.inner_size[child, 1] != f.inner_size[node, 1] - 1 or not 1 <= size <= FAN:
        return False
    high, high_stamp = f.inner_high[node, c], f.inner_whole[node, c, HI_STAMP]
    count, oldest = np.int64(0), 0
    for i in range(size):
        # Bounds lie within those above: else the halves of a node could change places.
        if f.inner_real[child, i, LO] < f.inner_real[node, c, LO] or comes_before(
            high, high_stamp, f.inner_high[child, i], f.inner_whole[child, i, HI_STAMP]
        ):
            return False
        count += f.inner_whole[child, i, COUNT]
        if f.inner_oldest[child, i] < f.inner_oldest[child, oldest]:
            oldest = i
    return bool(
        _bounds_fit(f, node, c)
        and f.inner_whole[node, c, COUNT] == count
        and f.inner_oldest[node, c] == f.inner_oldest[child, oldest]
        and f.inner_whole[node, c, OLDEST_SLOT] == f.inner_whole[child, oldest, OLDEST_SLOT]
    )


@compiled
def _leaf_fits(
    table: Any, node: Whole, c: Whole, cell: Whole, floor_reward: Real, floor_stamp: Whole
) -> bool:
    """Whether a child that is a leaf is what its summary says.

    Its members come after the floor, the upper bound of what lies before the leaf, so that a search
    for each ends here.
    """
    f = forest_at(table)
    leaf = np.int64(f.inner_child[node, c])
    if not _members_fit(table, leaf, cell):
        return False
    start, size = np.int64(f.leaf_span[leaf, START]), np.int64(f.leaf_span[leaf, SIZE])
    if f.inner_whole[node, c, COUNT] != size:
        return False
    if f.inner_oldest[node, c] != f.leaf_whole[leaf, start, STAMP]:
        return False
    if f.inner_whole[node, c, OLDEST_SLOT] != f.leaf_whole[leaf, start, SLOT]:
        return False
    low, high = f.inner_real[node, c, LO], f.inner_high[node, c]
    high_stamp = f.inner_whole[node, c, HI_STAMP]
    for i in range(start, start + size):
        reward, stamp = f.leaf_reward[leaf, i], np.int64(f.leaf_whole[leaf, i, STAMP])
        if not low <= reward <= high or comes_before(high, high_stamp, reward, stamp):
            return False
        if not comes_before(floor_reward, floor_stamp, reward, stamp):
            return False
    return bool(_bounds_fit(f, node, c))


@compiled
def _members_fit(table: Any, leaf: Whole, cell: Whole) -> bool:
    """Whether a leaf's members are in order of age, and are what their slots say.

    No slot is there twice: both would have the same reward and the same stamp.
    """
    phi = phi_at(table)
    f = phi.forest
    start, size = np.int64(f.leaf_span[leaf, START]), np.int64(f.leaf_span[leaf, SIZE])
    if start < 0 or size < 1 or start + size > LEAF:
        return False
    stamp_before = np.int64(-1)
    for i in range(start, start + size):
        reward, stamp = f.leaf_reward[leaf, i], np.int64(f.leaf_whole[leaf, i, STAMP])
        if not (stamp_before < stamp < f.counters[CLOCK] and abs(reward) <= FURTHEST):
            return False
        slot = np.int64(f.leaf_whole[leaf, i, SLOT])
        if not 0 <= slot < len(phi.rewards) or phi.links[slot, CELL] != cell:
            return False
        if phi.links[slot, STAMP_IN_TREE] != stamp or phi.rewards[slot] != reward:
            return False
        stamp_before = stamp
    return True
