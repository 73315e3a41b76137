"""TD3, and DDPG as TD3 with one critic, no delay and no noise on the target action."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax

from frugalrl.agents.jax.networks import descend, forward, learn_critics, q_values
from frugalrl.agents.state import Inputs, Spec, Td3State


def act(spec: Spec, actor: jax.Array, observations: jax.Array) -> jax.Array:
    """Return the deterministic actions (n, a)."""
    outputs: jax.Array = forward(spec.actor.layers(actor), observations)[0]
    return jnp.tanh(outputs)


def target_values(spec: Spec, state: Td3State, inputs: Inputs) -> jax.Array:
    """Return what the critics should say (m,): reward plus discounted value of a noisy action."""
    bound = spec.settings.target_noise_clip
    noise = jnp.clip(spec.settings.target_policy_noise * inputs.noise, -bound, bound)
    actions = act(spec, state.actor_target, inputs.next_observations) + noise
    actions = jnp.clip(actions, -1, 1)
    next_q = q_values(spec, state.targets, inputs.next_observations, actions).min(0)
    targets: jax.Array = inputs.rewards + inputs.discounts * next_q
    return targets


def actor_loss(
    actor: jax.Array, spec: Spec, critics: jax.Array, observations: jax.Array
) -> jax.Array:
    """Return minus the first critic's mean value of the actor's actions."""
    first = spec.critic.layers(critics)
    actions = act(spec, actor, observations)
    return -forward(first, jnp.concatenate([observations, actions], axis=-1))[0].mean()


def learn_actor(spec: Spec, state: Td3State, inputs: Inputs, rate: jax.Array) -> Td3State:
    """Take one step of the actor, then move all targets."""
    tau, delay = spec.settings.tau, spec.settings.policy_delay
    observations = inputs.observations[: spec.settings.batch_size]
    loss, gradient = jax.value_and_grad(actor_loss)(state.actor, spec, state.critics, observations)
    state = descend(state, "actor", gradient, state.updates[0] // delay, rate)
    return state._replace(
        actor_target=optax.incremental_update(state.actor, state.actor_target, tau),
        targets=optax.incremental_update(state.critics, state.targets, tau),
        actor_loss=loss[None],
    )


def update(
    spec: Spec, state: Td3State, inputs: Inputs, rate: jax.Array, index: jax.Array
) -> tuple[Td3State, tuple[jax.Array, jax.Array]]:
    """Do one update of the critics and, every ``policy_delay`` updates, of actor and targets.

    Returns the new state; the losses (2,) and the mean absolute errors of the rows (n,).
    """
    del index  # the delay runs across calls
    state = state._replace(updates=state.updates + 1)
    targets = target_values(spec, state, inputs)
    state, loss, errors = learn_critics(spec, state, inputs, targets, 1.0, rate)
    state = jax.lax.cond(
        state.updates[0] % spec.settings.policy_delay == 0,
        lambda old: learn_actor(spec, old, inputs, rate),
        lambda old: old,
        state,
    )
    return state, (jnp.stack([loss, state.actor_loss[0]]), errors)
