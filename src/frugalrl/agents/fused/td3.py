"""TD3's update, in place; DDPG's by its settings."""

from __future__ import annotations

import numpy as np

from frugalrl.agents.fused.networks import (
    ONE,
    ZERO,
    Networks,
    Workspace,
    adam,
    backward,
    compiled_fused,
    compute_targets,
    forward,
    learn_critics,
    one_update,
    polyak,
    value_of_actions,
)
from frugalrl.agents.state import Floats, Inputs, Td3State


@compiled_fused
def act(actor: Networks, observations: Floats, work: Workspace) -> Floats:
    """Write the policy's actions of observations (rows, d) into work.actions; return them."""
    rows = observations.shape[0]
    outputs, actions = work.outputs[:rows], work.actions[:rows]
    forward(actor, 0, observations, outputs)
    for i in range(rows):
        for j in range(actions.shape[1]):
            actions[i, j] = np.tanh(outputs[i, j])
    return actions


@compiled_fused
def act_next(batch: Inputs, work: Workspace) -> None:
    """Write the target policy's next actions (m, a), with noise on top, into work.actions."""
    bound = work.target_noise_clip
    actions = act(work.target_actor, batch.next_observations, work)
    for i in range(actions.shape[0]):
        for j in range(actions.shape[1]):
            noise = min(max(work.target_noise * batch.noise[i, j], -bound), bound)
            actions[i, j] = min(max(actions[i, j] + noise, -ONE), ONE)


@compiled_fused
def learn_actor(state: Td3State, batch: Inputs, work: Workspace, rate: float) -> float:
    """Take one Adam step of the actor up the first critic; return the loss."""
    actor, observations = work.actor, batch.observations[: work.batch]
    actions = act(actor, observations, work)
    value = value_of_actions(1, observations, actions, work)
    for i in range(actions.shape[0]):
        for j in range(actions.shape[1]):
            action = actions[i, j]
            gradient = work.action_gradients[i, j] * (ONE - action * action)
            work.output_gradients[i, j] = gradient
    backward(actor, 0, observations, work.output_gradients, work.latent_gradients)
    step = state.updates[0] // work.policy_delay
    adam(state.actor, actor.gradients[0], state.actor_first, state.actor_second, step, rate)
    return -value


@compiled_fused
def update(
    state: Td3State, inputs: Inputs, work: Workspace, rate: float, losses: Floats, errors: Floats
) -> None:
    """Do as many updates as inputs has batches, in place; fill losses (K, 2), errors (K, n)."""
    for k in range(inputs.rewards.shape[0]):
        batch = one_update(inputs, k)
        state.updates[0] += 1
        act_next(batch, work)
        compute_targets(batch, ZERO, work)
        losses[k, 0] = learn_critics(state, batch, work, rate, 1.0, errors[k])
        if state.updates[0] % work.policy_delay == 0:
            state.actor_loss[0] = learn_actor(state, batch, work, rate)
            polyak(state.targets, state.critics, work.tau)
            polyak(state.actor_target, state.actor, work.tau)
        losses[k, 1] = state.actor_loss[0]
