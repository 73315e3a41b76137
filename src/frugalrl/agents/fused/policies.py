"""SAC's squashed policies and their gradients: Gaussian, and state-dependent (gSDE)."""

from __future__ import annotations

import math

import numpy as np

from frugalrl.agents.fused import compiled
from frugalrl.agents.fused.blas import product, product_left_transposed, product_right_transposed
from frugalrl.agents.fused.networks import ONE, ZERO
from frugalrl.agents.fused.scratch import Scratch
from frugalrl.agents.state import EPSILON, LOG_STD_MAX, LOG_STD_MIN, SDE_MEAN_BOUND, Floats

HALF_LOG_TWO_PI = np.float32(0.5 * math.log(2 * math.pi))
HALF, TWO, FOUR = np.float32(0.5), np.float32(2), np.float32(4)


@compiled
def tanh_slope(unbounded: np.float32) -> np.float32:
    """Return 1 - tanh(unbounded)**2, to rounding also where tanh is nearly one."""
    small = np.float32(np.exp(-TWO * abs(unbounded)))
    return FOUR * small / ((ONE + small) * (ONE + small))


@compiled
def sample_gaussian(
    outputs: Floats, noise: Floats, actions: Floats, log_prob: Floats, scratch: Scratch
) -> None:
    """Draw actions (n, a), their slopes and log-probabilities from means and log stds (n, 2a)."""
    n, a = actions.shape
    for i in range(n):
        total = ZERO
        for j in range(a):
            log_std = min(max(outputs[i, a + j], LOG_STD_MIN), LOG_STD_MAX)
            unbounded = outputs[i, j] + np.exp(log_std) * noise[i, j]
            actions[i, j] = np.tanh(unbounded)
            scratch.slopes[i, j] = tanh_slope(unbounded)
            total -= HALF * noise[i, j] * noise[i, j] + log_std + HALF_LOG_TWO_PI
            total -= np.log(scratch.slopes[i, j] + EPSILON)
        log_prob[i] = total


@compiled
def unsquashed_gradient(
    action: np.float32, slope: np.float32, weight: np.float32, action_gradient: np.float32
) -> np.float32:
    """Go back through tanh, both the action's way and its log-determinant's."""
    return weight * TWO * action * slope / (slope + EPSILON) + action_gradient * slope


@compiled
def gaussian_gradient(
    outputs: Floats, noise: Floats, actions: Floats, ent_coef: np.float32, scratch: Scratch
) -> None:
    """Fill output_gradients (n, 2a) with the gradient of mean(ent_coef * log_prob) - value."""
    n, a = actions.shape
    weight = np.float32(ent_coef / n)
    for i in range(n):
        for j in range(a):
            gradient = unsquashed_gradient(
                actions[i, j], scratch.slopes[i, j], weight, scratch.action_gradients[i, j]
            )
            scratch.output_gradients[i, j] = gradient
            log_std = outputs[i, a + j]
            within = (log_std >= LOG_STD_MIN) & (log_std <= LOG_STD_MAX)
            inner = gradient * np.exp(log_std) * noise[i, j] - weight
            scratch.output_gradients[i, a + j] = inner if within else ZERO


@compiled
def draw_matrix(log_std: Floats, noise: Floats, scratch: Scratch) -> None:
    """Draw gSDE's exploration matrix (h, a), and square its standard deviations."""
    for i in range(noise.shape[0]):
        for j in range(noise.shape[1]):
            std = np.exp(log_std[i, j])
            scratch.matrix[i, j] = std * noise[i, j]
            scratch.variances[i, j] = std * std


@compiled
def sample_sde(
    means: Floats, latent: Floats, actions: Floats, log_prob: Floats, scratch: Scratch
) -> None:
    """Do ``sample_gaussian`` with means (n, a) and the exploration matrix in scratch."""
    n, a = actions.shape
    squares, deviation, variance = scratch.squares[:n], scratch.deviation[:n], scratch.variance[:n]
    for i in range(n):
        for j in range(latent.shape[1]):
            squares[i, j] = latent[i, j] * latent[i, j]
    product(latent, scratch.matrix, deviation)
    product(squares, scratch.variances, variance)
    for i in range(n):
        total = ZERO
        for j in range(a):
            variance[i, j] += EPSILON
            mean = min(max(means[i, j], -SDE_MEAN_BOUND), SDE_MEAN_BOUND)
            actions[i, j] = np.tanh(mean + deviation[i, j])
            scratch.slopes[i, j] = tanh_slope(mean + deviation[i, j])
            spread = variance[i, j]
            total -= HALF * (deviation[i, j] * deviation[i, j] / spread + np.log(spread))
            total -= HALF_LOG_TWO_PI + np.log(scratch.slopes[i, j] + EPSILON)
        log_prob[i] = total


@compiled
def sde_gradient(
    means: Floats,
    latent: Floats,
    actions: Floats,
    ent_coef: np.float32,
    scratch: Scratch,
    log_std_gradient: Floats,
) -> None:
    """Do ``gaussian_gradient`` for gSDE: also the latent's and log_std's gradients."""
    n, a = actions.shape
    weight = np.float32(ent_coef / n)
    through = np.empty((n, a), np.float32)  # gradient of the deviation
    spreading = np.empty((n, a), np.float32)  # gradient of its variance
    for i in range(n):
        for j in range(a):
            gradient = unsquashed_gradient(
                actions[i, j], scratch.slopes[i, j], weight, scratch.action_gradients[i, j]
            )
            mean = means[i, j]
            within = (mean > -SDE_MEAN_BOUND) & (mean < SDE_MEAN_BOUND)
            scratch.output_gradients[i, j] = gradient if within else ZERO
            share = scratch.deviation[i, j] / scratch.variance[i, j]
            through[i, j] = gradient - weight * share
            spreading[i, j] = weight * HALF * (share * share - ONE / scratch.variance[i, j])
    product_right_transposed(through, scratch.matrix, scratch.latent_gradients)
    by_variance = scratch.space[: latent.size].reshape(latent.shape)
    product_right_transposed(spreading, scratch.variances, by_variance)
    for i in range(n):
        for j in range(latent.shape[1]):
            scratch.latent_gradients[i, j] += TWO * latent[i, j] * by_variance[i, j]
    of_matrix = np.empty(scratch.matrix.shape, np.float32)
    of_variances = np.empty(scratch.matrix.shape, np.float32)
    product_left_transposed(latent, through, of_matrix)
    product_left_transposed(scratch.squares[:n], spreading, of_variances)
    for i in range(latent.shape[1]):
        for j in range(a):
            log_std_gradient[i, j] = (
                scratch.matrix[i, j] * of_matrix[i, j]
                + TWO * scratch.variances[i, j] * of_variances[i, j]
            )
