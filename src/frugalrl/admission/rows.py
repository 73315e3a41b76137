"""Observations and rewards as the compiled code wants them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def as_rows(
    observations: ArrayLike, rewards: ArrayLike, dimensions: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Give (n, d) observations and (n,) rewards as contiguous float64.

    Args:
        observations: (n, d) numbers.
        rewards: (n,) numbers.
        dimensions: the d that is needed; 0 when any will do.
    """
    try:
        states = np.asarray(observations, dtype=np.float64, order="C")
        values = np.asarray(rewards, dtype=np.float64, order="C")
    except (TypeError, ValueError) as error:
        raise TypeError("observations and rewards must be arrays of numbers") from error
    if states.ndim != 2 or values.ndim != 1 or len(states) != len(values):
        raise ValueError(
            f"observations has shape {states.shape} and rewards {values.shape}; "
            "(n, dimensions) and (n,) are needed"
        )
    if dimensions and states.shape[1] != dimensions:
        raise ValueError(
            f"observations has {states.shape[1]} dimensions, "
            f"but this filter has begun with {dimensions}"
        )
    return states, values
