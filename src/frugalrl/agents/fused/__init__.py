"""Updates written out by hand for one CPU: BLAS for the products, one Numba loop for the rest.

They compute what ``frugalrl.agents.jax`` defines by automatic differentiation, and are tested
against it. What is gained is the machine's full matrix-multiply rate, and an update that
dispatches nothing, allocates little and copies only rows.
"""
