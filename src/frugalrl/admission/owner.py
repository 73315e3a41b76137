"""The owner's side of the protocol: for whoever keeps transitions elsewhere, and a check by it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frugalrl.admission.eviction import RUN_LENGTH
from frugalrl.admission.protocol import (
    DROP,
    REPLACE,
    STORE,
    AdmissionFilter,
    Decisions,
    Floats,
    Slots,
)

_STEPS = 600
_DIMENSIONS = 3
_CAPACITY = 150
"""Of the stream that a filter is checked with, and of the buffer that it fills."""


class Owner:
    """Offers rows to a filter and carries out what it decides, knowing only which row is where.

    Args:
        admission: the filter, which has begun.
        capacity: most slots in use; one is evicted for another. None for no limit.
        slots: those in use already, oldest first.
        victims: draws the slots that are evicted; None evicts the oldest.
        run: as `Owner.run` was.

    Attributes:
        evicted: how many slots had to be made free.
    """

    def __init__(
        self,
        admission: AdmissionFilter,
        capacity: int | None = None,
        slots: Iterable[int] = (),
        victims: np.random.Generator | None = None,
        run: tuple[int, int] = (-1, 0),
    ) -> None:
        self.admission = admission
        self.capacity = capacity
        self.victims = victims
        self.evicted = 0
        used = np.fromiter(slots, dtype=np.int64)
        self._rows = len(used)
        # The row in each slot, -1 for none; rows are counted as they come, so this is its age too.
        self._row_in = np.full(used.max(initial=-1) + 1, -1, dtype=np.int64)
        self._row_in[used] = np.arange(len(used))
        # Free slots in ascending order, and the first of those that never were in use.
        self._free = np.flatnonzero(self._row_in < 0).tolist()
        self._next = len(self._row_in)
        # The oldest slots, the very oldest last, as they were before this row.
        self._oldest: list[int] = []
        self._oldest_before = 0
        # Random eviction's next slot with its row, and how many are left of its run.
        self._run_next, self._run_left = run
        self._run_row = self._row_in.item(run[0]) if run[0] >= 0 else -1
        # The slots and their rows, oldest first, as they were when they were sorted last.
        self._sorted = self._sorted_rows = np.empty(0, dtype=np.int64)

    @property
    def run(self) -> tuple[int, int]:
        """The slot random eviction takes next, -1 to draw one, and how many are left of its run."""
        is_there = self._run_next >= 0 and self._row_in[self._run_next] == self._run_row
        return (self._run_next, self._run_left) if is_there else (-1, 0)

    @property
    def row_in_slot(self) -> dict[int, int]:
        """The row in each slot in use, oldest first; rows are counted as they come."""
        slots = self.oldest_first()
        return dict(zip(slots.tolist(), self._row_in[slots].tolist(), strict=True))

    @property
    def nbytes(self) -> int:
        """Bytes of the books."""
        return self._row_in.nbytes + self._sorted.nbytes + self._sorted_rows.nbytes

    def oldest_first(self) -> Slots:
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
        codes, slots = np.empty(count, dtype=np.int8), np.empty(count, dtype=np.int64)
        released: list[int] = []
        while done < count:
            free = self._free_slots(count - done)
            made = self.decisions(observations[done:], rewards[done:], free)
            now = slice(done, done + len(made.codes))
            codes[now], slots[now] = made.codes, made.slots
            self._follow(codes[now], slots[now], first + done)
            done = now.stop
            last = done - 1
            if slots[last] < 0 and codes[last] != DROP:
                slots[last] = self._evict(first + last)
                self.admission.place(observations[last], float(rewards[last]), slots.item(last))
            if made.released is not None:
                rows = self._row_in[made.released]
                codes[rows[rows >= first] - first] = DROP
                self._row_in[made.released] = -1
                released += made.released.tolist()
                self._free = sorted([*self._free, *made.released.tolist()])
        self._rows += count
        is_left = slots >= 0
        is_left[is_left] = self._row_in[slots[is_left]] == np.flatnonzero(is_left) + first
        slots[~is_left] = -1
        return codes, slots, released

    def decisions(self, observations: Floats, rewards: Floats, free: Slots) -> Decisions:
        """Ask the filter."""
        return self.admission.offer(observations, rewards, free)

    def _free_slots(self, count: int) -> Slots:
        """Give as many free slots as there are, up to a number, lowest first."""
        again = self._free[:count]
        end = self._next + count - len(again)
        if self.capacity is not None:
            end = min(end, self.capacity)
        return np.array([*again, *range(self._next, end)], dtype=np.int64)

    def _follow(self, codes: NDArray[np.int8], slots: Slots, first: int) -> None:
        """Put rows into their slots, the last one excepted if it has none."""
        taken = 0
        for row, (code, slot) in enumerate(zip(codes.tolist(), slots.tolist(), strict=True), first):
            if code == DROP or slot < 0:
                continue
            if code == STORE:
                taken += 1
                if slot >= len(self._row_in):
                    more = max(slot + 1 - len(self._row_in), len(self._row_in) >> 1)
                    self._row_in = np.append(self._row_in, np.full(more, -1))
            elif code == REPLACE and (slot >= len(self._row_in) or self._row_in[slot] < 0):
                raise RuntimeError(f"the filter replaces slot {slot}, which holds nothing")
            self._row_in[slot] = row
        self._next += max(taken - len(self._free), 0)
        del self._free[:taken]

    def _evict(self, row: int) -> int:
        """Give a slot in use to a row that found none."""
        slot = self._oldest_slot(row) if self.victims is None else self._random_slot(self.victims)
        self.admission.forget(slot)
        self._row_in[slot] = row
        self.evicted += 1
        return slot

    def _oldest_slot(self, row: int) -> int:
        """Give the slot of the oldest before a row."""
        while not self._oldest or not 0 <= self._row_in[self._oldest[-1]] < self._oldest_before:
            if self._oldest:
                self._oldest.pop()  # which is no longer what it was
            else:
                slots = self.oldest_first()
                # Many at a time: to sort them takes long.
                self._oldest = slots[: 64 + len(slots) // 8][::-1].tolist()
                self._oldest_before = row
        return self._oldest.pop()

    def _random_slot(self, victims: np.random.Generator) -> int:
        """Choose as a ReplayBuffer does: a random one, and after it those that are next in age."""
        slot, left = self.run
        if slot < 0:  # all slots are in use, or there would be a free one
            slot, left = int(victims.random() * self._next), RUN_LENGTH
        self._run_next = self._newer(slot) if left > 1 else -1
        self._run_left = left - 1
        self._run_row = self._row_in.item(self._run_next)
        return slot

    def _newer(self, slot: int) -> int:
        """Give the slot that is next in age, -1 if there is none."""
        row = self._row_in[slot]
        for sort in (False, True):  # rarely, since it takes long
            if sort:
                self._sorted = self.oldest_first()
                self._sorted_rows = self._row_in[self._sorted]
            for place in range(np.searchsorted(self._sorted_rows, row, "right"), len(self._sorted)):
                newer = self._sorted.item(place)
                if self._row_in[newer] == self._sorted_rows[place]:  # else it is gone
                    return newer
        return -1


def check_filter(make_filter: Callable[[], AdmissionFilter]) -> None:
    """Put a filter through the contract of `frugalrl.AdmissionFilter`.

    A made-up stream is offered one row at a time and in batches, into a small buffer that runs full
    and evicts; the filter is copied through its state in the middle. Fails at the first departure.

    Args:
        make_filter: makes a fresh filter, the same each time (a class or a function). A warm-up
            should be shorter than 600 steps, or little of the filter is checked.

    Raises:
        AssertionError: says what the filter does that a buffer cannot rely on.
    """
    made = make_filter()
    lacking = f"{type(made).__name__} lacks a part of the protocol frugalrl.AdmissionFilter"
    _require(isinstance(made, AdmissionFilter), lacking)
    _require(isinstance(made.name, str) and made.name != "", "name must be a text")
    outcome = _run(make_filter())
    _require(outcome == _run(make_filter()), "same stream, other decisions")
    for batch in (2, 7, _STEPS):
        complaint = f"batches of {batch} are decided otherwise than the same rows one by one"
        _require(outcome == _run(make_filter(), batch=batch), complaint)
    _require(len(outcome[1]) > 0, "nothing was ever stored: no batch can be drawn")
    for step in (1, _STEPS // 2, _STEPS - 10):
        complaint = f"a copy made by state_dict after {step} steps decides otherwise"
        _require(outcome == _run(make_filter(), copied_at=step), complaint)


def _run(
    admission: AdmissionFilter, batch: int = 1, copied_at: int | None = None
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Give all decisions about the stream, and what is stored in the end, oldest first."""
    from gymnasium.spaces import Box

    admission.begin(Box(-np.inf, np.inf, (_DIMENSIONS,), np.float64))
    owner = _CheckingOwner(admission, _CAPACITY)
    # States that come back, rewards that repeat.
    generator = np.random.Generator(np.random.PCG64(0))
    observations = generator.normal(size=(_STEPS, _DIMENSIONS)).round(1)
    rewards = generator.normal(size=_STEPS).round(1)
    # A buffer offers the very rows that it stores next: a filter must not write into them.
    observations.flags.writeable = rewards.flags.writeable = False
    for row in range(0, _STEPS, batch):
        if copied_at == row:
            state = owner.admission.state_dict()
            _check_state(state, "state_dict()")
            owner.admission = type(owner.admission).from_state_dict(state)
        rows = slice(row, row + batch)
        try:
            with _no_writing("place"):
                owner.add(observations[rows], rewards[rows])
        except RuntimeError as error:
            raise AssertionError(str(error)) from error
        _require(owner.admission.nbytes >= 0, "nbytes must not be negative")
    return owner.log, list(owner.row_in_slot.items())


class _CheckingOwner(Owner):
    """An owner that trusts nothing that the filter says, and notes all of it."""

    def __init__(self, admission: AdmissionFilter, capacity: int) -> None:
        super().__init__(admission, capacity)
        self.log: list[tuple[int, int]] = []

    def decisions(self, observations: Floats, rewards: Floats, free: Slots) -> Decisions:
        """Ask the filter, and check what it says as far as that can be seen from here."""
        with _no_writing("offer"):
            made = self.admission.offer(observations, rewards, free)
        codes, slots = np.asarray(made.codes), np.asarray(made.slots)
        decided, offered = len(codes), len(rewards)
        _require(slots.shape == codes.shape == (decided,), "codes and slots must have one shape")
        stores = slots[codes == STORE]
        without = stores < 0
        placed = stores[~without].tolist()
        given_up = [] if made.released is None else np.asarray(made.released).tolist()
        is_known = np.isin(codes, (DROP, STORE, REPLACE)).all()
        is_last = not without[:-1].any() and (not without.any() or codes[-1] == STORE)
        in_order = placed == free[: len(placed)].tolist()
        takes_all = not without.any() or len(placed) == len(free)
        were_held = {*self.row_in_slot, *placed}.issuperset(given_up)
        for holds, complaint in (
            (1 <= decided <= offered, f"{decided} of {offered} offered rows were decided"),
            (is_known, f"codes must be DROP, STORE or REPLACE, got {np.unique(codes)}"),
            (is_last, "a STORE without a slot must be the last decision"),
            (in_order, f"STORE must take the free slots in order, got {placed}"),
            (takes_all, "a STORE went without a slot although one was free"),
            (len(set(given_up)) == len(given_up), "released names a slot twice"),
            (were_held, "released names a slot that holds nothing"),
        ):
            _require(holds, complaint)
        self.log += zip(codes.tolist(), slots.tolist(), strict=True)
        return made


def _check_state(value: Any, where: str) -> None:
    """Require arrays and JSON values all the way down: nothing that a file could not hold."""
    if isinstance(value, dict):
        for key, inner in value.items():
            _require(isinstance(key, str), f"{where} has the key {key!r}, which is no text")
            _check_state(inner, f"{where}[{key!r}]")
    elif isinstance(value, list | tuple):
        for i, inner in enumerate(value):
            _check_state(inner, f"{where}[{i}]")
    elif isinstance(value, np.ndarray):
        _require(value.dtype.kind in "biuf", f"{where} is an array of {value.dtype}")
    else:
        complaint = f"{where} is a {type(value).__name__}; arrays and JSON values are allowed"
        _require(value is None or isinstance(value, str | int | float), complaint)


@contextmanager
def _no_writing(method: str) -> Iterator[None]:
    """Report a write into the read-only arrays that a method was given."""
    try:
        yield
    except ValueError as error:
        if "read-only" not in str(error):
            raise
        raise AssertionError(f"{method} writes into the arrays it is given ({error})") from error


def _require(holds: Any, complaint: str) -> None:
    if not holds:
        raise AssertionError(complaint)
