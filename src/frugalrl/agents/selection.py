"""LaBER's choice of a batch within a larger one (Lahire et al., ICML 2022)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

SMALLEST_ERROR = 1e-8  # keeps the distribution defined where every error vanishes


def select_by_error(errors: jax.Array, uniforms: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Draw rows with probability proportional to their absolute error, with replacement.

    Args:
        errors: Absolute temporal-difference errors of the large batch (m,).
        uniforms: Uniform draws in [0, 1), one for every row wanted (n,).

    Returns:
        The rows (n,) and their loss weights mean(|error|) / |error| (n,), which make the
        weighted loss an unbiased estimate of the large batch's mean loss.
    """
    errors = jnp.maximum(errors, SMALLEST_ERROR)
    cumulative = jnp.cumsum(errors)
    rows = jnp.searchsorted(cumulative, uniforms * cumulative[-1], side="right")
    rows = jnp.minimum(rows, len(errors) - 1)
    return rows, errors.mean() / errors[rows]
