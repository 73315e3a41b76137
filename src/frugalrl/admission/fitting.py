"""The end of the warm-up: what is learnt from it, and which of it stays."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from frugalrl.admission.dimensions import important_dimensions
from frugalrl.admission.partition import Partition, known_bounds, make_partition

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from frugalrl.admission.settings import FrugalSettings
    from frugalrl.admission.warmup import WarmUp


def bounds_before_warmup(
    settings: FrugalSettings, dimensions: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Give the bounds that the settings name, infinite where the warm-up is to tell.

    Raises:
        ValueError: the settings do not fit an observation of so many dimensions.
    """
    if settings.warmup_steps < dimensions:
        raise ValueError(
            f"warmup_steps={settings.warmup_steps} is fewer than the observation's "
            f"{dimensions} dimensions; use at least {dimensions}"
        )
    if settings.bounds == "auto":
        return known_bounds(None, dimensions)
    low, high = np.array(settings.bounds[0]), np.array(settings.bounds[1])
    if len(low) != dimensions:
        raise ValueError(f"bounds has {len(low)} dimensions, but the observation has {dimensions}")
    return low, high


def fit_partition(
    warmup: WarmUp, settings: FrugalSettings, low: NDArray[np.float64], high: NDArray[np.float64]
) -> Partition:
    """Find the important dimensions and cut them into bins."""
    important = important_dimensions(
        warmup.observations, settings.dimension_threshold, settings.min_dimension_fraction
    )
    return make_partition(
        important, warmup.observations, low, high, settings.bins, settings.outside
    )


def fit_reward_scale(warmup: WarmUp, settings: FrugalSettings) -> float:
    """Give what rewards are divided by."""
    if settings.reward_scale != "auto":
        return float(settings.reward_scale)
    scale = float(np.std(warmup.rewards))
    if np.isfinite(scale) and scale > 0.0:
        return scale
    warnings.warn(
        'reward_scale="auto": all rewards of the warm-up are equal, so they are not scaled',
        RuntimeWarning,
        stacklevel=2,
    )
    return 1.0


def rows_left(rows: NDArray[np.int64], slots: NDArray[np.int64]) -> NDArray[np.int64]:
    """Give the rows left, oldest first, after each row went into its slot (-1: nowhere)."""
    row_in_slot: dict[int, int] = {}
    for row, slot in zip(rows.tolist(), slots.tolist(), strict=True):
        if slot >= 0:
            row_in_slot[slot] = row
    return np.array(sorted(row_in_slot.values()), dtype=np.int64)
