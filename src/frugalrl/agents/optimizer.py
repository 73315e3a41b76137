"""Adam and Polyak averaging on flat vectors."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


class Moments(NamedTuple):
    """Adam's running averages of one parameter vector."""

    first: jax.Array  # (size,)
    second: jax.Array  # (size,)

    @classmethod
    def zeros(cls, parameters: Any) -> Moments:
        """Return the averages before the first step."""
        return cls(np.zeros_like(parameters), np.zeros_like(parameters))


def adam(
    parameters: jax.Array, gradient: jax.Array, moments: Moments, count: jax.Array, rate: jax.Array
) -> tuple[jax.Array, Moments]:
    """Take Adam's step number ``count`` (1, 2, ...) down the gradient."""
    first = BETA1 * moments.first + (1 - BETA1) * gradient
    second = BETA2 * moments.second + (1 - BETA2) * gradient**2
    steps = count.astype(first.dtype)
    # 1 - beta**steps, without losing digits to the subtraction
    scale = rate / -jnp.expm1(steps * math.log(BETA1))
    root = jnp.sqrt(second) * jax.lax.rsqrt(-jnp.expm1(steps * math.log(BETA2))) + EPSILON
    return parameters - scale * first / root, Moments(first, second)


def polyak(target: jax.Array, source: jax.Array, tau: float | jax.Array) -> jax.Array:
    """Move a target a share tau of the way towards its source."""
    return (1 - tau) * target + tau * source
