"""Carries out a filter's decisions over someone else's storage, by row numbers alone."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from frugalrl.adapters.filters import copy_of
from frugalrl.admission.eviction import RUN_LENGTH, make_victims
from frugalrl.admission.owner import Owner
from frugalrl.admission.protocol import AdmissionFilter
from frugalrl.replay.results import REFUSED, BufferStats, Outcome

Rows = NDArray[np.int64]
_COUNTED = ("dropped", "stored", "replaced", "rejected_nonfinite")
"""What becomes of a row, by its code."""


class AdmissionLedger:
    """Keeps the books for a storage that is not ours: who may enter, where, and who has to go.

    The storage has positions 0 .. capacity - 1; always those from 0 to len(ledger) - 1 are in use.
    Slots, by which the filter knows a transition, never change; a position does where the filter
    gives slots up, because the last rows then move into the gaps.

    Args:
        capacity: number of positions.
        admission: the filter; the ledger is its owner.
        observation_space: flat space for the filter's bounds, None when unknown.
        eviction: which row goes when the storage is full, as for `frugalrl.ReplayBuffer` with
            `seed=0`: the "oldest", or a "random" one and after it the 49 next in age.

    Raises:
        ValueError: there is no such eviction.
    """

    def __init__(
        self,
        capacity: int,
        admission: AdmissionFilter,
        observation_space: Box | None = None,
        eviction: str = "oldest",
    ) -> None:
        self.capacity, self.eviction = int(capacity), eviction
        self._space = observation_space
        self._fresh = copy_of(admission)
        self._begin(admission)

    def _begin(self, admission: AdmissionFilter) -> None:
        self._counts = asdict(BufferStats())
        self._owner = Owner(admission, self.capacity, victims=make_victims(self.eviction))
        # Slot and position of each other; they differ after slots were given up alone.
        self._position_of = np.full(self.capacity, -1, dtype=np.int64)
        self._slot_at = np.full(self.capacity, -1, dtype=np.int64)
        self._size = 0
        admission.begin(self._space)

    def clear(self) -> None:
        """Forget every row, and what the filter learnt from them."""
        self._begin(copy_of(self._fresh))

    def __len__(self) -> int:
        return self._size

    @property
    def admission(self) -> AdmissionFilter:
        """The filter."""
        return self._owner.admission

    def offer(
        self,
        observations: NDArray[np.floating],
        rewards: NDArray[np.floating],
        write: Callable[[Rows, Rows], None],
        move: Callable[[Rows, Rows], None],
        finite: NDArray[np.bool_] | None = None,
    ) -> Outcome:
        """Offer rows to the filter and have the owner of the storage carry out what it decides.

        Args:
            observations: (n, d), as stored.
            rewards: (n,), as stored.
            write: called with rows and the distinct positions they go to.
            move: called with positions in use and the free positions they move to; after it the
                storage ends at `len(ledger)`, until rows are written.
            finite: (n,) rows that hold no NaN or infinity anywhere else.

        Returns:
            What became of each row, and the position it is at, -1 where it is nowhere (any more).
        """
        codes = np.full(len(rewards), REFUSED, dtype=np.int8)
        positions = np.full(len(rewards), -1, dtype=np.int64)
        fine = np.isfinite(observations).all(axis=1) & np.isfinite(rewards)
        if finite is not None:
            fine &= finite
        rows = np.flatnonzero(fine)
        if len(rows) < len(rewards) and not self._counts["rejected_nonfinite"]:
            warnings.warn(
                "a transition with NaN or infinity was refused; further ones are only counted",
                RuntimeWarning,
                stacklevel=3,
            )
        codes[rows], slots, released = self._owner.add(observations[rows], rewards[rows])
        self._counts["offered"] += len(rewards)
        for name, count in zip(_COUNTED, np.bincount(codes, minlength=4).tolist(), strict=True):
            self._counts[name] += count
        if released:
            self._release(np.array(released, dtype=np.int64), move)
        written, slots = rows[slots >= 0], slots[slots >= 0]
        if len(written):
            self._find_positions(slots)
            positions[written] = self._position_of[slots]
            write(written, positions[written])
        return Outcome(codes, positions)

    def _find_positions(self, slots: Rows) -> None:
        """Give the next positions to slots that have none, in the order of their numbers."""
        new = np.sort(slots[self._position_of[slots] < 0])
        places = np.arange(self._size, self._size + len(new))
        self._position_of[new], self._slot_at[places] = places, new
        self._size += len(new)

    def _release(self, released: Rows, move: Callable[[Rows, Rows], None]) -> None:
        """Close the gaps of slots that the filter has given up, and count them as dropped."""
        emptied = self._position_of[released]
        gone = released[emptied >= 0]  # the others came and went within one call
        emptied = emptied[emptied >= 0]
        self._counts["stored"] -= len(gone)
        self._counts["dropped"] += len(gone)
        self._position_of[gone] = -1
        self._size -= len(gone)
        gaps = np.sort(emptied[emptied < self._size])
        beyond = np.arange(self._size, self._size + len(gone))
        movers = beyond[~np.isin(beyond, emptied)]
        moved = self._slot_at[movers]
        self._position_of[moved], self._slot_at[gaps] = gaps, moved
        if len(gone):
            move(movers, gaps)

    def oldest_first(self) -> Rows:
        """List the positions in use by the age of what they hold."""
        return np.asarray(self._position_of[self._owner.oldest_first()])

    @property
    def stats(self) -> BufferStats:
        """What has become of the transitions offered so far."""
        return BufferStats(**{**self._counts, "evicted": self._owner.evicted})

    @property
    def nbytes(self) -> int:
        """Bytes of the filter's state, and of the books for the slots in use."""
        return self.admission.nbytes + self._owner.nbytes + 16 * self._size

    def state_dict(self) -> dict[str, Any]:
        """Ages, positions, counts and the filter's state, as arrays and JSON values."""
        victims, random = self._owner.victims, None
        if victims is not None:
            random = {"generator": victims.bit_generator.state, "run": list(self._owner.run)}
        return {
            "capacity": self.capacity,
            "counts": asdict(self.stats),
            "slots": self._owner.oldest_first(),
            "positions": self.oldest_first(),
            "filter": self.admission.name,
            "admission": self.admission.state_dict(),
            "random_eviction": random,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state that a ledger with the same kind of filter gave.

        Raises:
            ValueError: the state is of another filter, capacity or eviction, or is damaged; nothing
                changes.
        """
        if state["filter"] != self.admission.name or state["capacity"] != self.capacity:
            raise ValueError(
                f"the state is of filter {state['filter']!r} with capacity {state['capacity']}, "
                f"this buffer has {self.admission.name!r} with {self.capacity}"
            )
        random = state.get("random_eviction")  # older states have none
        eviction = "oldest" if random is None else "random"
        if eviction != self.eviction:
            raise ValueError(
                f"the state is of a buffer with eviction={eviction!r}, this one was made with "
                f"{self.eviction!r}; make it alike"
            )
        slots = np.asarray(state["slots"], dtype=np.int64)
        positions = np.asarray(state["positions"], dtype=np.int64)
        distinct = len(np.unique(slots)) == len(slots)
        in_range = bool((slots >= 0).all() and (slots < self.capacity).all())
        dense = np.array_equal(np.sort(positions), np.arange(len(slots)))
        if not (distinct and in_range and dense):
            raise ValueError("the state's slots and positions do not belong together")
        victims, run = make_victims(eviction), (-1, 0)
        if victims is not None and random is not None:
            victims.bit_generator.state = random["generator"]
            run = (int(random["run"][0]), int(random["run"][1]))
            if run != (-1, 0) and not (run[0] in slots and 0 < run[1] < RUN_LENGTH):
                raise ValueError(f"run={run} is none of what is held")
        admission = type(self.admission).from_state_dict(state["admission"])
        self._counts = {name: int(count) for name, count in state["counts"].items()}
        self._owner = Owner(admission, self.capacity, slots.tolist(), victims, run)
        self._owner.evicted = self._counts["evicted"]
        self._position_of[:], self._slot_at[:] = -1, -1
        self._position_of[slots], self._slot_at[positions] = positions, slots
        self._size = len(slots)


class KeepsLedger:
    """What every buffer with a ledger shows of it."""

    _ledger: AdmissionLedger

    @property
    def admission(self) -> AdmissionFilter:
        """The filter in use."""
        return self._ledger.admission

    @property
    def stats(self) -> BufferStats:
        """What has become of the transitions offered so far."""
        return self._ledger.stats

    @property
    def eviction(self) -> str:
        """Which transition goes when the buffer is full."""
        return self._ledger.eviction
