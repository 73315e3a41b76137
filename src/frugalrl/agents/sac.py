"""Soft actor-critic: its losses, and one update as a pure function."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from frugalrl.agents.critics import learn_critics, lessons, q_values
from frugalrl.agents.distributions import sample_gaussian, sample_sde
from frugalrl.agents.networks import forward
from frugalrl.agents.optimizer import Moments, adam, polyak
from frugalrl.agents.spec import Inputs, Spec

METRICS = ("critic_loss", "actor_loss", "ent_coef", "ent_coef_loss")


class SacState(NamedTuple):
    """Everything an update changes."""

    actor: jax.Array  # (actor parameters,)
    actor_moments: Moments
    critics: jax.Array  # (critics x critic parameters,)
    critic_moments: Moments
    targets: jax.Array  # as critics
    log_ent_coef: jax.Array  # ()
    ent_coef_moments: Moments
    count: jax.Array  # () updates done


def initial_state(spec: Spec, rng: np.random.Generator) -> SacState:
    """Draw the networks."""
    actor, critics = spec.init_actor(rng), spec.init_critics(rng)
    log_ent_coef = np.log(np.float32(spec.settings.initial_entropy_coefficient() or 1.0))
    return SacState(
        actor,
        Moments.zeros(actor),
        critics,
        Moments.zeros(critics),
        critics.copy(),
        log_ent_coef,
        Moments.zeros(log_ent_coef),
        np.int32(0),
    )


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
    return inputs.rewards + inputs.discounts * (next_q - ent_coef * log_prob)


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
    """Do one update: entropy coefficient, critics, actor, targets.

    Args:
        spec: Shapes and settings.
        state: What the update starts from.
        inputs: One batch with its noise.
        rate: Learning rate.
        index: Number of this update within its call (0, 1, ...).

    Returns:
        The new state; the metrics (4,) and the mean absolute errors of the rows (n,).
    """
    settings = spec.settings
    count = state.count + 1
    # All losses of an update see the coefficient before its own step.
    ent_coef = entropy_coefficient(spec, state)
    batches = lessons(spec, state.critics, inputs, target_values(spec, state, inputs, ent_coef))
    critics, critic_moments, loss_q, errors = learn_critics(
        spec, state.critics, state.critic_moments, batches, count, rate, scale=0.5
    )
    (loss_pi, log_prob), gradient = jax.value_and_grad(actor_loss, has_aux=True)(
        state.actor, spec, critics, inputs, ent_coef
    )
    actor, actor_moments = adam(state.actor, gradient, state.actor_moments, count, rate)
    log_ent_coef, ent_coef_moments = state.log_ent_coef, state.ent_coef_moments
    loss_ent, slope = jax.value_and_grad(ent_coef_loss)(log_ent_coef, log_prob, spec.target_entropy)
    if settings.learns_entropy_coefficient:
        log_ent_coef, ent_coef_moments = adam(log_ent_coef, slope, ent_coef_moments, count, rate)
    tau = settings.tau * (index % settings.target_update_interval == 0)
    new = SacState(
        actor,
        actor_moments,
        critics,
        critic_moments,
        polyak(state.targets, critics, tau),
        log_ent_coef,
        ent_coef_moments,
        count,
    )
    return new, (jnp.stack([loss_q, loss_pi, ent_coef, loss_ent]), errors)


def entropy_coefficient(spec: Spec, state: SacState) -> jax.Array:
    """Return the entropy coefficient now in force."""
    if spec.settings.learns_entropy_coefficient:
        return jnp.exp(state.log_ent_coef)
    return jnp.asarray(spec.settings.initial_entropy_coefficient(), jnp.float32)
