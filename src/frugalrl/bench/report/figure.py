"""Figures as data: described once, drawn by Plotly in the report and by Matplotlib in files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from frugalrl.bench.statistics import Band, Estimate

Numbers = NDArray[np.float64]
HEAT_COLORS = ("#a8d0f5", "#2166d1", "#0b2350")
"""From few transitions to many; both ends stand out from white and from black."""


@dataclass(frozen=True)
class Line:
    """A curve with a band, or points joined by a line with whiskers, where there are intervals."""

    name: str
    x: Numbers
    y: Numbers
    color: str
    dash: str = "solid"
    """`solid`, `dash`, `dot` or `dashdot`."""
    band: Band | None = None
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
    mean: Estimate
    color: str


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
    group: str = ""
    """Section of the report."""
    categories: Sequence[str] = ()
    """Names below the bars."""
    x_scale: Literal["linear", "log"] = "linear"
    y_scale: Literal["linear", "log"] = "linear"
    y_zero: bool = False
    """Let the y axis begin at zero."""

    @property
    def has_legend(self) -> bool:
        """Whether there is anything to name: a single curve too is some method's."""
        return any(isinstance(trace, Line | Bars) and trace.name for trace in self.traces)

    def to_plotly(self) -> dict[str, Any]:
        """Give `data` and `layout` for Plotly; colours of text and grid are the page's."""
        ticks = {"dtick": "D2", "tickformat": "~g"}  # at 1, 2 and 5; 0.5 is not written as 5
        x_axis, y_axis = (
            {"title": {"text": title}, "type": scale} | (ticks if scale == "log" else {})
            for title, scale in ((self.x_title, self.x_scale), (self.y_title, self.y_scale))
        )
        if self.categories:
            # Plotly would take names like 0.1 and 10000 for places on an axis of numbers.
            x_axis["type"] = "category"
        if self.y_zero and self.y_scale == "linear":
            y_axis["rangemode"] = "tozero"
        layout = {"barmode": "group", "showlegend": self.has_legend}
        return {
            "data": [part for trace in self.traces for part in _plotly(trace, self.categories)],
            "layout": {"xaxis": x_axis, "yaxis": y_axis, **layout},
        }


def told_apart(figure: Figure) -> Figure:
    """Make lines that coincide visible: the first one broad, those above it narrower.

    The caption names them, because a reader cannot be expected to look for them.
    """
    lines = [t for t in figure.traces if isinstance(t, Line) and not t.markers and t.y.size]
    tolerance = 0.004 * np.ptp(np.concatenate([line.y for line in lines])) if lines else 0.0
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
    caption, drawn = figure.caption, {}
    for group in groups:
        *names, last = [line.name for line in group]
        if names:
            caption += f" {', '.join(names)} and {last} coincide."
        for narrower, line in enumerate(reversed(group)):
            drawn[id(line)] = replace(line, width=2.0 + 3.0 * narrower)
    traces = [drawn.get(id(trace), trace) for trace in figure.traces]
    return replace(figure, traces=traces, caption=caption.strip())


def rounded(values: ArrayLike, digits: int = 5) -> list[float | int | None]:
    """Keep some significant digits, which halves a report's size; NaN becomes null."""
    short = [float(f"{value:.{digits}g}") for value in np.asarray(values).ravel()]
    return [
        None if not np.isfinite(value) else int(value) if value.is_integer() else value
        for value in short
    ]


def faint(color: str, opacity: float) -> str:
    """Give `#rrggbb` with an opacity, as CSS."""
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"


def _plotly(trace: Trace, categories: Sequence[str]) -> list[dict[str, Any]]:
    """Give the parts of which Plotly makes a trace."""
    if isinstance(trace, Line):
        return _plotly_line(trace)
    if isinstance(trace, Dots):
        return _plotly_dots(trace)
    if isinstance(trace, Heat):
        return [_plotly_heat(trace)]
    x, y = [_wrapped(name) for name in categories], rounded(trace.values)
    return [{"type": "bar", "name": trace.name, "x": x, "y": y, "marker": {"color": trace.color}}]


def _plotly_line(trace: Line) -> list[dict[str, Any]]:
    x = rounded(trace.x)
    common = {"type": "scatter", "name": trace.name, "legendgroup": trace.name}
    shown: dict[str, Any] = common | {
        "mode": "lines+markers" if trace.markers else "lines" if len(x) > 1 else "markers",
        "x": x,
        "y": rounded(trace.y),
        "line": {"color": trace.color, "width": trace.width, "dash": trace.dash},
        "marker": {"color": trace.color, "size": 8},
    }
    if trace.band is None:
        return [shown]
    if trace.markers:
        return [shown | _plotly_whiskers(trace.y, trace.band)]
    low, high = map(rounded, trace.band)
    band = common | {
        "mode": "lines",
        "x": x + x[::-1],
        "y": high + low[::-1],
        "fill": "toself",
        "fillcolor": faint(trace.color, 0.16),
        "line": {"width": 0, "color": trace.color},
        "hoverinfo": "skip",
        "showlegend": False,
    }
    return [band, shown]


def whiskers(values: ArrayLike, band: Any) -> Numbers:
    """Give the distances of an interval's ends from values: those below, those above."""
    return np.abs(np.asarray(band).reshape(2, -1) - values)


def _plotly_whiskers(values: ArrayLike, band: Any) -> dict[str, Any]:
    below, above = map(rounded, whiskers(values, band))
    ends = {"type": "data", "symmetric": False, "array": above, "arrayminus": below}
    return {"error_y": {**ends, "thickness": 1.2, "width": 4}}


def _plotly_dots(trace: Dots) -> list[dict[str, Any]]:
    place = _wrapped(trace.name)
    seeds, mean = (
        {
            "type": "scatter",
            "mode": "markers",
            "name": f"{trace.name}, {what}",
            "x": [place] * len(values),
            "y": rounded(values),
            "marker": marker,
        }
        for what, values, marker in (
            ("seeds", trace.values, {"color": faint(trace.color, 0.45), "size": 7}),
            ("mean", [trace.mean.value], {"color": trace.color, "size": 11, "symbol": "diamond"}),
        )
    )
    if trace.mean.interval is not None:
        mean |= _plotly_whiskers([trace.mean.value], trace.mean.interval)
    return [seeds, mean]


def _wrapped(name: str) -> str:
    """Let a long name below an axis take several lines."""
    return name.replace(", ", ",<br>") if len(name) > 20 else name


def _plotly_heat(trace: Heat) -> dict[str, Any]:
    counts = trace.counts.astype(np.float64)
    logs = np.log10(counts, out=np.full(counts.shape, np.nan), where=counts > 0)
    top = float(np.log10(max(trace.largest, 2)))
    powers = range(int(top) + 1)
    return {
        "type": "heatmap",
        "x": rounded((trace.x_edges[1:] + trace.x_edges[:-1]) / 2),
        "y": rounded((trace.y_edges[1:] + trace.y_edges[:-1]) / 2),
        "z": [rounded(row, 3) for row in logs],
        "customdata": trace.counts.tolist(),
        "hovertemplate": "%{customdata} transitions<extra></extra>",
        "zmin": 0,
        "zmax": top,
        "colorscale": [[place / 2, color] for place, color in enumerate(HEAT_COLORS)],
        "colorbar": {
            "thickness": 10,
            "tickvals": list(powers),
            "ticktext": [f"{10**power:,}" for power in powers],
        },
    }
