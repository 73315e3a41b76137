"""Curves over seeds, shared by the report's figures."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from frugalrl.bench import measures
from frugalrl.bench.aggregate import FAC, Summary, TaskKey, generator_for
from frugalrl.bench.methods import PARAMETERS, split_variant
from frugalrl.bench.report.figure import Line, Numbers
from frugalrl.bench.statistics import MIN_SEEDS_FOR_INTERVAL


def slug(task: TaskKey) -> str:
    """Name a task in ids and file names."""
    return re.sub(r"[^a-z0-9]+", "-", f"{task[0]}-{task[1]}".lower()).strip("-")


def reward_curves(
    summary: Summary,
    task: TaskKey,
    names: Iterable[str],
    labels: dict[str, str] | None = None,
    colors: dict[str, str] | None = None,
) -> list[Line]:
    """Draw the mean evaluation reward of some methods, with bands where seeds allow."""
    lines = []
    for name in names:
        runs = summary.results.select(task, name)
        grid, values = measures.mean_curve([result.curve for result in runs.values()])
        if not grid.size:
            continue
        method = summary.results.method(name)
        low, high = _band(values, generator_for(*task, name, "curve"))
        label = (labels or {}).get(name, method.label)
        color = (colors or {}).get(name, method.color)
        dash = method.dash if colors is None else "solid"
        lines.append(Line(label, grid, values.mean(axis=0), color, dash, low, high))
    return lines


def band_caption(lines: Iterable[Line]) -> str:
    """Say what is drawn: a band only where there are seeds enough."""
    banded = [line.low is not None for line in lines]
    if not any(banded):
        return "Mean over seeds; there are too few of them for a band."
    where = "" if all(banded) else ", where there are three seeds or more"
    return f"Mean over seeds; the band is the 95 % bootstrap interval of the mean{where}."


def _band(
    values: Numbers, generator: np.random.Generator
) -> tuple[Numbers, Numbers] | tuple[None, None]:
    """Bootstrap the mean over runs at every step, the same runs redrawn for all steps."""
    runs = values.shape[0]
    if runs < MIN_SEEDS_FOR_INTERVAL:
        return None, None
    weights = generator.multinomial(runs, np.full(runs, 1 / runs), size=2_000) / runs
    low, high = np.percentile(weights @ values, [2.5, 97.5], axis=0)
    return np.asarray(low), np.asarray(high)


def plain_methods(summary: Summary) -> list[str]:
    """Give the methods of the common figures: all but FAC's with one parameter changed.

    Those have figures of their own, beside FAC; without FAC they stay here.
    """
    names = summary.results.methods
    return [name for name in names if FAC not in names or not is_value(name)]


def is_value(method: str) -> bool:
    """Tell whether a method is FAC with one parameter of its filter changed."""
    base, changes = split_variant(method)
    return base == FAC and len(changes) == 1 and set(changes) <= set(PARAMETERS)
