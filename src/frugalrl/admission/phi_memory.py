"""The memory behind phi: arrays that grow as needed, and their way to and from files."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from frugalrl.admission import density
from frugalrl.admission.addresses import table_of
from frugalrl.admission.decision import Rule, decide, density_at
from frugalrl.admission.density import CELLS, CELLS_FREE, CELLS_USED, STORED, Phi
from frugalrl.admission.forest import (
    CLOCK,
    COUNTERS,
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
    MOMENTS,
    MOST_LEVELS,
    STAMP,
    SUMMARY_ROWS,
    Forest,
)
from frugalrl.admission.integrity import flaw_of
from frugalrl.admission.partition import Partition

_GROWTH = 1.125
"""Small, so that little memory lies idle; copying stays a constant cost a stored reward."""
_PARTS = {
    "slots": ("rewards", "links"),
    "cells": ("keys", "cells"),
    "inner": tuple(name for name in Forest._fields if name.startswith("inner_")),
    "leaves": tuple(name for name in Forest._fields if name.startswith("leaf_")),
}
"""Arrays that have a row for the same thing."""
_SCRATCH = "bounds"


class PhiMemory:
    """Owns the arrays of phi.

    Args:
        kernel: code of the kernel, which fixes how many moments the trees keep.
    """

    def __init__(self, kernel: int) -> None:
        self.clear(MOMENTS[kernel])

    def clear(self, moments: int) -> None:
        """Hold nothing, and no memory for it; the trees will keep so many moments."""
        counters = np.zeros(COUNTERS, dtype=np.int64)
        counters[[INNER_FREE, LEAF_FREE, CELLS_FREE]] = -1
        self.phi = Phi(
            rewards=np.empty(0, dtype=np.float64),
            links=np.empty((0, 2), dtype=np.int32),
            keys=np.empty((0, 2), dtype=np.uint64),
            cells=np.empty((0, 2), dtype=np.int32),
            table=np.full(16, -1, dtype=np.int32),
            forest=Forest(
                inner_high=np.empty((0, FAN), dtype=np.float64),
                inner_child=np.empty((0, FAN), dtype=np.int32),
                inner_oldest=np.empty((0, FAN), dtype=np.int32),
                inner_real=np.empty((0, FAN, FIRST_MOMENT + moments), dtype=np.float64),
                inner_whole=np.empty((0, FAN, SUMMARY_ROWS), dtype=np.int32),
                inner_size=np.empty((0, 2), dtype=np.int32),
                leaf_reward=np.empty((0, LEAF), dtype=np.float64),
                leaf_whole=np.empty((0, LEAF, 2), dtype=np.int32),
                leaf_span=np.empty((0, 2), dtype=np.int32),
                counters=counters,
                bounds=np.empty((MOST_LEVELS * FAN, 2), dtype=np.float64),
            ),
        )

    @property
    def phi(self) -> Phi:
        """The arrays by name."""
        return self._phi

    @phi.setter
    def phi(self, phi: Phi) -> None:
        self._phi = phi
        self.table = table_of((*phi[:-1], *phi.forest))
        self._prepared: tuple[Partition, Rule, Any] | None = None

    def __getstate__(self) -> Phi:
        """The arrays alone: a copy's lie elsewhere."""
        return self._phi

    def __setstate__(self, phi: Phi) -> None:
        self.phi = phi

    @property
    def cells(self) -> int:
        """Cells that hold a reward."""
        return int(self.phi.forest.counters[CELLS])

    @property
    def stored(self) -> int:
        """Rewards held."""
        return int(self.phi.forest.counters[STORED])

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in (*self.phi[:-1], *self.phi.forest))

    def slots_held(self) -> NDArray[np.int64]:
        """Slots that hold a reward, in ascending order."""
        return np.flatnonzero(self.phi.links[:, density.CELL] >= 0)

    def cell_counts(self) -> NDArray[np.int64]:
        """Rewards in each cell that holds any."""
        held = self.phi.links[:, density.CELL]
        return np.unique(held[held >= 0], return_counts=True)[1].astype(np.int64)

    def decide(
        self,
        partition: Partition,
        rule: Rule,
        states: NDArray[np.float64],
        values: NDArray[np.float64],
        free: NDArray[np.int64],
        codes: NDArray[np.int8],
        slots: NDArray[np.int64],
    ) -> tuple[int, int]:
        """Run the compiled decisions, growing whenever they ask for room.

        Returns:
            How many rows were decided, and how many of them refused; `codes` and `slots` hold the
            decisions.
        """
        row = taken = refused = 0
        while True:
            state = self.compiled_state(partition, rule)
            row, taken, refused, shortage, slot = decide(
                *state, states, values, free, taken, codes, slots, row, refused
            )
            if shortage == density.ENOUGH:
                return row, refused
            self.grow(shortage, slot)

    def compiled_state(
        self, partition: Partition, rule: Rule
    ) -> tuple[Any, Any, float, NDArray[np.float64]]:
        """Phi, partition and rule as compiled code takes them; good until phi grows."""
        prepared = self._prepared
        if prepared is None or prepared[0] is not partition or prepared[1] is not rule:
            grid, limits = partition.table(), rule.limits()
            state = self.table, grid, partition.last_bin, limits
            self._prepared = prepared = (partition, rule, state)
        return prepared[2]

    def density(
        self, partition: Partition, rule: Rule, state: NDArray[np.float64], reward: float
    ) -> float:
        """Reward density estimate of a reward in the cell of a state."""
        table, grid, last_bin, _ = self.compiled_state(partition, rule)
        scale = rule.reward_scale
        return float(density_at(table, grid, last_bin, rule.mass, state, reward, scale))

    def insert(
        self,
        partition: Partition,
        rule: Rule,
        states: NDArray[np.float64],
        values: NDArray[np.float64],
        slots: NDArray[np.int64],
    ) -> None:
        """Store rows whatever their density."""
        codes = np.empty(len(values), dtype=np.int8)
        placed = np.empty(len(values), dtype=np.int64)
        self.decide(partition, rule.admitting_all(), states, values, slots, codes, placed)

    def keep_only(self, keep: NDArray[np.int64]) -> None:
        """Forget all but these slots, oldest first; number them 0, 1, 2, ... and waste no memory.

        What is left of the trees is built anew: given back nodes would stay allocated.
        """
        phi = self.phi
        keys, rewards = phi.keys[phi.links[keep, density.CELL]], phi.rewards[keep]
        self.clear(phi.forest.inner_real.shape[2] - FIRST_MOMENT)
        row = 0
        while row < len(keep):
            row, shortage = density.insert_known(self.table, keys, rewards, row)
            if shortage != density.ENOUGH:
                self.grow(shortage, row)

    def grow(self, shortage: int, slot: int) -> None:
        """Make the room that `density.room_for` found missing."""
        phi, counters = self.phi, self.phi.forest.counters
        if shortage == density.SLOTS_SHORT:
            self._resize({"slots": _grown(max(slot + 1, len(phi.rewards)), 64)})
        elif shortage == density.CELLS_SHORT:
            self._resize({"cells": _grown(int(counters[CELLS_USED]), 64)})
        elif shortage == density.INDEX_SHORT:
            size = int(1.25 * (int(counters[CELLS]) + 1) / density.FULLEST_INDEX) + 16
            self.phi = phi._replace(table=np.full(size, -1, dtype=np.int32))
            density.rehash(self.table)
        elif shortage == density.NODES_SHORT:
            self._resize({"inner": _grown(len(phi.forest.inner_size), 2)})
        elif shortage == density.LEAVES_SHORT:
            self._resize({"leaves": _grown(len(phi.forest.leaf_span), 2)})
        else:
            self._renumber_stamps()

    def _arrays(self) -> dict[str, Any]:
        """All arrays by name."""
        return {**self.phi.forest._asdict(), **dict(zip(Phi._fields[:-1], self.phi, strict=False))}

    def _resize(self, sizes: dict[str, int]) -> None:
        """Give parts so many rows each."""
        arrays = self._arrays()
        for part, size in sizes.items():
            for name in _PARTS[part]:
                used = len(arrays[name])
                arrays[name] = _enlarged(arrays[name], size)
                if name == "links":
                    arrays[name][used:] = -1  # holds nothing
        self.phi = _named(arrays)
        self._count_room()

    def _renumber_stamps(self) -> None:
        """Give the members of trees the stamps 1, 2, ... in the order of those they have."""
        phi, forest = self.phi, self.phi.forest
        occupied = self.slots_held()
        heads = phi.cells[phi.links[occupied, density.CELL], density.HEAD]
        members = occupied[heads < 0]
        stamps = np.sort(phi.links[members, density.STAMP_IN_TREE])
        # Bounds may be stamps of members long gone: what counts is how many are not younger.
        for place in (
            forest.leaf_whole[:, :, STAMP],
            forest.inner_whole[:, :, HI_STAMP],
            forest.inner_oldest,
        ):
            place[...] = np.searchsorted(stamps, place, side="right")
        phi.links[members, density.STAMP_IN_TREE] = np.searchsorted(
            stamps, phi.links[members, density.STAMP_IN_TREE], side="right"
        )
        forest.counters[CLOCK] = len(stamps) + 1

    def _count_room(self) -> None:
        """Count the nodes and leaves that are idle: never used yet, or given back."""
        forest = self.phi.forest
        counters = forest.counters
        for room, head, following, used in (
            (INNER_ROOM, INNER_FREE, forest.inner_child[:, 0], INNER_USED),
            (LEAF_ROOM, LEAF_FREE, forest.leaf_whole[:, 0, 0], LEAF_USED),
        ):
            given_back = 0
            node = int(counters[head])
            while node >= 0:
                given_back += 1
                node = int(following[node])
            counters[room] = given_back + len(following) - int(counters[used])

    def state_dict(self) -> dict[str, Any]:
        """Copies of the arrays, without idle room."""
        arrays = self._arrays()
        counters = arrays["counters"]
        occupied = self.slots_held()
        used = {
            "slots": int(occupied[-1]) + 1 if len(occupied) else 0,
            "cells": int(counters[CELLS_USED]),
            "inner": int(counters[INNER_USED]),
            "leaves": int(counters[LEAF_USED]),
        }
        # How much idle room there was: with a byte limit the next eviction depends on it.
        allocated = {part: len(arrays[names[0]]) for part, names in _PARTS.items()}
        for part, names in _PARTS.items():
            for name in names:
                arrays[name] = arrays[name][: used[part]]
        del arrays[_SCRATCH]
        return {**{name: array.copy() for name, array in arrays.items()}, "allocated": allocated}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over the arrays of `state_dict`.

        Raises:
            ValueError: the arrays contradict each other, and using them could crash.
        """
        arrays = self._arrays()
        for name, array in arrays.items():
            if name == _SCRATCH:
                continue
            loaded = np.ascontiguousarray(state[name])
            if loaded.dtype != array.dtype or loaded.shape[1:] != array.shape[1:]:
                raise ValueError(
                    f"{name} has type {loaded.dtype} and shape {loaded.shape}, "
                    f"but {array.dtype} and {('n', *array.shape[1:])} is needed"
                )
            arrays[name] = loaded.copy()
        sizes = {part: int(state["allocated"][part]) for part in _PARTS}
        for part, size in sizes.items():
            used = max(len(arrays[name]) for name in _PARTS[part])
            if not used <= size < 2**31:
                raise ValueError(f"{size} {part} cannot have been allocated for {used} in use")
        phi = _named(arrays)
        flaw = flaw_of(phi)
        if flaw is not None:
            raise ValueError(f"the filter's memory of rewards is damaged: {flaw}")
        self.phi = phi
        self._resize(sizes)


def _named(arrays: dict[str, Any]) -> Phi:
    """All arrays as compiled code names them."""
    forest = Forest(**{name: arrays[name] for name in Forest._fields})
    return Phi(**{name: arrays[name] for name in Phi._fields[:-1]}, forest=forest)


def _grown(size: int, least: int) -> int:
    return max(size + least, int(size * _GROWTH))


def _enlarged(array: Any, size: int) -> Any:
    # Not `empty`: what lies unused inside a node is saved with it, and must not be chance.
    larger = np.zeros((size, *array.shape[1:]), dtype=array.dtype)
    larger[: len(array)] = array
    return larger
