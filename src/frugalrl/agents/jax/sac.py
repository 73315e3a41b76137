"""Soft actor-critic: its squashed policies, its losses, and one update as a pure function."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax

from frugalrl.agents.jax.networks import adam, descend, forward, learn_critics, q_values
from frugalrl.agents.state import (
    EPSILON,
    HALF_LOG_TWO_PI,
    LOG_STD_MAX,
    LOG_STD_MIN,
    SDE_MEAN_BOUND,
    Inputs,
    SacState,
    Spec,
)


def squash(unbounded: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return tanh of actions (n, a), and its log-determinant (n,)."""
    # This is 1 - tanh**2, which as a difference would be all rounding where actions saturate.
    slopes = 4 * jax.nn.sigmoid(2 * unbounded) * jax.nn.sigmoid(-2 * unbounded)
    return jnp.tanh(unbounded), jnp.log(slopes + EPSILON).sum(-1)


def sample_gaussian(head: jax.Array, noise: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Draw squashed Gaussian actions (n, a) by standard normal noise (n, a).

    ``head`` has means and log standard deviations side by side (n, 2a). Returns the
    log-probabilities (n,) too.
    """
    mean, log_std = jnp.split(head, 2, axis=-1)
    log_std = jnp.clip(log_std, LOG_STD_MIN, LOG_STD_MAX)
    actions, log_determinant = squash(mean + jnp.exp(log_std) * noise)
    # (x - mean) / std is the noise itself, whatever mean and std are
    log_density = (-0.5 * noise**2 - log_std - HALF_LOG_TWO_PI).sum(-1)
    return actions, log_density - log_determinant


def sample_sde(
    mean: jax.Array, latent: jax.Array, log_std: jax.Array, noise: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Draw squashed actions with one exploration matrix for the whole batch (gSDE).

    The matrix has log standard deviations and standard normal noise (h, a); it meets means (n, a)
    and the last hidden layer (n, h). Gradients reach that layer too, as they do in
    Stable-Baselines3's SAC. Returns the actions (n, a) and their log-probabilities (n,).
    """
    mean = jnp.clip(mean, -SDE_MEAN_BOUND, SDE_MEAN_BOUND)
    std = jnp.exp(log_std)
    deviation = latent @ (std * noise)  # (n, a)
    variance = latent**2 @ std**2 + EPSILON  # (n, a)
    actions, log_determinant = squash(mean + deviation)
    log_density = -0.5 * (deviation**2 / variance + jnp.log(variance)) - HALF_LOG_TWO_PI
    return actions, log_density.sum(-1) - log_determinant


def sample_actions(
    spec: Spec, actor: jax.Array, observations: jax.Array, noise: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Draw actions (n, a) of the current policy, with their log-probabilities (n,)."""
    output, latent = forward(spec.actor.layers(actor), observations)
    if not spec.settings.use_sde:
        return sample_gaussian(output, noise)
    log_std = actor[spec.actor.size :].reshape(latent.shape[-1], -1)
    return sample_sde(output, latent, log_std, noise)


def target_values(spec: Spec, state: SacState, inputs: Inputs, ent_coef: jax.Array) -> jax.Array:
    """Return what the critics should say (m,): reward plus discounted soft value."""
    noise = inputs.noise if spec.settings.use_sde else inputs.noise[: len(inputs.rewards)]
    actions, log_prob = sample_actions(spec, state.actor, inputs.next_observations, noise)
    next_q = q_values(spec, state.targets, inputs.next_observations, actions).min(0)
    targets: jax.Array = inputs.rewards + inputs.discounts * (next_q - ent_coef * log_prob)
    return targets


def actor_loss(
    actor: jax.Array, spec: Spec, critics: jax.Array, inputs: Inputs, ent_coef: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return mean(ent_coef * log_prob - q) of a uniform batch, and the mean log-probability."""
    rows = spec.settings.batch_size
    observations = inputs.observations[:rows]
    noise = inputs.noise if spec.settings.use_sde else inputs.noise[-rows:]
    actions, log_prob = sample_actions(spec, actor, observations, noise)
    q = q_values(spec, critics, observations, actions).min(0)
    return (ent_coef * log_prob - q).mean(), log_prob.mean()


def ent_coef_loss(
    log_ent_coef: jax.Array, mean_log_prob: jax.Array, target_entropy: float
) -> jax.Array:
    """Return the loss that moves the policy's entropy to its target."""
    return -log_ent_coef * (mean_log_prob + target_entropy)


def update(
    spec: Spec, state: SacState, inputs: Inputs, rate: jax.Array, index: jax.Array
) -> tuple[SacState, tuple[jax.Array, jax.Array]]:
    """Do one update, number 0, 1, ... of its call: critics, actor, entropy coefficient, targets.

    Returns the new state; the losses (4,) and the mean absolute errors of the rows (n,).
    """
    settings = spec.settings
    state = state._replace(updates=state.updates + 1)
    # All losses of an update see the coefficient before its own step.
    ent_coef = jnp.asarray(settings.initial_entropy_coefficient(), jnp.float32)
    if settings.learns_entropy_coefficient:
        ent_coef = jnp.exp(state.ent_coef[0])
    targets = target_values(spec, state, inputs, ent_coef)
    state, loss_q, errors = learn_critics(spec, state, inputs, targets, 0.5, rate)
    (loss_pi, log_prob), gradient = jax.value_and_grad(actor_loss, has_aux=True)(
        state.actor, spec, state.critics, inputs, ent_coef
    )
    state = descend(state, "actor", gradient, state.updates[0], rate)
    loss_ent, gradient = jax.value_and_grad(ent_coef_loss)(
        state.ent_coef[0], log_prob, spec.target_entropy
    )
    if settings.learns_entropy_coefficient:
        learned = adam(tuple(state.ent_coef), gradient, state.updates[0], rate)
        state = state._replace(ent_coef=jnp.stack(learned))
    tau = settings.tau * (index % settings.target_update_interval == 0)
    state = state._replace(targets=optax.incremental_update(state.critics, state.targets, tau))
    return state, (jnp.stack([loss_q, loss_pi, ent_coef, loss_ent]), errors)
