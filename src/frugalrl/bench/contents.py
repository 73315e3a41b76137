"""What a run's final buffer holds: cells, equivalents, entropy, and where its states lie."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from frugalrl.bench import theorems

if TYPE_CHECKING:
    from frugalrl.admission.frugal import FrugalFilter

MAP_SIZE = 40
"""Bins of the map of states along each of its two dimensions."""

Floats = NDArray[np.floating[Any]]


def describe_contents(
    observations: Floats,
    rewards: Floats,
    partition: FrugalFilter,
    batch_size: int,
    generator: np.random.Generator,
) -> dict[str, Any]:
    """Measure a buffer with the cells of a fitted filter, as JSON values.

    Args:
        observations: (m, d), everything stored.
        rewards: (m,).
        partition: A fitted filter; only its cells and its half width are used.
        batch_size: Size of the minibatches in which equivalents are counted.
        generator: Draws those minibatches.
    """
    cells = partition.cell_ids(observations)
    scale = partition.reward_scale_
    classes = theorems.equivalence_classes(
        cells, np.asarray(rewards, dtype=np.float64) / scale, partition.settings.half_width
    )
    _, counts = np.unique(cells, return_counts=True)
    dimensions = partition.important_dimensions_
    return {
        "observations": int(observations.shape[1]),
        "important_dimensions": int(dimensions.size),
        "dimensions": [int(dimension) for dimension in dimensions],
        "cells": int(counts.size),
        "rewards_a_cell": power_histogram(counts),
        "most_rewards_a_cell": int(counts.max()),
        "measures": theorems.measure_buffer(classes).to_json(),
        "minibatch": asdict(theorems.measure_minibatches(classes, batch_size, generator)),
    }


def fit_partition(
    observations: Floats, rewards: Floats, space: Any, **arguments: Any
) -> FrugalFilter:
    """Fit a filter's cells on the first stored transitions: the warm-up of a run without filter.

    Args:
        observations: (m, d), oldest first.
        rewards: (m,).
        space: Observation space, whose finite bounds give the ranges.
        **arguments: Of `FrugalFilter`.
    """
    from frugalrl.admission.frugal import FrugalFilter

    steps = min(int(arguments.pop("warmup_steps", 10_000)), len(rewards))
    fitted = FrugalFilter(warmup_steps=steps, **arguments)
    fitted.begin(space)
    fitted.offer(observations[:steps], rewards[:steps], np.arange(steps, dtype=np.int64))
    return fitted


def replay_through(
    partition: FrugalFilter, observations: Floats, rewards: Floats, begun: int
) -> NDArray[np.int64]:
    """Offer the rest of a run to a fitted filter and give the rows that it holds at the end.

    Args:
        partition: A filter that has taken the first `begun` rows into slots 0 to `begun - 1`.
        observations: (m, d), the whole run in order.
        rewards: (m,).
        begun: Rows the filter has taken.
    """
    from frugalrl.admission.protocol import DROP

    rows = np.arange(len(rewards), dtype=np.int64)
    row_in_slot = rows.copy()
    used = begun
    position = begun
    while position < len(rewards):
        free = np.arange(used, used + len(rewards) - position, dtype=np.int64)
        decided = partition.offer(observations[position:], rewards[position:], free)
        count = len(decided.codes)
        taken = decided.codes != DROP
        # Where a slot is written twice the later row stays: assignment goes in order.
        row_in_slot[decided.slots[taken]] = rows[position : position + count][taken]
        used = max(used, int(decided.slots.max(initial=-1)) + 1)
        position += count
    return np.sort(row_in_slot[:used])


def state_map(observations: Floats, kept: NDArray[np.int64], warmup: int) -> dict[str, Any]:
    """Count visited and kept states on a grid over the two leading dimensions."""
    from frugalrl.admission.dimensions import important_dimensions

    width = observations.shape[1]
    order = important_dimensions(observations[: max(warmup, width)], 1e-9, 1.0)
    first, second = int(order[0]), int(order[min(1, width - 1)])
    x, y = observations[:, first], observations[:, second]
    ranges = [_range(x), _range(y)]
    visited = np.histogram2d(y, x, MAP_SIZE, [ranges[1], ranges[0]])[0]
    stored = np.histogram2d(y[kept], x[kept], MAP_SIZE, [ranges[1], ranges[0]])[0]
    return {
        "dimensions": [first, second],
        "ranges": ranges,
        "visited": visited.astype(int).tolist(),
        "stored": stored.astype(int).tolist(),
    }


def power_histogram(counts: NDArray[np.integer[Any]]) -> list[int]:
    """Count numbers by powers of two: 1, 2 to 3, 4 to 7, and so on."""
    powers = np.floor(np.log2(np.asarray(counts, dtype=np.float64))).astype(np.int64)
    return [int(count) for count in np.bincount(powers)]


def _range(values: Floats) -> list[float]:
    low, high = float(values.min()), float(values.max())
    return [low, high] if high > low else [low - 0.5, high + 0.5]
