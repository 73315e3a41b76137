"""phi: the rewards of the stored transitions, cell by cell.

A cell with few rewards is a ring of slots in order of age, linked through `links`, and is simply
scanned. A crowded cell is a tree (`reward_tree`), and `links` holds its members' stamps. Cells are
found through an open-addressing hash table. Nothing here knows what else a transition holds: a slot
is just a number. Every function that needs room says so before it changes anything (`room_for`),
and `PhiMemory.grow` makes it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from frugalrl.admission.addresses import matrix_at, vector_at
from frugalrl.admission.compiled import Real, Whole, compiled, inlined
from frugalrl.admission.forest import (
    CLOCK,
    FAN,
    INNER_ROOM,
    LEAF_ROOM,
    OLDEST_SLOT,
    OTHER_COUNTERS,
    SLOT,
    START,
    Forest,
    forest_at,
    is_leaf,
    root_of,
)
from frugalrl.admission.lanes import index_of_least
from frugalrl.admission.reward_leaf import Mass, reward_mass
from frugalrl.admission.reward_tree import (
    tree_mass,
    tree_nearest_distance,
    tree_oldest,
)
from frugalrl.admission.reward_tree_changes import new_tree, tree_insert, tree_remove

SCANNED = 48
"""Most rewards of a cell that is scanned instead of kept as a tree."""
BACK_TO_SCANNED = SCANNED // 2
"""A tree that has shrunk to this is a ring again; the gap keeps it from changing to and fro."""

# Places in Forest.counters.
CELLS_USED, CELLS_FREE, CELLS, STORED = (OTHER_COUNTERS + i for i in range(4))
# Columns of Phi.cells and Phi.links.
HEAD, COUNT = 0, 1
CELL, NEXT = 0, 1
STAMP_IN_TREE = NEXT

# What there may be no room for.
ENOUGH, SLOTS_SHORT, CELLS_SHORT, INDEX_SHORT, NODES_SHORT, LEAVES_SHORT, STAMPS_SHORT = range(7)
LAST_STAMP = 2**31 - 2 * SCANNED
"""Stamps are of 32 bits; what is left beyond this is enough to make one tree."""
ROUNDING = 1e-11
"""More than what rounding can add up to in a density."""
FULLEST_INDEX = 0.7
"""Share of the hash table's places taken at the most."""


class Phi(NamedTuple):
    """The arrays of phi."""

    rewards: NDArray[np.float64]
    """(slots,) reward in each slot."""
    links: NDArray[np.int32]
    """(slots, 2): the slot's CELL, -1 where nothing is stored; NEXT in its ring, or its stamp."""
    keys: NDArray[np.uint64]
    """(cells, 2): key of each cell."""
    cells: NDArray[np.int32]
    """(cells, 2): HEAD, the youngest slot of a ring, or -1 - a tree; and COUNT."""
    table: NDArray[np.int32]
    """Hash table of cell numbers, -1 where empty."""
    forest: Forest


@inlined
def phi_at(table: Any) -> Phi:
    """Name the arrays of `PhiMemory.table`, which has them in the order of the fields."""
    return Phi(
        vector_at(table, 0, np.float64),
        matrix_at(table, 1, 2, np.int32),
        matrix_at(table, 2, 2, np.uint64),
        matrix_at(table, 3, 2, np.int32),
        vector_at(table, 4, np.int32),
        forest_at(table),
    )


@inlined
def _index_place(phi: Phi, first: np.uint64, second: np.uint64) -> Whole:
    """Place of the cell with this key in the hash table, or the empty place where it belongs."""
    size = len(phi.table)
    place: Whole = np.int64(first % np.uint64(size))
    while True:
        cell = phi.table[place]
        if cell < 0 or (phi.keys[cell, 0] == first and phi.keys[cell, 1] == second):
            return place
        place += 1
        if place == size:
            place = 0


@inlined
def find_cell(phi: Phi, first: np.uint64, second: np.uint64) -> Whole:
    """Number of the cell with this key, or -1."""
    return np.int64(phi.table[_index_place(phi, first, second)])


@compiled
def _new_cell(table: Any, first: np.uint64, second: np.uint64) -> Whole:
    phi = phi_at(table)
    counters = phi.forest.counters
    cell = counters[CELLS_FREE]
    if cell >= 0:
        counters[CELLS_FREE] = phi.cells[cell, HEAD]
    else:
        cell = counters[CELLS_USED]
        counters[CELLS_USED] += 1
    counters[CELLS] += 1
    phi.keys[cell, 0] = first
    phi.keys[cell, 1] = second
    phi.cells[cell, COUNT] = 0
    phi.table[_index_place(phi, first, second)] = cell
    return cell


@compiled
def _remove_cell(table: Any, cell: Whole) -> None:
    """Forget an empty cell, closing the gap it leaves in the hash table."""
    phi = phi_at(table)
    size = len(phi.table)
    gap = _index_place(phi, phi.keys[cell, 0], phi.keys[cell, 1])
    place = gap
    while True:
        place = place + 1 if place + 1 < size else 0
        other = phi.table[place]
        if other < 0:
            break
        home = np.int64(phi.keys[other, 0] % np.uint64(size))
        # The other moves into the gap unless its home lies after the gap, up to its place.
        after_gap = (home - gap - 1) % size
        if after_gap >= (place - gap) % size:
            phi.table[gap] = other
            gap = place
    phi.table[gap] = -1
    counters = phi.forest.counters
    phi.cells[cell, HEAD] = counters[CELLS_FREE]
    counters[CELLS_FREE] = cell
    counters[CELLS] -= 1


@compiled
def rehash(table: Any) -> None:
    """Fill a new, empty hash table with all cells."""
    phi = phi_at(table)
    for slot in range(len(phi.rewards)):
        cell = phi.links[slot, CELL]
        if cell >= 0:
            phi.table[_index_place(phi, phi.keys[cell, 0], phi.keys[cell, 1])] = cell


@inlined
def room_for(phi: Phi, cell: Whole, slot: Whole) -> Whole:
    """What there is no room for if `slot` were stored in `cell` (-1: a new one)."""
    counters = phi.forest.counters
    if slot >= len(phi.rewards):
        return SLOTS_SHORT
    if cell < 0:
        if counters[CELLS_FREE] < 0 and counters[CELLS_USED] >= len(phi.keys):
            return CELLS_SHORT
        if counters[CELLS] + 1 > FULLEST_INDEX * len(phi.table):
            return INDEX_SHORT
        return ENOUGH
    if phi.cells[cell, COUNT] >= SCANNED or phi.cells[cell, HEAD] < 0:
        # A tree may split a leaf and a node on every level, or be made anew from a ring.
        head = np.int64(phi.cells[cell, HEAD])
        levels = np.int64(0)
        if head < 0 and not is_leaf(-1 - head):
            levels = np.int64(phi.forest.inner_size[root_of(-1 - head), 1])
        if counters[INNER_ROOM] <= levels:
            return NODES_SHORT
        if counters[LEAF_ROOM] < 1:
            return LEAVES_SHORT
        if counters[CLOCK] >= LAST_STAMP:
            return STAMPS_SHORT
    return ENOUGH


@compiled
def cell_mass(table: Any, mass: Mass, cell: Whole, reward: Real, limit: Real) -> Real:
    """Reward density estimate of `reward` in a cell that holds something.

    Exact when `limit` is NaN; else any number on the same side of `limit` as the estimate.
    """
    phi = phi_at(table)
    head = np.int64(phi.cells[cell, HEAD])
    if head < 0:
        count = float(phi.cells[cell, COUNT])
        total = tree_mass(table, mass, -1 - head, reward, limit * count, ROUNDING * count)
    else:
        total = 0.0
        slot = head
        for _ in range(phi.cells[cell, COUNT]):
            total += reward_mass(mass, phi.rewards[slot] - reward)
            slot = np.int64(phi.links[slot, NEXT])
    return total / phi.cells[cell, COUNT]


@compiled
def equivalent_slot(table: Any, cell: Whole, reward: Real, within: Real) -> Whole:
    """Slot of the oldest reward at most `within` away; where none is, of the nearest.

    Of several that are equally near, the oldest.
    """
    phi = phi_at(table)
    head = np.int64(phi.cells[cell, HEAD])
    if head < 0:
        oldest = tree_oldest(table, -1 - head, reward, within)
        if oldest >= 0:
            return oldest
        nearest = tree_nearest_distance(table, -1 - head, reward)
        return tree_oldest(table, -1 - head, reward, nearest)
    best_slot = np.int64(-1)
    best_distance = np.inf
    slot = head
    for _ in range(phi.cells[cell, COUNT]):
        slot = np.int64(phi.links[slot, NEXT])  # the youngest links to the oldest
        distance = abs(phi.rewards[slot] - reward)
        if distance <= within:
            return slot
        if distance < best_distance:
            best_slot, best_distance = slot, distance
    return best_slot


@inlined
def _append_to_ring(phi: Phi, cell: Whole, slot: Whole) -> None:
    if phi.cells[cell, COUNT] == 0:
        phi.links[slot, NEXT] = slot
    else:
        youngest = phi.cells[cell, HEAD]
        phi.links[slot, NEXT] = phi.links[youngest, NEXT]
        phi.links[youngest, NEXT] = slot
    phi.cells[cell, HEAD] = slot


@inlined
def _remove_from_ring(phi: Phi, cell: Whole, slot: Whole) -> None:
    head = np.int64(phi.cells[cell, HEAD])
    before = head
    while phi.links[before, NEXT] != slot:
        before = np.int64(phi.links[before, NEXT])
    phi.links[before, NEXT] = phi.links[slot, NEXT]
    if head == slot:
        phi.cells[cell, HEAD] = before


@inlined
def _note_stamp(phi: Phi, slot: Whole) -> None:
    """Remember the stamp that the next insertion into a tree, that of this slot, will take."""
    phi.links[slot, STAMP_IN_TREE] = phi.forest.counters[CLOCK]


@compiled
def _make_tree(table: Any, cell: Whole) -> None:
    phi = phi_at(table)
    tree = new_tree(table)
    slot = np.int64(phi.links[phi.cells[cell, HEAD], NEXT])  # the youngest links to the oldest
    for _ in range(phi.cells[cell, COUNT]):
        following = np.int64(phi.links[slot, NEXT])
        _note_stamp(phi, slot)
        tree = tree_insert(table, tree, phi.rewards[slot], slot)
        slot = following
    phi.cells[cell, HEAD] = -1 - tree


@compiled
def _oldest_of_tree(table: Any, tree: Whole) -> Whole:
    forest = forest_at(table)
    root = root_of(tree)
    if is_leaf(tree):
        return np.int64(forest.leaf_whole[root, forest.leaf_span[root, START], SLOT])
    size = np.int64(forest.inner_size[root, 0])
    oldest = index_of_least(forest.inner_oldest, root * FAN, np.int64(0), size)
    return np.int64(forest.inner_whole[root, oldest, OLDEST_SLOT])


@compiled
def _make_ring(table: Any, cell: Whole) -> None:
    phi = phi_at(table)
    tree = np.int64(-1 - phi.cells[cell, HEAD])
    members = phi.cells[cell, COUNT]
    phi.cells[cell, COUNT] = 0
    for _ in range(members):
        slot = _oldest_of_tree(table, tree)
        stamp = np.int64(phi.links[slot, STAMP_IN_TREE])
        tree = tree_remove(table, tree, phi.rewards[slot], stamp)
        _append_to_ring(phi, cell, slot)
        phi.cells[cell, COUNT] += 1


@compiled
def insert(
    table: Any, cell: Whole, first: np.uint64, second: np.uint64, slot: Whole, reward: Real
) -> None:
    """Store a reward as the youngest of its cell (-1: a new cell with this key)."""
    phi = phi_at(table)
    if cell < 0:
        cell = _new_cell(table, first, second)
    phi.rewards[slot] = reward
    phi.links[slot, CELL] = cell
    if phi.cells[cell, COUNT] == SCANNED and phi.cells[cell, HEAD] >= 0:
        _make_tree(table, cell)
    if phi.cells[cell, COUNT] > 0 and phi.cells[cell, HEAD] < 0:
        _note_stamp(phi, slot)
        tree = tree_insert(table, np.int64(-1 - phi.cells[cell, HEAD]), reward, slot)
        phi.cells[cell, HEAD] = -1 - tree
    else:
        _append_to_ring(phi, cell, slot)
    phi.cells[cell, COUNT] += 1
    phi.forest.counters[STORED] += 1


@compiled
def insert_known(
    table: Any, keys: NDArray[np.uint64], rewards: NDArray[np.float64], row: Whole
) -> tuple[Whole, Whole]:
    """Store rewards from `row` on, each in the slot of its row, in cells with these keys.

    Returns:
        The next row, and what there is no room for if that is not the end.
    """
    phi = phi_at(table)
    while row < len(rewards):
        first, second = keys[row, 0], keys[row, 1]
        cell = find_cell(phi, first, second)
        shortage = room_for(phi, cell, row)
        if shortage != ENOUGH:
            return row, shortage
        insert(table, cell, first, second, row, rewards[row])
        row += 1
    return row, ENOUGH


@compiled
def remove(table: Any, slot: Whole) -> bool:
    """Forget the reward of a slot; False when the slot holds none."""
    phi = phi_at(table)
    if slot < 0 or slot >= len(phi.rewards) or phi.links[slot, CELL] < 0:
        return False
    cell = np.int64(phi.links[slot, CELL])
    head = np.int64(phi.cells[cell, HEAD])
    if head < 0:
        stamp = np.int64(phi.links[slot, STAMP_IN_TREE])
        phi.cells[cell, HEAD] = -1 - tree_remove(table, -1 - head, phi.rewards[slot], stamp)
    else:
        _remove_from_ring(phi, cell, slot)
    phi.cells[cell, COUNT] -= 1
    phi.links[slot, CELL] = -1
    phi.forest.counters[STORED] -= 1
    if phi.cells[cell, COUNT] == 0:
        _remove_cell(table, cell)
    elif phi.cells[cell, HEAD] < 0 and phi.cells[cell, COUNT] <= BACK_TO_SCANNED:
        _make_ring(table, cell)
    return True


@compiled
def replace(table: Any, cell: Whole, slot: Whole, reward: Real) -> None:
    """Give a stored slot of this cell a new reward; it is then the youngest."""
    phi = phi_at(table)
    head = np.int64(phi.cells[cell, HEAD])
    if head < 0:
        # In this order, memory brings what removal needs while the new reward is put in place.
        old, stamp = phi.rewards[slot], np.int64(phi.links[slot, STAMP_IN_TREE])
        phi.rewards[slot] = reward
        _note_stamp(phi, slot)
        tree = tree_insert(table, -1 - head, reward, slot)
        phi.cells[cell, HEAD] = -1 - tree_remove(table, tree, old, stamp)
        return
    _remove_from_ring(phi, cell, slot)
    phi.cells[cell, COUNT] -= 1
    phi.rewards[slot] = reward
    _append_to_ring(phi, cell, slot)
    phi.cells[cell, COUNT] += 1
