"""The rows of one `add`: checked, cast to what is stored, and on their way."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from frugalrl.admission.protocol import DROP, Decisions
from frugalrl.checks import nearest
from frugalrl.compiling import compiled
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


class Rows:
    """Rows that count as added, and how far they are dealt with.

    Args:
        columns: (n, columns) int32, the finite ones as `storage` wants them.
        observations: (n, d) float32, of these rows.
        rewards: (n,) float32.
        is_finite: which of all rows these are; None for all.
        offered: rows that the buffer was offered before.
    """

    def __init__(
        self,
        columns: NDArray[np.int32],
        observations: NDArray[np.float32],
        rewards: NDArray[np.float32],
        is_finite: NDArray[np.bool_] | None,
        offered: int,
    ) -> None:
        self.columns = columns
        self.observations = observations
        self.rewards = rewards
        self._is_finite = is_finite
        self.refused = 0 if is_finite is None else len(is_finite) - len(columns)
        # Refused rows are counted first, so the row after them is this one of all.
        self.start = offered + self.refused
        # The slots that the filter may take for the rows it is asked about; None: it is not asked.
        self.free: NDArray[np.int64] | None = None

    def ask(self, first: int, end: int, free: NDArray[np.int64]) -> None:
        """Begin to have some of the rows decided about."""
        self.first, self.end = first, end
        self.codes: NDArray[np.int8] | None = None
        self.free = free

    def take(self, decisions: Decisions) -> None:
        """Note decisions about the first of those rows, in the types that compiled code takes."""
        count, codes = self.end - self.first, np.ascontiguousarray(decisions.codes, np.int8)
        self.slots = np.ascontiguousarray(decisions.slots, np.int64)
        self.released = decisions.released
        if self.released is not None:
            self.released = np.ascontiguousarray(self.released, np.int64)
        if not 0 < len(codes) == len(self.slots) <= count:
            raise RuntimeError(
                f"the filter gave {len(codes)} codes and {len(self.slots)} slots where {count} "
                "rows are left; frugalrl.check_filter says more"
            )
        self.codes = codes  # last: with these it is decided

    def drop(self, slots: NDArray[np.int64]) -> None:
        """See the rows that were written into these slots as dropped."""
        self.columns[np.isin(self.columns[:, PLACE], slots), CODE : PLACE + 1] = DROP, -1

    def outcome(self) -> Outcome:
        """What became of all rows."""
        codes = self.columns[:, CODE].astype(np.int8)
        slots = self.columns[:, PLACE].astype(np.int64)
        if self._is_finite is None:
            return Outcome(codes, slots)
        count = len(self._is_finite)
        every = Outcome(np.full(count, REFUSED, np.int8), np.full(count, -1, np.int64))
        every.codes[self._is_finite] = codes
        every.slots[self._is_finite] = slots
        return every


class Stage:
    """Where rows are checked and cast before anything is changed.

    What is given is copied at once, so nothing is shared with the caller's arrays.

    Args:
        layout: of a transition.
        rows: how many are taken at once; for another number another stage is made.
        is_sequence: whether rows follow each other in one environment, or are of one each.
    """

    def __init__(self, layout: Layout, rows: int, is_sequence: bool = False) -> None:
        self.rows = rows
        self.shape = (rows, *layout.observation_shape)
        self._layout = layout
        following = CONTENT + layout.state_words
        reward = following + layout.state_words
        columns = np.zeros((rows, stage_columns(layout)), dtype=np.int32)
        columns[:, ENVIRONMENT] = 0 if is_sequence else np.arange(rows)
        floats = columns.view(np.float32)
        # Views of the columns, each of the type and shape in which it is stored.
        self._states = layout.as_floats(columns[:, CONTENT:following])
        next_states = layout.as_floats(columns[:, following:reward])
        self._observations = self._states.reshape(self.shape)
        self._next_observations = next_states.reshape(self.shape)
        self._rewards = floats[:, reward]
        self._fields = layout.as_fields(columns[:, reward + 1 :])
        self._actions = self._fields[ACTION]
        self._terminated, self._truncated = columns[:, IS_TERMINATED], columns[:, IS_TRUNCATED]
        self._places = columns[:, PLACE]
        self._columns = columns
        # What must be finite: as much as can be in one array of float32, and what else there is.
        names = [n for n in layout.payload.names or () if layout.payload[n].base.kind == "f"]
        if layout.half:
            self._numbers, others = floats[:, reward : reward + 1], [self._states, next_states]
        else:
            end = reward + 1 + (layout.actions if layout.float_actions else 0)
            self._numbers, others = floats[:, CONTENT:end], []
            names = [name for name in names if name != ACTION]
        self._other_numbers = others + [self._fields[name] for name in names]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._columns.nbytes

    @np.errstate(over="ignore", invalid="ignore")  # what is too large becomes infinite
    def take(self, given: tuple[Any, ...], extra: dict[str, Any], offered: int) -> Rows:
        """Check rows, copy them, and leave out those that are not finite.

        Args:
            given: observations, actions, rewards, next observations, terminated and truncated, as
                for `ReplayBuffer.add`.
            extra: extra fields, by name.
            offered: rows that the buffer was offered before.

        Raises:
            ValueError: a shape or a value is wrong.
            TypeError: a type is wrong.
        """
        observations, actions, rewards, next_observations, terminated, truncated = given
        count, shape = self._rewards.shape, self.shape
        self._observations[...] = _real("observations", observations, shape)
        self._next_observations[...] = _real("next_observations", next_observations, shape)
        self._rewards[...] = _real("rewards", rewards, count)
        if self._layout.float_actions:
            self._actions[...] = _real("actions", actions, self._actions.shape)
        else:
            self._actions[...] = self._integers(actions)
        self._terminated[...] = _flags("terminated", terminated, count)
        self._truncated[...] = _flags("truncated", truncated, count)
        if extra or self._layout.extra:
            self._take_extra(extra)
        self._places.fill(-1)
        columns, states, values, is_finite = self._columns, self._states, self._rewards, None
        if self._other_numbers or not all_finite(self._numbers):
            numbers = [self._numbers, *self._other_numbers]
            by_row = [np.isfinite(n).reshape(self.rows, -1).all(axis=1) for n in numbers]
            is_finite = np.logical_and.reduce(by_row)
            if is_finite.all():
                is_finite = None
            else:
                columns, states, values = columns[is_finite], states[is_finite], values[is_finite]
        return Rows(
            columns,
            np.ascontiguousarray(states, dtype=np.float32),
            np.ascontiguousarray(values),
            is_finite,
            offered,
        )

    def _integers(self, actions: Any) -> NDArray[Any]:
        """Check integer actions against their space."""
        layout = self._layout
        array = _of_shape("actions", actions, self._actions.shape)
        if array.dtype.kind not in "iub":
            raise TypeError(f"actions has dtype {array.dtype}; this action space needs integers")
        assert layout.action_low is not None
        assert layout.action_high is not None
        if (array < layout.action_low).any() or (array > layout.action_high).any():
            raise ValueError(
                f"actions holds values from {array.min()} to {array.max()}, outside the action "
                f"space ({layout.action_low.min()} to {layout.action_high.max()})"
            )
        return array

    def _take_extra(self, extra: dict[str, Any]) -> None:
        """Check and copy the extra fields."""
        known = [name for name, _, _ in self._layout.extra]
        for name in extra:
            if name not in known:
                near = nearest(name, known)
                hint = f"; did you mean {near!r}?" if near else ""
                raise TypeError(f"{name}= is no field of this buffer{hint} (extra_fields: {known})")
        for name, shape, dtype in self._layout.extra:
            if name not in extra:
                raise TypeError(f"{name}= is missing: this buffer was made with it in extra_fields")
            self._fields[name] = _of_type(name, extra[name], (self.rows, *shape), dtype)


@compiled
def all_finite(numbers: Any) -> bool:
    """Tell whether all numbers of (n, k) are finite."""
    for row in range(numbers.shape[0]):
        for column in range(numbers.shape[1]):
            if not np.isfinite(numbers[row, column]):
                return False
    return True


def stage_columns(layout: Layout) -> int:
    """Words of a staged row: what `storage` notes, two states, the reward and the payload."""
    return CONTENT + 2 * layout.state_words + 1 + layout.payload_words


def in_rows(
    layout: Layout, given: tuple[Any, ...], extra: dict[str, Any]
) -> tuple[int, tuple[Any, ...], dict[str, Any]]:
    """Give the number of rows, and the rows with a leading axis also where there is only one.

    Raises:
        ValueError: observations have a shape that is none of rows.
    """
    shape, wanted = np.shape(given[0]), layout.observation_shape
    if shape == wanted:
        one = [np.asarray(value)[np.newaxis] for value in given]
        for i in (2, 4, 5):  # rewards and flags of a single transition may be scalars or not
            one[i] = one[i].reshape(-1)
        return 1, tuple(one), {name: np.asarray(value)[np.newaxis] for name, value in extra.items()}
    if len(shape) != len(wanted) + 1 or shape[1:] != wanted:
        raise ValueError(
            f"observations has shape {shape}; expected (environments, *{wanted}), "
            f"or {wanted} for one transition"
        )
    return int(shape[0]), given, extra


def _of_shape(name: str, value: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """Give an array of this shape."""
    array: NDArray[Any] = np.asarray(value)
    if array.shape != shape:
        raise ValueError(
            f"{name} has shape {array.shape}; expected {shape}, one row per environment"
        )
    return array


def _real(name: str, value: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """Give real numbers of this shape."""
    array = _of_shape(name, value, shape)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} has dtype {array.dtype}; expected real numbers")
    return array


def _flags(name: str, value: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """Give flags of this shape."""
    array = _of_shape(name, value, shape)
    if array.dtype.kind != "b":
        if array.dtype.kind not in "iu":
            raise TypeError(f"{name} has dtype {array.dtype}; expected booleans")
        if ((array != 0) & (array != 1)).any():
            raise ValueError(f"{name} holds integers other than 0 and 1; expected booleans")
    return array


def _of_type(name: str, value: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Give values of this shape that fit the type of a field."""
    if dtype.kind == "b":
        return _flags(name, value, shape)
    array = _real(name, value, shape)
    if dtype.kind in "iu":
        if array.dtype.kind == "f":
            raise TypeError(f"{name} has dtype {array.dtype}; the field is {dtype}")
        limits = np.iinfo(dtype)
        if array.size and not (limits.min <= array.min() and array.max() <= limits.max):
            raise ValueError(f"{name} holds values that {dtype} cannot hold")
    return array
