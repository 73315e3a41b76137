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
    OLDEST,
    STAMP,
    SUMMARY_ROWS,
    Forest,
)
from frugalrl.admission.partition import Partition

_GROWTH = 1.125
"""Small, so that little memory lies idle; copying stays a constant cost a stored reward."""


class PhiMemory:
    """Owns the arrays of phi.

    Args:
        kernel: code of the kernel, which fixes how many moments the trees keep.
    """

    def __init__(self, kernel: int) -> None:
        counters = np.zeros(COUNTERS, dtype=np.int64)
        counters[[INNER_FREE, LEAF_FREE, CELLS_FREE]] = -1
        self.phi = Phi(
            rewards=np.empty(0, dtype=np.float64),
            links=np.empty((0, 2), dtype=np.int32),
            keys=np.empty((0, 2), dtype=np.uint64),
            cells=np.empty((0, 2), dtype=np.int32),
            table=np.full(16, -1, dtype=np.int32),
            forest=Forest(
                inner_real=np.empty((0, 2 + MOMENTS[kernel], FAN), dtype=np.float64),
                inner_whole=np.empty((0, SUMMARY_ROWS, FAN), dtype=np.int32),
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
        scaled = reward / rule.reward_scale
        return float(density_at(table, grid, last_bin, rule.mass, state, scaled))

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

    def grow(self, shortage: int, slot: int) -> None:
        """Make the room that `density.room_for` found missing."""
        phi, counters = self.phi, self.phi.forest.counters
        if shortage == density.SLOTS_SHORT:
            size = _grown(max(slot + 1, len(phi.rewards)), 64)
            links = np.full((size, 2), -1, dtype=np.int32)
            links[: len(phi.links)] = phi.links
            self.phi = phi._replace(rewards=_enlarged(phi.rewards, size), links=links)
        elif shortage == density.CELLS_SHORT:
            size = _grown(int(counters[CELLS_USED]), 64)
            self.phi = phi._replace(
                keys=_enlarged(phi.keys, size), cells=_enlarged(phi.cells, size)
            )
        elif shortage == density.INDEX_SHORT:
            size = int(1.25 * (int(counters[CELLS]) + 1) / density.FULLEST_INDEX) + 16
            self.phi = phi._replace(table=np.full(size, -1, dtype=np.int32))
            density.rehash(self.table)
        elif shortage == density.STAMPS_SHORT:
            self._renumber_stamps()
        else:
            self._grow_forest()

    def _renumber_stamps(self) -> None:
        """Give the members of trees the stamps 1, 2, ... in the order of those they have."""
        phi, forest = self.phi, self.phi.forest
        occupied = np.flatnonzero(phi.links[:, density.CELL] >= 0)
        heads = phi.cells[phi.links[occupied, density.CELL], density.HEAD]
        members = occupied[heads < 0]
        stamps = np.sort(phi.links[members, density.STAMP_IN_TREE])
        # Bounds may be stamps of members long gone: what counts is how many are not younger.
        for place in (
            forest.leaf_whole[:, :, STAMP],
            forest.inner_whole[:, HI_STAMP],
            forest.inner_whole[:, OLDEST],
        ):
            place[...] = np.searchsorted(stamps, place, side="right")
        phi.links[members, density.STAMP_IN_TREE] = np.searchsorted(
            stamps, phi.links[members, density.STAMP_IN_TREE], side="right"
        )
        forest.counters[CLOCK] = len(stamps) + 1

    def _grow_forest(self) -> None:
        forest = self.phi.forest
        counters = forest.counters
        inner, leaves = len(forest.inner_size), len(forest.leaf_span)
        if counters[INNER_ROOM] < MOST_LEVELS:
            inner = _grown(inner, MOST_LEVELS)
        if counters[LEAF_ROOM] < 4:
            leaves = _grown(leaves, 4)
        counters[INNER_ROOM] += inner - len(forest.inner_size)
        counters[LEAF_ROOM] += leaves - len(forest.leaf_span)
        self.phi = self.phi._replace(
            forest=Forest(
                inner_real=_enlarged(forest.inner_real, inner),
                inner_whole=_enlarged(forest.inner_whole, inner),
                inner_size=_enlarged(forest.inner_size, inner),
                leaf_reward=_enlarged(forest.leaf_reward, leaves),
                leaf_whole=_enlarged(forest.leaf_whole, leaves),
                leaf_span=_enlarged(forest.leaf_span, leaves),
                counters=counters,
                bounds=forest.bounds,
            )
        )

    def state_dict(self) -> dict[str, Any]:
        """Copies of the arrays, without idle room."""
        phi, forest = self.phi, self.phi.forest
        counters = forest.counters
        cells, inner = int(counters[CELLS_USED]), int(counters[INNER_USED])
        leaves = int(counters[LEAF_USED])
        occupied = np.flatnonzero(phi.links[:, density.CELL] >= 0)
        slots = int(occupied[-1]) + 1 if len(occupied) else 0
        return {
            "rewards": phi.rewards[:slots].copy(),
            "links": phi.links[:slots].copy(),
            "keys": phi.keys[:cells].copy(),
            "cells": phi.cells[:cells].copy(),
            "table": phi.table.copy(),
            "inner_real": forest.inner_real[:inner].copy(),
            "inner_whole": forest.inner_whole[:inner].copy(),
            "inner_size": forest.inner_size[:inner].copy(),
            "leaf_reward": forest.leaf_reward[:leaves].copy(),
            "leaf_whole": forest.leaf_whole[:leaves].copy(),
            "leaf_span": forest.leaf_span[:leaves].copy(),
            "counters": counters.copy(),
            # How much idle room there was: with a byte limit the next eviction depends on it.
            "allocated": {
                "slots": len(phi.rewards),
                "cells": len(phi.keys),
                "inner": len(forest.inner_size),
                "leaves": len(forest.leaf_span),
            },
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over the arrays of `state_dict`."""
        phi = self.phi._asdict()
        forest = phi.pop("forest")._asdict()
        bounds = forest.pop("bounds")
        for part in (phi, forest):
            for name, array in part.items():
                loaded = np.ascontiguousarray(state[name])
                if loaded.dtype != array.dtype or loaded.shape[1:] != array.shape[1:]:
                    raise ValueError(
                        f"{name} has type {loaded.dtype} and shape {loaded.shape}, "
                        f"but {array.dtype} and {('n', *array.shape[1:])} is needed"
                    )
                part[name] = loaded.copy()
        _allocate(phi, forest, state["allocated"])
        self.phi = Phi(**phi, forest=Forest(**forest, bounds=bounds))
        self._recount_room()

    def _recount_room(self) -> None:
        """Idle room is not kept in a file: only nodes that were given back are room."""
        forest = self.phi.forest
        counters = forest.counters
        for room, head, links, used in (
            (INNER_ROOM, INNER_FREE, forest.inner_whole, INNER_USED),
            (LEAF_ROOM, LEAF_FREE, forest.leaf_whole, LEAF_USED),
        ):
            given_back = 0
            node = int(counters[head])
            while node >= 0:
                given_back += 1
                node = int(links[node, 0, 0])
            counters[room] = given_back + len(links) - int(counters[used])


def _allocate(phi: dict[str, Any], forest: dict[str, Any], sizes: dict[str, int]) -> None:
    """Give loaded arrays the idle room that they had."""
    for part, names, what in (
        (phi, ("rewards", "links"), "slots"),
        (phi, ("keys", "cells"), "cells"),
        (forest, ("inner_real", "inner_whole", "inner_size"), "inner"),
        (forest, ("leaf_reward", "leaf_whole", "leaf_span"), "leaves"),
    ):
        for name in names:
            used, size = len(part[name]), int(sizes[what])
            if not used <= size < 2**31:
                raise ValueError(f"{size} {what} cannot have been allocated for {used} in use")
            part[name] = _enlarged(part[name], size)
            if name == "links":
                part[name][used:] = -1


def _grown(size: int, least: int) -> int:
    return max(size + least, int(size * _GROWTH))


def _enlarged(array: Any, size: int) -> Any:
    # Not `empty`: what lies unused inside a node is saved with it, and must not be chance.
    larger = np.zeros((size, *array.shape[1:]), dtype=array.dtype)
    larger[: len(array)] = array
    return larger
