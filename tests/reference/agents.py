"""SAC's and TD3's losses in plain NumPy, row by row, as the papers and Stable-Baselines3 have them.

Slow and obvious: networks are lists of (weights, biases), everything is float64, nothing is shared
with the library.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

Network = list[tuple[np.ndarray, np.ndarray]]


def unflatten(flat: np.ndarray, sizes: tuple[int, ...]) -> Network:
    """Cut a flat vector into weights (n, m) and biases (m,), layer by layer."""
    layers, start = [], 0
    for n, m in pairwise(sizes):
        weights = np.array(flat[start : start + n * m], float).reshape(n, m)
        start += n * m
        layers.append((weights, np.array(flat[start : start + m], float)))
        start += m
    return layers


def network(layers: Network, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the outputs and the last hidden layer of one row."""
    hidden = np.array(row, float)
    for weights, biases in layers[:-1]:
        hidden = np.array([max(value, 0.0) for value in hidden @ weights + biases])
    weights, biases = layers[-1]
    return hidden @ weights + biases, hidden


def normal_log_density(x: float, mean: float, std: float) -> float:
    return -((x - mean) ** 2) / (2 * std**2) - math.log(std) - 0.5 * math.log(2 * math.pi)


def gaussian_action(output: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, float]:
    """Return one squashed Gaussian action and its log-probability."""
    size = len(output) // 2
    action, log_prob = np.zeros(size), 0.0
    for j in range(size):
        std = math.exp(min(max(output[size + j], -20.0), 2.0))
        raw = output[j] + std * noise[j]
        action[j] = math.tanh(raw)
        log_prob += normal_log_density(raw, output[j], std)
        log_prob -= math.log(1 - action[j] ** 2 + 1e-6)
    return action, log_prob


def sde_action(
    mean: np.ndarray, latent: np.ndarray, log_std: np.ndarray, noise: np.ndarray
) -> tuple[np.ndarray, float]:
    """Return one gSDE action and its log-probability."""
    action, log_prob = np.zeros(len(mean)), 0.0
    for j in range(len(mean)):
        center = min(max(mean[j], -2.0), 2.0)
        deviation = sum(
            latent[i] * math.exp(log_std[i, j]) * noise[i, j] for i in range(len(latent))
        )
        variance = sum((latent[i] * math.exp(log_std[i, j])) ** 2 for i in range(len(latent)))
        action[j] = math.tanh(center + deviation)
        log_prob += normal_log_density(center + deviation, center, math.sqrt(variance + 1e-6))
        log_prob -= math.log(1 - action[j] ** 2 + 1e-6)
    return action, log_prob


def q_value(critic: Network, observation: np.ndarray, action: np.ndarray) -> float:
    return float(network(critic, np.concatenate([observation, action]))[0][0])


def critic_loss(
    critics: list[Network],
    observations: np.ndarray,
    actions: np.ndarray,
    targets: np.ndarray,
    weights: np.ndarray,
    scale: float,
) -> float:
    """Return the scaled sum over critics of the weighted mean squared error."""
    total = 0.0
    for critic in critics:
        for i in range(len(targets)):
            error = q_value(critic, observations[i], actions[i]) - targets[i]
            total += scale * weights[i] * error**2 / len(targets)
    return total


def sac_targets(
    rewards: np.ndarray,
    discounts: np.ndarray,
    next_observations: np.ndarray,
    drawn: list[tuple[np.ndarray, float]],
    critics: list[Network],
    ent_coef: float,
) -> np.ndarray:
    """Return reward + discount * (least next value - ent_coef * log-probability)."""
    values = []
    for i, (action, log_prob) in enumerate(drawn):
        least = min(q_value(critic, next_observations[i], action) for critic in critics)
        values.append(rewards[i] + discounts[i] * (least - ent_coef * log_prob))
    return np.array(values)


def sac_actor_loss(
    observations: np.ndarray,
    drawn: list[tuple[np.ndarray, float]],
    critics: list[Network],
    ent_coef: float,
) -> float:
    """Return the mean of ent_coef * log-probability minus the least value."""
    total = 0.0
    for i, (action, log_prob) in enumerate(drawn):
        least = min(q_value(critic, observations[i], action) for critic in critics)
        total += ent_coef * log_prob - least
    return total / len(drawn)


def td3_targets(
    rewards: np.ndarray,
    discounts: np.ndarray,
    next_observations: np.ndarray,
    actor: Network,
    noise: np.ndarray,
    critics: list[Network],
) -> np.ndarray:
    """Return reward + discount * least next value; the noise is clipped already."""
    values = []
    for i in range(len(rewards)):
        action = np.tanh(network(actor, next_observations[i])[0])
        action = np.array([min(max(x, -1.0), 1.0) for x in action + noise[i]])
        least = min(q_value(critic, next_observations[i], action) for critic in critics)
        values.append(rewards[i] + discounts[i] * least)
    return np.array(values)


def td3_actor_loss(observations: np.ndarray, actor: Network, critic: Network) -> float:
    """Return minus the mean value of the actor's actions."""
    values = [q_value(critic, row, np.tanh(network(actor, row)[0])) for row in observations]
    return -sum(values) / len(values)


def finite_difference(function, at: np.ndarray, indices: np.ndarray, step: float = 1e-6):
    """Return the derivatives of a function of a vector along some of its axes."""
    derivatives = []
    for index in indices:
        up, down = np.array(at, float), np.array(at, float)
        up[index] += step
        down[index] -= step
        derivatives.append((function(up) - function(down)) / (2 * step))
    return np.array(derivatives)
