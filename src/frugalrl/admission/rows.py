"""Observations and rewards as the compiled code wants them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

NOT_FINITE = (
    "transitions with NaN or infinity are refused; "
    "rejected_nonfinite counts them, this warning comes once"
)
"""The warning about rows that are no finite numbers."""
_WANTED = np.dtype(np.float64)
_NO_REAL_NUMBERS = "cSUMm"
"""Kinds of arrays that NumPy would turn into real numbers: complex, texts, dates, durations."""


def as_rows(
    observations: ArrayLike, rewards: ArrayLike, dimensions: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Give (n, d) observations and (n,) rewards as contiguous float64.

    Args:
        observations: (n, d) numbers.
        rewards: (n,) numbers.
        dimensions: the d that is needed; 0 when any will do.
    """
    states = _as_numbers("observations", observations)
    values = _as_numbers("rewards", rewards)
    if states.ndim != 2 or values.ndim != 1 or len(states) != len(values):
        raise ValueError(
            f"observations has shape {states.shape} and rewards {values.shape}; "
            "(n, dimensions) and (n,) are needed"
        )
    if states.shape[1] == 0:
        raise ValueError(f"observations has shape {states.shape}: there is nothing to observe")
    if dimensions and states.shape[1] != dimensions:
        raise ValueError(
            f"observations has {states.shape[1]} dimensions, "
            f"but this filter has begun with {dimensions}"
        )
    return states, values


def _as_numbers(argument: str, values: ArrayLike) -> NDArray[np.float64]:
    """Give real numbers as contiguous float64; what only looks like them is refused."""
    if type(values) is np.ndarray and values.dtype is _WANTED and values.flags.c_contiguous:
        return values
    try:
        given = np.asarray(values)
        if given.dtype.kind not in _NO_REAL_NUMBERS and not _holds_texts(given):
            return np.asarray(given, dtype=np.float64, order="C")
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(_complaint(argument, "something else")) from error
    raise TypeError(_complaint(argument, f"of type {given.dtype}"))


def _holds_texts(given: NDArray[Any]) -> bool:
    """Whether an array of Python objects has texts among them, which would be read as numbers."""
    return given.dtype.kind == "O" and any(isinstance(value, str | bytes) for value in given.flat)


def _complaint(argument: str, found: str) -> str:
    return f"observations and rewards must be arrays of numbers, but {argument} is {found}"
