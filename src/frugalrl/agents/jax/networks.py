"""Networks forward, and Optax's Adam on their flat vectors."""

from __future__ import annotations

import jax
import optax

from frugalrl.agents.state import Mlp

Layers = list[tuple[jax.Array, jax.Array]]
_ADAM = optax.scale_by_adam()


def forward(layers: Layers, inputs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the outputs (n, out) and what the last hidden layer says (n, hidden)."""
    hidden = inputs
    for weights, biases in layers[:-1]:
        hidden = hidden @ weights + biases
        hidden = hidden * (hidden > 0)
    weights, biases = layers[-1]
    return hidden @ weights + biases, hidden


def split_critics(critic: Mlp, flat: jax.Array, count: int) -> list[Layers]:
    """View the flat vector of ``count`` critics, one after the other, as their layers."""
    size = critic.size
    return [critic.layers(flat[i * size : (i + 1) * size]) for i in range(count)]


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
