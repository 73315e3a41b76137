"""Networks forward, Optax's Adam on their flat vectors, and the critics' side of an update."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from frugalrl.agents.state import SMALLEST_ERROR, Inputs, Spec

Layers = list[tuple[jax.Array, jax.Array]]
# What one critic learns from: observations and actions side by side (n, d + a), targets (n,) and
# weights (n,).
CriticBatch = tuple[jax.Array, jax.Array, jax.Array]


def forward(layers: Layers, inputs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the outputs (n, out) and what the last hidden layer says (n, hidden)."""
    hidden = inputs
    for weights, biases in layers[:-1]:
        hidden = hidden @ weights + biases
        hidden = hidden * (hidden > 0)
    weights, biases = layers[-1]
    return hidden @ weights + biases, hidden


def split_critics(spec: Spec, critics: jax.Array) -> list[Layers]:
    """View the flat vector of all critics as their layers."""
    size, count = spec.critic.size, spec.settings.critics
    return [spec.critic.layers(critics[i * size : (i + 1) * size]) for i in range(count)]


def adam(
    averaged: tuple[jax.Array, jax.Array, jax.Array],
    gradient: jax.Array,
    step: jax.Array,
    rate: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Take Adam's step number 1, 2, ... of parameters, with the averages that belong to them."""
    parameters, first, second = averaged
    averages = optax.ScaleByAdamState(count=step - 1, mu=first, nu=second)
    direction, averages = optax.scale_by_adam().update(gradient, averages)
    return parameters - rate * direction, averages.mu, averages.nu


def descend(state: Any, name: str, gradient: jax.Array, step: jax.Array, rate: jax.Array) -> Any:
    """Return the state with the actor or the critics one step of Adam further."""
    names = (name, f"{name}_first", f"{name}_second")
    old = tuple(getattr(state, each) for each in names)
    return state._replace(**dict(zip(names, adam(old, gradient, step, rate), strict=True)))


def q_values(
    spec: Spec, critics: jax.Array, observations: jax.Array, actions: jax.Array
) -> jax.Array:
    """Return every critic's value of every row (critics, n)."""
    inputs = jnp.concatenate([observations, actions], axis=-1)
    return jnp.stack([forward(one, inputs)[0][:, 0] for one in split_critics(spec, critics)])


def select_by_error(errors: jax.Array, uniforms: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Draw rows (n,) with probability proportional to their absolute error (m,) (LaBER).

    Their loss weights mean(|error|) / |error| (n,), which are returned too, make the weighted loss
    an unbiased estimate of the large batch's mean loss.
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
        return [(rows, targets, inputs.weights)] * count
    q = q_values(spec, critics, inputs.observations, inputs.actions)
    chosen = [select_by_error(jnp.abs(q[i] - targets), inputs.uniforms[i]) for i in range(count)]
    return [(rows[index], targets[index], weights) for index, weights in chosen]


def critic_loss(
    critics: jax.Array, spec: Spec, batches: list[CriticBatch], scale: float
) -> tuple[jax.Array, jax.Array]:
    """Return the scaled sum of the mean squared errors, and the mean absolute error (n,)."""
    errors, losses = [], []
    for one, batch in zip(split_critics(spec, critics), batches, strict=True):
        inputs, targets, weights = batch
        error = forward(one, inputs)[0][:, 0] - targets
        errors.append(error)
        losses.append((weights * error**2).mean())
    return scale * jnp.stack(losses).sum(), jnp.abs(jnp.stack(errors)).mean(0)


def learn_critics(
    spec: Spec, state: Any, inputs: Inputs, targets: jax.Array, scale: float, rate: jax.Array
) -> tuple[Any, jax.Array, jax.Array]:
    """Take one step of the critics towards targets (m,); return the state, loss and errors."""
    batches = critic_batches(spec, state.critics, inputs, targets)
    (loss, errors), gradient = jax.value_and_grad(critic_loss, has_aux=True)(
        state.critics, spec, batches, scale
    )
    return descend(state, "critics", gradient, state.updates[0], rate), loss, errors
