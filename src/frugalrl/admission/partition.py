"""The cells of the state space: important dimensions (kappa), their bins (alpha), and keys."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from frugalrl.checks import number_from
from frugalrl.compiling import compiled

if TYPE_CHECKING:
    from gymnasium.spaces import Box

Range = tuple[NDArray[np.float64], NDArray[np.float64]]
"""The least and the greatest value of each dimension."""
AXIS = np.dtype([("dimension", "i8"), ("low", "f8"), ("width", "f8"), ("last", "f8")])
"""An important dimension, where its first bin begins, the width of a bin, and its last bin.

A partition is an array of these. The last bin is infinite where bins run on (`outside="extend"`).
"""
_AS_LONG = 1e-12
"""Columns whose lengths differ by less than this share are equally long."""
_LARGEST_KNOWN = 1e30
"""A bound beyond this is the number type's own, not one that the environment knows."""
_FURTHEST_BIN = 4.0e18
"""Bins are counted in 64 bits."""


def important_dimensions(
    observations: ArrayLike, threshold: float = 0.5, min_fraction: float = 0.04
) -> NDArray[np.int64]:
    """Find the important dimensions (kappa) of the observations (Omega).

    Column-pivoted QR of the raw matrix, neither centred nor scaled: `Omega[:, E] = Q R`. Kept are
    the leading columns with `|R_ii| >= threshold * |R_00|`, and never fewer than
    `ceil(min_fraction * d)` of d.

    Args:
        observations: (n, d), finite, one row a step, at least as many rows as dimensions.
        threshold: the smallest pivot kept, relative to the first (nu); 0 < threshold <= 1.
        min_fraction: the share of dimensions kept at the least; 0 <= min_fraction <= 1.

    Returns:
        Indices of the important dimensions, most important first.

    Raises:
        ValueError: an argument is out of its range or the matrix cannot be decomposed.
    """
    number_from("threshold", threshold, "0 < threshold <= 1", lambda it: 0.0 < it <= 1.0)
    number_from("min_fraction", min_fraction, "0 to 1", lambda it: 0.0 <= it <= 1.0)
    omega = np.asarray(observations, dtype=np.float64)
    if omega.ndim != 2 or omega.shape[1] == 0:
        raise ValueError(
            f"observations must be a matrix (steps, dimensions), got shape {omega.shape}"
        )
    steps, dimensions = omega.shape
    if steps < dimensions:
        raise ValueError(
            f"observations has {steps} rows for {dimensions} dimensions; "
            f"pivoted QR needs at least {dimensions} rows"
        )
    largest = float(np.abs(omega).max())
    if not math.isfinite(largest):
        raise ValueError("observations holds NaN or infinity; remove such rows first")

    # Scaling the whole matrix changes no ratio of pivots and keeps the norms from overflowing.
    residual: Any = np.linalg.qr(omega / (largest or 1.0), mode="r")
    fewest = max(1, math.ceil(min_fraction * dimensions))
    # Each time the longest column of what the taken ones do not explain (Gram-Schmidt). SciPy has
    # the whole of pivoted QR, but to import it takes longer than all else before a first decision.
    taken: list[int] = []
    first_length = 0.0
    while len(taken) < dimensions:
        lengths = np.sqrt(np.einsum("ij,ij->j", residual, residual))
        lengths[taken] = -1.0
        longest = float(lengths.max())
        first_length = first_length or longest
        if len(taken) >= fewest and (longest == 0.0 or longest < threshold * first_length):
            break
        # Of columns that only rounding tells apart, the first: the same on every machine.
        column = int(np.flatnonzero(lengths >= longest * (1.0 - _AS_LONG))[0])
        taken.append(column)
        if longest > 0.0:
            direction = residual[:, column] / lengths[column]
            residual -= np.outer(direction, direction @ residual)
    return np.array(taken, dtype=np.int64)


def known_bounds(space: Box | None, dimensions: int) -> Range:
    """Give (low, high) of the space, infinite where it is unknown."""
    if space is None:
        return np.full(dimensions, -np.inf), np.full(dimensions, np.inf)
    low, high = (np.ravel(end).astype(np.float64) for end in (space.low, space.high))
    low[low <= -_LARGEST_KNOWN], high[high >= _LARGEST_KNOWN] = -np.inf, np.inf
    return low, high


def make_partition(
    important: NDArray[np.int64],
    observations: NDArray[np.floating],
    bounds: Range,
    bins: NDArray[np.int64],
    outside: str,
) -> NDArray[Any]:
    """Cut the important dimensions into bins.

    Args:
        important: (k,) the important dimensions.
        observations: (n, d) the warm-up, which gives the range where the bounds do not.
        bounds: (d,) lower and (d,) upper; a dimension is unbounded unless both are finite.
        bins: (d,) number of bins of each dimension (mu).
        outside: "clip" or "extend".

    Returns:
        (k,) array of `AXIS`.
    """
    seen = observations[:, important].astype(np.float64)
    low, high, number = bounds[0][important], bounds[1][important], bins[important]
    is_known = np.isfinite(low) & np.isfinite(high)
    lower = np.where(is_known, low, np.floor(seen.min(axis=0)))
    upper = np.where(is_known, high, np.ceil(seen.max(axis=0)))
    # At 1e30 one unit is far below the spacing of numbers; a bin must still have a width.
    unit = np.maximum(1.0, np.spacing(np.abs(lower)) * number)
    upper = np.where(upper > lower, upper, lower + unit)
    partition = np.empty(len(important), dtype=AXIS)
    partition["dimension"] = important
    partition["low"] = lower
    partition["width"] = upper / number - lower / number
    partition["last"] = number - 1 if outside == "clip" else np.inf
    return partition


def checked_partition(partition: Any, dimensions: int) -> NDArray[Any]:
    """Give a partition of states with so many dimensions from a loaded state.

    Raises:
        ValueError: the arrays are not such a partition's; compiled code would trust them.
    """
    columns = [np.asarray(partition[name]) for name in AXIS.names or ()]
    if len({column.shape for column in columns}) > 1 or columns[0].ndim != 1:
        raise ValueError("the partition's arrays are not of one length")
    made = np.array(list(zip(*columns, strict=True)), dtype=AXIS)
    if not ((made["dimension"] >= 0) & (made["dimension"] < dimensions)).all():
        raise ValueError(f"an important dimension is not one of {dimensions}")
    is_finite = np.isfinite(made["low"]) & np.isfinite(made["width"])
    if not (is_finite & (made["width"] > 0.0) & (made["last"] >= 0.0)).all():
        raise ValueError("the partition's bins have no finite, positive width")
    return made


@compiled
def mix(h: Any) -> Any:
    """Scramble 64 bits (the finaliser of MurmurHash3)."""
    h ^= h >> np.uint64(33)
    h *= np.uint64(0xFF51AFD7ED558CCD)
    h ^= h >> np.uint64(33)
    h *= np.uint64(0xC4CEB9FE1A85EC53)
    h ^= h >> np.uint64(33)
    return h


@compiled
def cell_key(partition: Any, observation: Any) -> Any:
    """64 bits that stand for the cell of a state.

    With 16 dimensions the bins themselves would take more memory than all else that is known of a
    cell. Among a million cells, two share a key with probability 3e-8.
    """
    key = np.uint64(0x9E3779B97F4A7C15)
    for axis in partition:
        bin_number = np.floor((observation[axis["dimension"]] - axis["low"]) / axis["width"])
        if axis["last"] < np.inf:
            bin_number = min(max(bin_number, 0.0), axis["last"])
        bin_number = min(max(bin_number, -_FURTHEST_BIN), _FURTHEST_BIN)
        key = mix(key ^ np.uint64(np.int64(bin_number))) + np.uint64(0x9E3779B97F4A7C15)
    return key


@compiled
def cell_keys(partition: Any, observations: Any) -> NDArray[np.uint64]:
    """(n,) keys of the cells of (n, d) states."""
    keys = np.empty(len(observations), dtype=np.uint64)
    for i in range(len(observations)):
        keys[i] = cell_key(partition, observations[i])
    return keys
