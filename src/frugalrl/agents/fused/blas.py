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
    # Precision, whether to transpose the first and the second; m, n, k, address of alpha, first and
    # its stride, second and its stride, address of beta, result and its stride.
    types.intc(*[types.char] * 3, *[types.intp] * 11),
)

# A constant of the compiled code: an array made in `product` might be gone before BLAS reads it,
# since all that is left of it there is its address.
_ONE_AND_ZERO = np.array([1.0, 0.0], np.float32)


@compiled
def product(
    left: Floats,
    right: Floats,
    out: Floats,
    left_transposed: bool = False,
    right_transposed: bool = False,
) -> None:
    """Compute out (m, n) = left @ right, where each may have to be transposed first."""
    one = _ONE_AND_ZERO.ctypes.data
    n, m = out.shape
    if m and n:
        # Column-major BLAS sees every array transposed: out.T = right.T @ left.T.
        _gemm(
            _SINGLE,
            _TRANSPOSED if right_transposed else _AS_IS,
            _TRANSPOSED if left_transposed else _AS_IS,
            m,
            n,
            left.shape[0] if left_transposed else left.shape[1],
            one,
            right.ctypes.data,
            right.shape[1],
            left.ctypes.data,
            left.shape[1],
            one + 4,
            out.ctypes.data,
            m,
        )
