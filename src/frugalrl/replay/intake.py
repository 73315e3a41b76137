"""The way of a transition into the buffer: staged, decided about, written."""

from __future__ import annotations

import sys
import warnings
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from frugalrl.admission.controls import AdmitAll
from frugalrl.admission.density import ENOUGH
from frugalrl.admission.frugal import FrugalFilter
from frugalrl.admission.protocol import DROP, REPLACE, STORE, AdmissionFilter, Decisions
from frugalrl.checks import integer_from
from frugalrl.replay.budget import ByteBudget
from frugalrl.replay.deciding import NOT_DECIDED, NOT_STAGED, add_decided_rows
from frugalrl.replay.kernels import add_rows
from frugalrl.replay.renumbering import Renumbering
from frugalrl.replay.results import REFUSED, BufferStats, Outcome
from frugalrl.replay.samplers import Prioritized, Sampler
from frugalrl.replay.staging import UNKNOWN_TYPES, Stage, teach
from frugalrl.replay.storage import Storage

_LIBRARY = __name__.partition(".")[0]
_COUNTERS = ("offered", "stored", "replaced", "dropped", "refused")
_FIRST_ROW = np.zeros(1, dtype=np.int64)
_NO_SLOTS = np.empty(0, dtype=np.int64)


class Intake:
    """Brings filter, storage and sampler together; they do not know of each other.

    Args:
        stage: where rows are laid out.
        storage: where they are kept.
        admission: decides about them.
        sampler: hears of every change, if it follows them.
        capacity_bytes: most bytes that all of these may hold; None for no limit.
    """

    def __init__(
        self,
        stage: Stage,
        storage: Storage,
        admission: AdmissionFilter,
        sampler: Sampler,
        capacity_bytes: int | None,
    ) -> None:
        self.stage = stage
        self.storage = storage
        self.admission = admission
        self.sampler = sampler
        self.renumbering = Renumbering()
        self.offered = 0
        self.stored = 0
        self.replaced = 0
        self.dropped = 0
        self.refused = 0
        self._budget = None if capacity_bytes is None else ByteBudget(capacity_bytes, self)
        # Everything that comes is stored: no need to ask about it row by row.
        # (The compiled road for that evicts the oldest.)
        self._admits_all = type(admission) is AdmitAll and storage.victims is None
        # Ours can decide within the same compiled call. A byte limit is looked at in between.
        is_frugal = type(admission) is FrugalFilter and self._budget is None
        self._frugal = cast("FrugalFilter", admission) if is_frugal else None
        self._is_taught = False
        # Last, so that a sampler is free again if the limit was refused.
        if isinstance(sampler, Prioritized):
            sampler.belong()

    @property
    def nbytes(self) -> int:
        """Bytes allocated in all."""
        return (
            self.storage.nbytes
            + self.stage.nbytes
            + int(self.admission.nbytes)
            + self.sampler.nbytes
        )

    @property
    def stats(self) -> BufferStats:
        """The counters."""
        return BufferStats(
            offered=self.offered,
            stored=self.stored,
            replaced=self.replaced,
            dropped=self.dropped,
            evicted=self.storage.evicted,
            rejected_nonfinite=self.refused,
        )

    def add(self, *given: Any) -> Outcome:
        """Stage rows as `ReplayBuffer.add` got them and offer them; see there."""
        stage = self.stage
        if self._frugal is not None and stage.quick:
            state = self._frugal.compiled_state()
            if state is not None:
                return self._add_decided(given, state)
        if not (self._admits_all and stage.plain):
            codes, refused = stage.load(*given)
            return self.take(codes, refused)
        done, rows = -1, stage.rows
        if stage.quick:
            codes, slots = np.empty(rows, dtype=np.int8), np.empty(rows, dtype=np.int64)
            try:
                done = self._add_rows(add_rows, given, codes, slots)
            except UNKNOWN_TYPES:
                stage.quick = False
        if done == -1:
            given = stage.arrange(*given)
            rows = stage.rows
            self.storage.expect_environments(rows)
            codes, slots = np.empty(rows, dtype=np.int8), np.empty(rows, dtype=np.int64)
            done = self._add_rows(partial(teach, add_rows), given, codes, slots)
        if done < 0:
            return self.take(codes, -1 - done)
        while done == 0 < rows:
            self._make_room()
            done = self._add_rows(add_rows, given, codes, slots)
        self.offered += rows
        self.stored += rows
        if done < rows or self.sampler.follows:
            self._store_all(codes, slots, done)
        return Outcome(codes, slots)

    def _add_decided(self, given: Any, state: tuple[Any, ...]) -> Outcome:
        """Stage, decide and write rows in one call where nothing is out of the ordinary."""
        stage, storage, frugal = self.stage, self.storage, self._frugal
        assert frugal is not None
        rows = stage.rows
        codes, slots = np.empty(rows, dtype=np.int8), np.empty(rows, dtype=np.int64)
        compiled: Any = add_decided_rows if self._is_taught else partial(teach, add_decided_rows)
        row = taken = 0
        while True:
            try:
                row, taken, shortage, slot = compiled(
                    *given, stage.states, stage.records,
                    storage.table, storage.pool, storage.refs, storage.last, storage.control,
                    codes, slots, storage.capacity, row, taken, *state,
                )  # fmt: skip
            except UNKNOWN_TYPES:
                if row > 0:
                    raise  # the types were known before, and some rows are decided about already
                row = NOT_STAGED
            if row == NOT_STAGED:
                return self.take(*stage.load(*given))
            if row == NOT_DECIDED:
                return self.take(codes, taken)
            self._is_taught = True
            if shortage == ENOUGH:
                break
            state = frugal.grow(shortage, slot)
        self.offered += rows
        self._count(codes, slots)
        return Outcome(codes, slots)

    def _count(self, codes: NDArray[np.int8], slots: NDArray[np.int64]) -> None:
        """Count rows that were decided about, and tell the sampler of those that are new."""
        count = len(codes)
        if count == 1:
            code = codes[0]
            stored, dropped = int(code == STORE), int(code == DROP)
        else:
            stored = int(np.count_nonzero(codes == STORE))
            dropped = int(np.count_nonzero(codes == DROP))
        self.stored += stored
        self.dropped += dropped
        self.replaced += count - stored - dropped
        if self.sampler.follows and dropped < count:
            self.sampler.resize(len(self.storage.table))
            self.sampler.stored(slots[codes != DROP] if dropped else slots)

    def _add_rows(
        self, compiled: Any, rows: Any, codes: NDArray[np.int8], slots: NDArray[np.int64]
    ) -> int:
        """Stage rows and store as many as there is room for, unless any is refused."""
        stage, storage = self.stage, self.storage
        done: int = compiled(
            *rows, stage.states, stage.records,
            storage.table, storage.pool, storage.refs, storage.last, storage.control,
            codes, slots, storage.capacity,
        )  # fmt: skip
        return done

    def take(self, codes: NDArray[np.int8], refused: int) -> Outcome:
        """Offer the staged rows, in order, and carry out what is decided.

        Args:
            codes: (n,) `REFUSED` for the rows that are not finite; becomes the outcome's.
            refused: how many those are.
        """
        rows = len(codes)
        self.storage.expect_environments(rows)
        self.offered += rows
        is_first = refused > 0 and self.refused == 0
        if refused:
            self.storage.last[:rows][codes == REFUSED] = -1
            self.refused += refused
        slots = np.full(rows, -1, dtype=np.int64)
        if self._admits_all:
            self.stored += rows - refused
            self._store_all(codes, slots, 0)
        else:
            self._decide(codes, slots, refused)
        if is_first:
            # Comes last, since it may be raised as an error.
            _warn_of_refused(codes, refused)
        return Outcome(codes, slots)

    def _store_all(self, codes: NDArray[np.int8], slots: NDArray[np.int64], done: int) -> None:
        """Store every row from `done` on that is not refused."""
        storage = self.storage
        while done < len(codes):
            done = storage.append(self.stage, done, codes, slots)
            if done < len(codes):
                self._make_room()
        if self.sampler.follows:
            self.sampler.resize(len(storage.table))
            written = slots[codes == STORE]
            # With fewer places than rows, one may have gone again.
            self.sampler.stored(written[storage.occupied(written)])

    def _make_room(self) -> None:
        """Make room for one more transition."""
        if self._budget is None:
            self.storage.reserve(1)
        else:
            self._budget.make_room()

    def _decide(self, codes: NDArray[np.int8], slots: NDArray[np.int64], refused: int) -> None:
        """Ask the filter about the rows and carry out what it decides; all `slots` are -1 yet."""
        observations, rewards = self.stage.observations, self.stage.rewards
        if refused:
            rows = np.flatnonzero(codes != REFUSED)
            observations, rewards = observations[rows], rewards[rows]
        elif len(codes) == 1:
            rows = _FIRST_ROW
        else:
            rows = np.arange(len(codes))
        done, count = 0, len(rows)
        while done < count:
            is_warming_up = self._is_warming_up
            # A byte limit is looked at before every row, so rows then go one by one.
            end = count
            if self._budget is not None:
                self._budget.make_room()
                end = done + 1
            free = self.storage.next_slots(end - done)
            decisions = self.admission.offer(observations[done:end], rewards[done:end], free)
            decided = len(decisions.codes)
            which = rows[done : done + decided]
            if decided:
                told, written = self._carry_out(which, decisions, observations, rewards, done)
                codes[which] = told
                slots[which] = written
            elif decisions.keep is None:
                raise RuntimeError("the filter decided nothing; frugalrl.check_filter says more")
            keep = decisions.keep
            if is_warming_up and keep is None:
                keep = self._end_of_warmup()
            if keep is not None:
                self._keep_only(np.asarray(keep, dtype=np.int64), codes, slots)
            if self._budget is not None:
                self._budget.settle(partial(self._repack, codes, slots))
            done += decided

    @property
    def _is_warming_up(self) -> bool:
        """Whether the filter is ours and has yet to end its warm-up."""
        return isinstance(self.admission, FrugalFilter) and not self.admission.is_fitted

    def _end_of_warmup(self) -> NDArray[np.int64] | None:
        """What a warm-up leaves that ended with a row for which a slot had to be made.

        The filter tells it at the next offer, and has renumbered already: waiting for that, the two
        would not agree on what is stored. Other filters are not asked about no rows at all.
        """
        frugal = cast("FrugalFilter", self.admission)
        if not frugal.is_fitted or frugal.compiled_state() is not None:
            return None
        return frugal.offer(self.stage.observations[:0], self.stage.rewards[:0], _NO_SLOTS).keep

    def _carry_out(
        self,
        rows: NDArray[np.int64],
        decisions: Decisions,
        observations: NDArray[np.float32],
        rewards: NDArray[np.float32],
        start: int,
    ) -> tuple[NDArray[np.int8], NDArray[np.int64]]:
        """Write decided rows, making a slot for a last `STORE` that has none.

        Args:
            rows: (k,) the staged rows that were decided about.
            decisions: about them.
            observations: as offered in the whole call.
            rewards: as offered in the whole call.
            start: where in these the decided rows begin.

        Returns:
            (k,) codes, and (k,) where each row was written, -1 if nowhere.
        """
        codes = np.asarray(decisions.codes, dtype=np.int8, order="C")
        slots = np.asarray(decisions.slots, dtype=np.int64, order="C")
        count = len(rows)
        if not count == len(codes) == len(slots):
            raise RuntimeError(
                f"the filter gave {len(codes)} codes and {len(slots)} slots where "
                f"{count} rows are left; frugalrl.check_filter says more"
            )
        if codes[-1] == STORE and slots[-1] == -1:
            slots = self._store_homeless(
                rows, codes, slots, observations[start + count - 1], rewards[start + count - 1]
            )
        else:
            self.storage.write(self.stage, rows, codes, slots)
        self._count(codes, slots)
        return codes, slots

    def _store_homeless(
        self,
        rows: NDArray[np.int64],
        codes: NDArray[np.int8],
        slots: NDArray[np.int64],
        observation: NDArray[np.float32],
        reward: np.float32,
    ) -> NDArray[np.int64]:
        """Write decided rows of which the last finds no free slot; gives where all went."""
        self.storage.write(self.stage, rows[:-1], codes[:-1], slots[:-1])
        if self.storage.free_slots:
            raise RuntimeError("the filter left a free slot unused for a transition it stores")
        slots = slots.copy()
        slots[-1] = slot = self.evict()
        self.admission.place(observation, float(reward), slot)
        self.storage.write(self.stage, rows[-1:], codes[-1:], slots[-1:])
        return slots

    def evict(self) -> int:
        """Remove the oldest transition, or any, everywhere and give its slot."""
        slot = self.storage.evict()
        self.admission.forget(slot)
        if self.sampler.follows:
            self.sampler.removed(slot)
        return slot

    def _keep_only(
        self, keep: NDArray[np.int64], codes: NDArray[np.int8], slots: NDArray[np.int64]
    ) -> None:
        """Drop what the end of the warm-up filtered out and follow the new numbers."""
        before, limit = len(self.storage), self.storage.limit
        self.storage.keep_only(keep)
        if self.sampler.follows:
            self.sampler.keep_only(keep)
        self.stored -= before - len(keep)
        self.dropped += before - len(keep)
        names = np.full(limit + 1, -1, dtype=np.int64)
        names[keep] = np.arange(len(keep))
        slots[...] = names[slots]  # -1 stays -1: the extra entry is the last
        self.renumbering.follow(names)
        codes[((codes == STORE) | (codes == REPLACE)) & (slots < 0)] = DROP

    def _repack(self, codes: NDArray[np.int8], slots: NDArray[np.int64]) -> bool:
        """Bring filter, storage and sampler into as few bytes as can be, if the filter can."""
        keep = self.storage.oldest_first()
        if not (isinstance(self.admission, FrugalFilter) and self.admission.keep_only(keep)):
            return False
        self._keep_only(keep, codes, slots)
        return True

    def state_dict(self) -> dict[str, Any]:
        """The counters, and the number of rows last staged, which counts in `nbytes`."""
        return {name: getattr(self, name) for name in _COUNTERS} | {"rows": self.stage.rows}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        for name in _COUNTERS:
            setattr(self, name, integer_from(name, state[name], 0))
        self.stage.resize(integer_from("rows", state["rows"], 0))


def _warn_of_refused(codes: NDArray[np.int8], refused: int) -> None:
    """Warn of the first rows that are not finite, at the line that calls this library."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and _is_ours(frame.f_globals["__name__"]):
        frame, level = frame.f_back, level + 1
    row = int(np.argmax(codes == REFUSED))
    warnings.warn(
        f"refused {refused} transition(s) with NaN, infinite or too large values (first "
        f"in row {row}); further ones are only counted in stats.rejected_nonfinite",
        RuntimeWarning,
        stacklevel=level,
    )


def _is_ours(module: str) -> bool:
    """Whether a module is part of this library."""
    return module.partition(".")[0] == _LIBRARY
