"""Updates written out by hand for one CPU: BLAS for the products, one Numba loop for the rest.

They compute what ``frugalrl.agents.jax`` defines by automatic differentiation, and are tested
against it. What is gained is the machine's full matrix-multiply rate, and an update that
dispatches nothing, allocates little and copies only rows.
"""

from __future__ import annotations

from frugalrl.compiling import compiled_with

# Multiply-adds may be contracted; NaN stays NaN. Sums may not be reordered: the compiler's order
# may change where a function is inlined, and then the process that compiles would round otherwise
# than those that find compiled code on disk. Long sums are left to BLAS, or go row by row, which
# vectorises as it is.
compiled = compiled_with(nogil=True, fastmath={"contract", "nsz", "arcp"})
