"""How the inner loops of admission are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

from frugalrl.compiling import tell_of_compilation

tell_of_compilation()

_Function = TypeVar("_Function", bound=Callable[..., Any])

Whole = Any
"""A whole number: `int` to the reader, `numpy.int64` in compiled code."""
Real = Any
"""A real number: `float` to the reader, `numpy.float64` in compiled code."""


def compiled(function: _Function) -> _Function:
    """Compile with Numba on first use, keep the result on disk, and keep the function's type."""
    made: Any = njit(cache=True, nogil=True, error_model="numpy")(function)
    return cast("_Function", made)


def inlined(function: _Function) -> _Function:
    """Compile as `compiled` does, into each of the callers.

    Handing over a set of arrays costs some fifty machine words a call, more than a small function
    does itself.
    """
    made: Any = njit(cache=True, nogil=True, error_model="numpy", forceinline=True)(function)
    return cast("_Function", made)


def vectorised(function: _Function) -> _Function:
    """Compile as `compiled` does, letting sums be taken in any order, so several at a time."""
    freedom = {"reassoc", "contract", "nsz"}
    made: Any = njit(cache=True, nogil=True, error_model="numpy", fastmath=freedom)(function)
    return cast("_Function", made)
