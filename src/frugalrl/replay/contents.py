"""What a buffer holds: cells, equivalents, entropy."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from frugalrl.replay import theorems

if TYPE_CHECKING:
    from frugalrl.admission.frugal import FrugalFilter

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


def power_histogram(counts: NDArray[np.integer[Any]]) -> list[int]:
    """Count numbers by powers of two: 1, 2 to 3, 4 to 7, and so on."""
    powers = np.floor(np.log2(np.asarray(counts, dtype=np.float64))).astype(np.int64)
    return [int(count) for count in np.bincount(powers)]
