"""From runs to what they say together: per task and method, and over tasks."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from frugalrl.bench import statistics
from frugalrl.bench.measures import finite_mean
from frugalrl.bench.results import Result, Results
from frugalrl.bench.statistics import Comparison, Estimate, Scores

BASELINE = "baseline"
FAC = "fac"
FRUGAL = ("fac-paper", "fac-released", "fac")
"""The frugal methods that are compared with the paper, its own first."""

TaskKey = tuple[str, str]


def task_name(task: TaskKey) -> str:
    """Write a task as the paper does."""
    return f"{task[0]} ({task[1].upper()})"


@dataclass(frozen=True)
class MethodSummary:
    """One method on one task."""

    task: TaskKey
    method: str
    runs: dict[int, Result]
    """By seed."""
    rewards: dict[int, float]
    reward: Estimate
    late: dict[int, float]
    """`Result.late_reward` by seed."""
    late_reward: Estimate
    iqm: Estimate
    against_reference: Comparison | None
    """Difference from the baseline; in results without one, from FAC as it is."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of the finished runs."""
        return tuple(self.runs)

    def against(self, other: MethodSummary | None, measure: str) -> Comparison | None:
        """Compare with another method by `rewards` or `late`, on the seeds that both have."""
        if other is None or other is self:
            return None
        found, others = getattr(self, measure), getattr(other, measure)
        seeds = found.keys() & others.keys()
        shared, compared = ({seed: side[seed] for seed in seeds} for side in (found, others))
        names = (*self.task, self.method, other.method, "equal size", measure)
        return statistics.compare_means(shared, compared, generator_for(*names))

    def mean(self, *keys: str) -> float:
        """Average a measured number over seeds, by its path in a run's summary."""
        return finite_mean(result.number(*keys) for result in self.runs.values())

    def sd(self, key: str) -> float:
        """Standard deviation of a measured number over seeds, NaN for one seed."""
        values = (result.number(key) for result in self.runs.values())
        finite = [value for value in values if math.isfinite(value)]
        return float(np.std(finite, ddof=1)) if len(finite) > 1 else math.nan

    @property
    def size(self) -> float:
        """Transitions in the final buffer."""
        return self.mean("size")

    @property
    def bytes(self) -> float:
        """Bytes of the final buffer."""
        return self.mean("buffer_bytes")

    @property
    def train_seconds(self) -> float:
        """Wall time spent stepping and learning."""
        return self.mean("train_seconds")

    @property
    def stored_share(self) -> float:
        """Stored over offered transitions."""
        counts = [(run.number("stored"), run.number("offered")) for run in self.runs.values()]
        return finite_mean([stored / offered for stored, offered in counts if offered > 0])

    @property
    def convergence(self) -> dict[int, float]:
        """Convergence point by seed; the length of the run where it never settled."""
        return {
            seed: float(result.run.steps) if result.convergence is None else result.convergence
            for seed, result in self.runs.items()
        }


@dataclass(frozen=True)
class Summary:
    """Everything that tables and figures need."""

    results: Results
    reference: str
    """The method that others are compared with: the baseline, or FAC as it is in an ablation."""
    by_method: dict[tuple[TaskKey, str], MethodSummary]
    """By task too, in the order of the tables."""
    scores: dict[str, dict[TaskKey, Scores]]
    """Scores by method and task: 0 is a uniformly random policy, 1 the baseline's mean. Without
    tasks whose baseline is no better than random; nothing where fewer than two are left."""

    def get(self, task: TaskKey, method: str) -> MethodSummary | None:
        """Find a method's summary on a task."""
        return self.by_method.get((task, method))

    def entries(self, task: TaskKey, names: Sequence[str] = ()) -> list[MethodSummary]:
        """Give the summaries of some methods on a task, in that order; of all without names."""
        found = (self.get(task, name) for name in names or self.results.methods)
        return [entry for entry in found if entry is not None]

    def improvement(self, method: str) -> Estimate | None:
        """Estimate the probability that a run of a method beats one of the baseline's on a task."""
        scores = self.scores.get(method)
        if scores is None or method == BASELINE:
            return None
        others = [self.scores[BASELINE][task] for task in scores]
        generator = generator_for("suite", method, "better")
        return statistics.estimate_improvement(list(scores.values()), others, generator)

    @property
    def seed_counts(self) -> tuple[int, int]:
        """Seeds of the method with the fewest and of that with the most, 0 without any run."""
        counts = [len(entry.seeds) for entry in self.by_method.values()] or [0]
        return min(counts), max(counts)


def generator_for(*names: str) -> np.random.Generator:
    """Make the generator of one estimate: the same names always give the same resamples."""
    return np.random.default_rng([2024, *(zlib.crc32(name.encode()) for name in names)])


def summarize(results: Results) -> Summary:
    """Aggregate all runs of a results directory."""
    entries: dict[tuple[TaskKey, str], MethodSummary] = {}
    reference = BASELINE if BASELINE in results.methods else FAC
    for task in results.tasks:
        for method in results.methods:
            if runs := results.select(task, method):
                compared = entries.get((task, reference))  # the first of the methods
                entries[task, method] = _summarize_method(task, method, runs, compared)
    scores: dict[str, dict[TaskKey, Scores]] = {}
    for (task, method), entry in entries.items():
        baseline = entries.get((task, BASELINE))
        if baseline is None or not entry.rewards:
            continue
        low, high = baseline.mean("random_reward"), baseline.mean("reward")
        if high > low:
            rewards = np.array(list(entry.rewards.values()))
            scores.setdefault(method, {})[task] = (rewards - low) / (high - low)
    several = len(scores.get(BASELINE, {})) > 1
    return Summary(results, reference, entries, scores if several else {})


def _summarize_method(
    task: TaskKey, method: str, runs: dict[int, Result], reference: MethodSummary | None
) -> MethodSummary:
    rewards = _finite({seed: result.number("reward") for seed, result in runs.items()})
    late = _finite({seed: result.late_reward for seed, result in runs.items()})
    means, late_means = (list(found.values()) or [math.nan] for found in (rewards, late))
    others = reference.rewards if reference else {}
    generator = partial(generator_for, *task, method)
    return MethodSummary(
        task=task,
        method=method,
        runs=runs,
        rewards=rewards,
        reward=statistics.estimate_mean(means, generator("mean")),
        late=late,
        late_reward=statistics.estimate_mean(late_means, generator("late")),
        iqm=statistics.stratified_bootstrap([means], statistics.pooled_iqm, generator("iqm")),
        against_reference=statistics.compare_means(rewards, others, generator("difference")),
    )


def _finite(rewards: dict[int, float]) -> dict[int, float]:
    return {seed: reward for seed, reward in rewards.items() if math.isfinite(reward)}
