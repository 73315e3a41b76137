"""What a buffer holds: cells, equivalents, entropy, the spread of gradients, where states lie."""

from __future__ import annotations

from dataclasses import asdict
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from frugalrl.bench import theorems

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
    classes = theorems.equivalence_classes(cells, scaled, partition.settings.half_width)
    _, counts = np.unique(cells, return_counts=True)
    dimensions = partition.important_dimensions_
    return {
        "observations": int(observations.shape[1]),
        "important_dimensions": int(dimensions.size),
        "dimensions": dimensions.tolist(),
        "cells": int(counts.size),
        "rewards_a_cell": power_histogram(counts),
        "most_rewards_a_cell": int(counts.max()),
        "measures": asdict(theorems.measure_buffer(classes)),
        "minibatch": asdict(theorems.measure_minibatches(classes, batch_size, generator)),
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
            name: np.asarray(getattr(held, name))[rows][None]
            for name in ("observations", "actions", "rewards", "next_observations", "terminated")
        }
        agent.load_state_dict({**state, "learner": empty})
        agent.update(SimpleNamespace(**batch))
        average = np.asarray(agent.state_dict()["learner"]["critics_first"], dtype=np.float64)
        gradients.append(average / (1.0 - _ADAM_DECAY))
    agent.load_state_dict(state)
    return float(np.var(np.stack(gradients), axis=0, ddof=1).sum())


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
