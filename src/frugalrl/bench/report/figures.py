"""The report's figures: rewards, sizes, what the buffer holds, parameters and time."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from frugalrl.bench import measures, statistics
from frugalrl.bench.aggregate import (
    BASELINE,
    FAC,
    FRUGAL,
    MethodSummary,
    Summary,
    TaskKey,
    generator_for,
    task_name,
)
from frugalrl.bench.methods import CONTROLS, PARAMETERS, Method, rule_and_share, split_variant
from frugalrl.bench.report.figure import Bars, Dots, Figure, Heat, Line, Numbers, mark_coinciding
from frugalrl.bench.results import Result

_VALUE_COLORS = ("#0f9b8e", "#a8458f", "#b8860b", "#7a7f87", "#d3262f", "#3f9142")
_KERNEL_COLORS = {"epanechnikov": "#2166d1", "tophat": "#a31621", "gaussian": "#3fa7d6"}
_STEPS = "environment steps"
_MANY_SEEDS = "where there are three seeds or more"
_curve = attrgetter("curve")


def all_figures(summary: Summary) -> list[Figure]:
    """Draw everything these results can show, in the report's order."""
    tasks = summary.results.tasks
    figures: list[Figure] = []
    for task in tasks:
        figures += [learning_curves(summary, task), final_rewards(summary, task)]
    if any(rule_and_share(name)[1] for name in summary.results.methods):  # a share of the steps
        for task in tasks:
            figures += [reward_over_bytes(summary, task, late=late) for late in (False, True)]
    figures.append(performance_profiles(summary))
    for task in tasks:
        figures += [buffer_growth(summary, task), acceptance(summary, task)]
        figures += [*kept_experiences(summary, task), rewards_per_cell(summary, task)]
    figures += [*hyper_parameters(summary), kernel_masses(), computation_time(summary)]
    return [
        mark_coinciding(figure)
        for figure in figures
        if any(isinstance(it, Heat) or np.isfinite(it.y).any() for it in figure.traces)
    ]


def _of_task(task: TaskKey, kind: str, title: str, *parts: Any, **more: Any) -> Figure:
    """Make a figure of one task, whose id begins with `kind`."""
    slug = re.sub(r"[^a-z0-9]+", "-", f"{task[0]}-{task[1]}".lower()).strip("-")
    return Figure(f"{kind}-{slug}", f"{task_name(task)}: {title}", *parts, **more)


def learning_curves(summary: Summary, task: TaskKey) -> Figure:
    """Reward of the evaluations while training: mean over seeds, with a bootstrap band."""
    curves = _mean_lines(summary, task, _plain_methods(summary), _curve, banded=True)
    parts = (_STEPS, "evaluation reward", curves, _band_caption(curves), "learning")
    return _of_task(task, "learning", "reward while training", *parts)


def final_rewards(summary: Summary, task: TaskKey) -> Figure:
    """Draw the final reward of every seed, and each method's mean with its interval."""
    dots = []
    for entry in summary.entries(task):
        method = summary.results.method(entry.method)
        rewards = np.array(list(entry.rewards.values()))
        dots.append(Dots(method.label, rewards, entry.reward, method.color))
    caption = "Each dot is a seed, the large mark their mean"
    if any(trace.mean.interval for trace in dots):
        caption += f" with its 95 % bootstrap interval {_MANY_SEEDS}."
    else:
        caption += "; there are too few seeds for an interval."
    parts = ("", "final reward", dots, caption, "learning", [trace.name for trace in dots])
    return _of_task(task, "final", "reward of the final policy", *parts)


def reward_over_bytes(summary: Summary, task: TaskKey, *, late: bool = False) -> Figure:
    """Draw the final reward over bytes, or that of the second half of training: a line per rule."""
    reward: Callable[..., statistics.Estimate] = attrgetter("late_reward" if late else "reward")
    shown = [e for e in summary.entries(task) if np.isfinite(reward(e).value + e.bytes)]
    rules: dict[str, list[MethodSummary]] = {}
    for entry in shown:
        rules.setdefault(rule_and_share(entry.method)[0], []).append(entry)
    traces = []
    for rule, entries in sorted(rules.items(), key=lambda item: item[0] == BASELINE):  # on top
        # With room for everything, a rule for a given size is the baseline.
        full = rules.get(BASELINE, []) if rule in CONTROLS else []
        points = sorted(entries + full, key=lambda entry: entry.bytes)
        intervals = [found for entry in points if (found := reward(entry).interval)]
        low, high = np.array(intervals).reshape(-1, 2).T
        method = summary.results.method(rule)
        line = Line(
            method.label,
            np.array([entry.bytes for entry in points]) / 1e6,
            np.array([reward(entry).value for entry in points]),
            method.color,
            "solid" if len(points) > 1 else "dot",
            (low, high) if len(intervals) == len(points) else None,
            markers=True,
        )
        traces.append(line)
    seeds = [len(entry.seeds) for entry in shown] or [0]
    many = " to ".join(map(str, sorted({min(seeds), max(seeds)})))
    spread = " with its 95 % bootstrap interval" if any(line.band for line in traces) else ""
    caption = (
        f"Mean over {many} seeds{spread}; a point per budget. The lines "
        "of rules for a given size end in the baseline, which has room for everything."
    )
    kind, title, y = "bytes", "reward over bytes", "final reward"
    if late:
        caption += " The reward is the mean of the evaluations in the second half of training."
        kind, title = "late", "reward while training over bytes"
        y = "reward, second half of training"
    parts = ("bytes of the buffer, MB", y, traces, caption, "budget")
    return _of_task(task, kind, title, *parts, x_scale="log")


def performance_profiles(summary: Summary) -> Figure:
    """Draw the share of runs above each normalised score."""
    taus = np.linspace(0.0, 1.5, 76)
    traces = []
    most = max(map(len, summary.scores.values()), default=0)
    for method in _plain_methods(summary):
        tasks = list(summary.scores.get(method.name, {}).values())
        if len(tasks) == most > 0:
            generator = generator_for("profile", method.name)
            profile, band = statistics.estimate_profile(tasks, taus, generator)
            traces.append(Line(method.label, taus, profile, method.color, method.dash, band))
    axes = ("normalised score τ (0 random policy, 1 baseline)", "share of runs above τ")
    caption = (
        f"Methods that were run on all {most} tasks; pointwise 95 % intervals from a bootstrap "
        "stratified by task."
    )
    title = "Performance profile over all tasks"
    return Figure("profile", title, *axes, traces, caption, "learning", y_zero=True)


def buffer_growth(summary: Summary, task: TaskKey) -> Figure:
    """Draw how many transitions the buffer holds while training."""

    def held(result: Result) -> tuple[Numbers, Numbers]:
        return result.column("env_steps"), result.column("buffer_size")

    lines = _mean_lines(summary, task, _plain_methods(summary), held)
    parts = (_STEPS, "transitions held", lines, "Mean over seeds.", "buffer")
    return _of_task(task, "buffer", "growth of the buffer", *parts, y_zero=True)


def acceptance(summary: Summary, task: TaskKey) -> Figure:
    """Draw the share of new transitions that took a new slot, step by step."""

    def share(result: Result) -> tuple[Numbers, Numbers]:
        names = ("env_steps", "offered", "stored")
        steps, offered, stored = (result.column(name) for name in names)
        if stored.size < 2:
            return np.empty(0), np.empty(0)
        offered, stored = (np.diff(counts, prepend=0.0) for counts in (offered, stored))
        moved = offered > 0
        return steps[moved], 100.0 * (stored[moved] / offered[moved])

    filtered = [m for m in _plain_methods(summary) if m.settings.get("admission") is not None]
    caption = (
        "Share of the transitions since the last point that were stored as new; the others were "
        "dropped or took the place of an equivalent."
    )
    lines = _mean_lines(summary, task, filtered, share)
    parts = (_STEPS, "transitions stored, %", lines, caption, "buffer")
    return _of_task(task, "acceptance", "acceptance over time", *parts, y_zero=True)


def kept_experiences(summary: Summary, task: TaskKey) -> Iterator[Figure]:
    """Draw the states visited and those the filter stores, on the two leading dimensions."""
    runs = summary.results.select(task, BASELINE).values()
    result = next((result for result in runs if result.buffer.get("map")), None)
    if result is None:
        return
    found = result.buffer["map"]
    visited, stored = (np.array(found[kind], dtype=np.int64) for kind in ("visited", "stored"))
    x, y = (np.linspace(low, high, len(visited) + 1) for low, high in found["ranges"])
    axes = [f"observation[{dimension}]" for dimension in found["dimensions"]]
    share = 100.0 * stored.sum() / max(visited.sum(), 1)
    whole = visited.sum() == result.number("offered")
    part = "All" if whole else f"The last {visited.sum():,} transitions"
    origin = f"{part} of the baseline's run, seed {result.run.seed}."
    kept = f"What FAC keeps of the same transitions: {share:.0f} %. Same colours."
    for kind, counts, caption in (("visited", visited, origin), ("stored", stored, kept)):
        heat = Heat(counts, x, y, int(visited.max()))
        yield _of_task(task, kind, f"states {kind}", *axes, [heat], caption, "buffer")


def rewards_per_cell(summary: Summary, task: TaskKey) -> Figure:
    """Draw how many stored rewards a cell has, baseline against the frugal methods."""
    traces = []
    for entry in summary.entries(task, (BASELINE, *FRUGAL)):
        found = [result.buffer.get("rewards_a_cell") for result in entry.runs.values()]
        counts = list(itertools.zip_longest(*filter(None, found), fillvalue=0))
        if counts:
            method = summary.results.method(entry.method)
            traces.append(Bars(method.label, np.mean(counts, axis=1), method.color))
    caption = "How many cells hold how many rewards in the final buffer, mean over seeds."
    width = max((trace.y.size for trace in traces), default=0)
    labels = [_power_label(power) for power in range(width)]
    parts = ("rewards stored in a cell", "cells", traces, caption, "buffer", labels)
    return _of_task(task, "cells", "rewards per cell", *parts)


def _power_label(power: int) -> str:
    low, high = 2**power, 2 ** (power + 1) - 1
    if low >= 1024:
        return f"{low // 1024}k–{(high + 1) // 1024}k"
    return str(low) if low == high else f"{low}–{high}"


def hyper_parameters(summary: Summary) -> Iterator[Figure]:
    """Draw learning curves and buffers for the values of each parameter that was varied."""
    by_parameter: dict[str, dict[str, str]] = {}
    for name in filter(_is_variant, summary.results.methods):
        ((parameter, value),) = split_variant(name)[1].items()
        by_parameter.setdefault(parameter, {})[name] = value
    for parameter, variants in by_parameter.items():
        default = PARAMETERS[parameter].default
        order: Callable[[str], Any] = str if isinstance(default, str) else float
        values = {FAC: default if isinstance(default, str) else f"{default:g}", **variants}
        values = dict(sorted(values.items(), key=lambda item: order(item[1])))
        by_kernel = parameter == "kernel"
        colors, ours = itertools.cycle(_VALUE_COLORS), summary.results.method(FAC).color
        methods = []
        for name, value in values.items():
            color = ours if name == FAC else next(colors)
            color = _KERNEL_COLORS.get(value, "#7a7f87") if by_kernel else color
            methods.append(Method(name, f"{parameter} {value}", "", color=color))
        for task in summary.results.tasks:
            title = f"{parameter}, {PARAMETERS[parameter].about}"
            curves = _mean_lines(summary, task, methods, _curve, banded=True)
            caption = _band_caption(curves)
            caption += "" if by_kernel else " The filter's default in dark blue."
            parts: tuple[Any, ...] = (_STEPS, "evaluation reward", curves, caption, "parameters")
            yield _of_task(task, parameter, title, *parts)
            present = summary.entries(task, list(values))
            bars = Bars("", np.array([entry.size for entry in present]), ours)
            labels = [values[entry.method] for entry in present]
            parts = (parameter, "transitions at the end", [bars], "", "parameters", labels)
            yield _of_task(task, f"{parameter}-buffer", f"buffer by {parameter}", *parts)


def kernel_masses() -> Figure:
    """Draw the density a reward finds at some distance from the only stored one, by kernel."""
    from frugalrl.admission.density_kernels import reward_density

    distance = np.linspace(0.0, 1.0, 101)
    traces = []
    for kernel, color in _KERNEL_COLORS.items():
        densities = [reward_density([0.0], float(d), kernel) for d in distance]
        traces.append(Line(kernel, distance, np.array(densities), color))
    traces.append(Line("threshold ε", distance, np.full(101, 0.2), "#7a7f87", "dash"))
    title = "What a kernel makes of a distance in reward"
    caption = (
        "One stored reward, h = 0.3 and β = 0.2: a reward is stored as new where its curve lies "
        "below the threshold."
    )
    axes = ("distance from the only reward of the cell", "reward density estimate")
    return Figure("kernels", title, *axes, traces, caption, "parameters", y_zero=True)


def computation_time(summary: Summary) -> Figure:
    """Draw the training time of every method on every task."""
    tasks = summary.results.tasks
    traces = []
    for method in _plain_methods(summary):
        entries = [summary.get(task, method.name) for task in tasks]
        seconds = [entry.train_seconds if entry else np.nan for entry in entries]
        traces.append(Bars(method.label, np.array(seconds), method.color))
    head = ("time", "Computation time", "", "training time, s")
    caption = "Mean over seeds of the wall time spent stepping and learning, on one core."
    labels = list(map(task_name, tasks))
    scale = "log" if len(tasks) > 2 else "linear"
    return Figure(*head, traces, caption, "resources", labels, y_scale=scale)


def _mean_lines(
    summary: Summary,
    task: TaskKey,
    methods: Iterable[Method],
    curve: Callable[[Result], tuple[Numbers, Numbers]],
    *,
    banded: bool = False,
) -> list[Line]:
    """Draw the mean over seeds of a curve of each method's runs, with bands where seeds allow."""
    lines = []
    for method in methods:
        runs = summary.results.select(task, method.name)
        grid, values = measures.mean_curve([curve(result) for result in runs.values()])
        if grid.size:
            generator = generator_for(*task, method.name, "curve")
            band = statistics.mean_band(values, generator) if banded else None
            mean = values.mean(axis=0)
            lines.append(Line(method.label, grid, mean, method.color, method.dash, band))
    return lines


def _band_caption(lines: Sequence[Line]) -> str:
    """Say what is drawn: a band only where there are seeds enough."""
    banded = [line.band is not None for line in lines]
    if not any(banded):
        return "Mean over seeds; there are too few of them for a band."
    where = "" if all(banded) else f", {_MANY_SEEDS}"
    return f"Mean over seeds; the band is the 95 % bootstrap interval of the mean{where}."


def _plain_methods(summary: Summary) -> list[Method]:
    """Give the methods of the common figures: all but FAC's with one parameter changed.

    Those have figures of their own, beside FAC; without FAC they stay here.
    """
    names = summary.results.methods
    plain = [name for name in names if FAC not in names or not _is_variant(name)]
    return [summary.results.method(name) for name in plain]


def _is_variant(method: str) -> bool:
    """Tell whether a method is FAC with one parameter of its filter changed."""
    base, changes = split_variant(method)
    return base == FAC and len(changes) == 1 and set(changes) <= set(PARAMETERS)
