"""How the inner loops of admission are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from frugalrl.compiling import compiled

__all__ = ["Real", "Whole", "compiled", "inlined", "vectorised"]

_Function = TypeVar("_Function", bound=Callable[..., Any])

Whole = Any
"""A whole number: `int` to the reader, `numpy.int64` in compiled code."""
Real = Any
"""A real number: `float` to the reader, `numpy.float64` in compiled code."""


def inlined(function: _Function) -> _Function:
    """Compile as `compiled` does, into each of the callers.

    Handing over a set of arrays costs some fifty machine words a call, more than a small function
    does itself.
    """
    return compiled(forceinline=True)(function)


def vectorised(function: _Function) -> _Function:
    """Compile as `compiled` does, letting sums be taken in any order, so several at a time."""
    return compiled(fastmath={"reassoc", "contract", "nsz"})(function)
