"""The report's figures: those of learning and time, and the list of all."""

from __future__ import annotations

import numpy as np

from frugalrl.bench import statistics
from frugalrl.bench.aggregate import Summary, TaskKey, generator_for
from frugalrl.bench.report.budget import has_budgets, reward_over_bytes
from frugalrl.bench.report.buffer_figures import (
    acceptance,
    buffer_growth,
    kept_experiences,
    rewards_a_cell,
)
from frugalrl.bench.report.curves import band_caption, plain_methods, reward_curves, slug
from frugalrl.bench.report.figure import Bars, Dots, Figure, Heat, Line, Points, Trace, told_apart
from frugalrl.bench.report.paper_tables import task_name
from frugalrl.bench.report.parameter_figures import hyper_parameters, kernel_masses


def all_figures(summary: Summary) -> list[Figure]:
    """Draw everything these results can show, in the report's order."""
    figures: list[Figure] = []
    for task in summary.results.tasks:
        figures += [learning_curves(summary, task), final_rewards(summary, task)]
    if has_budgets(summary):
        figures += [
            reward_over_bytes(summary, task, late=late)
            for task in summary.results.tasks
            for late in (False, True)
        ]
    if summary.over_tasks:
        figures.append(performance_profiles(summary))
    for task in summary.results.tasks:
        figures += [buffer_growth(summary, task), acceptance(summary, task)]
        figures += kept_experiences(summary, task)
        figures.append(rewards_a_cell(summary, task))
    figures += hyper_parameters(summary)
    figures.append(kernel_masses())
    figures.append(computation_time(summary))
    drawn = [figure for figure in figures if any(_has_points(trace) for trace in figure.traces)]
    return [told_apart(figure) for figure in drawn]


def learning_curves(summary: Summary, task: TaskKey) -> Figure:
    """Reward of the evaluations while training: mean over seeds, with a bootstrap band."""
    curves = reward_curves(summary, task, plain_methods(summary))
    return Figure(
        id=f"learning-{slug(task)}",
        title=f"{task_name(task)}: reward while training",
        x_title="environment steps",
        y_title="evaluation reward",
        traces=curves,
        caption=band_caption(curves),
        group="learning",
    )


def final_rewards(summary: Summary, task: TaskKey) -> Figure:
    """Draw the final reward of every seed, and each method's mean with its interval."""
    entries = [summary.get(task, name) for name in summary.results.methods]
    found = [entry for entry in entries if entry is not None]
    labels = [summary.results.method(entry.method).label for entry in found]
    return Figure(
        id=f"final-{slug(task)}",
        title=f"{task_name(task)}: reward of the final policy",
        x_title="",
        y_title="final reward",
        traces=[
            Dots(
                label,
                label,
                np.array(list(entry.rewards.values())),
                entry.reward.value,
                summary.results.method(entry.method).color,
                entry.reward.low,
                entry.reward.high,
            )
            for entry, label in zip(found, labels, strict=True)
        ],
        caption="Each dot is a seed, the large mark their mean"
        + (
            " with its 95 % bootstrap interval where there are three seeds or more."
            if any(entry.reward.has_interval for entry in found)
            else "; there are too few seeds for an interval."
        ),
        categories=labels,
        group="learning",
    )


def performance_profiles(summary: Summary) -> Figure:
    """Draw the share of runs above each normalised score."""
    taus = np.linspace(0.0, 1.5, 76)
    traces = []
    for name in plain_methods(summary):
        tasks = list(summary.scores.get(name, {}).values())
        if tasks:
            profile, interval = statistics.estimate_profile(
                tasks, taus, generator_for("profile", name)
            )
            low, high = interval if interval is not None else (None, None)
            method = summary.results.method(name)
            traces.append(Line(method.label, taus, profile, method.color, method.dash, low, high))
    return Figure(
        id="profile",
        title="Performance profile over all tasks",
        x_title="normalised score τ (0 random policy, 1 baseline)",
        y_title="share of runs above τ",
        traces=traces,
        caption="Pointwise 95 % intervals from a bootstrap stratified by task.",
        group="learning",
        y_zero=True,
    )


def computation_time(summary: Summary) -> Figure:
    """Draw the training time of every method on every task."""
    tasks = summary.results.tasks
    traces = []
    for name in plain_methods(summary):
        method = summary.results.method(name)
        entries = [summary.get(task, name) for task in tasks]
        seconds = [entry.train_seconds if entry else np.nan for entry in entries]
        traces.append(Bars(method.label, np.array(seconds), method.color))
    return Figure(
        id="time",
        title="Computation time",
        x_title="",
        y_title="training time, s",
        traces=traces,
        caption="Mean over seeds of the wall time spent stepping and learning, on one core.",
        categories=[task_name(task) for task in tasks],
        y_scale="log" if len(tasks) > 2 else "linear",
        group="resources",
    )


def _has_points(trace: Trace) -> bool:
    if isinstance(trace, Heat):
        return True
    values = trace.y if isinstance(trace, Line | Points) else trace.values
    return bool(np.any(np.isfinite(values)))
