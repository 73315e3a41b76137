"""The way in: rows checked and cast, decided about by a filter, and written into a storage.

Once checked, rows count as added: whatever interrupts after that, `Intake.carry_out` goes on where
it stopped. How many rows are dealt with is counted by the very compiled calls that deal with them,
and every step can be done again without harm.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from frugalrl.admission.offer import all_finite
from frugalrl.admission.protocol import (
    CODE_TYPE,
    DROP,
    SLOT_TYPE,
    STORE,
    AdmissionFilter,
    Decisions,
)
from frugalrl.checks import check_choice
from frugalrl.replay.results import REFUSED, Outcome
from frugalrl.replay.samplers import Sampler, make_sampler
from frugalrl.replay.spaces import ACTION, Layout
from frugalrl.replay.storage import ENVIRONMENT, IS_TERMINATED, IS_TRUNCATED, ROW_STATES, Storage

if TYPE_CHECKING:
    from frugalrl.replay.budget import ByteBudget

_FLAG = (0, 1)
_ASKED_AT_ONCE = 256
"""Rows that a filter is asked about: where nothing is free it may decide one, and copies all."""


class _Column:
    """What is taken for an argument of `add`.

    Args:
        name: of the argument.
        target: where it is copied to.
        limits: least and greatest integers, `_FLAG`, or None for real numbers.

    Attributes:
        fitting: the type that came last of those whose values all fit.
    """

    fitting: Any = None

    def __init__(self, name: str, target: NDArray[Any], limits: tuple[Any, Any] | None) -> None:
        self.name, self.target, self.limits, self.shape = name, target, limits, target.shape
        # Kinds of arrays whose values all fit; integers may fit within the limits.
        self._kinds, self._expected = "fiub", "real numbers"
        if limits is _FLAG:
            self._kinds, self._expected = "b", "booleans"
        elif limits is not None:
            least, greatest = np.min(limits[0]), np.max(limits[1])
            self._kinds, self._expected = "", f"integers from {least} to {greatest}"

    def check(self, array: NDArray[Any]) -> None:
        """Raise an error if an array cannot be taken."""
        if array.shape != self.shape:
            raise ValueError(
                f"{self.name} has shape {array.shape}; expected {self.shape}, "
                "one row per environment"
            )
        if array.dtype.kind in self._kinds:
            self.fitting = array.dtype
            return
        if self.limits is None or array.dtype.kind not in "iub":
            raise TypeError(f"{self.name} has dtype {array.dtype}; expected {self._expected}")
        if array.dtype.kind == "b":  # which NumPy does not compare with the greatest uint64
            array = array.view(np.uint8)
        if (array < self.limits[0]).any() or (array > self.limits[1]).any():
            found = f"values from {array.min()} to {array.max()}"
            raise ValueError(f"{self.name} holds {found}; expected {self._expected}")


def _limits_of(dtype: np.dtype[Any]) -> tuple[Any, Any] | None:
    """Give what fits an extra field of this type."""
    if dtype.kind in "iu":
        return np.iinfo(dtype).min, np.iinfo(dtype).max
    return _FLAG if dtype.kind == "b" else None


class StagedRows:
    """Finite rows on their way, and how far they have come.

    Args:
        columns: (n, columns) int32, as the storage wants them.
        observations: (n, d), as the filter sees them.
        rewards: (n,).
        is_finite: which of the rows that were given these are; None for all.

    Attributes:
        refused: how many rows are not finite.
        start: number of the first of these rows among all that the storage was ever offered.
        decided: codes and slots of the first of them, as far as they are decided about.
        asked: what the filter is asked: observations and rewards of the rows from `first` on, and
            the slots that they may take; None when it is not asked.
        released: slots that it gives up with its decisions.
    """

    start = first = 0
    decided = Outcome(np.empty(0, CODE_TYPE), np.empty(0, SLOT_TYPE))
    asked: Any = None
    released: NDArray[np.int64] | None = None

    def __init__(
        self,
        columns: NDArray[np.int32],
        observations: NDArray[np.floating],
        rewards: NDArray[np.floating],
        is_finite: NDArray[np.bool_] | None = None,
    ) -> None:
        self.columns, self.observations, self.rewards = columns, observations, rewards
        self._is_finite = is_finite
        self.refused = 0 if is_finite is None else len(is_finite) - len(rewards)

    def ask(self, count: int, free: NDArray[np.int64]) -> None:
        """Begin to have the next rows decided about."""
        self.first = len(self.decided.codes)
        observations, rewards = self.observations, self.rewards
        if count < len(rewards):
            asked = slice(self.first, self.first + count)
            observations, rewards = observations[asked], rewards[asked]
        self.asked = observations, rewards, free

    def decide(self, decisions: Decisions) -> None:
        """Copy decisions about the first of those rows, in the types that compiled code takes."""
        given, places, released = decisions
        codes, slots = np.array(given, CODE_TYPE), np.array(places, SLOT_TYPE)
        if not 0 < len(codes) == len(slots) <= len(self.asked[1]):
            raise RuntimeError(
                f"the filter gave {len(codes)} codes and {len(slots)} slots where "
                f"{len(self.asked[1])} rows are left; frugalrl.check_filter says more"
            )
        if self.first:
            before = self.decided
            codes, slots = np.append(before.codes, codes), np.append(before.slots, slots)
        self.released = None if released is None else np.array(released, SLOT_TYPE)
        self.decided = Outcome(codes, slots)  # last, and both at once: with this it is decided

    @property
    def lacks_slot(self) -> bool:
        """Whether the last decided row is to be stored and no slot was free for it."""
        codes, slots = self.decided
        return slots.item(-1) == -1 and codes.item(-1) == STORE

    def drop(self, slots: NDArray[np.int64]) -> None:
        """See the rows that were written into these slots as dropped."""
        is_dropped = np.isin(self.decided.slots, slots)
        self.decided.codes[is_dropped] = DROP
        self.decided.slots[is_dropped] = -1

    def outcome(self) -> Outcome:
        """What became of all rows that were given."""
        if self._is_finite is None:
            return self.decided
        rows = len(self._is_finite)
        every = Outcome(np.full(rows, REFUSED, np.int8), np.full(rows, -1, np.int64))
        every.codes[self._is_finite], every.slots[self._is_finite] = self.decided
        return every


def rows_kept_elsewhere(
    observations: NDArray[np.floating],
    rewards: NDArray[np.floating],
    is_finite: NDArray[np.bool_] | None = None,
) -> StagedRows:
    """Give rows for a storage with the layout `SLOTS_ALONE`; arguments as for `StagedRows`."""
    columns = np.zeros((len(rewards), ROW_STATES + 1), dtype=np.int32)
    return StagedRows(columns, observations, rewards, is_finite)


class Stage:
    """Where what is given to `add` is checked and cast before anything is changed.

    It is copied at once, so nothing is shared with the caller's arrays.

    Args:
        layout: of a transition.
        rows: how many are taken at once; for another number another stage is made.
        is_sequence: whether rows follow each other in one environment, or are of one each.
    """

    def __init__(self, layout: Layout, rows: int, is_sequence: bool = False) -> None:
        self.rows = rows
        self.shape = (rows, *layout.observation_shape)
        following = ROW_STATES + layout.state_words
        reward = following + layout.state_words
        columns = np.zeros((rows, reward + 1 + layout.payload_words), dtype=np.int32)
        columns[:, ENVIRONMENT] = 0 if is_sequence else np.arange(rows)
        # Views of the columns, each of the type in which it is stored.
        states = layout.as_floats(columns[:, ROW_STATES:following])
        next_states = layout.as_floats(columns[:, following:reward])
        floats = columns.view(np.float32)
        fields = layout.as_fields(columns[:, reward + 1 :])
        self._all = columns, states, floats[:, reward]
        self._arguments = [
            _Column("observations", states.reshape(self.shape), None),
            _Column("actions", fields[ACTION], layout.action_range),
            _Column("rewards", floats[:, reward], None),
            _Column("next_observations", next_states.reshape(self.shape), None),
            _Column("terminated", columns[:, IS_TERMINATED], _FLAG),
            _Column("truncated", columns[:, IS_TRUNCATED], _FLAG),
            *(_Column(name, fields[name], _limits_of(dtype)) for name, _, dtype in layout.extra),
        ]
        # What must be finite. In float32 the numbers of every transition lie side by side.
        self._numbers = [it.target for it in self._arguments if it.target.dtype.kind == "f"]
        if layout.float_dtype == np.float32:
            actions = math.prod(fields[ACTION].shape[1:]) if layout.action_range is None else 0
            together = floats[:, ROW_STATES : reward + 1 + actions]
            self._numbers[: 4 if actions else 3] = [together]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._all[0].nbytes

    # What is too large becomes infinite, and what is too small zero.
    @np.errstate(over="ignore", under="ignore", invalid="ignore")
    def take(self, given: Iterable[Any]) -> StagedRows:
        """Check rows, copy them, and leave out those that are not finite.

        They are given as for `ReplayBuffer.add`, the extra fields last.

        Raises:
            ValueError: a shape or a value is wrong.
            TypeError: a type is wrong.
        """
        for column, value in zip(self._arguments, given, strict=True):
            array = np.asarray(value)
            if array.dtype is not column.fitting or array.shape != column.shape:
                column.check(array)
            column.target[...] = array
        columns, states, rewards = self._all
        is_finite = None
        if len(self._numbers) > 1 or not all_finite(self._numbers[0]):
            by_row = [np.isfinite(n).all(axis=tuple(range(1, n.ndim))) for n in self._numbers]
            is_finite = np.logical_and.reduce(by_row)
            if not is_finite.all():
                columns, states, rewards = columns[is_finite], states[is_finite], rewards[is_finite]
        # Copies: a filter may keep what it is shown, and the stage is written anew each time.
        return StagedRows(columns, states.astype(np.float32), rewards.copy(), is_finite)


class Intake:
    """Has rows decided about and carries the decisions out: one road, whoever keeps the rest.

    Args:
        storage: where rows are written.
        admission: the filter, which has begun.
        sampler: is told of what changes, if it wants to know; None where somebody else draws.

    Attributes:
        stage: whose bytes count too.
        budget: a limit in bytes, if there is one.
    """

    stage: Stage | None = None
    budget: ByteBudget | None = None

    def __init__(
        self, storage: Storage, admission: AdmissionFilter, sampler: Sampler | None = None
    ) -> None:
        self.storage, self.admission = storage, admission
        self.sampler = make_sampler("uniform") if sampler is None else sampler
        # What is under way: rows that count as added, and a slot that is being evicted.
        self._rows: StagedRows | None = None
        self._victim: int | None = None

    @property
    def nbytes(self) -> int:
        """Bytes allocated in all: transitions, slack, staging, filter and sampler."""
        parts = self.storage, self.admission, self.sampler, self.stage
        return sum(int(part.nbytes) for part in parts if part is not None)

    @property
    def is_interrupted(self) -> bool:
        """Whether there is something to go on with."""
        return self._rows is not None or self._victim is not None

    def add(self, rows: StagedRows) -> Outcome:
        """Deal with rows, which count as added from now on."""
        # Refused rows are counted first, so the row after them is this one of all.
        rows.start = self.storage.offered + rows.refused
        self._rows = rows
        self.carry_out()
        return rows.outcome()

    def carry_out(self) -> None:
        """Have the rows decided about, write them, and tell the sampler.

        An interrupt may fall anywhere. So each step can be done again: an offer with the same
        `free` object gets the same answer, `write` goes on where it stopped, slots that are free
        are not freed again, a filter forgets and places but once, and what a sampler is told
        depends on what is stored alone.
        """
        storage, rows = self.storage, self._rows
        if self._victim is not None:
            self.remove(self._victim)
        if rows is None:
            return
        if rows.refused and storage.offered < rows.start:
            storage.refuse(rows.refused)
        total = len(rows.rewards)
        while rows.asked is not None or len(rows.decided.codes) < total:
            if rows.asked is None:
                count = wanted = min(total - len(rows.decided.codes), _ASKED_AT_ONCE)
                if self.budget is not None:
                    count = 1  # one row at a time
                    wanted = int(self.budget.make_room())
                rows.ask(count, storage.next_slots(wanted))
            if len(rows.decided.codes) == rows.first:
                rows.decide(self.admission.offer(*rows.asked))
            if rows.lacks_slot:
                self._find_slot(rows)
            storage.write(rows, len(rows.decided.codes))
            if rows.released is not None:
                storage.release(rows.released)
                rows.drop(rows.released)
                storage.trim()
            if self.sampler.follows:
                self._tell_sampler(rows.decided.slots[rows.first :])
                if rows.released is not None:
                    self._tell_sampler(rows.released)
            rows.asked = None
            if self.budget is not None:
                self.budget.settle()
        self._rows = None

    def _find_slot(self, rows: StagedRows) -> None:
        """Give the last decided row, for which no slot was free, that of another transition."""
        storage, last = self.storage, len(rows.decided.codes) - 1
        if last > rows.first:
            storage.write(rows, last)  # those before it
        if storage.free_slots:
            slot = storage.next_slots(1).item()
        else:  # the sampler hears of what comes in its place, soon enough
            slot = self.evict(tells_sampler=False)
        self.admission.place(rows.observations[last], rows.rewards.item(last), slot)
        rows.decided.slots[last] = slot

    def evict(self, tells_sampler: bool = True) -> int:
        """Remove the transition that goes next, and give its slot, which is used next."""
        return self.remove(self.storage.next_victim(), tells_sampler)

    def remove(self, slot: int, tells_sampler: bool = True) -> int:
        """Remove the transition of a slot everywhere."""
        self._victim = slot
        self.admission.forget(slot)
        self.storage.evict(slot)
        if tells_sampler and self.sampler.follows:
            self._tell_sampler(np.array([slot]))
        self._victim = None
        return slot

    def _tell_sampler(self, slots: NDArray[np.int64]) -> None:
        """Let the sampler know which of these slots hold something new; -1 is none."""
        storage, sampler = self.storage, self.sampler
        sampler.resize(len(storage.slots))
        slots = slots[(slots >= 0) & (slots < storage.limit)]
        is_occupied = storage.occupied(slots)
        if not is_occupied.all():
            sampler.removed(slots[~is_occupied])
        sampler.stored(slots[is_occupied])


def in_order(layout: Layout, extra: dict[str, Any]) -> list[Any]:
    """Give the extra fields in the order in which the buffer has them.

    Raises:
        TypeError: one is missing, or the buffer has none of that name.
    """
    known = [name for name, _, _ in layout.extra]
    for name in extra:
        check_choice("extra field", name, known, TypeError)
    for name in known:
        if name not in extra:
            raise TypeError(f"{name}= is missing: this buffer was made with it in extra_fields")
    return [extra[name] for name in known]


def in_rows(layout: Layout, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Give rows a leading axis also where there is only one.

    Raises:
        ValueError: observations have a shape that is none of rows.
    """
    shape, wanted = np.shape(given[0]), layout.observation_shape
    if shape == wanted:
        one = [np.asarray(value)[np.newaxis] for value in given]
        for i in (2, 4, 5):  # rewards and flags of a single transition may be scalars or not
            one[i] = one[i].reshape(-1)
        return tuple(one)
    if len(shape) != len(wanted) + 1 or shape[1:] != wanted:
        raise ValueError(
            f"observations has shape {shape}; expected (environments, *{wanted}), "
            f"or {wanted} for one transition"
        )
    return given
