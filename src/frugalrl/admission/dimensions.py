"""Which dimensions of the state matter: column-pivoted QR of the warm-up."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from frugalrl.checks import number_from

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


_AS_LONG = 1e-12
"""Columns whose lengths differ by less than this share are equally long."""


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
