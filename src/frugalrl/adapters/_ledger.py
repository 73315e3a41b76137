"""Carries out a filter's decisions over someone else's storage, by slot numbers alone."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from frugalrl.admission.protocol import DROP, REPLACE, STORE, AdmissionFilter
from frugalrl.replay.results import REFUSED, BufferStats, Outcome

Write = Callable[[NDArray[np.int64], NDArray[np.int64]], None]
KeepOnly = Callable[[NDArray[np.int64]], None]


class Ledger:
    """Knows which slots are taken and how old they are, and asks the filter about every row.

    Slots 0 .. len(ledger) - 1 are always the ones in use.

    Args:
        capacity: number of slots.
        admission: the filter; the ledger is its owner.
        observation_space: flat space for the filter's bounds, None when unknown.
    """

    def __init__(
        self, capacity: int, admission: AdmissionFilter, observation_space: Box | None = None
    ) -> None:
        self.capacity = int(capacity)
        self.admission = admission
        self._counts = asdict(BufferStats())
        self._size = 0
        # A list of the used slots by age, linked both ways; entry `capacity` is both its ends.
        self._older = np.zeros(self.capacity + 1, dtype=np.int64)
        self._newer = np.zeros(self.capacity + 1, dtype=np.int64)
        self._older[-1] = self._newer[-1] = self.capacity
        admission.begin(observation_space)

    def __len__(self) -> int:
        return self._size

    def offer(
        self,
        observations: NDArray[np.floating],
        rewards: NDArray[np.floating],
        write: Write,
        keep_only: KeepOnly,
        finite: NDArray[np.bool_] | None = None,
    ) -> Outcome:
        """Offer rows to the filter and have the owner of the storage carry out what it decides.

        Args:
            observations: (n, d), as stored.
            rewards: (n,), as stored.
            write: called with rows and the distinct slots they go to.
            keep_only: called with the slots to keep, which then are slots 0, 1, 2, ...
            finite: (n,) rows that hold no NaN or infinity anywhere else.
        """
        codes = np.full(len(rewards), REFUSED, dtype=np.int8)
        slots = np.full(len(rewards), -1, dtype=np.int64)
        fine = np.isfinite(observations).all(axis=1) & np.isfinite(rewards)
        if finite is not None:
            fine &= finite
        rows = np.flatnonzero(fine)
        self._count_refused(len(rewards) - len(rows))
        done = written = 0
        while done < len(rows):
            left = rows[done:]
            free = np.arange(self._size, min(self._size + len(left), self.capacity))
            decisions = self.admission.offer(observations[left], rewards[left], free)
            decided = left[: len(decisions.codes)]
            codes[decided] = decisions.codes
            slots[decided] = decisions.slots
            self._follow(decided, codes, slots, observations, rewards)
            done += len(decided)
            if decisions.keep is not None:
                self._write(rows[written:done], codes, slots, write)
                written = done
                self._keep(decisions.keep, codes, slots)
                keep_only(decisions.keep)
        self._write(rows[written:], codes, slots, write)
        _forget_overwritten(slots)
        self._counts["offered"] += len(rewards)
        return Outcome(codes, slots)

    def _follow(
        self,
        decided: NDArray[np.int64],
        codes: NDArray[np.int8],
        slots: NDArray[np.int64],
        observations: NDArray[np.floating],
        rewards: NDArray[np.floating],
    ) -> None:
        """Keep the ages after a call to the filter, evicting the oldest for a row without slot."""
        for row in decided:
            if codes[row] == DROP:
                self._counts["dropped"] += 1
                continue
            slot = int(slots[row])
            self._counts["replaced" if codes[row] == REPLACE else "stored"] += 1
            if codes[row] == REPLACE:
                self._unlink(slot)
            elif slot >= 0:
                self._size += 1
            else:
                slot = slots[row] = int(self._newer[self.capacity])
                self._unlink(slot)
                self._counts["evicted"] += 1
                self.admission.forget(slot)
                self.admission.place(observations[row], float(rewards[row]), slot)
            self._link_youngest(slot)

    @staticmethod
    def _write(
        rows: NDArray[np.int64], codes: NDArray[np.int8], slots: NDArray[np.int64], write: Write
    ) -> None:
        """Hand rows to the storage; of several for one slot only the last is still there."""
        rows = rows[codes[rows] != DROP]
        if len(rows) > 1:
            _, last = np.unique(slots[rows][::-1], return_index=True)
            rows = rows[np.sort(len(rows) - 1 - last)]
        if len(rows):
            write(rows, slots[rows])

    def _keep(
        self, keep: NDArray[np.int64], codes: NDArray[np.int8], slots: NDArray[np.int64]
    ) -> None:
        """Renumber after the filter has chosen among the warm-up's transitions."""
        _forget_overwritten(slots)
        moved = np.full(self._size + 1, -1, dtype=np.int64)
        moved[keep] = np.arange(len(keep))
        slots[...] = moved[slots]  # -1 stays -1: the extra entry is the last
        codes[(codes == STORE) & (slots < 0)] = DROP
        self._counts["stored"] -= self._size - len(keep)
        self._counts["dropped"] += self._size - len(keep)
        self._relink(np.arange(len(keep)))

    def _count_refused(self, refused: int) -> None:
        if refused and not self._counts["rejected_nonfinite"]:
            warnings.warn(
                "a transition with NaN or infinity was refused; further ones are only counted",
                RuntimeWarning,
                stacklevel=4,
            )
        self._counts["rejected_nonfinite"] += refused

    def oldest_first(self) -> NDArray[np.int64]:
        """List the used slots by age."""
        slots = np.empty(self._size, dtype=np.int64)
        slot = self.capacity
        for position in range(self._size):
            slots[position] = slot = self._newer[slot]
        return slots

    def _unlink(self, slot: int) -> None:
        older, newer = self._older[slot], self._newer[slot]
        self._newer[older], self._older[newer] = newer, older

    def _link_youngest(self, slot: int) -> None:
        end = self.capacity
        youngest = self._older[end]
        self._newer[youngest] = self._older[end] = slot
        self._older[slot], self._newer[slot] = youngest, end

    def _relink(self, slots: NDArray[np.int64]) -> None:
        """Start the list of ages again from slots, oldest first."""
        self._size = len(slots)
        circle = np.concatenate(([self.capacity], slots))
        self._newer[circle] = np.roll(circle, -1)
        self._older[circle] = np.roll(circle, 1)

    @property
    def stats(self) -> BufferStats:
        """What has become of the transitions offered so far."""
        return BufferStats(**self._counts)

    @property
    def nbytes(self) -> int:
        """Bytes of the filter's state and of the ages of the slots in use."""
        return self.admission.nbytes + 16 * self._size

    def state_dict(self) -> dict[str, Any]:
        """Ages, counts and the filter's state, as arrays and JSON values."""
        return {
            "capacity": self.capacity,
            "counts": dict(self._counts),
            "oldest_first": self.oldest_first(),
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
        self.admission = type(self.admission).from_state_dict(state["admission"])
        self._counts = {name: int(count) for name, count in state["counts"].items()}
        self._relink(np.asarray(state["oldest_first"], dtype=np.int64))


def _forget_overwritten(slots: NDArray[np.int64]) -> None:
    """Mark rows whose slot a later row took with -1."""
    stored = np.flatnonzero(slots >= 0)
    if len(stored) < 2:
        return
    _, last = np.unique(slots[stored][::-1], return_index=True)
    overwritten = np.ones(len(stored), dtype=np.bool_)
    overwritten[len(stored) - 1 - last] = False
    slots[stored[overwritten]] = -1
