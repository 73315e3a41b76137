"""Carries out a filter's decisions over someone else's storage, by slot numbers alone."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from frugalrl.admission.owner import Owner
from frugalrl.admission.protocol import DROP, REPLACE, STORE, AdmissionFilter
from frugalrl.replay.results import REFUSED, BufferStats, Outcome

Write = Callable[[NDArray[np.int64], NDArray[np.int64]], None]
KeepOnly = Callable[[NDArray[np.int64]], None]


class Ledger:
    """Knows which rows of a storage are taken and how old they are, and asks about every other.

    Rows 0 .. len(ledger) - 1 of the storage are always the ones in use. The filter's slots are
    other numbers: it gives some up when a filtered warm-up ends, and what is left moves together.

    Args:
        capacity: rows of the storage.
        admission: the filter; the ledger is its owner.
        observation_space: flat space for the filter's bounds, None when unknown.
    """

    def __init__(
        self, capacity: int, admission: AdmissionFilter, observation_space: Box | None = None
    ) -> None:
        self.capacity = int(capacity)
        self._owner = Owner(admission, self.capacity)
        self._counts = asdict(BufferStats())
        self._row_of_slot: dict[int, int] = {}
        admission.begin(observation_space)

    @property
    def admission(self) -> AdmissionFilter:
        """The filter."""
        return self._owner.admission

    def __len__(self) -> int:
        return len(self._row_of_slot)

    def offer(
        self,
        observations: NDArray[np.floating],
        rewards: NDArray[np.floating],
        write: Write,
        keep_only: KeepOnly,
        finite: NDArray[np.bool_] | None = None,
    ) -> Outcome:
        """Offer transitions and have the owner of the storage carry out what is decided.

        Args:
            observations: (n, d), as stored.
            rewards: (n,), as stored.
            write: called with numbers of transitions and the distinct rows that they go to.
            keep_only: called with the rows to keep, which then are rows 0, 1, 2, ...
            finite: (n,) transitions that hold no NaN or infinity anywhere else.

        Returns:
            What became of each; its slots are rows of the storage.
        """
        codes = np.full(len(rewards), REFUSED, dtype=np.int8)
        rows = np.full(len(rewards), -1, dtype=np.int64)
        fine = np.isfinite(observations).all(axis=1) & np.isfinite(rewards)
        if finite is not None:
            fine &= finite
        offered = np.flatnonzero(fine)
        self._count_refused(len(rewards) - len(offered))
        told, slots, released = self._owner.add(observations[offered], rewards[offered])
        self._counts["offered"] += len(rewards)
        for name, code in (("stored", STORE), ("replaced", REPLACE), ("dropped", DROP)):
            self._counts[name] += int(np.count_nonzero(told == code))
        codes[offered] = told
        if released:
            self._move_together(set(released), keep_only)
        written = offered[slots >= 0]
        # In ascending order, so that a row has the number of its slot where none were given up.
        for slot in np.sort(slots[slots >= 0]).tolist():
            self._row_of_slot.setdefault(slot, len(self._row_of_slot))
        rows[written] = [self._row_of_slot[slot] for slot in slots[slots >= 0].tolist()]
        if len(written):
            write(written, rows[written])
        return Outcome(codes, rows)

    def _move_together(self, released: set[int], keep_only: KeepOnly) -> None:
        """Drop what the filter has given up, and count it as dropped."""
        kept = {slot: row for slot, row in self._row_of_slot.items() if slot not in released}
        gone = len(self._row_of_slot) - len(kept)
        self._counts["stored"] -= gone
        self._counts["dropped"] += gone
        if gone:
            keep_only(np.fromiter(kept.values(), dtype=np.int64))
            self._row_of_slot = {slot: row for row, slot in enumerate(kept)}

    def _count_refused(self, refused: int) -> None:
        if refused and not self._counts["rejected_nonfinite"]:
            warnings.warn(
                "a transition with NaN or infinity was refused; further ones are only counted",
                RuntimeWarning,
                stacklevel=4,
            )
        self._counts["rejected_nonfinite"] += refused

    def oldest_first(self) -> NDArray[np.int64]:
        """List the used rows by age."""
        return np.array([self._row_of_slot[slot] for slot in self._owner.row_in_slot], np.int64)

    @property
    def stats(self) -> BufferStats:
        """What has become of the transitions offered so far."""
        return BufferStats(**{**self._counts, "evicted": self._owner.evicted})

    @property
    def nbytes(self) -> int:
        """Bytes of the filter's state."""
        return self.admission.nbytes

    def state_dict(self) -> dict[str, Any]:
        """Ages, counts and the filter's state, as arrays and JSON values."""
        return {
            "capacity": self.capacity,
            "counts": asdict(self.stats),
            "slots": np.fromiter(self._owner.row_in_slot, dtype=np.int64),
            "rows": self.oldest_first(),
            "filter": self.admission.name,
            "admission": self.admission.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state that a ledger with the same kind of filter gave.

        Raises:
            ValueError: the state is of another filter or another capacity.
        """
        if state["filter"] != self.admission.name or state["capacity"] != self.capacity:
            raise ValueError(
                f"the state is of filter {state['filter']!r} with capacity {state['capacity']}, "
                f"this buffer has {self.admission.name!r} with {self.capacity}"
            )
        slots, rows = np.asarray(state["slots"]).tolist(), np.asarray(state["rows"]).tolist()
        if sorted(rows) != list(range(len(slots))) or len(set(slots)) != len(slots):
            raise ValueError("the state names a row or a slot twice")
        admission = type(self.admission).from_state_dict(state["admission"])
        self._owner = Owner(admission, self.capacity, slots)
        self._row_of_slot = dict(zip(slots, rows, strict=True))
        self._counts = {name: int(count) for name, count in state["counts"].items()}
        self._owner.evicted = self._counts["evicted"]
