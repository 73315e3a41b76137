"""The critics' side of an update, common to SAC and TD3."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from frugalrl.agents.jax.networks import forward, split_critics
from frugalrl.agents.state import SMALLEST_ERROR, Inputs, Spec


class CriticBatch(NamedTuple):
    """What one critic learns from at one update."""

    inputs: jax.Array  # (n, d + a) observations and actions side by side
    targets: jax.Array  # (n,)
    weights: jax.Array  # (n,) or (1,)


def q_values(
    spec: Spec, critics: jax.Array, observations: jax.Array, actions: jax.Array
) -> jax.Array:
    """Return every critic's value of every row (critics, n)."""
    inputs = jnp.concatenate([observations, actions], axis=-1)
    layers = split_critics(spec.critic, critics, spec.settings.critics)
    return jnp.stack([forward(one, inputs)[0][:, 0] for one in layers])


def select_by_error(errors: jax.Array, uniforms: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Draw rows with probability proportional to their absolute error (LaBER).

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


def critic_batches(
    spec: Spec, critics: jax.Array, inputs: Inputs, targets: jax.Array
) -> list[CriticBatch]:
    """Return what each critic learns from: the batch, or LaBER's selection of its own."""
    rows = jnp.concatenate([inputs.observations, inputs.actions], axis=-1)  # (m, d + a)
    count = spec.settings.critics
    if spec.settings.sampler != "large_batch":
        return [CriticBatch(rows, targets, inputs.weights)] * count
    q = q_values(spec, critics, inputs.observations, inputs.actions)
    chosen = [select_by_error(jnp.abs(q[i] - targets), inputs.uniforms[i]) for i in range(count)]
    return [CriticBatch(rows[index], targets[index], weights) for index, weights in chosen]


def critic_loss(
    critics: jax.Array, spec: Spec, batches: list[CriticBatch], scale: float
) -> tuple[jax.Array, jax.Array]:
    """Return the scaled sum of the mean squared errors, and the mean absolute error (n,)."""
    layers = split_critics(spec.critic, critics, spec.settings.critics)
    errors = [
        forward(one, batch.inputs)[0][:, 0] - batch.targets
        for one, batch in zip(layers, batches, strict=True)
    ]
    losses = [
        (batch.weights * error**2).mean() for error, batch in zip(errors, batches, strict=True)
    ]
    return scale * jnp.stack(losses).sum(), jnp.abs(jnp.stack(errors)).mean(0)
