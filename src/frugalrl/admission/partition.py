"""The cells of the state space: important dimensions (kappa), their bins (alpha), and keys."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from frugalrl.checks import number_from
from frugalrl.compiling import compiled

if TYPE_CHECKING:
    from gymnasium.spaces import Box
    from numpy.typing import ArrayLike


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
    r: Any = np.linalg.qr(omega / (largest or 1.0), mode="r")
    floor = max(1, math.ceil(min_fraction * dimensions))
    return _pivoted_columns(r, threshold, floor)


def _pivoted_columns(
    matrix: NDArray[np.float64], threshold: float, fewest: int
) -> NDArray[np.int64]:
    """Take columns, each time the longest of what the taken ones do not explain (Gram-Schmidt).

    This is column-pivoted QR that ends with the last important pivot. SciPy has the whole of it,
    but to import its linear algebra takes longer than all else that a first decision waits for.
    """
    residual = matrix.copy()
    taken: list[int] = []
    first_length = 0.0
    while len(taken) < matrix.shape[1]:
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
    bounds: tuple[NDArray[np.float64], NDArray[np.float64]],
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
    seen = np.asarray(observations[:, important], dtype=np.float64)
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
    if not all(column.ndim == 1 and len(column) == len(columns[0]) for column in columns):
        raise ValueError("the partition's arrays are not of one length")
    made = np.empty(len(columns[0]), dtype=AXIS)
    for name, column in zip(AXIS.names or (), columns, strict=True):
        made[name] = column
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
