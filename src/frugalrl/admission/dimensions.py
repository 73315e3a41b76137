"""Which dimensions of the state matter: column-pivoted QR of the warm-up."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


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
    check_dimension_settings(threshold, min_fraction)
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

    from scipy.linalg import qr

    # Scaling the whole matrix changes no ratio of pivots and keeps the norms from overflowing.
    r, pivots = qr(omega / (largest or 1.0), mode="r", pivoting=True, check_finite=False)
    magnitudes = np.abs(np.diagonal(r))
    floor = max(1, math.ceil(min_fraction * dimensions))
    if magnitudes[0] == 0.0:  # every observation is zero: no dimension tells more than another
        return np.arange(floor, dtype=np.int64)
    below = np.flatnonzero(magnitudes < threshold * magnitudes[0])
    leading = int(below[0]) if len(below) else dimensions
    return np.asarray(pivots[: max(floor, leading)], dtype=np.int64)


def check_dimension_settings(threshold: float, min_fraction: float) -> None:
    """Raise a ValueError that names the argument when a setting is out of its range."""
    if not 0.0 < threshold <= 1.0:
        raise ValueError(f"threshold={threshold!r} is out of range; use 0 < threshold <= 1")
    if not 0.0 <= min_fraction <= 1.0:
        raise ValueError(f"min_fraction={min_fraction!r} is out of range; use 0 to 1")
