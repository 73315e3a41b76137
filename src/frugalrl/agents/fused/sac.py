"""SAC's update, in place."""

from __future__ import annotations

import math

import numpy as np

from frugalrl.agents.fused import compiled
from frugalrl.agents.fused.critics import evaluate, learn_critics, value_gradient
from frugalrl.agents.fused.networks import (
    activations,
    adam,
    adam_scales,
    backward_actor,
    forward,
    polyak,
    side_by_side,
)
from frugalrl.agents.fused.policies import (
    explore,
    gaussian_gradient,
    sample_gaussian,
    sample_sde,
    sde_gradient,
)
from frugalrl.agents.fused.scratch import Numbers, Scratch
from frugalrl.agents.state import Floats, Inputs, SacState


@compiled
def log_stds(flat: Floats, scratch: Scratch) -> Floats:
    """Return gSDE's part of the actor's vector (h, a), as a view."""
    h, a = scratch.matrix.shape
    return flat[flat.shape[0] - h * a :].reshape(h, a)


@compiled
def sample(
    actor: Floats, observations: Floats, noise: Floats, scratch: Scratch, numbers: Numbers
) -> None:
    """Draw actions of the current policy into scratch.actions, scratch.log_prob."""
    rows = observations.shape[0]
    outputs, actions = scratch.outputs[:rows], scratch.actions[:rows]
    log_prob = scratch.log_prob[:rows]
    forward(actor, numbers.actor_sizes, observations, scratch.actor_memory, outputs)
    if numbers.sde:
        last = len(numbers.actor_sizes) - 2
        latent = activations(scratch.actor_memory, numbers.actor_sizes, last, rows)
        sample_sde(outputs, latent, scratch, actions, log_prob)
    else:
        sample_gaussian(outputs, noise, actions, log_prob)


@compiled
def compute_targets(
    state: SacState,
    inputs: Inputs,
    k: int,
    ent_coef: np.float32,
    scratch: Scratch,
    numbers: Numbers,
) -> None:
    """Fill scratch.targets with what the critics should say: reward plus soft value."""
    following = inputs.next_observations[k]
    m = following.shape[0]
    sample(state.actor, following, inputs.noise[k, :m], scratch, numbers)
    side_by_side(following, scratch.actions, scratch.inputs)
    evaluate(state.targets, scratch.inputs, scratch, numbers)
    for i in range(m):
        least = scratch.q[0, i]
        for c in range(1, numbers.critics):
            least = min(least, scratch.q[c, i])
        soft = least - ent_coef * scratch.log_prob[i]
        scratch.targets[i] = inputs.rewards[k, i] + inputs.discounts[k, i] * soft


@compiled
def learn_actor(
    state: SacState,
    observations: Floats,
    noise: Floats,
    ent_coef: np.float32,
    scratch: Scratch,
    numbers: Numbers,
    rate: float,
) -> tuple[float, float]:
    """Take one Adam step of the actor; return its loss and the mean log-probability."""
    n, sizes = numbers.batch, numbers.actor_sizes
    sample(state.actor, observations, noise, scratch, numbers)
    actions = scratch.actions[:n]
    side_by_side(observations, actions, scratch.inputs)
    evaluate(state.critics, scratch.inputs[:n], scratch, numbers)
    value = value_gradient(state.critics, scratch, numbers, numbers.critics)
    outputs = scratch.outputs[:n]
    if numbers.sde:
        latent = activations(scratch.actor_memory, sizes, len(sizes) - 2, n)
        slopes = log_stds(scratch.actor_slopes, scratch)
        sde_gradient(outputs, latent, scratch, actions, ent_coef, slopes)
    else:
        gaussian_gradient(
            outputs, noise, actions, scratch.action_slopes, ent_coef, scratch.output_slopes
        )
    backward_actor(
        state.actor,
        scratch.actor_slopes,
        sizes,
        observations,
        scratch.actor_memory,
        scratch.gradients,
        scratch.output_slopes,
        scratch.latent_slopes,
    )
    scales = adam_scales(state.updates[0], rate)
    adam(state.actor, scratch.actor_slopes, state.actor_first, state.actor_second, scales)
    total = 0.0
    for i in range(n):
        total += scratch.log_prob[i]
    return float(ent_coef * total / n - value), total / n


@compiled
def update(
    state: SacState,
    inputs: Inputs,
    scratch: Scratch,
    numbers: Numbers,
    rate: float,
    metrics: Floats,
    errors: Floats,
) -> None:
    """Do as many updates as inputs has batches, in place; fill metrics (K, 4), errors (K, n)."""
    n = numbers.batch
    for k in range(inputs.rewards.shape[0]):
        state.updates[0] += 1
        # All losses of an update see the coefficient before its own step.
        log_ent_coef = state.ent_coef[0]
        ent_coef = (
            np.float32(math.exp(log_ent_coef)) if numbers.learn_ent_coef else numbers.ent_coef
        )
        noise = inputs.noise[k]
        if numbers.sde:
            log_std = log_stds(state.actor, scratch)
            explore(log_std, noise, scratch.matrix, scratch.variances)
        compute_targets(state, inputs, k, ent_coef, scratch, numbers)
        data = (inputs.observations[k], inputs.actions[k], inputs.weights[k], inputs.uniforms[k])
        metrics[k, 0] = learn_critics(state, data, scratch, numbers, rate, True, errors[k])
        observations = inputs.observations[k, :n]
        loss, log_prob = learn_actor(
            state, observations, noise[noise.shape[0] - n :], ent_coef, scratch, numbers, rate
        )
        metrics[k, 1] = loss
        metrics[k, 2] = ent_coef
        slope = np.float32(-(log_prob + numbers.target_entropy))
        metrics[k, 3] = log_ent_coef * slope
        if numbers.learn_ent_coef:
            ent = state.ent_coef
            slopes = np.full(1, slope)
            adam(ent[:1], slopes, ent[1:2], ent[2:], adam_scales(state.updates[0], rate))
        if k % numbers.target_update_interval == 0:
            polyak(state.targets, state.critics, numbers.tau)
