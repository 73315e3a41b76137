"""Figures as data: described once, drawn by Plotly in the report and by Matplotlib in files.

The same figure always gives the same files: no date, and ids that follow from the content.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from frugalrl.bench.statistics import Band, Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

Numbers = NDArray[np.float64]
Parts = list[dict[str, Any]]
"""Of which Plotly makes a trace."""
FORMATS = {"svg": "Date", "pdf": "CreationDate"}
"""By a file's suffix: the date in it that would make the same figure differ."""
_HEAT_COLORS = ("#a8d0f5", "#2166d1", "#0b2350")  # both ends stand out from white and from black
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

    def _plotly(self, categories: Sequence[str]) -> Parts:
        x = rounded(self.x)
        common = {"type": "scatter", "name": self.name, "legendgroup": self.name}
        shown: dict[str, Any] = common | {
            "mode": "lines+markers" if self.markers else "lines" if len(x) > 1 else "markers",
            "x": x,
            "y": rounded(self.y),
            "line": {"color": self.color, "width": self.width, "dash": self.dash},
            "marker": {"color": self.color, "size": 8},
        }
        if self.markers:
            return [shown | _plotly_whiskers(self.y, self.band)]
        if self.band is None:
            return [shown]
        low, high = map(rounded, self.band)
        band = common | {
            "mode": "lines",
            "x": x + x[::-1],
            "y": high + low[::-1],
            "fill": "toself",
            "fillcolor": _faint(self.color, 0.16),
            "line": {"width": 0, "color": self.color},
            "hoverinfo": "skip",
            "showlegend": False,
        }
        return [band, shown]

    def _draw(self, axes: Axes, place: int, count: int) -> None:
        style: dict[str, Any] = {"ls": _DASHES[self.dash], "color": self.color, "label": self.name}
        if self.markers:
            bars = _whiskers(self.y, self.band)
            axes.errorbar(self.x, self.y, yerr=bars, marker="o", lw=1.5, capsize=3, **style)
            return
        if self.band is not None:
            axes.fill_between(self.x, *self.band, color=self.color, alpha=0.16, lw=0)
        axes.plot(self.x, self.y, marker="o" if self.x.size == 1 else "", lw=self.width, **style)


@dataclass(frozen=True)
class Bars:
    """A bar for each of the figure's categories."""

    name: str
    y: Numbers
    color: str

    def _plotly(self, categories: Sequence[str]) -> Parts:
        x, y = [_wrapped(name) for name in categories], rounded(self.y)
        return [{"type": "bar", "name": self.name, "x": x, "y": y, "marker": {"color": self.color}}]

    def _draw(self, axes: Axes, place: int, count: int) -> None:
        width = 0.8 / count
        left = np.arange(self.y.size) + width * (place - (count - 1) / 2)
        axes.bar(left, self.y, 0.92 * width, color=self.color, label=self.name)


@dataclass(frozen=True)
class Dots:
    """One category's values as dots, beside their mean and its interval."""

    name: str
    """The category."""
    y: Numbers
    mean: Estimate
    color: str

    def _plotly(self, categories: Sequence[str]) -> Parts:
        x, mean = [_wrapped(self.name)], [self.mean.value]
        dots = {
            "type": "scatter",
            "mode": "markers",
            "name": f"{self.name}, seeds",
            "x": x * self.y.size,
            "y": rounded(self.y),
            "marker": {"color": _faint(self.color, 0.45), "size": 7},
        }
        mark = {"color": self.color, "size": 11, "symbol": "diamond"}
        large = {"name": f"{self.name}, mean", "x": x, "y": rounded(mean), "marker": mark}
        return [dots, dots | large | _plotly_whiskers(mean, self.mean.interval)]

    def _draw(self, axes: Axes, place: int, count: int) -> None:
        beside = np.full(self.y.size, place - 0.06)
        axes.plot(beside, self.y, "o", color=self.color, alpha=0.45)
        mean = [self.mean.value]
        bars = _whiskers(mean, self.mean.interval)
        axes.errorbar([place + 0.06], mean, yerr=bars, fmt="D", color=self.color, capsize=4)


@dataclass(frozen=True)
class Heat:
    """Counts on a regular grid, drawn on a logarithmic colour scale."""

    counts: NDArray[np.int64]
    """Shape (rows along y, columns along x)."""
    x_edges: Numbers
    y_edges: Numbers
    largest: int
    """Count drawn in the darkest colour, so that figures side by side can share a scale."""

    def _plotly(self, categories: Sequence[str]) -> Parts:
        logs = np.log10(np.where(self.counts > 0, self.counts, np.nan))
        top = float(np.log10(max(self.largest, 2)))
        powers = range(int(top) + 1)
        heat = {
            "type": "heatmap",
            "x": rounded((self.x_edges[1:] + self.x_edges[:-1]) / 2),
            "y": rounded((self.y_edges[1:] + self.y_edges[:-1]) / 2),
            "z": [rounded(row, 3) for row in logs],
            "customdata": self.counts.tolist(),
            "hovertemplate": "%{customdata} transitions<extra></extra>",
            "zmin": 0,
            "zmax": top,
            "colorscale": [[place / 2, color] for place, color in enumerate(_HEAT_COLORS)],
            "colorbar": {
                "thickness": 10,
                "tickvals": list(powers),
                "ticktext": [f"{10**power:,}" for power in powers],
            },
        }
        return [heat]

    def _draw(self, axes: Axes, place: int, count: int) -> None:
        from matplotlib.colors import LinearSegmentedColormap, LogNorm

        colors = LinearSegmentedColormap.from_list("counts", _HEAT_COLORS)
        shown, norm = np.ma.masked_equal(self.counts, 0), LogNorm(1, max(self.largest, 2))
        mesh = axes.pcolormesh(self.x_edges, self.y_edges, shown, cmap=colors, norm=norm)
        axes.grid(visible=False)
        assert axes.figure is not None
        bar = axes.figure.colorbar(mesh, ax=axes, label="transitions")
        _write_ticks(bar.ax.yaxis, "log")


@dataclass(frozen=True)
class Figure:
    """One set of axes."""

    id: str
    title: str
    x_title: str
    y_title: str
    traces: Sequence[Line | Bars | Dots | Heat]
    caption: str = ""
    group: str = ""
    """Section of the report."""
    categories: Sequence[str] = ()
    """Names below the bars."""
    x_scale: str = "linear"
    """`linear` or `log`, as `y_scale`."""
    y_scale: str = "linear"
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
        if self.y_zero:
            y_axis["rangemode"] = "tozero"
        layout = {"barmode": "group", "showlegend": self.has_legend}
        return {
            "data": [part for trace in self.traces for part in trace._plotly(self.categories)],
            "layout": {"xaxis": x_axis, "yaxis": y_axis, **layout},
        }


def render(figure: Figure) -> dict[str, bytes]:
    """Draw a figure; gives the content of a file for each format, by its suffix."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Canvas

    drawn = {}
    with rc_context(_STYLE):
        canvas = Canvas(figsize=(7.2, 4.2), layout="constrained")
        axes = canvas.add_subplot()
        for place, trace in enumerate(figure.traces):
            trace._draw(axes, place, len(figure.traces))
        axes.set_title(figure.title, loc="left", fontsize=11, wrap=True)
        axes.set(xlabel=figure.x_title, ylabel=figure.y_title)
        axes.set(xscale=figure.x_scale, yscale=figure.y_scale)
        if figure.y_zero:
            axes.set_ylim(bottom=0)
        _write_ticks(axes.xaxis, figure.x_scale)
        _write_ticks(axes.yaxis, figure.y_scale)
        if figure.categories:
            crowded = sum(len(name) + 2 for name in figure.categories) > 70
            places = range(len(figure.categories))
            look = {"rotation": 20, "ha": "right", "fontsize": 8} if crowded else {"fontsize": 10}
            axes.set_xticks(places, figure.categories, **look)
        if figure.has_legend:
            canvas.legend(fontsize=8, ncols=3, loc="outside lower center")
        for form, date in FORMATS.items():
            file = io.BytesIO()
            canvas.savefig(file, format=form, metadata={"Title": figure.title, date: None})
            drawn[form] = file.getvalue()
    return drawn


def mark_coinciding(figure: Figure) -> Figure:
    """Make lines that coincide visible: the first one broad, those above it narrower.

    The caption names them, because a reader cannot be expected to look for them.
    """
    lines = [t for t in figure.traces if isinstance(t, Line) and not t.markers and t.y.size]
    values = np.concatenate([np.empty(0), *(line.y for line in lines)])
    finite = values[np.isfinite(values)]
    tolerance = 0.004 * np.ptp(finite) if finite.size else 0.0

    def coincide(one: Line, other: Line) -> bool:
        close = np.array_equal(one.x, other.x)
        return close and np.allclose(one.y, other.y, rtol=0.0, atol=tolerance, equal_nan=True)

    groups: dict[int, list[Line]] = {}
    for line in lines:
        first = next(other for other in lines if coincide(line, other))
        groups.setdefault(id(first), []).append(line)
    caption, drawn = figure.caption, {}
    for group in groups.values():
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


def tick_label(value: float) -> str:
    """Write a number briefly: 20000 is 20k, 1e6 is 1M."""
    for unit, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:g}{sign}".replace("-", "−")
    return f"{value:.4g}".replace("-", "−")


def _write_ticks(axis: Axis, scale: str) -> None:
    """Write numbers as plain text: Matplotlib's own powers of ten would be mathematics."""
    from matplotlib.ticker import LogLocator, NullLocator

    if scale == "log":
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: tick_label(value))


def _whiskers(values: ArrayLike, band: Any) -> Numbers | None:
    """Give the distances of an interval's ends from values, below and above; None without one."""
    return None if band is None else np.abs(np.asarray(band).reshape(2, -1) - values)


def _plotly_whiskers(values: ArrayLike, band: Any) -> dict[str, Any]:
    ends = _whiskers(values, band)
    if ends is None:
        return {}
    below, above = map(rounded, ends)
    bars = {"type": "data", "symmetric": False, "array": above, "arrayminus": below}
    return {"error_y": {**bars, "thickness": 1.2, "width": 4}}


def _faint(color: str, opacity: float) -> str:
    """Give `#rrggbb` with an opacity, as CSS."""
    red, green, blue = bytes.fromhex(color[1:])
    return f"rgba({red},{green},{blue},{opacity})"


def _wrapped(name: str) -> str:
    """Let a long name below an axis take several lines."""
    return name.replace(", ", ",<br>") if len(name) > 20 else name
