"""Updates written out by hand for one CPU: BLAS for the products, one Numba loop for the rest.

They compute what ``frugalrl.agents.sac`` and ``td3`` define by automatic differentiation, and are
tested against them. What is gained is the machine's full matrix-multiply rate, and an update
without dispatch, allocation or copies.
"""
