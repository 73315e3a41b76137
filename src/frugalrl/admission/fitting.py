"""The end of the warm-up: what is learnt from it, and which of it stays."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from frugalrl.admission.decision import Rule
from frugalrl.admission.dimensions import important_dimensions
from frugalrl.admission.partition import Partition, known_bounds, make_partition
from frugalrl.admission.phi_memory import PhiMemory

if TYPE_CHECKING:
    from gymnasium.spaces import Box
    from numpy.typing import NDArray

    from frugalrl.admission.settings import FrugalSettings
    from frugalrl.admission.warmup import WarmUp


NO_BOUNDS = (np.empty(0), np.empty(0))
"""Bounds while the number of dimensions is not known."""
_LEAST_SPREAD = 1e-12
"""Standard deviation, relative to the largest reward, below which rewards count as equal."""


class Fitted(NamedTuple):
    """All that the end of the warm-up gives."""

    partition: Partition
    rule: Rule
    memory: PhiMemory
    keep: NDArray[np.int64] | None
    """The slots that are kept, oldest first; None for all."""


def bounds_before_warmup(
    settings: FrugalSettings, dimensions: int, space: Box | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Give the bounds that the settings or the space name, infinite where the warm-up is to tell.

    Args:
        settings: of the filter.
        dimensions: of an observation; 0 while that is not known.
        space: the observation space, if known.

    Raises:
        ValueError: the settings do not fit an observation of so many dimensions.
    """
    if not dimensions:
        return NO_BOUNDS
    if settings.warmup_steps < dimensions:
        raise ValueError(
            f"warmup_steps={settings.warmup_steps} is fewer than the observation's "
            f"{dimensions} dimensions; use at least {dimensions}"
        )
    if settings.bounds == "auto":
        return known_bounds(space, dimensions)
    low, high = np.array(settings.bounds[0]), np.array(settings.bounds[1])
    if len(low) != dimensions:
        raise ValueError(f"bounds has {len(low)} dimensions, but the observation has {dimensions}")
    return low, high


def fit(
    warmup: WarmUp, settings: FrugalSettings, low: NDArray[np.float64], high: NDArray[np.float64]
) -> Fitted:
    """End the warm-up: find kappa and alpha, fill phi. Changes nothing that it is given."""
    partition = fit_partition(warmup, settings, low, high)
    rule = Rule.of(settings, fit_reward_scale(warmup, settings))
    rows = warmup.rows_held()
    slots = warmup.slots[rows]
    keep = None
    if settings.warmup == "filter":
        rows = _rows_admitted(warmup, rows, settings, partition, rule)
        keep, slots = warmup.slots[rows], np.arange(len(rows), dtype=np.int64)
    memory = PhiMemory(settings.kernel_code)
    memory.insert(partition, rule, warmup.observations[rows], warmup.rewards[rows], slots)
    return Fitted(partition, rule, memory, keep)


def _rows_admitted(
    warmup: WarmUp,
    rows: NDArray[np.int64],
    settings: FrugalSettings,
    partition: Partition,
    rule: Rule,
) -> NDArray[np.int64]:
    """Give the rows that are left, oldest first, when these pass through admission."""
    codes, slots = np.empty(len(rows), dtype=np.int8), np.empty(len(rows), dtype=np.int64)
    places = np.arange(len(rows), dtype=np.int64)
    trial = PhiMemory(settings.kernel_code)
    states, values = warmup.observations[rows], warmup.rewards[rows]
    trial.decide(partition, rule, states, values, places, codes, slots)
    return rows_left(rows, slots)


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
    scale = _deviation(warmup.rewards)
    if scale > 0.0:
        return scale
    warnings.warn(
        'reward_scale="auto": all rewards of the warm-up are equal, so they are not scaled',
        RuntimeWarning,
        stacklevel=2,
    )
    return 1.0


def _deviation(rewards: NDArray[np.float64]) -> float:
    """Give the standard deviation, 0 where it is nothing but rounding errors."""
    largest = float(np.abs(rewards).max())
    # Divided by a power of two, which is exact: squares of large rewards would overflow.
    exponent = int(np.frexp(largest)[1])
    deviation = float(np.std(np.ldexp(rewards, -exponent)))
    scale = float(np.ldexp(deviation, exponent))
    is_spread = rewards.min() < rewards.max() and scale >= _LEAST_SPREAD * largest
    # Dividing by a number smaller than the smallest normal one gives infinity.
    return scale if is_spread and scale >= np.finfo(np.float64).tiny else 0.0


def rows_left(rows: NDArray[np.int64], slots: NDArray[np.int64]) -> NDArray[np.int64]:
    """Give the rows left, oldest first, after each row went into its slot (-1: nowhere)."""
    row_in_slot: dict[int, int] = {}
    for row, slot in zip(rows.tolist(), slots.tolist(), strict=True):
        if slot >= 0:
            row_in_slot[slot] = row
    return np.array(sorted(row_in_slot.values()), dtype=np.int64)
