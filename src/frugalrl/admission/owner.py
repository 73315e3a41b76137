"""The owner's side of the protocol, for whoever keeps transitions elsewhere or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

import numpy as np

from frugalrl.admission.protocol import DROP, REPLACE, AdmissionFilter, Decisions
from frugalrl.compiling import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Columns of the books; slot s stands in line s + 1, line 0 is both ends of the list by age.
_OLDER, _NEWER, _ROW = range(3)
_NONE = -1


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
        self._books = np.zeros((1, 3), dtype=np.int64)
        self._books[0, _ROW] = _NONE
        self._make_lines(self._next)
        _follow(self._books, np.full(len(used), 1, dtype=np.int8), used, 0)
        # A heap of the free slots below the first that never was in use.
        self._free = np.setdiff1d(np.arange(self._next), used).tolist()

    def __len__(self) -> int:
        return self._size

    @property
    def row_in_slot(self) -> dict[int, int]:
        """The row in each slot in use, oldest first; rows are counted as they come."""
        slots = self.oldest_first()
        return dict(zip(slots.tolist(), self._books[slots + 1, _ROW].tolist(), strict=True))

    @property
    def nbytes(self) -> int:
        """Bytes of the books."""
        return self._books.nbytes

    def oldest_first(self) -> NDArray[np.int64]:
        """List the slots in use by age."""
        slots = np.empty(self._size, dtype=np.int64)
        _list_ages(self._books, slots)
        return slots

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
            self._follow(decisions, first + done)
            done += decided
            if decisions.slots[-1] < 0 and decisions.codes[-1] != DROP:
                self._evict_for(observations[done - 1], float(rewards[done - 1]), first + done - 1)
            for slot in [] if decisions.released is None else decisions.released.tolist():
                row = self._release(slot)
                if row >= first:
                    codes[row - first] = DROP
                released.append(slot)
        self._rows += count
        slots = np.full(count, -1, dtype=np.int64)
        _find_rows(self._books, first, slots)
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
        end = max(min(self._next + count - len(lowest), most), self._next)
        fresh = np.arange(self._next, end)
        return np.concatenate([np.array(lowest, dtype=np.int64), fresh]) if lowest else fresh

    def _follow(self, decisions: Decisions, first: int) -> None:
        """Put rows into their slots, the last one excepted if it has none."""
        codes = np.ascontiguousarray(decisions.codes, dtype=np.int8)
        slots = np.ascontiguousarray(decisions.slots, dtype=np.int64)
        taken = int(np.count_nonzero((codes != DROP) & (codes != REPLACE) & (slots >= 0)))
        reused = min(taken, len(self._free))
        for _ in range(reused):
            heappop(self._free)
        self._next += taken - reused
        self._make_lines(self._next)
        self._size += taken
        wrong = _follow(self._books, codes, slots, first)
        if wrong >= 0:
            raise RuntimeError(f"the filter replaces slot {wrong}, which holds nothing")

    def _make_lines(self, slots: int) -> None:
        """Have a line in the books for so many slots."""
        lines = len(self._books)
        if slots + 1 <= lines:
            return
        wanted = max(slots + 1, lines + (lines >> 1))
        if self.capacity is not None:
            wanted = max(slots + 1, min(wanted, self.capacity + 1))
        grown = np.full((wanted, 3), _NONE, dtype=np.int64)
        grown[:lines] = self._books
        self._books = grown

    def _evict_for(self, observation: NDArray[np.floating], reward: float, row: int) -> None:
        """Give the slot of the oldest to a row that found none."""
        slot = int(self._books[0, _NEWER]) - 1
        self.evicted += 1
        self.admission.forget(slot)
        self.admission.place(observation, reward, slot)
        _follow(self._books, np.array([REPLACE], dtype=np.int8), np.array([slot]), row)

    def _release(self, slot: int) -> int:
        """Free a slot that the filter has given up; gives the row that was in it."""
        older, newer, row = self._books[slot + 1].tolist()
        self._books[older, _NEWER], self._books[newer, _OLDER] = newer, older
        self._books[slot + 1, _ROW] = _NONE
        self._size -= 1
        heappush(self._free, slot)
        return int(row)


@compiled
def _follow(books: Any, codes: Any, slots: Any, first: int) -> int:
    """Make the slot of each row the youngest; gives a slot replaced that holds nothing, or -1."""
    for row in range(len(codes)):
        slot = slots[row]
        if codes[row] == DROP or slot < 0:
            continue
        line = slot + 1
        if codes[row] == REPLACE:
            if line >= len(books) or books[line, _ROW] < 0:
                return int(slot)
            older, newer = books[line, _OLDER], books[line, _NEWER]
            books[older, _NEWER], books[newer, _OLDER] = newer, older
        youngest = books[0, _OLDER]
        books[youngest, _NEWER] = line
        books[0, _OLDER] = line
        books[line, _OLDER], books[line, _NEWER] = youngest, 0
        books[line, _ROW] = first + row
    return _NONE


@compiled
def _list_ages(books: Any, slots: Any) -> None:
    """List the slots from the oldest on."""
    line = 0
    for position in range(len(slots)):
        line = books[line, _NEWER]
        slots[position] = line - 1


@compiled
def _find_rows(books: Any, first: int, slots: Any) -> None:
    """Fill in where each row from `first` on is, from the youngest on."""
    line = books[0, _OLDER]
    while line > 0 and books[line, _ROW] >= first:
        slots[books[line, _ROW] - first] = line - 1
        line = books[line, _OLDER]
