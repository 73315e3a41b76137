"""TD3's update, in place; DDPG's by its settings."""

from __future__ import annotations

import numpy as np

from frugalrl.agents.fused import compiled
from frugalrl.agents.fused.critics import (
    evaluate,
    learn_critics,
    least,
    one_update,
    value_gradient,
)
from frugalrl.agents.fused.networks import (
    ONE,
    adam,
    adam_scales,
    backward,
    forward,
    polyak,
)
from frugalrl.agents.fused.scratch import Constants, Scratch, actor_network
from frugalrl.agents.state import Floats, Inputs, Td3State


@compiled
def act(actor: Floats, observations: Floats, scratch: Scratch, constants: Constants) -> Floats:
    """Write the policy's actions of observations (rows, d) into scratch.actions; return them."""
    rows, a = observations.shape[0], scratch.actions.shape[1]
    outputs, actions = scratch.outputs[:rows], scratch.actions[:rows]
    forward(actor_network(actor, scratch, constants), observations, outputs)
    for i in range(rows):
        for j in range(a):
            actions[i, j] = np.tanh(outputs[i, j])
    return actions


@compiled
def compute_targets(state: Td3State, batch: Inputs, scratch: Scratch, constants: Constants) -> None:
    """Fill scratch.targets with what the critics should say: reward plus discounted value."""
    following, bound = batch.next_observations, constants.target_noise_clip
    actions = act(state.actor_target, following, scratch, constants)
    for i in range(actions.shape[0]):
        for j in range(actions.shape[1]):
            noise = min(max(constants.target_noise * batch.noise[i, j], -bound), bound)
            actions[i, j] = min(max(actions[i, j] + noise, -ONE), ONE)
    evaluate(state.targets, constants.critics, following, actions, scratch, constants)
    for i in range(actions.shape[0]):
        value = scratch.q[least(scratch.q, i, constants.critics), i]
        scratch.targets[i] = batch.rewards[i] + batch.discounts[i] * value


@compiled
def learn_actor(
    state: Td3State, batch: Inputs, scratch: Scratch, constants: Constants, rate: float
) -> float:
    """Take one Adam step of the actor up the first critic; return the loss."""
    observations = batch.observations[: constants.batch]
    actions = act(state.actor, observations, scratch, constants)
    evaluate(state.critics, 1, observations, actions, scratch, constants)
    value = value_gradient(state.critics, 1, scratch, constants)
    for i in range(actions.shape[0]):
        for j in range(actions.shape[1]):
            action = actions[i, j]
            gradient = scratch.action_gradients[i, j] * (ONE - action * action)
            scratch.output_gradients[i, j] = gradient
    backward(
        actor_network(state.actor, scratch, constants),
        observations,
        scratch.output_gradients,
        scratch.latent_gradients,
    )
    scales = adam_scales(state.updates[0] // constants.policy_delay, rate)
    adam(state.actor, scratch.actor_gradient, state.actor_first, state.actor_second, scales)
    return -value


@compiled
def update(
    state: Td3State,
    inputs: Inputs,
    scratch: Scratch,
    constants: Constants,
    rate: float,
    losses: Floats,
    errors: Floats,
) -> None:
    """Do as many updates as inputs has batches, in place; fill losses (K, 2), errors (K, n)."""
    for k in range(inputs.rewards.shape[0]):
        batch = one_update(inputs, k)
        state.updates[0] += 1
        compute_targets(state, batch, scratch, constants)
        losses[k, 0] = learn_critics(state, batch, scratch, constants, rate, 1.0, errors[k])
        if state.updates[0] % constants.policy_delay == 0:
            state.actor_loss[0] = learn_actor(state, batch, scratch, constants, rate)
            polyak(state.targets, state.critics, constants.tau)
            polyak(state.actor_target, state.actor, constants.tau)
        losses[k, 1] = state.actor_loss[0]
