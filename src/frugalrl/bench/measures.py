"""The paper's measures: convergence, buffer cut, reward change, sample efficiency.

The words and symbols are those of the paper's section on performance metrics. `F` is the method
looked at (FAC in the paper), `B` what it is compared with.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

BAND = 0.1
"""Width of the convergence band as a share of the best reward: the paper's [0.9 r_max, r_max]."""
EPISODES = 100
"""Training episodes averaged in the curve that the paper's convergence points come from."""


def recent_mean(
    episodes: ArrayLike, rewards: ArrayLike, window: int = EPISODES
) -> NDArray[np.float64]:
    """Average the reward of the latest training episodes, as Stable-Baselines3 logs it.

    Args:
        episodes: (n,) episodes ended so far, at each row of a log.
        rewards: (n,) mean reward of those that ended since the row before; NaN if none did. So is
            the result before the first episode has ended.
        window: Episodes to average, or all so far while there are fewer.
    """
    ended = np.asarray(episodes, dtype=np.float64)
    means = np.asarray(rewards, dtype=np.float64)
    earned = np.cumsum(np.diff(ended, prepend=0.0) * np.nan_to_num(means))
    begin = np.maximum(ended - window, 0.0)
    # Of a row that the window cuts, each episode counts with the row's mean.
    before = np.interp(begin, np.insert(ended, 0, 0.0), np.insert(earned, 0, 0.0))
    with np.errstate(invalid="ignore"):
        return np.asarray((earned - before) / (ended - begin))


def convergence_point(steps: ArrayLike, rewards: ArrayLike) -> float | None:
    """Find the step at which a learning curve enters its final band and stays there (CP).

    The band is `[0.9 r_max, r_max]`, with r_max the best reward of the training. A run without any
    positive reward is first shifted up by the absolute value of its worst reward, because ninety
    per cent of a negative number lies above it. None where the curve ends outside the band: the
    run never settled.
    """
    at = np.asarray(steps, dtype=np.float64)
    curve = np.asarray(rewards, dtype=np.float64)
    if at.shape != curve.shape:
        raise ValueError(f"got {at.size} steps for {curve.size} rewards")
    if curve.size == 0 or not np.all(np.isfinite(curve)):
        return None
    if curve.max() <= 0.0:
        curve = curve + abs(curve.min())
    outside = np.flatnonzero(curve < (1.0 - BAND) * curve.max())
    first = int(outside[-1]) + 1 if outside.size else 0
    return float(at[first]) if first < at.size else None


def reduction(baseline: float, value: float) -> float:
    """Compute how much less a number is, in per cent: the paper's Delta CP and Delta |R|."""
    return _percent(baseline - value, baseline)


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
    """Compute the translated reward per stored transition over the baseline's (P); NaN over 0."""
    translated_baseline, translated = translate_rewards(reward_baseline, reward)
    if size <= 0 or size_baseline <= 0 or translated_baseline == 0.0:
        return math.nan
    return (translated / size) / (translated_baseline / size_baseline)


def finite_mean(values: Iterable[float]) -> float:
    """Average the finite numbers; NaN where there are none."""
    finite = [value for value in values if math.isfinite(value)]
    return float(np.mean(finite)) if finite else math.nan


def mean_curve(
    runs: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Interpolate several runs' curves at all their steps that lie within every one of them.

    Gives the steps and an array `(runs, steps)` of values.
    """
    curves = [(steps, values) for steps, values in runs if values.size]
    if not curves:
        return np.empty(0), np.empty((0, 0))
    begin = max(steps[0] for steps, _ in curves)
    end = min(steps[-1] for steps, _ in curves)
    union = np.unique(np.concatenate([steps for steps, _ in curves]))
    grid = union[(union >= begin) & (union <= end)]
    return grid, np.stack([np.interp(grid, steps, values) for steps, values in curves])


def _percent(difference: float, whole: float) -> float:
    return 100.0 * difference / whole if whole != 0.0 else math.nan
