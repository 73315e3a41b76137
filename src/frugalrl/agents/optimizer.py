"""Optax's Adam on flat vectors."""

from __future__ import annotations

import jax
import optax

_ADAM = optax.scale_by_adam()


def adam(
    parameters: jax.Array,
    gradient: jax.Array,
    first: jax.Array,
    second: jax.Array,
    step: jax.Array,
    rate: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Take Adam's step number 1, 2, ... down the gradient.

    Args:
        parameters: What is learned (size,).
        gradient: Of the loss (size,).
        first: Running average of the gradient (size,).
        second: Running average of its square (size,).
        step: Number of the step.
        rate: Learning rate.

    Returns:
        The new parameters and averages.
    """
    averages = optax.ScaleByAdamState(count=step - 1, mu=first, nu=second)
    direction, averages = _ADAM.update(gradient, averages)
    return parameters - rate * direction, averages.mu, averages.nu
