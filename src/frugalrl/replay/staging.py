"""The way in: rows are checked, cast to what is stored, and laid out for the kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from frugalrl.replay.kernels import RECORD_ACTION, RECORD_REWARD, stage_rows
from frugalrl.replay.spaces import Layout

_F32 = np.dtype(np.float32)
_F64 = np.dtype(np.float64)
_BOOL = np.dtype(np.bool_)


class Stage:
    """Rows of one `add`, one an environment, cast and ready to be offered and written.

    Args:
        layout: of a transition.
        rows: how many environments are expected; any other number is taken as it comes.
    """

    def __init__(self, layout: Layout, rows: int) -> None:
        self._layout = layout
        self._no_actions = np.empty((0, 0), dtype=np.float32)
        self.resize(rows)

    def resize(self, rows: int) -> None:
        """Make the arrays fit a number of rows."""
        layout = self._layout
        self.rows = rows
        self._batch_shape = (rows, *layout.observation_shape)
        self._action_batch_shape = (rows, *layout.action_shape)
        self._flag_shape = (rows,)
        self._states = np.empty((2, rows, layout.width), dtype=np.float32)
        self._halves = np.empty((2, rows, layout.width if layout.half else 0), dtype=np.float16)
        self.records = np.zeros((rows, RECORD_ACTION + layout.action_words), dtype=np.int32)
        packed = self.records[:, RECORD_ACTION:].view(layout.action_dtype)
        self._packed_actions = packed[:, : layout.actions]
        self._copy_actions = layout.float_actions and not layout.half
        if not layout.float_actions:
            self._no_actions = np.empty((rows, 0), dtype=np.float32)
        self.observations = self._states[0]
        self._rewards = self.records.view(np.float32)[:, RECORD_REWARD]
        self.bits = self._halves.view(np.uint16) if layout.half else self._states.view(np.uint32)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._states.nbytes + self._halves.nbytes + self.records.nbytes

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
        if type(observations) is not np.ndarray:
            observations = np.asarray(observations)
        if observations.shape != self._batch_shape:
            if observations.shape == self._layout.observation_shape:
                return self.load(
                    observations[np.newaxis],
                    np.asarray(actions)[np.newaxis],
                    np.asarray(rewards).reshape(-1),
                    np.asarray(next_observations)[np.newaxis],
                    np.asarray(terminated).reshape(-1),
                    np.asarray(truncated).reshape(-1),
                )
            self._fit(observations.shape)
        layout, rows = self._layout, self.rows
        states = _real("observations", observations, self._batch_shape, (rows, layout.width))
        next_states = _real(
            "next_observations", next_observations, self._batch_shape, (rows, layout.width)
        )
        if states.dtype is not next_states.dtype:
            states, next_states = states.astype(_F64), next_states.astype(_F64)
        if layout.float_actions:
            acts = _real("actions", actions, self._action_batch_shape, (rows, layout.actions))
        else:
            acts = self._no_actions
            self._packed_actions[...] = self._integers(actions)
        pay = _real("rewards", rewards, self._flag_shape, self._flag_shape)
        if pay.dtype is not _F64:
            pay = pay.astype(_F64)
        over = _flags("terminated", terminated, self._flag_shape)
        cut = _flags("truncated", truncated, self._flag_shape)
        if layout.half:
            states, next_states = _through_half(states), _through_half(next_states)
            acts = _through_half(acts)
        codes = np.empty(rows, dtype=np.int8)
        refused = stage_rows(
            states, next_states, acts, pay, over, cut,
            self._states, self.records, self._copy_actions, codes,
        )  # fmt: skip
        if layout.half:
            self._halves[...] = self._states
            if layout.float_actions:
                self._packed_actions[...] = acts
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

    def _integers(self, actions: Any) -> NDArray[Any]:
        """Check integer actions against their space."""
        layout = self._layout
        array = np.asarray(actions)
        if array.shape != self._action_batch_shape:
            raise _wrong_shape("actions", array.shape, self._action_batch_shape)
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
    if not ((array.dtype is _F64 or array.dtype is _F32) and array.flags.c_contiguous):
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
    if array.dtype is _BOOL and array.flags.c_contiguous:
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
