"""The rows of one `add`: checked, cast to what is stored, and on their way."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from frugalrl.admission.protocol import DROP, Decisions
from frugalrl.admission.rows import all_finite
from frugalrl.checks import nearest
from frugalrl.replay.results import REFUSED, Outcome
from frugalrl.replay.spaces import ACTION, Layout
from frugalrl.replay.storage import (
    CODE,
    CONTENT,
    ENVIRONMENT,
    IS_TERMINATED,
    IS_TRUNCATED,
    PLACE,
)


class _Column(NamedTuple):
    """What is taken for an argument of `add`."""

    name: str
    shape: tuple[int, ...]
    fitting: str
    """Kinds of arrays whose values all fit."""
    checked: str
    """Kinds whose values fit if they lie within the limits."""
    low: Any
    high: Any
    expected: str

    def check(self, array: NDArray[Any]) -> None:
        """Raise an error if an array cannot be taken."""
        if array.shape != self.shape:
            raise ValueError(
                f"{self.name} has shape {array.shape}; expected {self.shape}, "
                "one row per environment"
            )
        if array.dtype.kind in self.fitting:
            return
        if array.dtype.kind not in self.checked:
            raise TypeError(f"{self.name} has dtype {array.dtype}; expected {self.expected}")
        if (array < self.low).any() or (array > self.high).any():
            raise ValueError(
                f"{self.name} holds values from {array.min()} to {array.max()}; "
                f"expected {self.expected}"
            )


class Stage:
    """Where rows are checked and cast before anything is changed, and how far they have come.

    What is given is copied at once, so nothing is shared with the caller's arrays.

    Args:
        layout: of a transition.
        rows: how many are taken at once; for another number another stage is made.
        is_sequence: whether rows follow each other in one environment, or are of one each.

    Attributes:
        columns: (n, columns) int32, the finite rows as `storage` wants them.
        observations: (n, d) float32, of these rows.
        rewards: (n,) float32.
        refused: how many rows are not finite.
        start: number of the first of these rows among all that the buffer was ever offered.
        free: the slots that the filter may take for the rows from `first` to `end`, which it is
            asked about; None when it is not asked.
        codes: its decisions about them; None when it has not decided.
        slots: what belongs to these.
        released: slots that it gives up.
    """

    def __init__(self, layout: Layout, rows: int, is_sequence: bool = False) -> None:
        self.rows = rows
        self.shape = (rows, *layout.observation_shape)
        following = CONTENT + layout.state_words
        reward = following + layout.state_words
        columns = np.zeros((rows, stage_columns(layout)), dtype=np.int32)
        columns[:, ENVIRONMENT] = 0 if is_sequence else np.arange(rows)
        floats = columns.view(np.float32)
        # Views of the columns, each of the type and shape in which it is stored.
        states = layout.as_floats(columns[:, CONTENT:following])
        next_states = layout.as_floats(columns[:, following:reward])
        rewards = floats[:, reward]
        fields = layout.as_fields(columns[:, reward + 1 :])
        self._all = columns, states, rewards
        # Where each argument of `add` is copied to, what fits it, and who looks closer.
        self._targets: list[tuple[NDArray[Any], tuple[int, ...], str, Any]] = []
        actions = layout.action_low, layout.action_high
        self._want("observations", states.reshape(self.shape))
        self._want("actions", fields[ACTION], None if layout.float_actions else actions)
        self._want("rewards", rewards)
        self._want("next_observations", next_states.reshape(self.shape))
        self._want("terminated", columns[:, IS_TERMINATED], "flags")
        self._want("truncated", columns[:, IS_TRUNCATED], "flags")
        for name, _, dtype in layout.extra:
            limits: Any = "flags" if dtype.kind == "b" else None
            if dtype.kind in "iu":
                limits = np.iinfo(dtype).min, np.iinfo(dtype).max
            self._want(name, fields[name], limits)
        # What must be finite: as much as can be in one array of float32, and what else there is.
        names = [n for n in layout.payload.names or () if layout.payload[n].base.kind == "f"]
        if layout.half:
            self._numbers, others = floats[:, reward : reward + 1], [states, next_states]
        else:
            end = reward + 1 + (layout.actions if layout.float_actions else 0)
            self._numbers, others = floats[:, CONTENT:end], []
            names = [name for name in names if name != ACTION]
        self._other_numbers = others + [fields[name] for name in names]
        self._is_finite: NDArray[np.bool_] | None = None

    def _want(self, name: str, target: NDArray[Any], limits: Any = None) -> None:
        """Take real numbers, "flags", or integers within limits for the next argument."""
        if limits is None:
            column = _Column(name, target.shape, "fiub", "", None, None, "real numbers")
        elif limits == "flags":
            column = _Column(name, target.shape, "b", "iu", 0, 1, "booleans")
        else:
            low, high = limits
            expected = f"integers from {np.min(low)} to {np.max(high)}"
            column = _Column(name, target.shape, "", "iub", low, high, expected)
        self._targets.append((target, column.shape, column.fitting, column.check))

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._all[0].nbytes

    @np.errstate(over="ignore", invalid="ignore")  # what is too large becomes infinite
    def take(self, given: Iterable[Any], offered: int) -> None:
        """Check rows, copy them, and leave out those that are not finite.

        Args:
            given: observations, actions, rewards, next observations, terminated and truncated, as
                for `ReplayBuffer.add`, and the extra fields.
            offered: rows that the buffer was offered before.

        Raises:
            ValueError: a shape or a value is wrong.
            TypeError: a type is wrong.
        """
        asarray = np.asarray
        for (target, shape, fitting, check), value in zip(self._targets, given, strict=True):
            array = asarray(value)
            if array.shape != shape or array.dtype.kind not in fitting:
                check(array)
            target[...] = array
        columns, states, rewards = self._all
        self._is_finite = None
        if self._other_numbers or not all_finite(self._numbers):
            numbers = [self._numbers, *self._other_numbers]
            by_row = [np.isfinite(n).reshape(self.rows, -1).all(axis=1) for n in numbers]
            is_finite = np.logical_and.reduce(by_row)
            if not is_finite.all():
                self._is_finite = is_finite
                columns, states, rewards = columns[is_finite], states[is_finite], rewards[is_finite]
        self.columns = columns
        self.observations = np.ascontiguousarray(states, dtype=np.float32)
        self.rewards = np.ascontiguousarray(rewards)
        self.refused = self.rows - len(columns)
        # Refused rows are counted first, so the row after them is this one of all.
        self.start = offered + self.refused
        self.free: NDArray[np.int64] | None = None

    def ask(self, first: int, end: int, free: NDArray[np.int64]) -> None:
        """Begin to have some of the rows decided about."""
        self.first, self.end = first, end
        self.codes: NDArray[np.int8] | None = None
        self.free = free

    def decide(self, decisions: Decisions) -> None:
        """Copy decisions about the first of those rows, in the types that compiled code takes."""
        count, codes = self.end - self.first, np.array(decisions.codes, np.int8)
        self.slots = np.array(decisions.slots, np.int64)
        self.released = decisions.released
        if self.released is not None:
            self.released = np.array(self.released, np.int64)
        if not 0 < len(codes) == len(self.slots) <= count:
            raise RuntimeError(
                f"the filter gave {len(codes)} codes and {len(self.slots)} slots where {count} "
                "rows are left; frugalrl.check_filter says more"
            )
        self.codes = codes  # last: with these it is decided

    def drop(self, slots: NDArray[np.int64]) -> None:
        """See the rows that were written into these slots as dropped."""
        written = self.columns[: self.first + len(self.slots)]
        written[np.isin(written[:, PLACE], slots), CODE : PLACE + 1] = DROP, -1

    def outcome(self) -> Outcome:
        """What became of all rows."""
        codes = self.columns[:, CODE].astype(np.int8)
        slots = self.columns[:, PLACE].astype(np.int64)
        if self._is_finite is None:
            return Outcome(codes, slots)
        every = Outcome(np.full(self.rows, REFUSED, np.int8), np.full(self.rows, -1, np.int64))
        every.codes[self._is_finite] = codes
        every.slots[self._is_finite] = slots
        return every


def stage_columns(layout: Layout) -> int:
    """Words of a staged row: what `storage` notes, two states, the reward and the payload."""
    return CONTENT + 2 * layout.state_words + 1 + layout.payload_words


def in_order(layout: Layout, extra: dict[str, Any]) -> list[Any]:
    """Give the extra fields in the order in which the buffer has them.

    Raises:
        TypeError: one is missing, or the buffer has none of that name.
    """
    known = [name for name, _, _ in layout.extra]
    for name in extra:
        if name not in known:
            near = nearest(name, known)
            hint = f"; did you mean {near!r}?" if near else ""
            raise TypeError(f"{name}= is no field of this buffer{hint} (extra_fields: {known})")
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
