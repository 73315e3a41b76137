"""Whether the linked arrays of phi are sound: kernels follow them blindly, and a file could lie.

Each check relies on those before it. All take time in proportion to what is stored, and follow a
link only after they have seen that it stays within its array and cannot lead round for ever.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from frugalrl.admission import density, forest
from frugalrl.admission.addresses import table_of
from frugalrl.admission.compiled import Whole, compiled
from frugalrl.admission.density import CELL, COUNT, HEAD, NEXT, Phi, find_cell, phi_at
from frugalrl.admission.forest import CLOCK, FURTHEST
from frugalrl.admission.reward_tree_integrity import trees_are_sound


def flaw_of(phi: Phi) -> str | None:
    """Tell what would lead a kernel astray, None if nothing would.

    The arrays must have the right types and widths, and no idle room.
    """
    f = phi.forest
    if not _counters_fit(phi):
        return "the counters do not fit the arrays"
    is_free_cell, is_free_node, is_free_leaf = marks = [
        np.zeros(len(part), dtype=np.bool_) for part in (phi.cells, f.inner_size, f.leaf_span)
    ]
    heads = density.CELLS_FREE, forest.INNER_FREE, forest.LEAF_FREE
    following = phi.cells[:, HEAD], f.inner_child[:, 0], f.leaf_whole[:, 0, 0]
    for head, links, is_free in zip(heads, following, marks, strict=True):
        if not _mark_free(np.ascontiguousarray(links), f.counters[head], is_free):
            return "a list of what is free is broken"
    table = table_of((*phi[:-1], *f))
    cells_in_use = int(np.count_nonzero(~is_free_cell))
    if f.counters[density.CELLS] != cells_in_use or not _entries_fit(phi, cells_in_use):
        return "the hash table does not fit the cells"
    if not _cells_are_found(table, is_free_cell):
        return "the hash table does not lead to each cell"
    if not _rings_are_closed(table, is_free_cell):
        return "a cell's ring of slots is broken"
    is_taken_node, is_taken_leaf = is_free_node, is_free_leaf
    if not trees_are_sound(table, is_free_cell, is_taken_node, is_taken_leaf):
        return "a cell's tree of rewards is broken"
    if not (is_taken_node.all() and is_taken_leaf.all()):
        return "a part of a tree belongs to no cell"
    # Cells were seen to hold as many different slots as they count, each of which names its cell.
    held = int(phi.cells[~is_free_cell, COUNT].sum(dtype=np.int64))
    if not held == np.count_nonzero(phi.links[:, CELL] >= 0) == f.counters[density.STORED]:
        return "a slot belongs to no cell"
    return None


def _counters_fit(phi: Phi) -> bool:
    counters = phi.forest.counters
    if len(counters) != forest.COUNTERS:
        return False
    lengths = {
        density.CELLS_USED: {len(phi.keys), len(phi.cells)},
        forest.INNER_USED: {len(a) for a in phi.forest[:6]},
        forest.LEAF_USED: {len(a) for a in phi.forest[6:9]},
    }
    return (
        len(phi.rewards) == len(phi.links)
        and all(found == {counters[used]} for used, found in lengths.items())
        and bool(0 <= counters[CLOCK] <= density.LAST_STAMP + density.SCANNED)
    )


@compiled
def _mark_free(following: Any, head: Whole, is_free: Any) -> bool:
    """Mark what a list of free things holds; False if it leaves the array or has no end."""
    place = np.int64(head)
    while place >= 0:
        if place >= len(following) or is_free[place]:
            return False
        is_free[place] = True
        place = np.int64(following[place])
    return bool(place == -1)


def _entries_fit(phi: Phi, cells_in_use: int) -> bool:
    """Whether the hash table has as many entries as there are cells, and at least an empty place.

    That is where a search ends.
    """
    entries = phi.table[phi.table != -1]
    are_cells = bool(np.all((entries >= 0) & (entries < len(phi.cells))))
    return are_cells and len(entries) == cells_in_use < len(phi.table)


@compiled
def _cells_are_found(table: Any, is_free: Any) -> bool:
    """Whether a search for the key of each cell in use leads to it."""
    phi = phi_at(table)
    for cell in range(len(is_free)):
        if not is_free[cell] and find_cell(phi, phi.keys[cell, 0], phi.keys[cell, 1]) != cell:
            return False
    return True


@compiled
def _rings_are_closed(table: Any, is_free: Any) -> bool:
    """Whether each ring comes back to its head after as many slots as its cell counts."""
    phi = phi_at(table)
    for cell in range(len(is_free)):
        head, count = np.int64(phi.cells[cell, HEAD]), np.int64(phi.cells[cell, COUNT])
        if is_free[cell] or head < 0:
            continue
        if not 1 <= count <= density.SCANNED:
            return False
        slot = head
        for step in range(count):
            if not 0 <= slot < len(phi.rewards) or (slot == head and step > 0):
                return False
            if phi.links[slot, CELL] != cell or not abs(phi.rewards[slot]) <= FURTHEST:
                return False
            slot = np.int64(phi.links[slot, NEXT])
        if slot != head:
            return False
    return True
