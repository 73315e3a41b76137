"""Statistics over seeds and tasks, as rliable defines them, with a generator of their own.

A *seed* (one training run) is the unit; evaluation episodes of one run are never counted as
independent. Scores are given per task as one-dimensional arrays, so that tasks may have different
numbers of seeds; with equal numbers the results are those of rliable's `(runs, tasks)` matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Scores = NDArray[np.float64]
Band = tuple[Scores, Scores]
"""The lower and the upper ends of several intervals."""
Estimator = Callable[[Sequence[Scores]], Scores]

REPLICATIONS = 10_000
_FEW_REPLICATIONS = 2_000  # where each costs more
CONFIDENCE = 0.95
_INTERVAL = (50.0 * (1.0 - CONFIDENCE), 50.0 * (1.0 + CONFIDENCE))  # percentiles
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
    paired: bool
    """Whether the interval comes from differences between runs of the same seed."""
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


def pooled_iqm(tasks: Sequence[Scores]) -> Scores:
    """Average the middle half of all runs of all tasks; each task is `(replications, seeds)`.

    Of n values `floor(n / 4)` are cut at each end, as rliable does.
    """
    ordered = np.sort(np.concatenate(tasks, axis=1), axis=1)
    cut = ordered.shape[1] // 4
    return np.asarray(ordered[:, cut : ordered.shape[1] - cut].mean(axis=1))


def pooled_mean(tasks: Sequence[Scores]) -> Scores:
    """Average the tasks' mean scores; each task is `(replications, seeds)`."""
    return np.asarray(np.mean([task.mean(axis=1) for task in tasks], axis=0))


def improvement(xs: Sequence[Scores], ys: Sequence[Scores]) -> Scores:
    """Compute how often a run of X beats a run of Y on the same task, averaged over tasks.

    Ties count one half: the Mann-Whitney U statistic over the number of pairs. Each task is
    `(replications, seeds)`.
    """
    differences = [x[:, :, None] - y[:, None, :] for x, y in zip(xs, ys, strict=True)]
    shares = [(np.sign(difference) / 2 + 0.5).mean(axis=(1, 2)) for difference in differences]
    return np.asarray(np.mean(shares, axis=0))


def performance_profile(tasks: Sequence[ArrayLike], thresholds: ArrayLike) -> Scores:
    """Compute the share of runs whose score lies above each threshold, over all tasks."""
    scores = np.concatenate([np.asarray(task, dtype=np.float64) for task in tasks])
    taus = np.asarray(thresholds, dtype=np.float64)
    return np.asarray((scores[None, :] > taus[:, None]).mean(axis=1))


def stratified_bootstrap(
    tasks: Sequence[ArrayLike],
    estimator: Estimator,
    generator: np.random.Generator,
    *,
    replications: int = REPLICATIONS,
) -> Estimate:
    """Estimate over tasks with a percentile interval, runs redrawn within each task.

    The estimator takes one `(replications, seeds)` array per task and gives `(replications,)`.
    There is no interval where a task has fewer than three runs.
    """
    from scipy import stats

    arrays = _as_tasks(tasks)
    value = float(estimator([task[None] for task in arrays])[0])
    if min(task.size for task in arrays) < MIN_SEEDS_FOR_INTERVAL:
        return Estimate(value)
    # SciPy redraws each of several samples on its own, which is what stratified means.
    found = stats.bootstrap(
        arrays,
        lambda *drawn, axis: np.squeeze(estimator([np.atleast_2d(task) for task in drawn])),
        n_resamples=replications,
        vectorized=True,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=generator,
    ).confidence_interval
    return Estimate(value, (float(found.low), float(found.high)))


def estimate_mean(scores: ArrayLike, generator: np.random.Generator) -> Estimate:
    """Estimate the mean over seeds with its bootstrap interval."""
    return stratified_bootstrap([scores], pooled_mean, generator)


def estimate_improvement(
    x: Sequence[ArrayLike], y: Sequence[ArrayLike], generator: np.random.Generator
) -> Estimate:
    """Estimate the probability of improvement, both sides redrawn independently in each task."""
    if len(x) != len(y):
        raise ValueError(f"x has {len(x)} tasks, y has {len(y)}")
    return stratified_bootstrap(
        [*x, *y],
        lambda drawn: improvement(drawn[: len(x)], drawn[len(x) :]),
        generator,
        replications=_FEW_REPLICATIONS,
    )


def estimate_profile(
    tasks: Sequence[ArrayLike], thresholds: ArrayLike, generator: np.random.Generator
) -> tuple[Scores, Band | None]:
    """Estimate a performance profile and its pointwise interval (None with too few seeds)."""
    arrays = _as_tasks(tasks)
    taus = np.asarray(thresholds, dtype=np.float64)
    profile = performance_profile(arrays, taus)
    if min(task.size for task in arrays) < MIN_SEEDS_FOR_INTERVAL:
        return profile, None
    redrawn = [generator.integers(0, task.size, (_FEW_REPLICATIONS, task.size)) for task in arrays]
    drawn = np.concatenate([task[rows] for task, rows in zip(arrays, redrawn, strict=True)], axis=1)
    # Threshold by threshold: the whole cube would be replications x runs x thresholds.
    shares = np.stack([(drawn > tau).mean(axis=1) for tau in taus])
    low, high = np.percentile(shares, _INTERVAL, axis=1)
    return profile, (low, high)


def mean_band(values: Scores, generator: np.random.Generator) -> Band | None:
    """Bootstrap the mean over runs (runs, steps), the same runs redrawn for all steps."""
    runs = values.shape[0]
    if runs < MIN_SEEDS_FOR_INTERVAL:
        return None
    weights = generator.multinomial(runs, np.full(runs, 1 / runs), size=_FEW_REPLICATIONS) / runs
    low, high = np.percentile(weights @ values, _INTERVAL, axis=0)
    return low, high


def compare_means(
    scores: dict[int, float], baseline: dict[int, float], generator: np.random.Generator
) -> Comparison:
    """Compare two methods' scores by seed: paired where the seeds are the same, else unpaired."""
    if not scores or not baseline:
        raise ValueError("both sides need at least one seed")
    x = np.array([scores[seed] for seed in sorted(scores)], dtype=np.float64)
    y = np.array([baseline[seed] for seed in sorted(baseline)], dtype=np.float64)
    paired = scores.keys() == baseline.keys()
    if paired:
        difference = estimate_mean(x - y, generator)
    else:
        difference = stratified_bootstrap(
            [x, y], lambda drawn: drawn[0].mean(axis=1) - drawn[1].mean(axis=1), generator
        )
    return Comparison(difference, paired, welch_p_value(x, y))


def welch_p_value(x: ArrayLike, y: ArrayLike) -> float | None:
    """Test for different means without assuming equal variances; None where it has no meaning."""
    from scipy import stats

    if min(np.size(x), np.size(y)) < 2 or np.ptp(x) == np.ptp(y) == 0.0:
        return None
    p = float(stats.ttest_ind(x, y, equal_var=False).pvalue)
    return p if math.isfinite(p) else None


def _as_tasks(tasks: Sequence[ArrayLike]) -> list[Scores]:
    arrays = [np.asarray(task, dtype=np.float64).ravel() for task in tasks]
    if not arrays or any(task.size == 0 for task in arrays):
        raise ValueError("every task needs at least one score")
    return arrays
