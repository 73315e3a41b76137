"""Figures as files for papers and web pages: SVG and PDF, drawn by Matplotlib.

The same figure always gives the same bytes: no date, and ids that follow from the content.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from frugalrl.bench.report.figure import HEAT_COLORS, Bars, Dots, Figure, Heat, Line, whiskers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

FORMATS = {"svg": "Date", "pdf": "CreationDate"}
"""By a file's suffix: the date in it that would make the same figure differ."""
_SIZE = (7.2, 4.2)
_DASHES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "frugalrl",
    "pdf.fonttype": 42,
    "font.size": 10,
    "font.sans-serif": ["DejaVu Sans"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#dfe3ea",
    "axes.edgecolor": "#8a92a0",
    "legend.frameon": False,
    "text.parse_math": False,  # names of tasks are a user's: a dollar sign is no mathematics
}


def render(figure: Figure) -> dict[str, bytes]:
    """Draw a figure; gives the content of a file for each format, by its suffix."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Canvas

    drawn = {}
    with rc_context(_STYLE):
        canvas = Canvas(figsize=_SIZE, layout="constrained")
        _draw(figure, canvas.add_subplot())
        if figure.has_legend:
            canvas.legend(fontsize=8, ncols=3, loc="outside lower center")
        for form, date in FORMATS.items():
            file = io.BytesIO()
            canvas.savefig(file, format=form, metadata={"Title": figure.title, date: None})
            drawn[form] = file.getvalue()
    return drawn


def _draw(figure: Figure, axes: Axes) -> None:
    for place, trace in enumerate(figure.traces):
        if isinstance(trace, Line):
            _draw_line(trace, axes)
        elif isinstance(trace, Bars):
            _draw_bars(trace, place, len(figure.traces), axes)
        elif isinstance(trace, Dots):
            _draw_dots(trace, place, axes)
        else:
            _draw_heat(trace, axes)
    axes.set_title(figure.title, loc="left", fontsize=11, wrap=True)
    axes.set_xlabel(figure.x_title)
    axes.set_ylabel(figure.y_title)
    axes.set_xscale(figure.x_scale)
    axes.set_yscale(figure.y_scale)
    if figure.y_zero and figure.y_scale == "linear":
        axes.set_ylim(bottom=0)
    if figure.categories:
        crowded = sum(len(name) + 2 for name in figure.categories) > 70
        axes.set_xticks(
            range(len(figure.categories)),
            figure.categories,
            rotation=20 if crowded else 0,
            ha="right" if crowded else "center",
            fontsize=8 if crowded else 10,
        )
    else:
        _write_ticks(axes.xaxis, figure.x_scale)
    _write_ticks(axes.yaxis, figure.y_scale)


def _draw_line(trace: Line, axes: Axes) -> None:
    style: dict[str, Any] = {"ls": _DASHES[trace.dash], "color": trace.color, "label": trace.name}
    if trace.markers:
        bars = None if trace.band is None else whiskers(trace.y, trace.band)
        axes.errorbar(trace.x, trace.y, yerr=bars, marker="o", lw=1.5, capsize=3, **style)
        return
    if trace.band is not None:
        axes.fill_between(trace.x, *trace.band, color=trace.color, alpha=0.16, lw=0)
    axes.plot(trace.x, trace.y, marker="o" if trace.x.size == 1 else "", lw=trace.width, **style)


def _draw_bars(trace: Bars, position: int, count: int, axes: Axes) -> None:
    width = 0.8 / count
    left = np.arange(trace.values.size) + width * (position - (count - 1) / 2)
    axes.bar(left, trace.values, 0.92 * width, color=trace.color, label=trace.name)


def _draw_dots(trace: Dots, place: int, axes: Axes) -> None:
    beside = np.full(trace.values.size, place - 0.06)
    axes.plot(beside, trace.values, "o", color=trace.color, alpha=0.45)
    mean, interval = [trace.mean.value], trace.mean.interval
    bars = None if interval is None else whiskers(mean, interval)
    axes.errorbar([place + 0.06], mean, yerr=bars, fmt="D", color=trace.color, capsize=4)


def _draw_heat(trace: Heat, axes: Axes) -> None:
    from matplotlib.colors import LinearSegmentedColormap, LogNorm

    colors = LinearSegmentedColormap.from_list("counts", HEAT_COLORS)
    shown = np.ma.masked_equal(trace.counts, 0)
    mesh = axes.pcolormesh(
        trace.x_edges, trace.y_edges, shown, cmap=colors, norm=LogNorm(1, max(trace.largest, 2))
    )
    axes.grid(visible=False)
    assert axes.figure is not None
    bar = axes.figure.colorbar(mesh, ax=axes, label="transitions")
    _write_ticks(bar.ax.yaxis, "log")


def _write_ticks(axis: Axis, scale: str) -> None:
    """Write numbers as plain text: Matplotlib's own powers of ten would be mathematics."""
    from matplotlib.ticker import LogLocator, NullLocator

    if scale == "log":
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: tick_label(value))


def tick_label(value: float) -> str:
    """Write a number briefly: 20000 is 20k, 1e6 is 1M."""
    for unit, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:g}{sign}".replace("-", "−")
    return f"{value:.4g}".replace("-", "−")
