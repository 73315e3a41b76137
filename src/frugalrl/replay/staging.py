"""The way in: rows are checked, cast to what is stored, and laid out for the kernels."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.core.errors import NumbaError
from numpy.typing import NDArray

from frugalrl.replay.kernels import RECORD_ACTION, RECORD_REWARD, stage_rows
from frugalrl.replay.spaces import Layout

_F32 = np.dtype(np.float32)
_F64 = np.dtype(np.float64)
_BOOL = np.dtype(np.bool_)
UNKNOWN_TYPES = (TypeError, ValueError, NumbaError)
"""What Numba raises for arguments it was not taught, or cannot even name the type of."""
_COMPILED = hasattr(stage_rows, "disable_compile")


class Rows(NamedTuple):
    """Rows of one `add`, contiguous and of the types that the kernels are compiled for."""

    observations: NDArray[np.floating[Any]]
    actions: NDArray[Any]
    rewards: NDArray[np.float64]
    next_observations: NDArray[np.floating[Any]]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]


def teach(compiled: Any, *arguments: Any) -> Any:
    """Call a compiled function, compiling it for these types, and for no others afterwards.

    A function so taught answers arguments of any other types with one of `UNKNOWN_TYPES`. That
    makes its own look at the types, which it takes anyway, the only check that common calls need.
    """
    if not _COMPILED:
        return compiled(*arguments)
    compiled.disable_compile(False)
    try:
        return compiled(*arguments)
    finally:
        if compiled.signatures:
            compiled.disable_compile()


class Stage:
    """Rows of one `add`, one an environment, cast and ready to be offered and written.

    Args:
        layout: of a transition.
        rows: how many environments are expected; any other number is taken as it comes.
    """

    def __init__(self, layout: Layout, rows: int) -> None:
        self._layout = layout
        # Whether rows can be cast by compiled code alone.
        self.plain = layout.float_actions and not layout.half
        # Whether rows came last in the very types that compiled code takes.
        self.quick = False
        self.resize(rows)

    def resize(self, rows: int) -> None:
        """Make the arrays fit a number of rows."""
        layout = self._layout
        self.rows = rows
        self.states = np.empty((2, rows, layout.width), dtype=np.float32)
        self._halves = np.empty((2, rows, layout.width if layout.half else 0), dtype=np.float16)
        self.records = np.zeros((rows, RECORD_ACTION + layout.action_words), dtype=np.int32)
        packed = self.records[:, RECORD_ACTION:].view(layout.action_dtype)
        self._packed_actions = packed[:, : layout.actions]
        self.observations = self.states[0]
        self._rewards = self.records.view(np.float32)[:, RECORD_REWARD]
        self.bits = self._halves.view(np.uint16) if layout.half else self.states.view(np.uint32)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.states.nbytes + self._halves.nbytes + self.records.nbytes

    @property
    def rewards(self) -> NDArray[np.float32]:
        """(rows,) the rewards as they will be stored."""
        return np.ascontiguousarray(self._rewards)

    def load(
        self,
        observations: Any,
        actions: Any,
        rewards: Any,
        next_observations: Any,
        terminated: Any,
        truncated: Any,
    ) -> tuple[NDArray[np.int8], int]:
        """Check and cast the rows of one `add`.

        Returns:
            (rows,) codes, `REFUSED` where a value is not finite, else `DROP`; and how many refused.

        Raises:
            ValueError: a shape or a value is wrong.
            TypeError: a type is wrong.
        """
        if self.quick:
            codes = np.empty(self.rows, dtype=np.int8)
            try:
                refused: int = stage_rows(
                    observations, actions, rewards, next_observations, terminated, truncated,
                    self.states, self.records, True, codes,
                )  # fmt: skip
            except UNKNOWN_TYPES:
                self.quick = False
            else:
                if refused >= 0:
                    return codes, refused
        rows = self.arrange(
            observations, actions, rewards, next_observations, terminated, truncated
        )
        return self.cast(rows)

    def arrange(
        self,
        observations: Any,
        actions: Any,
        rewards: Any,
        next_observations: Any,
        terminated: Any,
        truncated: Any,
    ) -> Rows:
        """Check rows of any kind and bring them to the types that the kernels are compiled for.

        Raises:
            ValueError: a shape or a value is wrong.
            TypeError: a type is wrong.
        """
        given = (observations, actions, rewards, next_observations, terminated, truncated)
        layout = self._layout
        observations = np.asarray(observations)
        if observations.shape == layout.observation_shape:
            observations = observations[np.newaxis]
            actions = np.asarray(actions)[np.newaxis]
            rewards = np.asarray(rewards).reshape(-1)
            next_observations = np.asarray(next_observations)[np.newaxis]
            terminated = np.asarray(terminated).reshape(-1)
            truncated = np.asarray(truncated).reshape(-1)
        if observations.shape != (self.rows, *layout.observation_shape):
            self._fit(observations.shape)
        count = self.rows
        batch, flat = (count, *layout.observation_shape), (count, layout.width)
        states = _real("observations", observations, batch, flat)
        next_states = _real("next_observations", next_observations, batch, flat)
        if states.dtype != next_states.dtype:
            states, next_states = states.astype(_F64), next_states.astype(_F64)
        action_batch = (count, *layout.action_shape)
        if layout.float_actions:
            acts = _real("actions", actions, action_batch, (count, layout.actions))
        else:
            acts = self._integers(actions, action_batch)
        rows = Rows(
            states,
            acts,
            _real("rewards", rewards, (count,), (count,)).astype(_F64, copy=False),
            next_states,
            _flags("terminated", terminated, (count,)),
            _flags("truncated", truncated, (count,)),
        )
        # Whoever gives the right types once will most likely do so again.
        same = all(one is other for one, other in zip(given, rows, strict=True))
        self.quick = same and self.plain and _COMPILED
        return rows

    def cast(self, rows: Rows) -> tuple[NDArray[np.int8], int]:
        """Cast arranged rows to what is stored; gives the same as `load`."""
        layout = self._layout
        if layout.half:
            rows = rows._replace(
                observations=_through_half(rows.observations),
                next_observations=_through_half(rows.next_observations),
            )
        packed = rows.actions
        if not layout.float_actions:
            rows = rows._replace(actions=np.empty((self.rows, 0), dtype=np.float32))
        elif layout.half:
            packed = _through_half(packed)
            rows = rows._replace(actions=packed)
        codes = np.empty(self.rows, dtype=np.int8)
        copied = layout.float_actions and not layout.half
        refused: int = teach(stage_rows, *rows, self.states, self.records, copied, codes)
        if not copied:
            self._packed_actions[...] = packed
        if layout.half:
            self._halves[...] = self.states
        return codes, refused

    def _fit(self, shape: tuple[int, ...]) -> None:
        """Take another number of environments, or refuse the shape."""
        wanted = self._layout.observation_shape
        if len(shape) != len(wanted) + 1 or shape[1:] != wanted:
            raise ValueError(
                f"observations has shape {shape}; expected (environments, *{wanted}), "
                f"or {wanted} for one transition"
            )
        self.resize(shape[0])

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
        return array.reshape(self.rows, layout.actions)


def _wrong_shape(name: str, got: tuple[int, ...], wanted: tuple[int, ...]) -> ValueError:
    return ValueError(f"{name} has shape {got}; expected {wanted}, one row an environment")


def _real(
    name: str, value: Any, shape: tuple[int, ...], flat: tuple[int, ...]
) -> NDArray[np.floating[Any]]:
    """Give real numbers as contiguous float32 or float64, the two types the kernel is made for."""
    array: NDArray[Any] = value if type(value) is np.ndarray else np.asarray(value)
    if array.shape != shape:
        raise _wrong_shape(name, array.shape, shape)
    if not ((array.dtype is _F64 or array.dtype is _F32) and array.flags.carray):
        if array.dtype.kind not in "fiub":
            raise TypeError(f"{name} has dtype {array.dtype}; expected real numbers")
        kept = _F32 if array.dtype == _F32 else _F64
        array = np.ascontiguousarray(array, dtype=kept).reshape(shape)
    return array if shape == flat else array.reshape(flat)


def _flags(name: str, value: Any, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Give flags as contiguous booleans."""
    array = value if type(value) is np.ndarray else np.asarray(value)
    if array.shape != shape:
        raise _wrong_shape(name, array.shape, shape)
    if array.dtype is _BOOL and array.flags.carray:
        return array
    if array.dtype.kind not in "iub":
        raise TypeError(f"{name} has dtype {array.dtype}; expected booleans")
    if array.dtype.kind != "b" and ((array != 0) & (array != 1)).any():
        raise ValueError(f"{name} holds integers other than 0 and 1; expected booleans")
    return np.ascontiguousarray(array, dtype=np.bool_).reshape(shape)


def _through_half(array: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """Round to float16 and back; what is too large becomes infinite and is refused later."""
    with np.errstate(over="ignore", invalid="ignore"):
        return array.astype(np.float16).astype(np.float32)
