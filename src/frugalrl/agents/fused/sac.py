"""SAC's update, in place, with its squashed policies: Gaussian, and state-dependent (gSDE)."""

from __future__ import annotations

import math

import numpy as np

from frugalrl.agents.fused.networks import (
    ONE,
    ZERO,
    Workspace,
    adam,
    backward,
    compiled_fused,
    compute_targets,
    forward,
    hidden_layer,
    learn_critics,
    one_update,
    polyak,
    product,
    scratch_layer,
    value_of_actions,
)
from frugalrl.agents.state import (
    EPSILON,
    HALF_LOG_TWO_PI,
    LOG_STD_MAX,
    LOG_STD_MIN,
    SDE_MEAN_BOUND,
    Floats,
    Inputs,
    SacState,
)

HALF, TWO, FOUR = np.float32(0.5), np.float32(2), np.float32(4)
LOG_NORM = np.float32(HALF_LOG_TWO_PI)


@compiled_fused
def tanh_slope(unbounded: np.float32) -> np.float32:
    """Return 1 - tanh(unbounded)**2, to rounding also where tanh is nearly one."""
    small = np.float32(np.exp(-TWO * abs(unbounded)))
    return FOUR * small / ((ONE + small) * (ONE + small))


@compiled_fused
def sample_gaussian(n: int, noise: Floats, work: Workspace) -> None:
    """Draw n actions, their slopes and log-probabilities from means and log stds in outputs."""
    outputs, a = work.outputs, work.actions.shape[1]
    for i in range(n):
        total = ZERO
        for j in range(a):
            log_std = min(max(outputs[i, a + j], LOG_STD_MIN), LOG_STD_MAX)
            unbounded = outputs[i, j] + np.exp(log_std) * noise[i, j]
            work.actions[i, j] = np.tanh(unbounded)
            work.slopes[i, j] = tanh_slope(unbounded)
            total -= HALF * noise[i, j] * noise[i, j] + log_std + LOG_NORM
            total -= np.log(work.slopes[i, j] + EPSILON)
        work.log_prob[i] = total


@compiled_fused
def unsquashed_gradient(i: int, j: int, weight: np.float32, work: Workspace) -> np.float32:
    """Go back through tanh, both the action's way and its log-determinant's."""
    action, slope = work.actions[i, j], work.slopes[i, j]
    inner = weight * TWO * action * slope / (slope + EPSILON)
    gradient: np.float32 = inner + work.action_gradients[i, j] * slope
    return gradient


@compiled_fused
def gaussian_gradient(noise: Floats, ent_coef: np.float32, work: Workspace) -> None:
    """Fill output_gradients (n, 2a) with the gradient of mean(ent_coef * log_prob) - value."""
    n, a = work.action_gradients.shape
    weight = np.float32(ent_coef / n)
    for i in range(n):
        for j in range(a):
            gradient = unsquashed_gradient(i, j, weight, work)
            work.output_gradients[i, j] = gradient
            log_std = work.outputs[i, a + j]
            within = (log_std >= LOG_STD_MIN) & (log_std <= LOG_STD_MAX)
            inner = gradient * np.exp(log_std) * noise[i, j] - weight
            work.output_gradients[i, a + j] = inner if within else ZERO


@compiled_fused
def log_stds(flat: Floats, work: Workspace) -> Floats:
    """Return gSDE's part of a vector of the actor's (h, a), as a view."""
    h, a = work.matrix.shape
    return flat[flat.shape[0] - h * a :].reshape(h, a)


@compiled_fused
def draw_matrix(noise: Floats, work: Workspace) -> None:
    """Draw gSDE's exploration matrix (h, a), and square its standard deviations."""
    log_std = log_stds(work.actor.parameters[0], work)
    for i in range(noise.shape[0]):
        for j in range(noise.shape[1]):
            std = np.exp(log_std[i, j])
            work.matrix[i, j] = std * noise[i, j]
            work.variances[i, j] = std * std


@compiled_fused
def sample_sde(n: int, work: Workspace) -> None:
    """Do ``sample_gaussian`` with means in outputs and the exploration matrix."""
    latent = hidden_layer(work.actor, 0, len(work.actor.sizes) - 2, n)
    squares, deviation, variance = work.squares[:n], work.deviation[:n], work.variance[:n]
    for i in range(n):
        for j in range(latent.shape[1]):
            squares[i, j] = latent[i, j] * latent[i, j]
    product(latent, work.matrix, deviation)
    product(squares, work.variances, variance)
    for i in range(n):
        total = ZERO
        for j in range(deviation.shape[1]):
            variance[i, j] += EPSILON
            mean = min(max(work.outputs[i, j], -SDE_MEAN_BOUND), SDE_MEAN_BOUND)
            work.actions[i, j] = np.tanh(mean + deviation[i, j])
            work.slopes[i, j] = tanh_slope(mean + deviation[i, j])
            spread = variance[i, j]
            total -= HALF * (deviation[i, j] * deviation[i, j] / spread + np.log(spread))
            total -= LOG_NORM + np.log(work.slopes[i, j] + EPSILON)
        work.log_prob[i] = total


@compiled_fused
def sde_gradient(ent_coef: np.float32, work: Workspace) -> None:
    """Do ``gaussian_gradient`` for gSDE: also the latent's and log_std's gradients."""
    n, a = work.action_gradients.shape
    last = len(work.actor.sizes) - 2
    latent, by_variance = hidden_layer(work.actor, 0, last, n), scratch_layer(work.actor, last, n)
    weight = np.float32(ent_coef / n)
    through = np.empty((n, a), np.float32)  # gradient of the deviation
    spreading = np.empty((n, a), np.float32)  # gradient of its variance
    for i in range(n):
        for j in range(a):
            gradient = unsquashed_gradient(i, j, weight, work)
            mean = work.outputs[i, j]
            within = (mean > -SDE_MEAN_BOUND) & (mean < SDE_MEAN_BOUND)
            work.output_gradients[i, j] = gradient if within else ZERO
            share = work.deviation[i, j] / work.variance[i, j]
            through[i, j] = gradient - weight * share
            spreading[i, j] = weight * HALF * (share * share - ONE / work.variance[i, j])
    product(through, work.matrix, work.latent_gradients, right_transposed=True)
    product(spreading, work.variances, by_variance, right_transposed=True)
    for i in range(n):
        for j in range(latent.shape[1]):
            work.latent_gradients[i, j] += TWO * latent[i, j] * by_variance[i, j]
    of_matrix = np.empty(work.matrix.shape, np.float32)
    of_variances = np.empty(work.matrix.shape, np.float32)
    product(latent, through, of_matrix, left_transposed=True)
    product(work.squares[:n], spreading, of_variances, left_transposed=True)
    log_std_gradient = log_stds(work.actor.gradients[0], work)
    for i in range(latent.shape[1]):
        for j in range(a):
            log_std_gradient[i, j] = (
                work.matrix[i, j] * of_matrix[i, j]
                + TWO * work.variances[i, j] * of_variances[i, j]
            )


@compiled_fused
def sample(observations: Floats, noise: Floats, work: Workspace) -> None:
    """Draw actions of the current policy into work.actions, work.log_prob."""
    rows = observations.shape[0]
    forward(work.actor, 0, observations, work.outputs[:rows])
    if work.sde:
        sample_sde(rows, work)
    else:
        sample_gaussian(rows, noise, work)


@compiled_fused
def learn_actor(
    state: SacState, batch: Inputs, ent_coef: np.float32, work: Workspace, rate: float
) -> tuple[float, float]:
    """Take one Adam step of the actor; return its loss and the mean log-probability."""
    n, actor = work.batch, work.actor
    observations, noise = batch.observations[:n], batch.noise[batch.noise.shape[0] - n :]
    sample(observations, noise, work)
    value = value_of_actions(work.q.shape[0], observations, work.actions[:n], work)
    if work.sde:
        sde_gradient(ent_coef, work)
    else:
        gaussian_gradient(noise, ent_coef, work)
    backward(actor, 0, observations, work.output_gradients, work.latent_gradients)
    step = state.updates[0]
    adam(state.actor, actor.gradients[0], state.actor_first, state.actor_second, step, rate)
    total = 0.0
    for i in range(n):
        total += work.log_prob[i]
    return float(ent_coef) * total / n - value, total / n


@compiled_fused
def update(
    state: SacState, inputs: Inputs, work: Workspace, rate: float, losses: Floats, errors: Floats
) -> None:
    """Do as many updates as inputs has batches, in place; fill losses (K, 4), errors (K, n)."""
    for k in range(inputs.rewards.shape[0]):
        batch = one_update(inputs, k)
        state.updates[0] += 1
        # All losses of an update see the coefficient before its own step.
        log_ent_coef = state.ent_coef[0]
        ent_coef = work.ent_coef
        if work.learn_ent_coef:
            ent_coef = np.float32(math.exp(log_ent_coef))
        if work.sde:
            draw_matrix(batch.noise, work)
        sample(batch.next_observations, batch.noise[: work.targets.shape[0]], work)
        compute_targets(batch, ent_coef, work)
        losses[k, 0] = learn_critics(state, batch, work, rate, 0.5, errors[k])
        losses[k, 1], log_prob = learn_actor(state, batch, ent_coef, work, rate)
        losses[k, 2] = ent_coef
        gradient = np.full(1, np.float32(-(log_prob + work.target_entropy)))
        losses[k, 3] = log_ent_coef * gradient[0]
        if work.learn_ent_coef:
            ent = state.ent_coef
            adam(ent[:1], gradient, ent[1:2], ent[2:], state.updates[0], rate)
        if k % work.target_update_interval == 0:
            polyak(state.targets, state.critics, work.tau)
