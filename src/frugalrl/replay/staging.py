"""The rows of one `add`: checked, and cast to what is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from frugalrl.admission.protocol import DROP
from frugalrl.checks import nearest
from frugalrl.replay.results import REFUSED, Outcome
from frugalrl.replay.spaces import ACTION, Layout
from frugalrl.replay.storage import Staged, stage_rows

if TYPE_CHECKING:
    from frugalrl.replay.storage import Storage

ROW = np.dtype(
    [
        # Row i of `add`: what became of it, where it went, and what else is to be written.
        ("code", np.int8),
        ("flags", np.int8),
        ("slot", np.int64),
        ("environment", np.int64),
        # Of the rows that are not refused, number i is this row of `add`.
        ("position", np.int64),
    ]
)
_NO_SLOTS = np.empty(0, dtype=np.int64)


class Stage:
    """Rows on their way into a storage: checked, cast, and then decided about one by one.

    What is given is copied at once, so nothing is shared with the caller's arrays.

    Args:
        layout: of a transition.
        rows: how many are taken at once; for another number another stage is made.
        is_sequence: whether rows follow each other in one environment, or are of one each.
    """

    def __init__(self, layout: Layout, rows: int, is_sequence: bool = False) -> None:
        self.rows = rows
        self.shape = (rows, *layout.observation_shape)
        self.is_sequence = is_sequence
        self._layout = layout
        self._is_half = layout.half
        self._has_float_actions = layout.float_actions
        # How many numbers of an action are stored as float32.
        self._single_actions = layout.actions if layout.float_actions and not layout.half else 0
        width, actions = layout.width, layout.actions if layout.float_actions else 0
        given = np.zeros(rows * (2 * width + actions + 3), dtype=np.float64)
        # One block of memory, so that compiled code unboxes one array of one type.
        ends = np.cumsum([rows * width, rows * width, rows * actions, rows, rows])
        blocks = np.split(given, ends)
        shape, action_shape = layout.observation_shape, layout.action_shape
        self._observations = blocks[0].reshape(rows, *shape)
        self._next_observations = blocks[1].reshape(rows, *shape)
        self._actions = blocks[2].reshape(rows, *action_shape if actions else (0,))
        self._rewards, self._terminated, self._truncated = blocks[3:]
        self._given = given
        self.offered = np.empty((2, rows, width), dtype=np.float32)
        if layout.half:
            states = np.zeros((2, rows, layout.state_words), dtype=np.uint32)
        else:
            states = self.offered.view(np.uint32)
        payload = np.zeros((rows, layout.payload_words), dtype=np.uint32)
        self.rewards = np.empty(rows, dtype=np.float32)
        self._records = np.zeros(rows, dtype=ROW)
        self._records["environment"] = 0 if is_sequence else np.arange(rows)
        self._codes, self._slots = self._records["code"], self._records["slot"]
        self._floats = layout.as_floats(states).reshape(2, rows, *shape)
        self._fields = layout.as_fields(payload)
        self.parts = tuple(Staged(states, payload, self.rewards, self._records))

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        apart = self.offered.nbytes if self._layout.half else 0
        return int(self._given.nbytes + apart + sum(part.nbytes for part in self.parts))

    def take(self, given: tuple[Any, ...], extra: dict[str, Any]) -> None:
        """Check rows and copy them.

        Args:
            given: observations, actions, rewards, next observations, terminated and truncated, as
                for `ReplayBuffer.add`.
            extra: extra fields, by name.

        Raises:
            ValueError: a shape or a value is wrong.
            TypeError: a type is wrong.
        """
        layout = self._layout
        observations, actions, rewards, next_observations, terminated, truncated = given
        count, shape = self._rewards.shape, self.shape
        self._observations[...] = _real("observations", observations, shape)
        self._next_observations[...] = _real("next_observations", next_observations, shape)
        self._rewards[...] = _real("rewards", rewards, count)
        self._terminated[...] = _flags("terminated", terminated, count)
        self._truncated[...] = _flags("truncated", truncated, count)
        if self._has_float_actions:
            self._actions[...] = _real("actions", actions, self._actions.shape)
        else:
            self._fields[ACTION] = self._integers(actions, count + layout.action_shape)
        if self._is_half:
            self._round_to_half()
        self._codes.fill(DROP)
        if extra or layout.extra:
            self._take_extra(extra)

    def commit(self, storage: Storage, free: NDArray[np.int64]) -> tuple[int, int]:
        """Refuse the rows that are not finite and see the others as added from now on.

        Args:
            storage: which remembers that these rows are to be dealt with.
            free: (rows,) filled with the slots that they may take; (0,) to leave that open.

        Returns:
            How many rows are staged, and how many slots are in `free`.
        """
        while True:
            staged, found = stage_rows(
                self._given, self.offered, self.parts, storage.parts, free, storage.capacity,
                self._single_actions,
            )  # fmt: skip
            if found >= 0:
                return staged, found
            storage.reserve(len(free))

    def outcome(self) -> Outcome:
        """What became of the rows."""
        return Outcome(self._codes.copy(), self._slots.copy())

    def _round_to_half(self) -> None:
        """Round to float16; what is too large becomes infinite and is refused later."""
        with np.errstate(over="ignore", invalid="ignore"):
            for number, values in enumerate((self._observations, self._next_observations)):
                self._floats[number] = values
                values[...] = self._floats[number]
            if self._layout.float_actions:
                self._fields[ACTION] = self._actions
                self._actions[...] = self._fields[ACTION]

    def _integers(self, actions: Any, shape: tuple[int, ...]) -> NDArray[Any]:
        """Check integer actions against their space."""
        layout = self._layout
        array = np.asarray(actions)
        if array.shape != shape:
            raise _wrong_shape("actions", array.shape, shape)
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
        """Check and copy the extra fields; rows that are not finite there are refused."""
        known = [name for name, _, _ in self._layout.extra]
        for name in extra:
            if name not in known:
                near = nearest(name, known)
                hint = f"; did you mean {near!r}?" if near else ""
                raise TypeError(f"{name}= is no field of this buffer{hint} (extra_fields: {known})")
        for name, shape, dtype in self._layout.extra:
            if name not in extra:
                raise TypeError(f"{name}= is missing: this buffer was made with it in extra_fields")
            array = _of_type(name, extra[name], (self.rows, *shape), dtype)
            with np.errstate(over="ignore", invalid="ignore"):
                self._fields[name] = array
            if dtype.kind == "f":
                is_finite = np.isfinite(self._fields[name]).reshape(self.rows, -1).all(axis=1)
                self._codes[~is_finite] = REFUSED


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


def _wrong_shape(name: str, got: tuple[int, ...], wanted: tuple[int, ...]) -> ValueError:
    return ValueError(f"{name} has shape {got}; expected {wanted}, one row per environment")


def _real(name: str, value: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """Give real numbers of this shape."""
    array: NDArray[Any] = np.asarray(value)
    if array.shape != shape:
        raise _wrong_shape(name, array.shape, shape)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} has dtype {array.dtype}; expected real numbers")
    return array


def _flags(name: str, value: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """Give flags of this shape."""
    array: NDArray[Any] = np.asarray(value)
    if array.shape != shape:
        raise _wrong_shape(name, array.shape, shape)
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
