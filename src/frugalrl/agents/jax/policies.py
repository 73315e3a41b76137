"""Squashed action distributions of SAC, with and without state-dependent exploration."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from frugalrl.agents.state import EPSILON, LOG_STD_MAX, LOG_STD_MIN, SDE_MEAN_BOUND

HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


def squash(unbounded: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return tanh of actions (n, a), and its log-determinant (n,)."""
    # This is 1 - tanh**2, which as a difference would be all rounding where actions saturate.
    slopes = 4 * jax.nn.sigmoid(2 * unbounded) * jax.nn.sigmoid(-2 * unbounded)
    return jnp.tanh(unbounded), jnp.log(slopes + EPSILON).sum(-1)


def sample_gaussian(head: jax.Array, noise: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Draw squashed Gaussian actions.

    Args:
        head: Means and log standard deviations side by side (n, 2a).
        noise: Standard normal draws (n, a).

    Returns:
        The actions (n, a) and their log-probabilities (n,).
    """
    mean, log_std = jnp.split(head, 2, axis=-1)
    log_std = jnp.clip(log_std, LOG_STD_MIN, LOG_STD_MAX)
    actions, log_determinant = squash(mean + jnp.exp(log_std) * noise)
    # (x - mean) / std is the noise itself, whatever mean and std are
    log_density = (-0.5 * noise**2 - log_std - HALF_LOG_TWO_PI).sum(-1)
    return actions, log_density - log_determinant


def sample_sde(
    mean: jax.Array, latent: jax.Array, log_std: jax.Array, noise: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Draw squashed actions with one exploration matrix for the whole batch (gSDE).

    Gradients reach the latent features too, as they do in Stable-Baselines3's SAC.

    Args:
        mean: Means before squashing (n, a).
        latent: Last hidden layer (n, h).
        log_std: Log standard deviations of the exploration matrix (h, a).
        noise: Standard normal draws (h, a).

    Returns:
        The actions (n, a) and their log-probabilities (n,).
    """
    mean = jnp.clip(mean, -SDE_MEAN_BOUND, SDE_MEAN_BOUND)
    std = jnp.exp(log_std)
    deviation = latent @ (std * noise)  # (n, a)
    variance = latent**2 @ std**2 + EPSILON  # (n, a)
    actions, log_determinant = squash(mean + deviation)
    log_density = -0.5 * (deviation**2 / variance + jnp.log(variance)) - HALF_LOG_TWO_PI
    return actions, log_density.sum(-1) - log_determinant
