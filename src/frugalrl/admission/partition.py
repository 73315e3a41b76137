"""The partition of the state space (alpha): bounds, bins, and the key of a state's cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from frugalrl.admission.addresses import table_of, vector_at
from frugalrl.admission.compiled import Real, compiled, inlined

if TYPE_CHECKING:
    from gymnasium.spaces import Box

OUTSIDE = ("clip", "extend")
"""What may happen to a value outside the range: the edge cell takes it, or bins run on."""

_LARGEST_KNOWN = 1e30
"""A bound beyond this is the number type's own, not one that the environment knows."""
_FURTHEST_BIN = 4.0e18
"""Bins are counted in 64 bits."""


class Partition(NamedTuple):
    """Equal bins along the important dimensions."""

    dimensions: NDArray[np.int64]
    """(k,) the important dimensions."""
    low: NDArray[np.float64]
    """(k,) where the first bin begins."""
    width: NDArray[np.float64]
    """(k,) the width of a bin."""
    last_bin: float
    """Highest bin when values outside go to the edge cell, infinity when bins run on."""

    def table(self) -> Any:
        """Where the arrays lie, for `partition_at`."""
        return table_of(self[:3])

    def state_dict(self) -> dict[str, Any]:
        """What `from_state_dict` needs beside the settings."""
        return {"dimensions": self.dimensions, "low": self.low, "width": self.width}

    @classmethod
    def from_state_dict(cls, state: dict[str, Any], dimensions: int, last_bin: float) -> Partition:
        """Make the partition that `state_dict` described, of states with so many dimensions.

        Raises:
            ValueError: the arrays are not such a partition's; compiled code would trust them.
        """
        important = np.array(state["dimensions"], dtype=np.int64)
        low, width = (np.array(state[name], dtype=np.float64) for name in ("low", "width"))
        if not (important.ndim == 1 and important.shape == low.shape == width.shape):
            raise ValueError("the partition's arrays are not of one length")
        if not ((important >= 0) & (important < dimensions)).all():
            raise ValueError(f"an important dimension is not one of {dimensions}")
        if not (np.isfinite(low).all() and np.isfinite(width).all() and (width > 0.0).all()):
            raise ValueError("the partition's bins have no finite, positive width")
        return cls(important, low, width, last_bin)


@inlined
def partition_at(table: Any, last_bin: Real) -> Partition:
    """The partition whose arrays lie there."""
    return Partition(
        vector_at(table, 0, np.int64),
        vector_at(table, 1, np.float64),
        vector_at(table, 2, np.float64),
        last_bin,
    )


def last_bin(bins: int, outside: str) -> float:
    """Highest bin: values beyond go there, or bins run on without end."""
    return float(bins - 1) if outside == "clip" else np.inf


def known_bounds(
    space: Box | None, dimensions: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Give (low, high) of the space, infinite where it is unknown."""
    if space is None:
        return np.full(dimensions, -np.inf), np.full(dimensions, np.inf)
    low = np.asarray(space.low, dtype=np.float64).reshape(-1)
    high = np.asarray(space.high, dtype=np.float64).reshape(-1)
    return (
        np.where(low > -_LARGEST_KNOWN, low, -np.inf),
        np.where(high < _LARGEST_KNOWN, high, np.inf),
    )


def make_partition(
    important: NDArray[np.int64],
    observations: NDArray[np.floating],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    bins: int,
    outside: str,
) -> Partition:
    """Cut the important dimensions into bins.

    Args:
        important: (k,) the important dimensions.
        observations: (n, d) the warm-up, which gives the range where the bounds do not.
        low: (d,) lower bounds; a dimension is unbounded unless both its bounds are finite.
        high: (d,) upper bounds.
        bins: number of bins a dimension (mu).
        outside: "clip" or "extend".
    """
    seen = np.asarray(observations[:, important], dtype=np.float64)
    is_known = np.isfinite(low[important]) & np.isfinite(high[important])
    lower = np.where(is_known, low[important], np.floor(seen.min(axis=0)))
    upper = np.where(is_known, high[important], np.ceil(seen.max(axis=0)))
    # At 1e30 one unit is far below the spacing of numbers; a bin must still have a width.
    unit = np.maximum(1.0, np.spacing(np.abs(lower)) * bins)
    upper = np.where(upper > lower, upper, lower + unit)
    width = upper / bins - lower / bins
    return Partition(
        dimensions=np.ascontiguousarray(important, dtype=np.int64),
        low=np.ascontiguousarray(lower),
        width=np.ascontiguousarray(width),
        last_bin=last_bin(bins, outside),
    )


@inlined
def _mix(h: np.uint64) -> np.uint64:
    """Scramble 64 bits (the finaliser of MurmurHash3)."""
    h ^= h >> np.uint64(33)
    h *= np.uint64(0xFF51AFD7ED558CCD)
    h ^= h >> np.uint64(33)
    h *= np.uint64(0xC4CEB9FE1A85EC53)
    h ^= h >> np.uint64(33)
    return h


@inlined
def cell_key(partition: Partition, observation: NDArray[np.float64]) -> tuple[np.uint64, np.uint64]:
    """128 bits that stand for the cell of a state.

    With 16 dimensions the bins themselves would take more memory than all else that is known of a
    cell. Among ten million cells, two share a key with probability 1e-25.
    """
    first = np.uint64(0x9E3779B97F4A7C15)
    second = np.uint64(0xD1B54A32D192ED03)
    for j in range(len(partition.dimensions)):
        place = (observation[partition.dimensions[j]] - partition.low[j]) / partition.width[j]
        bin_number = np.floor(place)
        if partition.last_bin < np.inf:
            bin_number = min(max(bin_number, 0.0), partition.last_bin)
        bin_number = min(max(bin_number, -_FURTHEST_BIN), _FURTHEST_BIN)
        coordinate = np.uint64(np.int64(bin_number))
        first = _mix(first ^ coordinate) + np.uint64(0x9E3779B97F4A7C15)
        second = _mix((second + coordinate) * np.uint64(0x2545F4914F6CDD1D))
    return first, second


@compiled
def cell_keys(partition: Partition, observations: NDArray[np.float64]) -> NDArray[np.uint64]:
    """(n, 2) keys of the cells of (n, d) states."""
    keys = np.empty((len(observations), 2), dtype=np.uint64)
    for i in range(len(observations)):
        keys[i, 0], keys[i, 1] = cell_key(partition, observations[i])
    return keys
