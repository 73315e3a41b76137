"""Squashed policies and their gradients: Gaussian, state-dependent (gSDE), deterministic."""

from __future__ import annotations

import math

import numpy as np

from frugalrl.agents.fused import compiled
from frugalrl.agents.fused.blas import (
    product,
    product_left_transposed,
    product_right_transposed,
)
from frugalrl.agents.fused.networks import ONE, ZERO
from frugalrl.agents.fused.scratch import Scratch
from frugalrl.agents.state import EPSILON, LOG_STD_MAX, LOG_STD_MIN, SDE_MEAN_BOUND, Floats

HALF_LOG_TWO_PI = np.float32(0.5 * math.log(2 * math.pi))
HALF, TWO = np.float32(0.5), np.float32(2)


@compiled
def sample_gaussian(outputs: Floats, noise: Floats, actions: Floats, log_prob: Floats) -> None:
    """Draw actions (n, a) and log-probabilities from means and log stds (n, 2a)."""
    a = actions.shape[1]
    for i in range(actions.shape[0]):
        total = ZERO
        for j in range(a):
            log_std = min(max(outputs[i, a + j], LOG_STD_MIN), LOG_STD_MAX)
            action = np.tanh(outputs[i, j] + np.exp(log_std) * noise[i, j])
            actions[i, j] = action
            total -= HALF * noise[i, j] * noise[i, j] + log_std + HALF_LOG_TWO_PI
            total -= np.log(ONE - action * action + EPSILON)
        log_prob[i] = total


@compiled
def gaussian_gradient(
    outputs: Floats,
    noise: Floats,
    actions: Floats,
    action_slopes: Floats,
    ent_coef: np.float32,
    output_slopes: Floats,
) -> None:
    """Fill output_slopes (n, 2a) with the gradient of mean(ent_coef * log_prob) - value."""
    n, a = actions.shape
    weight = np.float32(ent_coef / n)
    for i in range(n):
        for j in range(a):
            action = actions[i, j]
            rest = ONE - action * action
            slope = weight * TWO * action * rest / (rest + EPSILON) + action_slopes[i, j] * rest
            output_slopes[i, j] = slope
            log_std = outputs[i, a + j]
            within = (log_std >= LOG_STD_MIN) & (log_std <= LOG_STD_MAX)
            inner = slope * np.exp(log_std) * noise[i, j] - weight
            output_slopes[i, a + j] = inner if within else ZERO


@compiled
def explore(log_std: Floats, noise: Floats, matrix: Floats, variances: Floats) -> None:
    """Draw gSDE's exploration matrix (h, a), and square its standard deviations."""
    for i in range(noise.shape[0]):
        for j in range(noise.shape[1]):
            std = np.exp(log_std[i, j])
            matrix[i, j] = std * noise[i, j]
            variances[i, j] = std * std


@compiled
def sample_sde(
    means: Floats, latent: Floats, scratch: Scratch, actions: Floats, log_prob: Floats
) -> None:
    """Draw actions (n, a) with the exploration matrix in scratch, and log-probabilities."""
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
            action = np.tanh(mean + deviation[i, j])
            actions[i, j] = action
            spread = variance[i, j]
            total -= HALF * (deviation[i, j] * deviation[i, j] / spread + np.log(spread))
            total -= HALF_LOG_TWO_PI + np.log(ONE - action * action + EPSILON)
        log_prob[i] = total


@compiled
def sde_gradient(
    means: Floats,
    latent: Floats,
    scratch: Scratch,
    actions: Floats,
    ent_coef: np.float32,
    log_std_slopes: Floats,
) -> None:
    """Do ``gaussian_gradient`` for gSDE: also the latent's and log_std's gradients."""
    n, a = actions.shape
    weight = np.float32(ent_coef / n)
    through = np.empty((n, a), np.float32)  # gradient of the deviation
    spreading = np.empty((n, a), np.float32)  # gradient of its variance
    for i in range(n):
        for j in range(a):
            action = actions[i, j]
            rest = ONE - action * action
            slope = (
                weight * TWO * action * rest / (rest + EPSILON) + scratch.action_slopes[i, j] * rest
            )
            mean = means[i, j]
            within = (mean > -SDE_MEAN_BOUND) & (mean < SDE_MEAN_BOUND)
            scratch.output_slopes[i, j] = slope if within else ZERO
            share = scratch.deviation[i, j] / scratch.variance[i, j]
            through[i, j] = slope - weight * share
            spreading[i, j] = weight * HALF * (share * share - ONE / scratch.variance[i, j])
    product_right_transposed(through, scratch.matrix, scratch.latent_slopes)
    by_variance = scratch.gradients[: latent.size].reshape(latent.shape)
    product_right_transposed(spreading, scratch.variances, by_variance)
    for i in range(n):
        for j in range(latent.shape[1]):
            scratch.latent_slopes[i, j] += TWO * latent[i, j] * by_variance[i, j]
    of_matrix = np.empty(scratch.matrix.shape, np.float32)
    of_variances = np.empty(scratch.matrix.shape, np.float32)
    product_left_transposed(latent, through, of_matrix)
    product_left_transposed(scratch.squares[:n], spreading, of_variances)
    for i in range(latent.shape[1]):
        for j in range(a):
            log_std_slopes[i, j] = (
                scratch.matrix[i, j] * of_matrix[i, j]
                + TWO * scratch.variances[i, j] * of_variances[i, j]
            )


@compiled
def squash(outputs: Floats, actions: Floats) -> None:
    """Write tanh of outputs (n, a) into actions."""
    for i in range(actions.shape[0]):
        for j in range(actions.shape[1]):
            actions[i, j] = np.tanh(outputs[i, j])


@compiled
def disturb(actions: Floats, noise: Floats, std: np.float32, bound: np.float32) -> None:
    """Add clipped noise to actions (n, a) and keep them within [-1, 1], in place."""
    for i in range(actions.shape[0]):
        for j in range(actions.shape[1]):
            shift = min(max(std * noise[i, j], -bound), bound)
            actions[i, j] = min(max(actions[i, j] + shift, -ONE), ONE)


@compiled
def squash_gradient(actions: Floats, action_slopes: Floats, output_slopes: Floats) -> None:
    """Go back through tanh."""
    for i in range(actions.shape[0]):
        for j in range(actions.shape[1]):
            action = actions[i, j]
            output_slopes[i, j] = action_slopes[i, j] * (ONE - action * action)
