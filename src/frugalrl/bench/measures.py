"""The paper's measures: convergence, buffer cut, reward change, sample efficiency, control cost.

The words and symbols are those of the paper's section on performance metrics. `F` is the method
looked at (FAC in the paper), `B` what it is compared with.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

BAND = 0.1
"""Width of the convergence band as a share of the best reward: the paper's [0.9 r_max, r_max]."""


def trailing_mean(values: ArrayLike, window: int) -> NDArray[np.float64]:
    """Average each value with up to `window - 1` values before it."""
    array = np.asarray(values, dtype=np.float64)
    if window < 1:
        raise ValueError(f"window must be at least 1, got {window}")
    if array.ndim != 1:
        raise ValueError(f"values must be one-dimensional, got shape {array.shape}")
    sums = np.concatenate(([0.0], np.cumsum(array)))
    ends = np.arange(1, array.size + 1)
    starts = np.maximum(ends - window, 0)
    return np.asarray((sums[ends] - sums[starts]) / (ends - starts))


def convergence_point(
    steps: ArrayLike, rewards: ArrayLike, *, band: float = BAND, window: int = 1
) -> float | None:
    """Find the step at which the reward enters its final band and stays there (CP).

    The band is `[(1 - band) * r_max, r_max]`, with r_max the best reward of the training. A run
    without any positive reward is first shifted up by the absolute value of its worst reward,
    because ninety per cent of a negative number lies above it.

    Args:
        steps: Environment steps of the evaluations, in order.
        rewards: Reward of each evaluation.
        band: Width of the band as a share of r_max.
        window: Evaluations averaged (the latest and those before it) before the rule is applied.

    Returns:
        The step, or None where the last evaluation lies outside the band: the run never settled.
    """
    at = np.asarray(steps, dtype=np.float64)
    curve = trailing_mean(rewards, window)
    if at.shape != curve.shape:
        raise ValueError(f"got {at.size} steps for {curve.size} rewards")
    if curve.size == 0 or not np.all(np.isfinite(curve)):
        return None
    if curve.max() <= 0.0:
        curve = curve + abs(curve.min())
    inside = curve >= (1.0 - band) * curve.max()
    outside = np.flatnonzero(~inside)
    first = 0 if outside.size == 0 else int(outside[-1]) + 1
    return float(at[first]) if first < at.size else None


def convergence_gain(cp_baseline: float, cp: float) -> float:
    """Compute how much earlier a method converges, in per cent of the baseline (Delta CP)."""
    return _percent(cp_baseline - cp, cp_baseline)


def buffer_cut(size_baseline: float, size: float) -> float:
    """Compute how much smaller a buffer is, in per cent of the baseline's (Delta R, script R)."""
    return _percent(size_baseline - size, size_baseline)


def reward_change(reward_baseline: float, reward: float) -> float:
    """Compute the change of reward in per cent of the baseline's magnitude (Delta R).

    The paper divides by the baseline's reward; its printed signs are those of the magnitude, so
    that more reward is always positive.
    """
    return _percent(reward - reward_baseline, abs(reward_baseline))


def translate_rewards(reward_baseline: float, reward: float) -> tuple[float, float]:
    """Shift two rewards by the sum of their magnitudes if either is negative, as the paper does."""
    if min(reward_baseline, reward) >= 0.0:
        return reward_baseline, reward
    shift = abs(reward_baseline) + abs(reward)
    return reward_baseline + shift, reward + shift


def sample_efficiency(
    reward_baseline: float, size_baseline: float, reward: float, size: float
) -> float:
    """Compute the reward a stored transition earns, relative to the baseline's (P).

    Returns:
        The ratio of the translated rewards a transition; NaN where the baseline's is zero.
    """
    translated_baseline, translated = translate_rewards(reward_baseline, reward)
    if size <= 0 or size_baseline <= 0 or translated_baseline == 0.0:
        return math.nan
    return (translated / size) / (translated_baseline / size_baseline)


def control_cost(actions: ArrayLike) -> float:
    """Sum the squared norms of an episode's actions, given one row a step."""
    array = np.asarray(actions, dtype=np.float64)
    return float(np.sum(array * array))


def area_under_curve(steps: ArrayLike, rewards: ArrayLike) -> float:
    """Average the reward over the training: area under the learning curve over its length."""
    at = np.asarray(steps, dtype=np.float64)
    curve = np.asarray(rewards, dtype=np.float64)
    if at.shape != curve.shape or at.size == 0:
        raise ValueError(f"need one reward a step, got {at.size} steps and {curve.size} rewards")
    if at.size == 1 or at[-1] == at[0]:
        return float(curve.mean())
    area = float(np.sum((curve[1:] + curve[:-1]) / 2.0 * np.diff(at)))
    return area / float(at[-1] - at[0])


def mean_curve(
    runs: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Put several runs' curves on common steps by linear interpolation.

    Returns:
        The steps, from the latest beginning to the earliest end of the runs, and an array
        `(runs, steps)` of values.
    """
    curves = [(steps, values) for steps, values in runs if steps.size]
    if not curves:
        return np.empty(0), np.empty((0, 0))
    begin = max(float(steps[0]) for steps, _ in curves)
    end = min(float(steps[-1]) for steps, _ in curves)
    union = np.unique(np.concatenate([steps for steps, _ in curves]))
    grid = union[(union >= begin) & (union <= end)]
    values = np.stack([np.interp(grid, steps, values) for steps, values in curves])
    return np.asarray(grid, dtype=np.float64), np.asarray(values, dtype=np.float64)


def _percent(difference: float, whole: float) -> float:
    return 100.0 * difference / whole if whole != 0.0 else math.nan
