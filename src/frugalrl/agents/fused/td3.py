"""TD3's update, in place; DDPG's by its settings."""

from __future__ import annotations

from frugalrl.agents.fused import compiled
from frugalrl.agents.fused.critics import evaluate, learn_critics, one_of, value_gradient
from frugalrl.agents.fused.networks import (
    adam,
    adam_scales,
    backward_actor,
    forward,
    forward_critic,
    polyak,
    side_by_side,
)
from frugalrl.agents.fused.policies import disturb, squash, squash_gradient
from frugalrl.agents.fused.scratch import Numbers, Scratch
from frugalrl.agents.state import Floats, Inputs, Td3State


@compiled
def act(actor: Floats, observations: Floats, scratch: Scratch, numbers: Numbers) -> Floats:
    """Write the policy's actions of observations (rows, d) into scratch.actions; return them."""
    rows = observations.shape[0]
    outputs, actions = scratch.outputs[:rows], scratch.actions[:rows]
    forward(actor, numbers.actor_sizes, observations, scratch.actor_memory, outputs)
    squash(outputs, actions)
    return actions


@compiled
def compute_targets(
    state: Td3State, inputs: Inputs, k: int, scratch: Scratch, numbers: Numbers
) -> None:
    """Fill scratch.targets with what the critics should say: reward plus discounted value."""
    following = inputs.next_observations[k]
    actions = act(state.actor_target, following, scratch, numbers)
    disturb(actions, inputs.noise[k], numbers.target_noise, numbers.target_noise_clip)
    side_by_side(following, actions, scratch.inputs)
    evaluate(state.targets, scratch.inputs, scratch, numbers)
    for i in range(following.shape[0]):
        least = scratch.q[0, i]
        for c in range(1, numbers.critics):
            least = min(least, scratch.q[c, i])
        scratch.targets[i] = inputs.rewards[k, i] + inputs.discounts[k, i] * least


@compiled
def learn_actor(
    state: Td3State, observations: Floats, scratch: Scratch, numbers: Numbers, rate: float
) -> float:
    """Take one Adam step of the actor up the first critic; return the loss."""
    n = numbers.batch
    actions = act(state.actor, observations, scratch, numbers)
    side_by_side(observations, actions, scratch.inputs)
    forward_critic(
        one_of(state.critics, 0, numbers.critics),
        numbers.critic_sizes,
        scratch.inputs[:n],
        scratch.critic_memory[0],
        scratch.q[0, :n],
    )
    value = value_gradient(state.critics, scratch, numbers, 1)
    squash_gradient(actions, scratch.action_slopes, scratch.output_slopes)
    backward_actor(
        state.actor,
        scratch.actor_slopes,
        numbers.actor_sizes,
        observations,
        scratch.actor_memory,
        scratch.gradients,
        scratch.output_slopes,
        scratch.latent_slopes,
    )
    scales = adam_scales(state.updates[0] // numbers.policy_delay, rate)
    adam(state.actor, scratch.actor_slopes, state.actor_first, state.actor_second, scales)
    return float(-value)


@compiled
def update(
    state: Td3State,
    inputs: Inputs,
    scratch: Scratch,
    numbers: Numbers,
    rate: float,
    metrics: Floats,
    errors: Floats,
) -> None:
    """Do as many updates as inputs has batches, in place; fill metrics (K, 2), errors (K, n)."""
    n = numbers.batch
    for k in range(inputs.rewards.shape[0]):
        state.updates[0] += 1
        compute_targets(state, inputs, k, scratch, numbers)
        data = (inputs.observations[k], inputs.actions[k], inputs.weights[k], inputs.uniforms[k])
        metrics[k, 0] = learn_critics(state, data, scratch, numbers, rate, False, errors[k])
        if state.updates[0] % numbers.policy_delay == 0:
            observations = inputs.observations[k, :n]
            state.actor_loss[0] = learn_actor(state, observations, scratch, numbers, rate)
            polyak(state.targets, state.critics, numbers.tau)
            polyak(state.actor_target, state.actor, numbers.tau)
        metrics[k, 1] = state.actor_loss[0]
