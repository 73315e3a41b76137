"""Observations of any space as flat rows, and back."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray


class _Part(NamedTuple):
    """One sub-space and the columns it takes in a row."""

    key: str | None
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    start: int
    stop: int


class FlatObservations:
    """Lays observations out as rows: the keys of a Dict in order, each flattened.

    A Discrete observation is one column that holds its number, so nothing grows by one-hot codes.

    Args:
        space: Box, Discrete, MultiDiscrete, MultiBinary, or a Dict of these.
        exact: write every float64 as four numbers of 16 bits, which a float32 column holds without
            loss. For filters that look at no observation.

    Raises:
        ValueError: the space is an image or of another kind.
    """

    def __init__(self, space: spaces.Space[Any], exact: bool = False) -> None:
        subspaces: dict[str | None, spaces.Space[Any]] = {None: space}
        self.is_dict = isinstance(space, spaces.Dict)
        if isinstance(space, spaces.Dict):
            subspaces = {key: space.spaces[key] for key in space.spaces}
        lows, highs, self._parts, start = [], [], [], 0
        for key, subspace in subspaces.items():
            low, high, shape = _bounds(subspace, key)
            stop = start + math.prod(shape)
            self._parts.append(_Part(key, shape, np.dtype(subspace.dtype), start, stop))
            lows.append(low.reshape(-1))
            highs.append(high.reshape(-1))
            start = stop
        self.exact = exact
        self.is_double = any(part.dtype == np.float64 for part in self._parts)
        low, high = np.concatenate(lows), np.concatenate(highs)
        if exact:
            low, high = np.zeros(4 * start), np.full(4 * start, 65535.0)
        self.space = spaces.Box(low, high, dtype=np.float64)

    def flatten(self, observations: Any) -> NDArray[Any]:
        """Turn a batch of observations (n, ...) into rows."""
        if self.is_dict:
            columns = [np.asarray(observations[part.key]) for part in self._parts]
            rows = np.concatenate([column.reshape(len(column), -1) for column in columns], axis=1)
        else:
            rows = np.asarray(observations)
            rows = rows.reshape(len(rows), -1)
        if self.exact:
            words = np.ascontiguousarray(rows, dtype=np.float64).view(np.uint16)
            return words.astype(np.float32)
        return rows

    def unflatten(self, rows: NDArray[Any]) -> Any:
        """Turn rows into a batch of observations, integers as integers."""
        if self.exact:
            rows = rows.astype(np.uint16).view(np.float64)
        if not self.is_dict:
            return self._restore(rows, self._parts[0])
        return {
            part.key: self._restore(rows[:, part.start : part.stop], part) for part in self._parts
        }

    @staticmethod
    def _restore(columns: NDArray[Any], part: _Part) -> NDArray[Any]:
        values = columns.reshape(len(columns), *part.shape)
        return values if part.dtype.kind == "f" else values.astype(part.dtype)


def _bounds(
    space: spaces.Space[Any], key: str | None
) -> tuple[NDArray[np.float64], NDArray[np.float64], tuple[int, ...]]:
    """Return the low and high ends of a sub-space and the shape of one observation."""
    where = "observation_space" if key is None else f"observation_space[{key!r}]"
    if isinstance(space, spaces.Box):
        if space.dtype == np.uint8 and len(space.shape) >= 2:
            raise ValueError(
                f"{where} is an image, {space}: important dimensions and cells are made for state "
                "vectors; encode images into features first"
            )
        return space.low.astype(np.float64), space.high.astype(np.float64), space.shape
    if isinstance(space, spaces.Discrete):
        low = np.array([space.start], dtype=np.float64)
        return low, low + float(space.n) - 1.0, (1,)
    if isinstance(space, spaces.MultiDiscrete):
        low = np.asarray(space.start, dtype=np.float64)
        return low, low + space.nvec - 1.0, space.nvec.shape
    if isinstance(space, spaces.MultiBinary):
        return np.zeros(space.shape), np.ones(space.shape), space.shape
    raise ValueError(
        f"{where} is {space}; supported are Box, Discrete, MultiDiscrete, MultiBinary "
        "and a flat Dict of these"
    )
