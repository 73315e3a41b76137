"""Carries out a filter's decisions over someone else's storage, by row numbers alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from frugalrl.adapters.filters import copy_of
from frugalrl.admission.protocol import AdmissionFilter
from frugalrl.checks import integer_from, warn_caller
from frugalrl.replay.intake import Intake, StagedRows, rows_kept_elsewhere
from frugalrl.replay.results import BufferStats, Outcome
from frugalrl.replay.spaces import SLOTS_ALONE
from frugalrl.replay.storage import Storage, make_victims

RowNumbers = NDArray[np.int64]
CopyRows = Callable[[RowNumbers, RowNumbers], None]


class AdmissionLedger:
    """Keeps the books for a storage that is not ours: who may enter, where, and who has to go.

    The storage has positions 0 .. capacity - 1; always those from 0 to len(ledger) - 1 are in use.
    Slots, by which the filter knows a transition, never change; a position does where the filter
    gives slots up, because the last rows then move into the gaps.

    Args:
        capacity: number of positions.
        admission: the filter; the ledger is its owner.
        observation_space: flat space for the filter's bounds, None when unknown.
        eviction: what leaves a full storage, "oldest" or "random", as for a
            `frugalrl.ReplayBuffer` with `seed=0`.

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
        self.capacity, self.eviction = integer_from("capacity", capacity, 1), eviction
        self._space, self._fresh = observation_space, copy_of(admission)
        # It decides and evicts as a ReplayBuffer does, but keeps nothing beside the slots.
        self._hold(Storage(SLOTS_ALONE, self.capacity, 1, make_victims(eviction)), admission)
        admission.begin(observation_space)

    def _hold(self, books: Storage, admission: AdmissionFilter, positions: Any = ()) -> None:
        """Go on with books, their filter, and the positions of what they hold, oldest first."""
        self._books, self._intake = books, Intake(books, admission)
        # By slot, -1 for none; it is another number after slots were given up alone.
        self._position_of = np.full(len(books.slots), -1, dtype=np.int32)
        self._position_of[books.oldest_first()] = positions
        self._size = len(books)
        # Rows that nobody may have written yet, and how the owner moves others.
        self._under_way: tuple[StagedRows, CopyRows] | None = None

    def clear(self) -> None:
        """Forget every row, and what the filter learnt from them."""
        fresh = copy_of(self._fresh)
        AdmissionLedger.__init__(self, self.capacity, fresh, self._space, self.eviction)

    def __len__(self) -> int:
        return self._size

    @property
    def admission(self) -> AdmissionFilter:
        """The filter."""
        return self._intake.admission

    def offer(
        self,
        observations: NDArray[np.floating],
        rewards: NDArray[np.floating],
        write: CopyRows,
        move: CopyRows,
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
            Rows of a call that was interrupted, or whose `write` failed, are forgotten, and so is
            what they took the place of.
        """
        self._forget_unwritten()
        is_finite = np.isfinite(observations).all(axis=1) & np.isfinite(rewards)
        if finite is not None:
            is_finite &= finite
        if not is_finite.all() and not self.stats.rejected_nonfinite:
            warn_caller(
                "a transition with NaN or infinity was refused; further ones are only counted"
            )
        rows = rows_kept_elsewhere(observations[is_finite], rewards[is_finite], is_finite)
        self._under_way = rows, move
        codes, slots = self._intake.add(rows)
        more = len(self._books.slots) - len(self._position_of)
        if more > 0:
            self._position_of = np.append(self._position_of, np.full(more, -1, dtype=np.int32))
        last_in = dict(zip(slots.tolist(), range(len(slots)), strict=True))
        last_in.pop(-1, None)
        written = np.sort(np.fromiter(last_in.values(), dtype=np.int64))
        positions = np.full(len(rewards), -1, dtype=np.int64)
        taken = slots[written]
        new = np.sort(taken[self._position_of[taken] < 0])
        if self._size + len(new) > len(self._books):  # the filter has given slots up
            self._close_gaps(move)
        if len(written):
            self._position_of[new] = np.arange(self._size, self._size + len(new))
            self._size += len(new)
            positions[written] = self._position_of[taken]
            write(written, positions[written])
        self._under_way = None
        return Outcome(codes, positions)

    def _forget_unwritten(self) -> None:
        """Take back the rows of a call that did not come to its end; this may be done again."""
        if self._under_way is not None:
            rows, move = self._under_way
            self._intake.carry_out()
            for slot in rows.decided.slots.tolist():
                if slot >= 0:
                    self._intake.remove(slot)
            self._close_gaps(move)
            self._under_way = None

    def _close_gaps(self, move: CopyRows) -> None:
        """Move the last rows to where slots are free by now; this may be done again."""
        placed = np.flatnonzero(self._position_of >= 0)
        is_held = np.isin(placed, self._books.oldest_first())
        self._position_of[placed[~is_held]] = -1
        placed = placed[is_held]
        placed = placed[np.argsort(self._position_of[placed])]
        positions = self._position_of[placed].astype(np.int64)
        self._size = len(placed)
        is_last = positions >= self._size
        gaps = np.setdiff1d(np.arange(self._size), positions)
        move(positions[is_last], gaps)
        self._position_of[placed[is_last]] = gaps

    def oldest_first(self) -> RowNumbers:
        """List the positions in use by the age of what they hold."""
        self._forget_unwritten()
        return self._position_of[self._books.oldest_first()].astype(np.int64)

    @property
    def stats(self) -> BufferStats:
        """What has become of the transitions offered so far."""
        return self._books.stats

    @property
    def nbytes(self) -> int:
        """Bytes of the filter's state, and of the books."""
        return self._intake.nbytes + self._position_of.nbytes

    def state_dict(self) -> dict[str, Any]:
        """Ages, positions, counts and the filter's state, as arrays and JSON values."""
        self._forget_unwritten()
        victims = self._books.victims
        return {
            "capacity": self.capacity,
            "filter": self.admission.name,
            "admission": self.admission.state_dict(),
            "books": self._books.state_dict(),
            "positions": self.oldest_first(),
            "victims": None if victims is None else victims.bit_generator.state,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state that a ledger with the same kind of filter gave.

        Raises:
            ValueError: the state is of another filter, capacity or eviction, or is damaged; nothing
                changes.
        """
        try:
            if "books" not in state:
                raise ValueError("the state was made before 0.1.0, which does not read it")
            if state["filter"] != self.admission.name or state["capacity"] != self.capacity:
                raise ValueError(
                    f"the state is of filter {state['filter']!r} with capacity "
                    f"{state['capacity']}, this buffer has {self.admission.name!r} with "
                    f"{self.capacity}"
                )
            eviction = "oldest" if state["victims"] is None else "random"
            if eviction != self.eviction:
                raise ValueError(
                    f"the state is of a buffer with eviction={eviction!r}, this one was made with "
                    f"{self.eviction!r}; make it alike"
                )
            books = Storage(SLOTS_ALONE, self.capacity, 1, make_victims(eviction))
            books.load_state_dict(state["books"])
            if books.victims is not None:
                books.victims.bit_generator.state = state["victims"]
            positions = np.asarray(state["positions"], dtype=np.int64)
            if not np.array_equal(np.sort(positions), np.arange(len(books))):
                raise ValueError("the state's slots and positions do not belong together")
            self._hold(books, type(self.admission).from_state_dict(state["admission"]), positions)
        except ValueError:
            raise
        except Exception as error:  # whatever a file that anyone can write leads to
            raise ValueError(f"not the state of a ledger ({error!r})") from error


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
