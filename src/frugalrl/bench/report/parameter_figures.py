"""Figures of kernels and hyper-parameters."""

from __future__ import annotations

import numpy as np

from frugalrl.bench.aggregate import FAC, Summary, TaskKey
from frugalrl.bench.methods import PARAMETERS, split_variant
from frugalrl.bench.report.curves import band_caption, is_value, reward_curves, slug
from frugalrl.bench.report.figure import Bars, Figure, Line
from frugalrl.bench.report.paper_tables import task_name

_VALUE_COLORS = ("#0f9b8e", "#a8458f", "#b8860b", "#7a7f87", "#d3262f", "#3f9142")
_KERNEL_COLORS = {"epanechnikov": "#2166d1", "tophat": "#a31621", "gaussian": "#3fa7d6"}


def hyper_parameters(summary: Summary) -> list[Figure]:
    """Draw learning curves and buffers for the values of each parameter that was varied."""
    by_parameter: dict[str, dict[str, str]] = {}
    for name in summary.results.methods:
        if is_value(name):
            ((parameter, value),) = split_variant(name)[1].items()
            by_parameter.setdefault(parameter, {})[name] = value
    figures = []
    for parameter, variants in by_parameter.items():
        default = PARAMETERS[parameter].default
        names = {FAC: f"{default:g}" if isinstance(default, float) else str(default), **variants}
        ordered = dict(sorted(names.items(), key=lambda item: _sort_value(item[1])))
        for task in summary.results.tasks:
            figures += _parameter_figures(summary, task, parameter, ordered)
    return figures


def kernel_masses() -> Figure:
    """Draw the density a reward finds at some distance from the only stored one, by kernel."""
    from frugalrl.admission.density_kernels import reward_density

    distance = np.linspace(0.0, 1.0, 101)
    traces = [
        Line(
            kernel,
            distance,
            np.array([reward_density([0.0], float(d), kernel) for d in distance]),
            color,
        )
        for kernel, color in _KERNEL_COLORS.items()
    ]
    threshold = Line("threshold ε", distance, np.full(101, 0.2), "#7a7f87", "dash")
    return Figure(
        id="kernels",
        title="What a kernel makes of a distance in reward",
        x_title="distance from the only reward of the cell",
        y_title="reward density estimate",
        traces=[*traces, threshold],
        caption="One stored reward, h = 0.3 and β = 0.2: a reward is stored as new where its "
        "curve lies below the threshold.",
        group="parameters",
        y_zero=True,
    )


def _parameter_figures(
    summary: Summary, task: TaskKey, parameter: str, names: dict[str, str]
) -> list[Figure]:
    others = [name for name in names if name != FAC]
    colors = {FAC: summary.results.method(FAC).color}
    colors |= {name: _VALUE_COLORS[i % len(_VALUE_COLORS)] for i, name in enumerate(others)}
    if parameter == "kernel":
        colors = {name: _KERNEL_COLORS.get(value, "#7a7f87") for name, value in names.items()}
    labels = {name: f"{parameter} {value}" for name, value in names.items()}
    entries = {name: summary.get(task, name) for name in names}
    present = [name for name, entry in entries.items() if entry is not None]
    sizes = np.array([entry.size for entry in entries.values() if entry is not None])
    curves = reward_curves(summary, task, names, labels, colors)
    return [
        Figure(
            id=f"{parameter}-{slug(task)}",
            title=f"{task_name(task)}: {parameter}, {PARAMETERS[parameter].about}",
            x_title="environment steps",
            y_title="evaluation reward",
            traces=curves,
            caption=f"{band_caption(curves)} The filter's default in dark blue."
            if parameter != "kernel"
            else band_caption(curves),
            group="parameters",
        ),
        Figure(
            id=f"{parameter}-buffer-{slug(task)}",
            title=f"{task_name(task)}: buffer by {parameter}",
            x_title=parameter,
            y_title="transitions at the end",
            traces=[Bars("buffer", sizes, colors[FAC])],
            categories=[names[name] for name in present],
            group="parameters",
        ),
    ]


def _sort_value(text: str) -> tuple[float, str]:
    try:
        return float(text), ""
    except ValueError:
        return 0.0, text
