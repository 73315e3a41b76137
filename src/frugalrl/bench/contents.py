"""What a buffer holds: cells, equivalents, entropy, the spread of gradients, where states lie.

Two transitions are *equivalent* when they lie in the same cell and in the same reward bin, of width
2 beta: the interval over which FAC looks for a reward's like. This is an equivalence relation, so
the buffer falls into classes, and what the paper's two theorems speak of follows from their sizes.

The theorems count one repeated element: zeta (or lambda) copies of it. A real minibatch repeats
many elements a few times each, so each measure comes twice: as the theorem's formula with the
number of surplus transitions, and as the quantity the proof needs, which has no such assumption.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from frugalrl.admission.frugal import FrugalFilter
    from frugalrl.agents.agent import Agent
    from frugalrl.replay.buffer import ReplayBuffer

Floats = NDArray[np.floating[Any]]

MAP_SIZE = 40
"""Bins of the map of states along each of its two dimensions."""
GRADIENTS = 100
"""Minibatches from which the variance of the critics' gradient is estimated."""
_ADAM_DECAY = 0.9


def equivalence_classes(cells: ArrayLike, rewards: ArrayLike, beta: float) -> NDArray[np.int64]:
    """Number the (cell, reward bin) classes of transitions from 0; a bin is 2 `beta` wide."""
    bins = np.floor(np.asarray(rewards, dtype=np.float64) / (2.0 * beta)).astype(np.int64)
    keys = np.column_stack((np.asarray(cells, dtype=np.int64), bins))
    _, classes = np.unique(keys, axis=0, return_inverse=True)
    return np.asarray(classes, dtype=np.int64).ravel()


def measure_minibatches(
    classes: NDArray[np.int64], batch_size: int, generator: np.random.Generator, batches: int = 200
) -> dict[str, float]:
    """Draw minibatches as a uniform sampler does and count their equivalents (theorem 1).

    `zeta` and `pairs` are means over minibatches: transitions beyond the first of their class, and
    ordered pairs within classes. `factor` is the theorem's; `pair_factor` is what the proof's sum
    has left, the same where one element repeats.
    """
    surplus = equivalent = 0
    for _ in range(batches):
        drawn = classes[generator.integers(0, classes.size, size=batch_size)]
        _, counts = np.unique(drawn, return_counts=True)
        surplus += batch_size - counts.size
        equivalent += int(np.sum(counts * (counts - 1)))
    zeta, pairs = surplus / batches, equivalent / batches
    return {
        "batch_size": batch_size,
        "zeta": zeta,
        "factor": (batch_size + zeta * zeta + zeta) / batch_size,
        "pairs": pairs,
        "pair_factor": (batch_size + pairs) / batch_size,
    }


def measure_buffer(classes: NDArray[np.int64]) -> dict[str, float]:
    """Count a buffer's equivalents and its entropy over classes, in nats (theorem 2).

    `surplus` is lambda: transitions beyond the first of their class. `entropy_limit`, log m, is the
    entropy of a buffer without any, and `gap` the distance from it; `theorem_gap` is at most
    correct for one repeated element.
    """
    _, counts = np.unique(classes, return_counts=True)
    size, surplus = classes.size, classes.size - counts.size
    shares = counts / size
    entropy = float(-np.sum(shares * np.log(shares))) + 0.0
    return {
        "size": size,
        "classes": counts.size,
        "surplus": surplus,
        "entropy": entropy,
        "entropy_limit": math.log(size),
        "theorem_gap": (surplus + 1) * math.log(surplus + 1) / size,
        "gap": math.log(size) - entropy,
    }


def describe_contents(
    observations: Floats,
    rewards: Floats,
    partition: FrugalFilter,
    batch_size: int,
    generator: np.random.Generator,
) -> dict[str, Any]:
    """Measure everything stored (m, d) with the cells of a fitted filter, as JSON values.

    Equivalents are counted in minibatches of `batch_size` that the generator draws.
    """
    cells = partition.cell_ids(observations)
    scaled = np.asarray(rewards, dtype=np.float64) / partition.reward_scale_
    classes = equivalence_classes(cells, scaled, partition.settings.half_width)
    _, counts = np.unique(cells, return_counts=True)
    dimensions = partition.important_dimensions_
    return {
        "observations": int(observations.shape[1]),
        "important_dimensions": int(dimensions.size),
        "dimensions": dimensions.tolist(),
        "cells": int(counts.size),
        "rewards_a_cell": power_histogram(counts),
        "most_rewards_a_cell": int(counts.max()),
        "measures": measure_buffer(classes),
        "minibatch": measure_minibatches(classes, batch_size, generator),
    }


def cells_from(observations: Floats, rewards: Floats, space: Any) -> FrugalFilter:
    """Fit a filter, for its cells, on transitions (n, d) that are its warm-up.

    Finite bounds of the observation space give the ranges.
    """
    from frugalrl.admission.frugal import FrugalFilter

    fitted = FrugalFilter(warmup_steps=len(rewards))
    fitted.begin(space)
    fitted.offer(observations, rewards, np.arange(len(rewards), dtype=np.int64))
    return fitted


def frugal_copy(buffer: ReplayBuffer, warmup_steps: int) -> ReplayBuffer:
    """Pass everything that a buffer holds through FAC, oldest first."""
    from frugalrl.admission.frugal import FrugalFilter
    from frugalrl.replay.buffer import ReplayBuffer

    copy = ReplayBuffer(
        max(len(buffer), 1),
        observation_space=buffer.observation_space,
        action_space=buffer.action_space,
        admission=FrugalFilter(warmup_steps=warmup_steps),
    )
    # The first six arrays are what `extend` takes; a run of a grid has no extra fields.
    copy.extend(*buffer.transitions()[:6])
    return copy


def gradient_variance(
    agent: Agent, buffer: ReplayBuffer, batch_size: int, generator: np.random.Generator
) -> float:
    """Estimate the variance of the critics' minibatch gradient, summed over parameters.

    Every minibatch meets the same parameters and the same noise: those the agent has now. After an
    update that began with an empty average, Adam's average is a tenth of the gradient.
    """
    held = buffer.transitions()
    state = agent.state_dict()
    empty = {**state["learner"], "critics_first": np.zeros_like(state["learner"]["critics_first"])}
    gradients = []
    for _ in range(GRADIENTS):
        rows = generator.integers(0, len(buffer), size=batch_size)
        batch = {
            name: getattr(held, name)[None, rows]
            for name in ("observations", "actions", "rewards", "next_observations", "terminated")
        }
        agent.load_state_dict({**state, "learner": empty})
        agent.update(SimpleNamespace(**batch))
        average = np.asarray(agent.state_dict()["learner"]["critics_first"], dtype=np.float64)
        gradients.append(average / (1.0 - _ADAM_DECAY))
    agent.load_state_dict(state)
    return float(np.var(gradients, axis=0, ddof=1).sum())


def state_map(visited: Floats, stored: Floats, warmup: int) -> dict[str, Any]:
    """Count visited and stored states (n, d) on a grid over the two leading dimensions."""
    from frugalrl.admission.partition import important_dimensions

    width = visited.shape[1]
    order = important_dimensions(visited[: max(warmup, width)], 1e-9, 1.0)
    first, second = int(order[0]), int(order[min(1, width - 1)])
    places = [second, first]  # rows of the counts go along the second
    seen, bounds = np.histogramdd(visited[:, places].astype(np.float64), MAP_SIZE)
    kept, _ = np.histogramdd(stored[:, places].astype(np.float64), bounds)
    return {
        "dimensions": [first, second],
        "ranges": [[float(edges[0]), float(edges[-1])] for edges in reversed(bounds)],
        "visited": seen.astype(int).tolist(),
        "stored": kept.astype(int).tolist(),
    }


def power_histogram(counts: NDArray[np.integer[Any]]) -> list[int]:
    """Count numbers by powers of two: 1, 2 to 3, 4 to 7, and so on."""
    powers = np.floor(np.log2(counts)).astype(np.int64)
    return [int(count) for count in np.bincount(powers)]
