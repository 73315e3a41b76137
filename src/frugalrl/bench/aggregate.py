"""From runs to what they say together: per task and method, and over tasks."""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from frugalrl.bench import statistics
from frugalrl.bench.results import Result, Results
from frugalrl.bench.statistics import Comparison, Estimate, Scores

BASELINE = "baseline"
FAC = "fac"
FRUGAL = ("fac-paper", "fac-released", "fac")
"""The frugal methods that are compared with the paper, its own first."""

TaskKey = tuple[str, str]


@dataclass(frozen=True)
class MethodSummary:
    """One method on one task."""

    task: TaskKey
    method: str
    seeds: tuple[int, ...]
    rewards: dict[int, float]
    reward: Estimate
    late: dict[int, float]
    """Mean reward of the evaluations in the second half of training, by seed: the final policy is
    but one moment of a curve that may be rough."""
    late_reward: Estimate
    iqm: Estimate
    reward_sd: float
    """Standard deviation over seeds, NaN for one seed."""
    convergence: dict[int, float]
    """Convergence point by seed; the length of the run where it never settled."""
    settled: int
    """Runs that settled."""
    paper_reward: float
    """Mean reward as the paper measured it: the policy's own randomness, no last step."""
    paper_reward_sd: float
    paper_control_cost: float
    paper_control_cost_sd: float
    against_reference: Comparison | None
    """Difference from the baseline; in results without one, from FAC as it is."""
    size: float
    stored_share: float
    """Stored over offered transitions."""
    bytes: float
    control_cost: float
    control_cost_sd: float
    train_seconds: float
    memory: float
    random_reward: float
    """What random actions earn on the task, measured beside the baseline's runs; else NaN."""

    @property
    def convergence_mean(self) -> float:
        """Mean convergence point, a run that never settled counted as its length."""
        return _finite_mean(list(self.convergence.values()))


@dataclass(frozen=True)
class SuiteSummary:
    """One method over all tasks, in normalised scores."""

    method: str
    tasks: int
    iqm: Estimate
    mean: Estimate
    improvement: Estimate | None
    """Probability that a run of this method beats one of the baseline's on the same task."""


@dataclass(frozen=True)
class Summary:
    """Everything that tables and figures need."""

    results: Results
    methods: dict[tuple[TaskKey, str], MethodSummary]
    over_tasks: tuple[SuiteSummary, ...]
    scores: dict[str, dict[TaskKey, Scores]]
    """Normalised scores by method and task."""
    not_normalised: tuple[TaskKey, ...]
    """Tasks left out of the normalised scores: no baseline, or no better than random actions."""

    def get(self, task: TaskKey, method: str) -> MethodSummary | None:
        """Find a method's summary on a task."""
        return self.methods.get((task, method))

    @property
    def reference(self) -> str:
        """The method that the others are compared with."""
        return reference_method(self.results)

    @property
    def fewest_seeds(self) -> int:
        """Seeds of the method with the fewest, 0 without any run."""
        return min((len(entry.seeds) for entry in self.methods.values()), default=0)


def generator_for(*names: str) -> np.random.Generator:
    """Make the generator of one estimate: the same names always give the same resamples."""
    return np.random.default_rng([2024, *(zlib.crc32(name.encode()) for name in names)])


def reference_method(results: Results) -> str:
    """Name what methods are compared with: the baseline, or FAC as it is in an ablation."""
    return BASELINE if BASELINE in results.methods else FAC


def summarize(results: Results) -> Summary:
    """Aggregate all runs of a results directory."""
    entries = {}
    reference = reference_method(results)
    for task in results.tasks:
        compared = _rewards(results.select(task, reference))
        for method in results.methods:
            runs = results.select(task, method)
            if runs:
                others = compared if method != reference else {}
                entries[task, method] = _summarize_method(task, method, runs, others)
    scores, left_out = normalised_scores(results)
    over = tuple(
        _summarize_suite(method, scores)
        for method in results.methods
        if scores.get(method) and len(scores.get(BASELINE, {})) > 1
    )
    return Summary(results, entries, over, scores, left_out)


def normalised_scores(
    results: Results,
) -> tuple[dict[str, dict[TaskKey, Scores]], tuple[TaskKey, ...]]:
    """Scale rewards so that 0 is a uniformly random policy and 1 the baseline's mean."""
    scores: dict[str, dict[TaskKey, Scores]] = {}
    left_out = []
    for task in results.tasks:
        baseline = results.select(task, BASELINE)
        low = _mean(baseline, lambda result: result.number("random_reward"))
        high = _mean(baseline, lambda result: result.reward)
        if not high > low:
            left_out.append(task)
            continue
        for method in results.methods:
            rewards = list(_rewards(results.select(task, method)).values())
            if rewards:
                scaled = (np.array(rewards) - low) / (high - low)
                scores.setdefault(method, {})[task] = scaled
    return scores, tuple(left_out)


def _summarize_method(
    task: TaskKey, method: str, runs: dict[int, Result], compared: dict[int, float]
) -> MethodSummary:
    rewards = _rewards(runs)
    late = {seed: _late_reward(result) for seed, result in runs.items()}
    late = {seed: reward for seed, reward in late.items() if math.isfinite(reward)}
    values = list(rewards.values()) or [math.nan]
    names = (*task, method)
    comparison = None
    if compared and rewards:
        comparison = statistics.compare_means(
            rewards, compared, generator_for(*names, "difference")
        )
    costs = [result.number("control_cost") for result in runs.values()]
    paper_rewards = [result.number("paper_reward") for result in runs.values()]
    paper_costs = [result.number("paper_control_cost") for result in runs.values()]
    return MethodSummary(
        task=task,
        method=method,
        seeds=tuple(runs),
        rewards=rewards,
        reward=statistics.estimate_mean(values, generator_for(*names, "mean")),
        late=late,
        late_reward=statistics.estimate_mean(
            list(late.values()) or [math.nan], generator_for(*names, "late")
        ),
        iqm=statistics.estimate_iqm(values, generator_for(*names, "iqm")),
        reward_sd=_sd(values),
        convergence={
            seed: float(result.run.steps) if result.convergence is None else result.convergence
            for seed, result in runs.items()
        },
        settled=sum(result.convergence is not None for result in runs.values()),
        paper_reward=_finite_mean(paper_rewards),
        paper_reward_sd=_sd(paper_rewards),
        paper_control_cost=_finite_mean(paper_costs),
        paper_control_cost_sd=_sd(paper_costs),
        against_reference=comparison,
        size=_mean(runs, lambda result: result.number("size")),
        stored_share=_mean(runs, _stored_share),
        bytes=_mean(runs, lambda result: result.number("buffer_bytes")),
        control_cost=_finite_mean(costs),
        control_cost_sd=_sd(costs),
        train_seconds=_mean(runs, lambda result: result.number("train_seconds")),
        memory=_mean(runs, lambda result: result.number("peak_memory_bytes")),
        random_reward=_mean(runs, lambda result: result.number("random_reward")),
    )


def _summarize_suite(method: str, scores: dict[str, dict[TaskKey, Scores]]) -> SuiteSummary:
    mine, baseline = scores[method], scores[BASELINE]
    shared = [task for task in mine if task in baseline]
    tasks = [mine[task] for task in shared]
    improvement = None
    if method != BASELINE:
        improvement = statistics.estimate_improvement(
            tasks, [baseline[task] for task in shared], generator_for("suite", method, "better")
        )
    return SuiteSummary(
        method=method,
        tasks=len(shared),
        iqm=statistics.stratified_bootstrap(
            tasks, statistics.pooled_iqm, generator_for("suite", method, "iqm")
        ),
        mean=statistics.stratified_bootstrap(
            tasks, statistics.pooled_mean, generator_for("suite", method, "mean")
        ),
        improvement=improvement,
    )


def unequal_seeds(summary: Summary) -> list[str]:
    """Name the tasks whose methods have different seeds, and the methods that stand out."""
    notes = []
    for task in summary.results.tasks:
        entries = [entry for (key, _), entry in summary.methods.items() if key == task]
        usual, _ = Counter(entry.seeds for entry in entries).most_common(1)[0]
        odd = [f"{entry.method} {len(entry.seeds)}" for entry in entries if entry.seeds != usual]
        if odd:
            name = f"{task[0]} ({task[1].upper()})"
            notes.append(f"{name}: {', '.join(odd)}, the others {len(usual)}")
    return notes


def buffer_mean(runs: dict[int, Result], *keys: str) -> float:
    """Average a measure of the final buffers over seeds, by its path in the run's summary."""

    def measure(result: Result) -> float:
        found: object = result.buffer
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        return float(found) if isinstance(found, (int, float)) else math.nan

    return _mean(runs, measure)


def _rewards(runs: dict[int, Result]) -> dict[int, float]:
    found = {seed: result.reward for seed, result in runs.items()}
    return {seed: reward for seed, reward in found.items() if math.isfinite(reward)}


def _late_reward(result: Result) -> float:
    steps, rewards = result.curve
    return _finite_mean(rewards[steps > result.run.steps / 2].tolist())


def _mean(runs: dict[int, Result], measure: Callable[[Result], float]) -> float:
    return _finite_mean([measure(result) for result in runs.values()])


def _stored_share(result: Result) -> float:
    offered = result.number("offered")
    return result.number("stored") / offered if offered > 0 else math.nan


def _finite_mean(values: Sequence[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return float(np.mean(finite)) if finite else math.nan


def _sd(values: Sequence[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return float(np.std(finite, ddof=1)) if len(finite) > 1 else math.nan
