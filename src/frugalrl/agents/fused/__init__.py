"""Updates written out by hand for one CPU: BLAS for the products, one Numba loop for the rest.

They compute what ``frugalrl.agents.jax`` defines by automatic differentiation, and are tested
against it. What is gained is the machine's full matrix-multiply rate, and an update without
dispatch, allocation or copies.
"""

from __future__ import annotations

from frugalrl.compiling import compiled as _compiled

# Sums may be reordered and multiply-adds contracted, which vectorises them; NaN stays NaN.
compiled = _compiled(nogil=True, fastmath={"reassoc", "contract", "nsz", "arcp"})
