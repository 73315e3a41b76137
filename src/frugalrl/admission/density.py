"""phi: the rewards of the stored transitions, cell by cell.

A cell with few rewards is a ring of slots in order of age, linked through `links`, and is simply
scanned. A crowded cell is a tree (`reward_tree`). Cells are found through an open-addressing hash
table. Nothing here knows what else a transition holds: a slot is just a number. Every function that
needs room says so before it changes anything (`room_for`), and `Phi.grow` makes it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from frugalrl.admission.compiled import Real, Whole, compiled
from frugalrl.admission.reward_tree import (
    CLOCK,
    INNER_ROOM,
    LEAF_ROOM,
    MOST_LEVELS,
    OLDEST,
    OLDEST_SLOT,
    OTHER_COUNTERS,
    Forest,
    Mass,
    reward_mass,
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

# What there may be no room for.
ENOUGH, SLOTS_SHORT, CELLS_SHORT, INDEX_SHORT, TREES_SHORT = range(5)
ROUNDING = 1e-11
"""More than what rounding can add up to in a density."""
FULLEST_INDEX = 0.7
"""Share of the hash table's places taken at the most."""


class Phi(NamedTuple):
    """The arrays of phi."""

    rewards: NDArray[np.float64]
    """(slots,) reward in each slot."""
    links: NDArray[np.int32]
    """(slots, 2): the slot's CELL, -1 where nothing is stored, and NEXT in its ring."""
    keys: NDArray[np.uint64]
    """(cells, 2): key of each cell."""
    cells: NDArray[np.int32]
    """(cells, 2): HEAD, the youngest slot of a ring, or -1 - root of a tree; and COUNT."""
    table: NDArray[np.int32]
    """Hash table of cell numbers, -1 where empty."""
    forest: Forest


@compiled
def as_phi(arrays: Any) -> Phi:
    """Name the arrays of `PhiMemory.arrays`.

    A plain tuple enters compiled code several times faster than a named one.
    """
    return Phi(
        arrays[0],
        arrays[1],
        arrays[2],
        arrays[3],
        arrays[4],
        Forest(
            arrays[5],
            arrays[6],
            arrays[7],
            arrays[8],
            arrays[9],
            arrays[10],
            arrays[11],
            arrays[12],
        ),
    )


@compiled
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


@compiled
def find_cell(phi: Phi, first: np.uint64, second: np.uint64) -> Whole:
    """Number of the cell with this key, or -1."""
    return np.int64(phi.table[_index_place(phi, first, second)])


@compiled
def _new_cell(phi: Phi, first: np.uint64, second: np.uint64) -> Whole:
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
def _remove_cell(phi: Phi, cell: Whole) -> None:
    """Forget an empty cell, closing the gap it leaves in the hash table."""
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
def rehash(phi: Phi) -> None:
    """Fill a new, empty hash table with the cells that `index` does not hold yet."""
    for slot in range(len(phi.rewards)):
        cell = phi.links[slot, CELL]
        if cell >= 0:
            phi.table[_index_place(phi, phi.keys[cell, 0], phi.keys[cell, 1])] = cell


@compiled
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
    # A tree may split a node on every level, or be made anew from a ring.
    if phi.cells[cell, COUNT] >= SCANNED and (
        counters[INNER_ROOM] < MOST_LEVELS or counters[LEAF_ROOM] < 4
    ):
        return TREES_SHORT
    return ENOUGH


@compiled
def cell_mass(phi: Phi, mass: Mass, cell: Whole, reward: Real, limit: Real) -> Real:
    """Reward density estimate of `reward` in a cell that holds something.

    Exact when `limit` is NaN; else any number on the same side of `limit` as the estimate.
    """
    head = np.int64(phi.cells[cell, HEAD])
    if head < 0:
        count = float(phi.cells[cell, COUNT])
        total = tree_mass(phi.forest, mass, -1 - head, reward, limit * count, ROUNDING * count)
    else:
        total = 0.0
        slot = head
        for _ in range(phi.cells[cell, COUNT]):
            total += reward_mass(mass, phi.rewards[slot] - reward)
            slot = np.int64(phi.links[slot, NEXT])
    return total / phi.cells[cell, COUNT]


@compiled
def equivalent_slot(phi: Phi, cell: Whole, reward: Real, within: Real) -> Whole:
    """Slot of the oldest reward at most `within` away; where none is, of the nearest.

    Of several that are equally near, the oldest.
    """
    head = np.int64(phi.cells[cell, HEAD])
    if head < 0:
        oldest = tree_oldest(phi.forest, -1 - head, reward, within)
        if oldest >= 0:
            return oldest
        nearest = tree_nearest_distance(phi.forest, -1 - head, reward)
        return tree_oldest(phi.forest, -1 - head, reward, nearest)
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


@compiled
def _append_to_ring(phi: Phi, cell: Whole, slot: Whole) -> None:
    if phi.cells[cell, COUNT] == 0:
        phi.links[slot, NEXT] = slot
    else:
        youngest = phi.cells[cell, HEAD]
        phi.links[slot, NEXT] = phi.links[youngest, NEXT]
        phi.links[youngest, NEXT] = slot
    phi.cells[cell, HEAD] = slot


@compiled
def _insert_in_tree(phi: Phi, root: Whole, slot: Whole) -> Whole:
    counters = phi.forest.counters
    stamp = counters[CLOCK]
    counters[CLOCK] += 1
    return tree_insert(phi.forest, root, phi.rewards[slot], slot, stamp)


@compiled
def _make_tree(phi: Phi, cell: Whole) -> None:
    root = new_tree(phi.forest)
    slot = np.int64(phi.cells[cell, HEAD])
    for _ in range(phi.cells[cell, COUNT]):
        slot = np.int64(phi.links[slot, NEXT])
        root = _insert_in_tree(phi, root, slot)
    phi.cells[cell, HEAD] = -1 - root


@compiled
def _oldest_of_tree(forest: Forest, root: Whole) -> Whole:
    best = 0
    for c in range(1, forest.inner_size[root, 0]):
        if forest.inner_whole[root, OLDEST, c] < forest.inner_whole[root, OLDEST, best]:
            best = c
    return np.int64(forest.inner_whole[root, OLDEST_SLOT, best])


@compiled
def _make_ring(phi: Phi, cell: Whole) -> None:
    root = np.int64(-1 - phi.cells[cell, HEAD])
    members = phi.cells[cell, COUNT]
    phi.cells[cell, COUNT] = 0
    for _ in range(members):
        slot = _oldest_of_tree(phi.forest, root)
        root = tree_remove(phi.forest, root, phi.rewards[slot], slot)
        _append_to_ring(phi, cell, slot)
        phi.cells[cell, COUNT] += 1


@compiled
def insert(
    phi: Phi, cell: Whole, first: np.uint64, second: np.uint64, slot: Whole, reward: Real
) -> None:
    """Store a reward as the youngest of its cell (-1: a new cell with this key)."""
    if cell < 0:
        cell = _new_cell(phi, first, second)
    phi.rewards[slot] = reward
    phi.links[slot, CELL] = cell
    if phi.cells[cell, COUNT] == SCANNED and phi.cells[cell, HEAD] >= 0:
        _make_tree(phi, cell)
    if phi.cells[cell, COUNT] > 0 and phi.cells[cell, HEAD] < 0:
        root = _insert_in_tree(phi, np.int64(-1 - phi.cells[cell, HEAD]), slot)
        phi.cells[cell, HEAD] = -1 - root
    else:
        _append_to_ring(phi, cell, slot)
    phi.cells[cell, COUNT] += 1
    phi.forest.counters[STORED] += 1


@compiled
def _detach(phi: Phi, cell: Whole, slot: Whole) -> None:
    """Take a slot out of its cell's ring or tree; the count follows, all else stays."""
    head = np.int64(phi.cells[cell, HEAD])
    if head < 0:
        root = tree_remove(phi.forest, -1 - head, phi.rewards[slot], slot)
        phi.cells[cell, HEAD] = -1 - root
    else:
        before = head
        while phi.links[before, NEXT] != slot:
            before = np.int64(phi.links[before, NEXT])
        phi.links[before, NEXT] = phi.links[slot, NEXT]
        if head == slot:
            phi.cells[cell, HEAD] = before
    phi.cells[cell, COUNT] -= 1


@compiled
def remove(arrays: Any, slot: Whole) -> bool:
    """Forget the reward of a slot; False when the slot holds none."""
    phi = as_phi(arrays)
    if slot < 0 or slot >= len(phi.rewards) or phi.links[slot, CELL] < 0:
        return False
    cell = np.int64(phi.links[slot, CELL])
    _detach(phi, cell, slot)
    phi.links[slot, CELL] = -1
    phi.forest.counters[STORED] -= 1
    if phi.cells[cell, COUNT] == 0:
        _remove_cell(phi, cell)
    elif phi.cells[cell, HEAD] < 0 and phi.cells[cell, COUNT] <= BACK_TO_SCANNED:
        _make_ring(phi, cell)
    return True


@compiled
def replace(phi: Phi, cell: Whole, slot: Whole, reward: Real) -> None:
    """Give a stored slot of this cell a new reward; it is then the youngest."""
    _detach(phi, cell, slot)
    phi.rewards[slot] = reward
    head = np.int64(phi.cells[cell, HEAD])
    if phi.cells[cell, COUNT] > 0 and head < 0:
        phi.cells[cell, HEAD] = -1 - _insert_in_tree(phi, -1 - head, slot)
    else:
        _append_to_ring(phi, cell, slot)
    phi.cells[cell, COUNT] += 1
