"""SAC's update, in place."""

from __future__ import annotations

import math

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
    adam,
    adam_scales,
    backward,
    forward,
    hidden_layer,
    polyak,
)
from frugalrl.agents.fused.policies import (
    draw_matrix,
    gaussian_gradient,
    sample_gaussian,
    sample_sde,
    sde_gradient,
)
from frugalrl.agents.fused.scratch import Constants, Scratch, actor_network
from frugalrl.agents.state import Floats, Inputs, SacState


@compiled
def log_stds(flat: Floats, scratch: Scratch) -> Floats:
    """Return gSDE's part of the actor's vector (h, a), as a view."""
    h, a = scratch.matrix.shape
    return flat[flat.shape[0] - h * a :].reshape(h, a)


@compiled
def sample(
    actor: Floats, observations: Floats, noise: Floats, scratch: Scratch, constants: Constants
) -> None:
    """Draw actions of the current policy into scratch.actions, scratch.log_prob."""
    network, rows = actor_network(actor, scratch, constants), observations.shape[0]
    outputs, actions = scratch.outputs[:rows], scratch.actions[:rows]
    log_prob = scratch.log_prob[:rows]
    forward(network, observations, outputs)
    if constants.sde:
        latent = hidden_layer(network, len(network.sizes) - 2, rows)
        sample_sde(outputs, latent, actions, log_prob, scratch)
    else:
        sample_gaussian(outputs, noise, actions, log_prob, scratch)


@compiled
def compute_targets(
    state: SacState, batch: Inputs, ent_coef: np.float32, scratch: Scratch, constants: Constants
) -> None:
    """Fill scratch.targets with what the critics should say: reward plus soft value."""
    m = batch.rewards.shape[0]
    sample(state.actor, batch.next_observations, batch.noise[:m], scratch, constants)
    evaluate(
        state.targets,
        constants.critics,
        batch.next_observations,
        scratch.actions,
        scratch,
        constants,
    )
    for i in range(m):
        value = scratch.q[least(scratch.q, i, constants.critics), i]
        soft = value - ent_coef * scratch.log_prob[i]
        scratch.targets[i] = batch.rewards[i] + batch.discounts[i] * soft


@compiled
def learn_actor(
    state: SacState,
    batch: Inputs,
    ent_coef: np.float32,
    scratch: Scratch,
    constants: Constants,
    rate: float,
) -> tuple[float, float]:
    """Take one Adam step of the actor; return its loss and the mean log-probability."""
    n = constants.batch
    network = actor_network(state.actor, scratch, constants)
    observations, noise = batch.observations[:n], batch.noise[batch.noise.shape[0] - n :]
    sample(state.actor, observations, noise, scratch, constants)
    outputs, actions = scratch.outputs[:n], scratch.actions[:n]
    evaluate(state.critics, constants.critics, observations, actions, scratch, constants)
    value = value_gradient(state.critics, constants.critics, scratch, constants)
    if constants.sde:
        latent = hidden_layer(network, len(network.sizes) - 2, n)
        log_std_gradient = log_stds(scratch.actor_gradient, scratch)
        sde_gradient(outputs, latent, actions, ent_coef, scratch, log_std_gradient)
    else:
        gaussian_gradient(outputs, noise, actions, ent_coef, scratch)
    backward(network, observations, scratch.output_gradients, scratch.latent_gradients)
    scales = adam_scales(state.updates[0], rate)
    adam(state.actor, scratch.actor_gradient, state.actor_first, state.actor_second, scales)
    total = 0.0
    for i in range(n):
        total += scratch.log_prob[i]
    return float(ent_coef) * total / n - value, total / n


@compiled
def update(
    state: SacState,
    inputs: Inputs,
    scratch: Scratch,
    constants: Constants,
    rate: float,
    losses: Floats,
    errors: Floats,
) -> None:
    """Do as many updates as inputs has batches, in place; fill losses (K, 4), errors (K, n)."""
    for k in range(inputs.rewards.shape[0]):
        batch = one_update(inputs, k)
        state.updates[0] += 1
        # All losses of an update see the coefficient before its own step.
        log_ent_coef = state.ent_coef[0]
        ent_coef = constants.ent_coef
        if constants.learn_ent_coef:
            ent_coef = np.float32(math.exp(log_ent_coef))
        if constants.sde:
            draw_matrix(log_stds(state.actor, scratch), batch.noise, scratch)
        compute_targets(state, batch, ent_coef, scratch, constants)
        losses[k, 0] = learn_critics(state, batch, scratch, constants, rate, 0.5, errors[k])
        losses[k, 1], log_prob = learn_actor(state, batch, ent_coef, scratch, constants, rate)
        losses[k, 2] = ent_coef
        gradient = np.full(1, np.float32(-(log_prob + constants.target_entropy)))
        losses[k, 3] = log_ent_coef * gradient[0]
        if constants.learn_ent_coef:
            ent = state.ent_coef
            adam(ent[:1], gradient, ent[1:2], ent[2:], adam_scales(state.updates[0], rate))
        if k % constants.target_update_interval == 0:
            polyak(state.targets, state.critics, constants.tau)
