"""Figures of what the buffer holds and lets in."""

from __future__ import annotations

import numpy as np

from frugalrl.bench import measures
from frugalrl.bench.aggregate import BASELINE, FRUGAL, Summary, TaskKey
from frugalrl.bench.report.curves import plain_methods, slug
from frugalrl.bench.report.figure import Bars, Figure, Heat, Line, Numbers
from frugalrl.bench.report.paper_tables import task_name
from frugalrl.bench.results import Result


def buffer_growth(summary: Summary, task: TaskKey) -> Figure:
    """Draw how many transitions the buffer holds while training."""
    traces = []
    for name in plain_methods(summary):
        runs = summary.results.select(task, name)
        grid, values = measures.mean_curve([_buffer_sizes(result) for result in runs.values()])
        if grid.size:
            method = summary.results.method(name)
            mean = values.mean(axis=0)
            traces.append(Line(method.label, grid, mean, method.color, method.dash))
    return Figure(
        id=f"buffer-{slug(task)}",
        title=f"{task_name(task)}: growth of the buffer",
        x_title="environment steps",
        y_title="transitions held",
        traces=traces,
        caption="Mean over seeds.",
        group="buffer",
        y_zero=True,
    )


def acceptance(summary: Summary, task: TaskKey) -> Figure:
    """Draw the share of new transitions that took a new slot, step by step."""
    traces = []
    for name in plain_methods(summary):
        method = summary.results.method(name)
        if method.settings.get("admission") is None:
            continue
        runs = summary.results.select(task, name)
        grid, values = measures.mean_curve([_acceptance(result) for result in runs.values()])
        if grid.size:
            mean = 100.0 * values.mean(axis=0)
            traces.append(Line(method.label, grid, mean, method.color, method.dash))
    return Figure(
        id=f"acceptance-{slug(task)}",
        title=f"{task_name(task)}: acceptance over time",
        x_title="environment steps",
        y_title="transitions stored, %",
        traces=traces,
        caption="Share of the transitions since the last point that were stored as new; the "
        "others were dropped or took the place of an equivalent.",
        group="buffer",
        y_zero=True,
    )


def kept_experiences(summary: Summary, task: TaskKey) -> list[Figure]:
    """Draw the states visited and those the filter stores, on the two leading dimensions."""
    for result in summary.results.select(task, BASELINE).values():
        found = result.buffer.get("map")
        if not isinstance(found, dict):
            continue
        visited, stored = (np.array(found[key], dtype=np.int64) for key in ("visited", "stored"))
        x_edges, y_edges = (
            np.linspace(low, high, len(visited) + 1) for low, high in found["ranges"]
        )
        largest = int(visited.max())
        first, second = found["dimensions"]
        share = 100.0 * stored.sum() / max(visited.sum(), 1)
        whole = visited.sum() == result.number("offered")
        part = "All" if whole else f"The last {visited.sum():,} transitions"
        return [
            Figure(
                id=f"{kind}-{slug(task)}",
                title=f"{task_name(task)}: states {kind}",
                x_title=f"observation[{first}]",
                y_title=f"observation[{second}]",
                traces=[Heat(counts, x_edges, y_edges, largest)],
                caption=caption,
                group="buffer",
            )
            for kind, counts, caption in (
                ("visited", visited, f"{part} of the baseline's run, seed {result.run.seed}."),
                (
                    "stored",
                    stored,
                    f"What FAC keeps of the same transitions: {share:.0f} %. Same colours.",
                ),
            )
        ]
    return []


def rewards_a_cell(summary: Summary, task: TaskKey) -> Figure:
    """Draw how many stored rewards a cell has, baseline against FAC."""
    histograms = {}
    for name in (BASELINE, *FRUGAL):
        runs = summary.results.select(task, name)
        found = [result.buffer.get("rewards_a_cell") for result in runs.values()]
        lists = [entry for entry in found if isinstance(entry, list)]
        if lists:
            width = max(map(len, lists))
            padded = [[*entry, *[0] * (width - len(entry))] for entry in lists]
            histograms[name] = np.mean(np.array(padded, dtype=np.float64), axis=0)
    width = max((len(counts) for counts in histograms.values()), default=0)
    traces = [
        Bars(
            summary.results.method(name).label,
            np.pad(counts, (0, width - len(counts))),
            summary.results.method(name).color,
        )
        for name, counts in histograms.items()
    ]
    return Figure(
        id=f"cells-{slug(task)}",
        title=f"{task_name(task)}: rewards per cell",
        x_title="rewards stored in a cell",
        y_title="cells",
        traces=traces,
        caption="How many cells hold how many rewards in the final buffer, mean over seeds.",
        categories=[_power_label(power) for power in range(width)],
        group="buffer",
    )


def _buffer_sizes(result: Result) -> tuple[Numbers, Numbers]:
    table = result.metrics
    if "buffer_size" not in table:
        return np.empty(0), np.empty(0)
    return table["env_steps"], table["buffer_size"]


def _acceptance(result: Result) -> tuple[Numbers, Numbers]:
    table = result.metrics
    if "stored" not in table or table["stored"].size < 2:
        return np.empty(0), np.empty(0)
    offered = np.diff(table["offered"], prepend=0.0)
    stored = np.diff(table["stored"], prepend=0.0)
    moved = offered > 0
    return table["env_steps"][moved], stored[moved] / offered[moved]


def _power_label(power: int) -> str:
    low, high = 2**power, 2 ** (power + 1) - 1
    if low >= 1024:
        return f"{low // 1024}k–{(high + 1) // 1024}k"
    return str(low) if low == high else f"{low}–{high}"
