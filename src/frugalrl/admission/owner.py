"""The owner's side of the protocol, for whoever keeps transitions elsewhere or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from frugalrl.admission.protocol import DROP, REPLACE, AdmissionFilter, Decisions

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Owner:
    """Offers rows to a filter and carries out what it decides, knowing only which row is where.

    Args:
        admission: the filter, which has begun.
        capacity: most slots in use; the oldest is evicted for another. None for no limit.
        slots: those in use already, oldest first.

    Attributes:
        row_in_slot: the row in each slot in use, oldest first; rows are counted as they come.
        evicted: how many slots had to be made free.
    """

    def __init__(
        self,
        admission: AdmissionFilter,
        capacity: int | None = None,
        slots: Iterable[int] = (),
    ) -> None:
        self.admission = admission
        self.capacity = capacity
        self.row_in_slot = {slot: row for row, slot in enumerate(slots)}
        self.evicted = 0
        self._rows = len(self.row_in_slot)
        self._next = max(self.row_in_slot, default=-1) + 1
        # A heap of the free slots below the first that never was in use.
        self._free = [slot for slot in range(self._next) if slot not in self.row_in_slot]

    def add(
        self, observations: NDArray[np.floating], rewards: NDArray[np.floating]
    ) -> tuple[NDArray[np.int8], NDArray[np.int64], list[int]]:
        """Offer (n, d) observations with (n,) rewards, all finite, in order.

        Returns:
            (n,) codes, where a row that was given up again counts as dropped; (n,) the slots that
            the rows are in now, -1 for those that are in none; and the slots that were given up.
        """
        count, done, first = len(rewards), 0, self._rows
        codes = np.full(count, DROP, dtype=np.int8)
        released: list[int] = []
        while done < count:
            free = self._free_slots(count - done)
            decisions = self.decisions(observations[done:], rewards[done:], free)
            decided = len(decisions.codes)
            codes[done : done + decided] = decisions.codes
            for row, (code, slot) in enumerate(
                zip(decisions.codes.tolist(), decisions.slots.tolist(), strict=True), start=done
            ):
                if code != DROP:
                    self._write(first + row, code, slot, observations[row], float(rewards[row]))
            done += decided
            for slot in [] if decisions.released is None else decisions.released.tolist():
                row = self.row_in_slot.pop(slot)
                if row >= first:
                    codes[row - first] = DROP
                heappush(self._free, slot)
                released.append(slot)
        self._rows += count
        slots = np.full(count, -1, dtype=np.int64)
        for slot, row in reversed(self.row_in_slot.items()):
            if row < first:
                break
            slots[row - first] = slot
        return codes, slots, released

    def decisions(
        self,
        observations: NDArray[np.floating],
        rewards: NDArray[np.floating],
        free: NDArray[np.int64],
    ) -> Decisions:
        """Ask the filter."""
        return self.admission.offer(observations, rewards, free)

    def _free_slots(self, count: int) -> NDArray[np.int64]:
        """Give as many free slots as there are, up to a number, lowest first."""
        most = self._next + count if self.capacity is None else self.capacity
        lowest = sorted(self._free)[:count]
        fresh = range(self._next, min(self._next + count - len(lowest), most))
        return np.array([*lowest, *fresh], dtype=np.int64)

    def _write(
        self, row: int, code: int, slot: int, observation: NDArray[np.floating], reward: float
    ) -> None:
        """Put a row into its slot, making one free if it has none."""
        if slot < 0:
            slot = next(iter(self.row_in_slot))
            del self.row_in_slot[slot]
            self.evicted += 1
            self.admission.forget(slot)
            self.admission.place(observation, reward, slot)
        elif code == REPLACE:
            if slot not in self.row_in_slot:
                raise RuntimeError(f"the filter replaces slot {slot}, which holds nothing")
            del self.row_in_slot[slot]  # to be the youngest
        elif self._free and slot == self._free[0]:
            heappop(self._free)
        else:
            self._next += 1
        self.row_in_slot[slot] = row
