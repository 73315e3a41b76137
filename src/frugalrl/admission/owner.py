"""The owner's side of the protocol, for whoever keeps transitions elsewhere or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from frugalrl.admission.protocol import DROP, REPLACE, STORE, AdmissionFilter, Decisions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from frugalrl.admission.protocol import Floats, Slots


class Owner:
    """Offers rows to a filter and carries out what it decides, knowing only which row is where.

    Args:
        admission: the filter, which has begun.
        capacity: most slots in use; the oldest is evicted for another. None for no limit.
        slots: those in use already, oldest first.

    Attributes:
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
        self.evicted = 0
        used = np.fromiter(slots, dtype=np.int64)
        self._size = self._rows = len(used)
        self._next = int(used.max(initial=-1)) + 1
        # The row in each slot, -1 for none; rows are counted as they come, so this is its age too.
        self._row_in = np.full(self._next, -1, dtype=np.int64)
        self._row_in[used] = np.arange(len(used))
        # A heap of the free slots below the first that never was in use.
        self._free = np.flatnonzero(self._row_in < 0).tolist()
        # The oldest slots, the very oldest last, as they were before this row.
        self._oldest: list[int] = []
        self._oldest_before = 0

    def __len__(self) -> int:
        return self._size

    @property
    def row_in_slot(self) -> dict[int, int]:
        """The row in each slot in use, oldest first; rows are counted as they come."""
        slots = self.oldest_first()
        return dict(zip(slots.tolist(), self._row_in[slots].tolist(), strict=True))

    @property
    def nbytes(self) -> int:
        """Bytes of the books."""
        return self._row_in.nbytes

    def oldest_first(self) -> NDArray[np.int64]:
        """List the slots in use by age."""
        slots = np.flatnonzero(self._row_in >= 0)
        return slots[np.argsort(self._row_in[slots])]

    def add(
        self, observations: Floats, rewards: Floats
    ) -> tuple[NDArray[np.int8], Slots, list[int]]:
        """Offer (n, d) observations with (n,) rewards, all finite, in order.

        Returns:
            (n,) codes, where a row that was given up again counts as dropped; (n,) the slots that
            the rows are in now, -1 for those that are in none; and the slots that were given up.
        """
        count, done, first = len(rewards), 0, self._rows
        codes = np.full(count, DROP, dtype=np.int8)
        slots = np.full(count, -1, dtype=np.int64)
        released: list[int] = []
        while done < count:
            free = self._free_slots(count - done)
            decisions = self.decisions(observations[done:], rewards[done:], free)
            now = slice(done, done + len(decisions.codes))
            codes[now], slots[now] = decisions.codes, decisions.slots
            self._follow(codes[now], slots[now], first + done)
            done = now.stop
            if slots[done - 1] < 0 and codes[done - 1] != DROP:
                slots[done - 1] = self._evict(first + done - 1)
                self.admission.place(
                    observations[done - 1], float(rewards[done - 1]), int(slots[done - 1])
                )
            for slot in [] if decisions.released is None else decisions.released.tolist():
                row = int(self._row_in[slot])
                if row >= first:
                    codes[row - first] = DROP
                self._row_in[slot] = -1
                self._size -= 1
                heappush(self._free, slot)
                released.append(slot)
        self._rows += count
        is_left = slots >= 0
        is_left[is_left] = self._row_in[slots[is_left]] == np.flatnonzero(is_left) + first
        slots[~is_left] = -1
        return codes, slots, released

    def decisions(self, observations: Floats, rewards: Floats, free: Slots) -> Decisions:
        """Ask the filter."""
        return self.admission.offer(observations, rewards, free)

    def _free_slots(self, count: int) -> NDArray[np.int64]:
        """Give as many free slots as there are, up to a number, lowest first."""
        most = self._next + count if self.capacity is None else self.capacity
        lowest = sorted(self._free)[:count]
        end = max(min(self._next + count - len(lowest), most), self._next)
        fresh = np.arange(self._next, end)
        return np.concatenate([np.array(lowest, dtype=np.int64), fresh]) if lowest else fresh

    def _follow(self, codes: NDArray[np.int8], slots: NDArray[np.int64], first: int) -> None:
        """Put rows into their slots, the last one excepted if it has none."""
        for row, (code, slot) in enumerate(zip(codes.tolist(), slots.tolist(), strict=True), first):
            if code == STORE and slot >= 0:
                self._size += 1
                if self._free:
                    heappop(self._free)
                else:
                    self._next += 1
                if slot >= len(self._row_in):
                    more = max(slot + 1 - len(self._row_in), len(self._row_in) >> 1)
                    self._row_in = np.append(self._row_in, np.full(more, -1))
            elif code == REPLACE and (slot >= len(self._row_in) or self._row_in[slot] < 0):
                raise RuntimeError(f"the filter replaces slot {slot}, which holds nothing")
            if code != DROP and slot >= 0:
                self._row_in[slot] = row

    def _evict(self, row: int) -> int:
        """Give the slot of the oldest to a row that found none."""
        while not self._oldest or not 0 <= self._row_in[self._oldest[-1]] < self._oldest_before:
            if self._oldest:
                self._oldest.pop()  # which is no longer what it was
            else:
                # Many at a time: to sort them takes long.
                self._oldest = self.oldest_first()[: 64 + self._size // 8][::-1].tolist()
                self._oldest_before = row
        slot = self._oldest.pop()
        self.admission.forget(slot)
        self._row_in[slot] = row
        self.evicted += 1
        return slot
