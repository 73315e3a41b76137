"""Figures as data: described once, drawn by Plotly in the report and by Matplotlib in files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Line:
    """A curve with a band, or points joined by a line with whiskers, where there are intervals."""

    name: str
    x: Numbers
    y: Numbers
    color: str
    dash: str = "solid"
    """`solid`, `dash`, `dot` or `dashdot`."""
    low: Numbers | None = None
    high: Numbers | None = None
    width: float = 2.0
    markers: bool = False
    """A few measured points instead of a curve."""


@dataclass(frozen=True)
class Bars:
    """A bar for each of the figure's categories."""

    name: str
    values: Numbers
    color: str


@dataclass(frozen=True)
class Dots:
    """One category's values as dots, beside their mean and its interval."""

    name: str
    """The category."""
    values: Numbers
    mean: float
    color: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Heat:
    """Counts on a regular grid, drawn on a logarithmic colour scale."""

    counts: NDArray[np.int64]
    """Shape (rows along y, columns along x)."""
    x_edges: Numbers
    y_edges: Numbers
    largest: int
    """Count drawn in the darkest colour, so that figures side by side can share a scale."""


Trace = Line | Bars | Dots | Heat


@dataclass(frozen=True)
class Figure:
    """One set of axes."""

    id: str
    title: str
    x_title: str
    y_title: str
    traces: Sequence[Trace]
    caption: str = ""
    categories: Sequence[str] = ()
    """Names below the bars."""
    y_scale: Literal["linear", "log"] = "linear"
    group: str = ""
    """Section of the report."""
    y_zero: bool = False
    """Let the y axis begin at zero."""
    x_scale: Literal["linear", "log"] = "linear"

    @property
    def has_legend(self) -> bool:
        """Whether there is more than one thing to name."""
        return sum(isinstance(trace, Line | Bars) for trace in self.traces) > 1

    def to_plotly(self) -> dict[str, Any]:
        """Give `data` and `layout` for Plotly; colours of text and grid are the page's."""
        data: list[dict[str, Any]] = []
        for trace in self.traces:
            if isinstance(trace, Line):
                data += _plotly_points(trace) if trace.markers else _plotly_line(trace)
            elif isinstance(trace, Bars):
                data.append(_plotly_bars(trace, self.categories))
            elif isinstance(trace, Dots):
                data += _plotly_dots(trace)
            else:
                data.append(_plotly_heat(trace))
        layout = {
            "xaxis": {"title": {"text": self.x_title}, "type": self.x_scale},
            "yaxis": {"title": {"text": self.y_title}, "type": self.y_scale},
            "barmode": "group",
            "showlegend": self.has_legend,
        }
        if self.x_scale == "log":
            layout["xaxis"]["dtick"] = "D2"  # type: ignore[index]  # ticks at 1, 2 and 5
        if self.categories:
            # Plotly would take names like 0.1 and 10000 for places on an axis of numbers.
            layout["xaxis"]["type"] = "category"  # type: ignore[index]
        if self.y_zero and self.y_scale == "linear":
            layout["yaxis"]["rangemode"] = "tozero"  # type: ignore[index]
        return {"data": data, "layout": layout}


def told_apart(figure: Figure) -> Figure:
    """Make lines that coincide visible: the first one broad, those above it narrower.

    The caption names them, because a reader cannot be expected to look for them.
    """
    lines = [t for t in figure.traces if isinstance(t, Line) and not t.markers]
    bounds = [bound for line in lines for bound in (line.y.min(), line.y.max()) if line.y.size]
    tolerance = 0.004 * (max(bounds) - min(bounds)) if bounds else 0.0
    groups: list[list[Line]] = []
    for line in lines:
        for group in groups:
            if np.array_equal(line.x, group[0].x) and np.allclose(
                line.y, group[0].y, rtol=0.0, atol=tolerance
            ):
                group.append(line)
                break
        else:
            groups.append([line])
    together = [group for group in groups if len(group) > 1]
    widths = {
        id(line): 2.0 + 3.0 * (len(group) - 1 - place)
        for group in together
        for place, line in enumerate(group)
    }
    said = [f"{_listed([line.name for line in group])} coincide." for group in together]
    traces = [
        replace(trace, width=widths[id(trace)])
        if isinstance(trace, Line) and id(trace) in widths
        else trace
        for trace in figure.traces
    ]
    return replace(figure, traces=traces, caption=" ".join(filter(None, [figure.caption, *said])))


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def rounded(values: ArrayLike, digits: int = 5) -> list[float | int | None]:
    """Keep some significant digits, which halves a report's size; NaN becomes null."""
    return [_round(float(value), digits) for value in np.asarray(values).ravel()]


def _round(value: float, digits: int) -> float | int | None:
    if not np.isfinite(value):
        return None
    short = float(f"{value:.{digits}g}")
    return int(short) if short == int(short) else short


def faint(color: str, opacity: float) -> str:
    """Give `#rrggbb` with an opacity, as CSS."""
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"


def _plotly_line(trace: Line) -> list[dict[str, Any]]:
    x = rounded(trace.x)
    shown: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines" if len(x) > 1 else "markers",
        "name": trace.name,
        "x": x,
        "y": rounded(trace.y),
        "line": {"color": trace.color, "width": trace.width, "dash": trace.dash},
        "marker": {"color": trace.color},
        "legendgroup": trace.name,
    }
    if trace.low is None or trace.high is None or len(x) < 2:
        return [shown]
    band = {
        "type": "scatter",
        "mode": "lines",
        "name": trace.name,
        "x": x + x[::-1],
        "y": rounded(trace.high) + rounded(trace.low)[::-1],
        "fill": "toself",
        "fillcolor": faint(trace.color, 0.16),
        "line": {"width": 0, "color": trace.color},
        "hoverinfo": "skip",
        "showlegend": False,
        "legendgroup": trace.name,
    }
    return [band, shown]


def _plotly_points(trace: Line) -> list[dict[str, Any]]:
    points: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": trace.name,
        "x": rounded(trace.x),
        "y": rounded(trace.y),
        "line": {"color": trace.color, "dash": trace.dash},
        "marker": {"color": trace.color, "size": 8},
    }
    return [points | _plotly_whiskers(trace.y, trace.low, trace.high)]


def _plotly_whiskers(
    values: Numbers, low: Numbers | None, high: Numbers | None, **style: Any
) -> dict[str, Any]:
    if low is None or high is None:
        return {}
    return {
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": rounded(high - values),
            "arrayminus": rounded(values - low),
            "thickness": 1.2,
            "width": 4,
            **style,
        }
    }


def _plotly_bars(trace: Bars, categories: Sequence[str]) -> dict[str, Any]:
    return {
        "type": "bar",
        "name": trace.name,
        "x": [_wrapped(name) for name in categories],
        "y": rounded(trace.values),
        "marker": {"color": trace.color},
    }


def _plotly_dots(trace: Dots) -> list[dict[str, Any]]:
    seeds = {
        "type": "scatter",
        "mode": "markers",
        "name": f"{trace.name}, seeds",
        "x": [_wrapped(trace.name)] * trace.values.size,
        "y": rounded(trace.values),
        "marker": {"color": faint(trace.color, 0.45), "size": 7},
    }
    mean: dict[str, Any] = {
        "type": "scatter",
        "mode": "markers",
        "name": f"{trace.name}, mean",
        "x": [_wrapped(trace.name)],
        "y": rounded([trace.mean]),
        "marker": {"color": trace.color, "size": 11, "symbol": "diamond"},
    }
    low, high = (None if bound is None else np.array([bound]) for bound in (trace.low, trace.high))
    mean |= _plotly_whiskers(np.array([trace.mean]), low, high, color=trace.color)
    return [seeds, mean]


def _wrapped(name: str) -> str:
    """Let a long name below an axis take several lines."""
    return name.replace(", ", ",<br>") if len(name) > 20 else name


def _plotly_heat(trace: Heat) -> dict[str, Any]:
    counts = trace.counts.astype(np.float64)
    logs = np.log10(counts, out=np.full(counts.shape, np.nan), where=counts > 0)
    top = float(np.log10(max(trace.largest, 2)))
    ticks = [10**power for power in range(int(top) + 1)]
    return {
        "type": "heatmap",
        "x": rounded((trace.x_edges[1:] + trace.x_edges[:-1]) / 2),
        "y": rounded((trace.y_edges[1:] + trace.y_edges[:-1]) / 2),
        "z": [rounded(row, 3) for row in logs],
        "customdata": [[int(count) for count in row] for row in trace.counts],
        "hovertemplate": "%{customdata} transitions<extra></extra>",
        "zmin": 0,
        "zmax": top,
        "colorscale": [[0, HEAT_COLORS[0]], [0.5, HEAT_COLORS[1]], [1, HEAT_COLORS[2]]],
        "colorbar": {
            "thickness": 10,
            "tickvals": [float(np.log10(tick)) for tick in ticks],
            "ticktext": [f"{tick:,}" for tick in ticks],
        },
    }


HEAT_COLORS = ("#a8d0f5", "#2166d1", "#0b2350")
"""From few transitions to many; both ends stand out from white and from black."""
