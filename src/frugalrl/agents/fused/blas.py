"""Single-precision matrix products by BLAS, into arrays that exist already.

``np.dot`` would do the same inside a kernel, but brings so much code to every call that compiling
an update takes twice as long. This calls what ``np.dot`` calls in the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from frugalrl.agents.fused import compiled
from frugalrl.agents.state import Floats

_SINGLE, _AS_IS, _TRANSPOSED = ord("s"), ord("n"), ord("t")
_gemm: Any = types.ExternalFunction(
    "numba_xxgemm",
    types.intc(
        *(types.char, types.char, types.char),  # precision; transpose the first, the second
        *(types.intp, types.intp, types.intp),  # m, n, k
        types.intp,  # alpha
        *(types.intp, types.intp, types.intp, types.intp),  # first, its stride; second, ...
        types.intp,  # beta
        *(types.intp, types.intp),  # result, its stride
    ),
)

# A constant of the compiled code: an array made in `_call` might be gone before BLAS reads it,
# since all that is left of it there is its address.
_ONE_AND_ZERO = np.array([1.0, 0.0], np.float32)


@compiled
def _call(
    first: Floats, first_order: int, second: Floats, second_order: int, depth: int, out: Floats
) -> None:
    """Compute out.T = first.T @ second.T, which is what column-major BLAS sees."""
    at = _ONE_AND_ZERO.ctypes.data
    m, n = out.shape[1], out.shape[0]
    if m and n:
        _gemm(
            _SINGLE,
            first_order,
            second_order,
            m,
            n,
            depth,
            at,
            first.ctypes.data,
            first.shape[1],
            second.ctypes.data,
            second.shape[1],
            at + 4,
            out.ctypes.data,
            m,
        )


@compiled
def product(left: Floats, right: Floats, out: Floats) -> None:
    """Compute out (m, n) = left (m, k) @ right (k, n)."""
    _call(right, _AS_IS, left, _AS_IS, left.shape[1], out)


@compiled
def product_left_transposed(left: Floats, right: Floats, out: Floats) -> None:
    """Compute out (m, n) = left (k, m).T @ right (k, n)."""
    _call(right, _AS_IS, left, _TRANSPOSED, left.shape[0], out)


@compiled
def product_right_transposed(left: Floats, right: Floats, out: Floats) -> None:
    """Compute out (m, n) = left (m, k) @ right (n, k).T."""
    _call(right, _TRANSPOSED, left, _AS_IS, left.shape[1], out)
