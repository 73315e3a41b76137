"""TD3, and DDPG as TD3 with one critic, no delay and no noise on the target action."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from frugalrl.agents.critics import learn_critics, lessons, q_values
from frugalrl.agents.networks import forward, split_critics
from frugalrl.agents.optimizer import Moments, adam, polyak
from frugalrl.agents.spec import Inputs, Spec

METRICS = ("critic_loss", "actor_loss")


class Td3State(NamedTuple):
    """Everything an update changes."""

    actor: jax.Array  # (actor parameters,)
    actor_moments: Moments
    actor_target: jax.Array  # as actor
    critics: jax.Array  # (critics x critic parameters,)
    critic_moments: Moments
    targets: jax.Array  # as critics
    actor_loss: jax.Array  # () of the last update that had one
    count: jax.Array  # () updates done


def initial_state(spec: Spec, rng: np.random.Generator) -> Td3State:
    """Draw the networks."""
    actor, critics = spec.init_actor(rng), spec.init_critics(rng)
    return Td3State(
        actor,
        Moments.zeros(actor),
        actor.copy(),
        critics,
        Moments.zeros(critics),
        critics.copy(),
        np.float32(0),
        np.int32(0),
    )


def act(spec: Spec, actor: jax.Array, observations: jax.Array) -> jax.Array:
    """Return the deterministic actions (n, a)."""
    return jnp.tanh(forward(spec.actor.layers(actor), observations)[0])


def target_values(spec: Spec, state: Td3State, inputs: Inputs) -> jax.Array:
    """Return what the critics should say (m,): reward plus discounted value of a noisy action."""
    bound = spec.settings.target_noise_clip
    noise = jnp.clip(spec.settings.target_policy_noise * inputs.noise, -bound, bound)
    actions = act(spec, state.actor_target, inputs.next_observations) + noise
    actions = jnp.clip(actions, -1, 1)
    next_q = q_values(spec, state.targets, inputs.next_observations, actions).min(0)
    return inputs.rewards + inputs.discounts * next_q


def actor_loss(
    actor: jax.Array, spec: Spec, critics: jax.Array, observations: jax.Array
) -> jax.Array:
    """Return minus the first critic's mean value of the actor's actions."""
    first = split_critics(spec.critic, critics, 1)[0]
    actions = act(spec, actor, observations)
    return -forward(first, jnp.concatenate([observations, actions], axis=-1))[0].mean()


def learn_actor(spec: Spec, state: Td3State, inputs: Inputs, rate: jax.Array) -> Td3State:
    """Take one step of the actor, then move all targets."""
    tau = spec.settings.tau
    observations = inputs.observations[: spec.settings.batch_size]
    loss, gradient = jax.value_and_grad(actor_loss)(state.actor, spec, state.critics, observations)
    step = state.count // spec.settings.policy_delay
    actor, moments = adam(state.actor, gradient, state.actor_moments, step, rate)
    return state._replace(
        actor=actor,
        actor_moments=moments,
        actor_target=polyak(state.actor_target, actor, tau),
        targets=polyak(state.targets, state.critics, tau),
        actor_loss=loss,
    )


def update(
    spec: Spec, state: Td3State, inputs: Inputs, rate: jax.Array, index: jax.Array
) -> tuple[Td3State, tuple[jax.Array, jax.Array]]:
    """Do one update of the critics and, every ``policy_delay`` updates, of actor and targets.

    Args:
        spec: Shapes and settings.
        state: What the update starts from.
        inputs: One batch with its noise.
        rate: Learning rate.
        index: Number of this update within its call (unused: the delay runs across calls).

    Returns:
        The new state; the metrics (2,) and the mean absolute errors of the rows (n,).
    """
    del index
    count = state.count + 1
    batches = lessons(spec, state.critics, inputs, target_values(spec, state, inputs))
    critics, moments, loss, errors = learn_critics(
        spec, state.critics, state.critic_moments, batches, count, rate, scale=1.0
    )
    state = state._replace(critics=critics, critic_moments=moments, count=count)
    if spec.settings.policy_delay == 1:
        state = learn_actor(spec, state, inputs, rate)
    else:
        state = jax.lax.cond(
            count % spec.settings.policy_delay == 0,
            lambda old: learn_actor(spec, old, inputs, rate),
            lambda old: old,
            state,
        )
    return state, (jnp.stack([loss, state.actor_loss]), errors)
