"""Updates written out by hand for one CPU: BLAS for the products, one Numba loop for the rest.

They compute what ``frugalrl.agents.jax`` defines by automatic differentiation, and are tested
against it. What is gained is the machine's full matrix-multiply rate, and an update without
dispatch, allocation or copies.
"""

from __future__ import annotations

from frugalrl.compiling import compiled as _compiled

# Multiply-adds may be contracted; NaN stays NaN.
compiled = _compiled(nogil=True, fastmath={"contract", "nsz", "arcp"})
# Sums may be reordered too, which vectorises them. Only for functions that are one long sum: the
# order is the compiler's choice, and that of a short one may change where it is inlined, so that
# the process that compiles would round otherwise than those that find compiled code on disk.
compiled_sum = _compiled(nogil=True, fastmath={"reassoc", "contract", "nsz", "arcp"})
