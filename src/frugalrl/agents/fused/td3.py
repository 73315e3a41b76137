"""TD3's update, in place; DDPG's by its settings."""

from __future__ import annotations

import numpy as np

from frugalrl.agents.fused.critics import evaluate, learn_critics, least, one_update, value_gradient
from frugalrl.agents.fused.networks import (
    ONE,
    Networks,
    Workspace,
    adam,
    backward,
    compiled,
    forward,
    polyak,
    with_parameters,
)
from frugalrl.agents.state import Floats, Inputs, Td3State


@compiled
def act(actor: Networks, observations: Floats, work: Workspace) -> Floats:
    """Write the policy's actions of observations (rows, d) into work.actions; return them."""
    rows = observations.shape[0]
    outputs, actions = work.outputs[:rows], work.actions[:rows]
    forward(actor, 0, observations, outputs)
    for i in range(rows):
        for j in range(actions.shape[1]):
            actions[i, j] = np.tanh(outputs[i, j])
    return actions


@compiled
def compute_targets(state: Td3State, batch: Inputs, work: Workspace) -> None:
    """Fill work.targets with what the critics should say: reward plus discounted value."""
    following, bound, count = batch.next_observations, work.target_noise_clip, work.q.shape[0]
    actor = with_parameters(work.actor, state.actor_target)
    critics = with_parameters(work.critics, state.targets)
    actions = act(actor, following, work)
    for i in range(actions.shape[0]):
        for j in range(actions.shape[1]):
            noise = min(max(work.target_noise * batch.noise[i, j], -bound), bound)
            actions[i, j] = min(max(actions[i, j] + noise, -ONE), ONE)
    evaluate(critics, count, following, actions, work)
    for i in range(actions.shape[0]):
        value = work.q[least(work.q, i, count), i]
        work.targets[i] = batch.rewards[i] + batch.discounts[i] * value


@compiled
def learn_actor(state: Td3State, batch: Inputs, work: Workspace, rate: float) -> float:
    """Take one Adam step of the actor up the first critic; return the loss."""
    actor, observations = work.actor, batch.observations[: work.batch]
    actions = act(actor, observations, work)
    evaluate(work.critics, 1, observations, actions, work)
    value = value_gradient(1, work)
    for i in range(actions.shape[0]):
        for j in range(actions.shape[1]):
            action = actions[i, j]
            gradient = work.action_gradients[i, j] * (ONE - action * action)
            work.output_gradients[i, j] = gradient
    backward(actor, 0, observations, work.output_gradients, work.latent_gradients)
    step = state.updates[0] // work.policy_delay
    adam(state.actor, actor.gradients[0], state.actor_first, state.actor_second, step, rate)
    return -value


@compiled
def update(
    state: Td3State, inputs: Inputs, work: Workspace, rate: float, losses: Floats, errors: Floats
) -> None:
    """Do as many updates as inputs has batches, in place; fill losses (K, 2), errors (K, n)."""
    for k in range(inputs.rewards.shape[0]):
        batch = one_update(inputs, k)
        state.updates[0] += 1
        compute_targets(state, batch, work)
        losses[k, 0] = learn_critics(state, batch, work, rate, 1.0, errors[k])
        if state.updates[0] % work.policy_delay == 0:
            state.actor_loss[0] = learn_actor(state, batch, work, rate)
            polyak(state.targets, state.critics, work.tau)
            polyak(state.actor_target, state.actor, work.tau)
        losses[k, 1] = state.actor_loss[0]
