"""Statistics over seeds and tasks, as rliable defines them, with a generator of their own.

A *seed* (one training run) is the unit; evaluation episodes of one run are never counted as
independent. Scores are given per task as one-dimensional arrays, so that tasks may have different
numbers of seeds; with equal numbers the results are those of rliable's `(runs, tasks)` matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Scores = NDArray[np.float64]
Band = tuple[Scores, Scores]
"""The lower and the upper ends of several intervals."""
Statistic = Callable[..., Scores]
"""Of arrays of scores, one for each task, with the runs along `axis`, the last."""

REPLICATIONS = 10_000
_FEW_REPLICATIONS = 2_000  # where each costs more
CONFIDENCE = 0.95
MIN_SEEDS_FOR_INTERVAL = 3
FEW_SEEDS = 10


@dataclass(frozen=True)
class Estimate:
    """A number with its interval, which is None where there are too few seeds for one."""

    value: float
    interval: tuple[float, float] | None = None

    def excludes(self, number: float) -> bool:
        """Whether the interval exists and does not contain `number`."""
        return self.interval is not None and not self.interval[0] <= number <= self.interval[1]


@dataclass(frozen=True)
class Comparison:
    """Difference of a method's mean score from the baseline's, in the score's own unit."""

    difference: Estimate
    welch_p: float | None
    """Two-sided p-value of Welch's test; None with fewer than two seeds per side."""

    @property
    def clear(self) -> bool:
        """Whether both the interval and the test tell the two apart.

        A bootstrap of a few seeds is too sure of itself: with five, its interval misses the truth
        about one time in six. Asking Welch's test too costs power and saves false claims.
        """
        certain = self.welch_p is not None and self.welch_p < 1.0 - CONFIDENCE
        return certain and self.difference.excludes(0.0)


def pooled_iqm(*tasks: Scores, axis: int = -1) -> Scores:
    """Average the middle half of all runs of all tasks.

    Of n values `floor(n / 4)` are cut at each end, as rliable does.
    """
    ordered = np.sort(np.concatenate(tasks, axis=axis), axis=axis)
    cut = ordered.shape[axis] // 4
    return np.asarray(ordered[..., cut : ordered.shape[axis] - cut].mean(axis=axis))


def pooled_mean(*tasks: Scores, axis: int = -1) -> Scores:
    """Average the tasks' mean scores."""
    return np.asarray(np.mean([task.mean(axis=axis) for task in tasks], axis=0))


def improvement(*tasks: Scores, axis: int = -1) -> Scores:
    """Compute how often a run of X beats a run of Y on the same task, averaged over tasks.

    The first half of the arrays are X's, the second Y's. Ties count one half: the Mann-Whitney U
    statistic over the number of pairs.
    """
    half = len(tasks) // 2
    pairs = zip(tasks[:half], tasks[half:], strict=True)
    wins = [np.heaviside(x[..., :, None] - y[..., None, :], 0.5) for x, y in pairs]
    return np.asarray(np.mean([won.mean(axis=(-2, -1)) for won in wins], axis=0))


def stratified_bootstrap(
    tasks: Sequence[ArrayLike],
    statistic: Statistic,
    generator: np.random.Generator,
    *,
    replications: int = REPLICATIONS,
) -> Estimate:
    """Estimate over tasks with a percentile interval, runs redrawn within each task.

    There is no interval where a task has fewer than three runs.
    """
    arrays = [np.asarray(task, dtype=np.float64) for task in tasks]
    band = _percentile_band(arrays, statistic, generator, replications)
    interval = None if band is None else (float(band[0]), float(band[1]))
    return Estimate(float(statistic(*arrays)), interval)


def estimate_mean(scores: ArrayLike, generator: np.random.Generator) -> Estimate:
    """Estimate the mean over seeds with its bootstrap interval."""
    return stratified_bootstrap([scores], pooled_mean, generator)


def estimate_improvement(
    x: Sequence[ArrayLike], y: Sequence[ArrayLike], generator: np.random.Generator
) -> Estimate:
    """Estimate the probability of improvement, both sides redrawn independently in each task."""
    return stratified_bootstrap([*x, *y], improvement, generator, replications=_FEW_REPLICATIONS)


def estimate_profile(
    tasks: Sequence[ArrayLike], thresholds: ArrayLike, generator: np.random.Generator
) -> tuple[Scores, Band | None]:
    """Estimate a performance profile, the share of all tasks' runs above each threshold.

    Gives also its pointwise interval, None with too few seeds.
    """
    above = [np.asarray(task) > np.asarray(thresholds)[:, None] for task in tasks]

    def share(*tasks: NDArray[np.bool_], axis: int = -1) -> Scores:
        return np.asarray(np.concatenate(tasks, axis=axis).mean(axis=axis))

    return share(*above), _percentile_band(above, share, generator, _FEW_REPLICATIONS)


def _percentile_band(
    tasks: Sequence[NDArray[Any]],
    statistic: Statistic,
    generator: np.random.Generator,
    replications: int,
) -> Band | None:
    from scipy import stats

    if min(task.shape[-1] for task in tasks) < MIN_SEEDS_FOR_INTERVAL:
        return None
    # SciPy redraws each of several samples on its own, which is what stratified means.
    found = stats.bootstrap(
        tasks,
        statistic,
        n_resamples=replications,
        vectorized=True,
        axis=-1,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=generator,
    ).confidence_interval
    return found.low, found.high


def mean_band(values: Scores, generator: np.random.Generator) -> Band | None:
    """Bootstrap the mean over runs (runs, steps), the same runs redrawn for all steps."""
    runs = values.shape[0]
    if runs < MIN_SEEDS_FOR_INTERVAL:
        return None
    weights = generator.multinomial(runs, np.full(runs, 1 / runs), size=_FEW_REPLICATIONS) / runs
    ends = 50.0 * (1.0 - CONFIDENCE), 50.0 * (1.0 + CONFIDENCE)
    low, high = np.percentile(weights @ values, ends, axis=0)
    return low, high


def compare_means(
    scores: dict[int, float], baseline: dict[int, float], generator: np.random.Generator
) -> Comparison | None:
    """Compare two methods' scores by seed: paired where the seeds are the same, else unpaired.

    None where one has no score.
    """
    if not scores or not baseline:
        return None
    x, y = (np.array([side[seed] for seed in sorted(side)]) for side in (scores, baseline))
    if scores.keys() == baseline.keys():
        difference = estimate_mean(x - y, generator)
    else:
        difference = stratified_bootstrap(
            [x, y], lambda x, y, axis=-1: x.mean(axis=axis) - y.mean(axis=axis), generator
        )
    return Comparison(difference, welch_p_value(x, y))


def welch_p_value(x: ArrayLike, y: ArrayLike) -> float | None:
    """Test for different means without assuming equal variances; None where it has no meaning."""
    from scipy import stats

    if min(np.size(x), np.size(y)) < 2 or np.ptp(x) == np.ptp(y) == 0.0:
        return None
    p = float(stats.ttest_ind(x, y, equal_var=False).pvalue)
    return p if math.isfinite(p) else None
