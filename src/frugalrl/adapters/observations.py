"""Observations of any space as flat rows of numbers, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from frugalrl.replay.spaces import limits_of

_BITS = 24
"""Up to so many bits whole numbers are exact in a float32."""
_PIXELS = _BITS // 8
"""Bytes of an image in one float32."""


class _Part(NamedTuple):
    """One sub-space and the columns it takes in a row."""

    key: str | None
    kind: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    start: int
    stop: int


class FlatObservations:
    """Lays observations out as rows of numbers: the keys of a Dict in order, each flattened.

    A Discrete observation is one column that holds its number, so nothing grows by one-hot codes.
    An image (uint8, two axes or more) is packed, three bytes in a float32.

    Args:
        space: Box, Discrete, MultiDiscrete, MultiBinary, or a Dict of these.
        exact: write numbers that a float32 cannot hold as two or three of 24 bits, which it can.
            For filters that look at no observation.
        observation_key: of a Dict, the key or keys that a filter reads; None for all that are no
            images.
        half: rows will be stored as float16, which holds one byte of an image, not three.

    Raises:
        ValueError: the space is of another kind, or has no such key.
    """

    def __init__(
        self,
        space: spaces.Space[Any],
        exact: bool = False,
        observation_key: str | Sequence[str] | None = None,
        half: bool = False,
    ) -> None:
        self.is_dict = isinstance(space, spaces.Dict)
        subspaces: Any = space.spaces if isinstance(space, spaces.Dict) else {None: space}
        read = _keys_to_read(subspaces, observation_key)
        self._pixels = 1 if half else _PIXELS
        self._parts: list[_Part] = []
        lows, highs, start = [], [], 0
        for key, subspace in subspaces.items():
            limits = limits_of(subspace)
            if limits is None:
                where = "observation_space" if key is None else f"observation_space[{key!r}]"
                raise ValueError(
                    f"{where} is {subspace}; supported are Box, Discrete, MultiDiscrete, "
                    "MultiBinary and a flat Dict of these"
                )
            low, high = (limit.reshape(-1).astype(np.float64) for limit in limits)
            kind, shape = "plain", (1,) if isinstance(subspace, spaces.Discrete) else subspace.shape
            if is_image(subspace):
                kind, size = "image", -(-low.size // self._pixels)
                low, high = np.zeros(size), np.full(size, 256.0**self._pixels - 1.0)
            elif exact and _is_wide(subspace.dtype, low, high):
                kind, size = "exact", low.size * len(_shifts(subspace.dtype))
                low, high = np.zeros(size), np.full(size, 2.0**_BITS - 1.0)
            stop = start + low.size
            self._parts.append(_Part(key, kind, shape, np.dtype(subspace.dtype), start, stop))
            lows.append(low)
            highs.append(high)
            start = stop
        self.space = spaces.Box(np.concatenate(lows), np.concatenate(highs), dtype=np.float64)
        is_read = np.repeat([key in read for key in subspaces], [len(low) for low in lows])
        self.columns: NDArray[np.int64] = np.flatnonzero(is_read)
        """Columns that a filter reads; none where all is images."""

    def flatten(self, observations: Any) -> NDArray[Any]:
        """Turn a batch of observations (n, ...) into rows."""
        if not self.is_dict:
            return self._columns(np.asarray(observations), self._parts[0])
        parts = [self._columns(np.asarray(observations[part.key]), part) for part in self._parts]
        return np.concatenate(parts, axis=1)

    def _columns(self, values: NDArray[Any], part: _Part) -> NDArray[Any]:
        rows = values.reshape(len(values), -1)
        if part.kind == "exact":
            bits = np.ascontiguousarray(rows, dtype=part.dtype).view(f"u{part.dtype.itemsize}")
            parts = [bits >> shift & 2**_BITS - 1 for shift in _shifts(part.dtype)]
            return np.concatenate(parts, axis=1, dtype=np.float32, casting="unsafe")
        if part.kind == "image":
            pixels = np.zeros((len(rows), part.stop - part.start, self._pixels), np.uint8)
            pixels.reshape(len(rows), -1)[:, : rows.shape[1]] = rows
            words = np.zeros((*pixels.shape[:2], 4), np.uint8)
            words[:, :, : self._pixels] = pixels
            return words.view("<u4")[:, :, 0].astype(np.float32)
        return rows

    def unflatten(self, rows: NDArray[Any]) -> Any:
        """Turn rows into a batch of observations, integers as integers."""
        if not self.is_dict:
            return self._restore(rows, self._parts[0])
        return {
            part.key: self._restore(rows[:, part.start : part.stop], part) for part in self._parts
        }

    def _restore(self, columns: NDArray[Any], part: _Part) -> NDArray[Any]:
        if part.kind == "exact":
            parts = np.hsplit(columns, len(_shifts(part.dtype)))
            bits = np.zeros(parts[0].shape, f"u{part.dtype.itemsize}")
            for shift, numbers in zip(_shifts(part.dtype), parts, strict=True):
                bits |= numbers.astype(bits.dtype) << shift
            columns = bits.view(part.dtype)
        elif part.kind == "image":
            numbers = columns.astype("<u4")
            pixels = numbers[:, :, None].view(np.uint8)[:, :, : self._pixels]
            columns = pixels.reshape(len(columns), -1)[:, : math.prod(part.shape)]
        values = columns.reshape(len(columns), *part.shape)
        if part.dtype.kind in "iu" and values.dtype.kind == "f":
            # Rounded up, the greatest integers would not fit their type any more.
            limits = np.iinfo(part.dtype)
            greatest = np.float32(limits.max)
            if int(greatest) > limits.max:
                greatest = np.nextafter(greatest, np.float32(0))
            values = np.minimum(values, greatest)
        return values if part.dtype.kind == "f" else values.astype(part.dtype, copy=False)


def _is_wide(dtype: np.dtype[Any], low: NDArray[Any], high: NDArray[Any]) -> bool:
    """Tell whether a float32 does not hold all numbers of this type from the least to the most."""
    if dtype.kind == "f":
        return dtype.itemsize > 4
    return bool(max(-low.min(), high.max()) > 2**_BITS)


def _shifts(dtype: np.dtype[Any]) -> range:
    """Give where in a number of this type each of its parts begins."""
    return range(0, 8 * dtype.itemsize, _BITS)


def is_image(space: spaces.Space[Any]) -> bool:
    """Tell whether a space is one of images: bytes with two axes or more."""
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) >= 2


def _keys_to_read(
    subspaces: dict[str | None, spaces.Space[Any]], observation_key: str | Sequence[str] | None
) -> set[str | None]:
    """Give the keys of the sub-spaces that a filter reads."""
    vectors = {key for key, subspace in subspaces.items() if not is_image(subspace)}
    if observation_key is None:
        return vectors
    keys = [observation_key] if isinstance(observation_key, str) else observation_key
    wanted: set[str | None] = set(keys)
    if not wanted or wanted - vectors:
        there = ", ".join(repr(key) for key in subspaces if key is not None and key in vectors)
        hint = f"use one or more of {there}" if there else "the space is no Dict, leave it out"
        raise ValueError(f"observation_key={observation_key!r} names no vectors; {hint}")
    return wanted
