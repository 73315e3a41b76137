"""Figures as SVG files, without a browser: text stays text, and colours follow light and dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from frugalrl.bench.report.figure import HEAT_COLORS, Bars, Dots, Figure, Heat, Line, Numbers, faint

_WIDTH, _HEIGHT = 720, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 78, 26, 44, 58
_LEGEND_ROW = 20
_DASHES = {"solid": "", "dash": "7 4", "dot": "2 3", "dashdot": "7 3 2 3"}
_STYLE = """
svg { background: #ffffff; color: #1f2430; font: 13px system-ui, sans-serif; }
text { fill: currentColor; }
.title { font-size: 15px; font-weight: 600; }
.small { font-size: 10px; }
.grid { stroke: #dfe3ea; stroke-width: 1; }
.axis { stroke: #8a92a0; stroke-width: 1; }
@media (prefers-color-scheme: dark) {
  svg { background: #14171d; color: #e6e9ef; }
  .grid { stroke: #2b313b; }
}
"""


@dataclass(frozen=True)
class _Axis:
    """A range of values on a range of pixels."""

    low: float
    high: float
    begin: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """Give the pixel of a value."""
        if self.log:
            value, low, high = math.log10(value), math.log10(self.low), math.log10(self.high)
        else:
            low, high = self.low, self.high
        return self.begin + (value - low) / (high - low) * (self.end - self.begin)


def to_svg(figure: Figure) -> str:
    """Draw a figure."""
    legend = _legend(figure)
    top = _TOP + _LEGEND_ROW * (max((row for _, row, _ in legend), default=-1) + 1)
    y_axis = _y_axis(figure, top)
    x_axis = _x_axis(figure)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" height="{_HEIGHT}" role="img">',
        f"<title>{escape(figure.title)}</title><style>{_STYLE}</style>",
        _text(_LEFT, 24, figure.title, "start", "title"),
    ]
    parts += [_legend_entry(trace, row, x) for x, row, trace in legend]
    parts += _draw_axes(figure, x_axis, y_axis, top)
    for position, trace in enumerate(figure.traces):
        if isinstance(trace, Line):
            parts += _draw_line(trace, x_axis, y_axis)
        elif isinstance(trace, Bars):
            parts += _draw_bars(trace, figure, position, x_axis, y_axis)
        elif isinstance(trace, Dots):
            parts += _draw_dots(trace, figure, x_axis, y_axis)
        else:
            parts += _draw_heat(trace, x_axis, y_axis)
    parts.append("</svg>\n")
    return "\n".join(parts)


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Choose round numbers within a range, about `count` of them."""
    if not high > low:
        return [low]
    raw = (high - low) / count
    size = 10.0 ** math.floor(math.log10(raw))
    step = min((m * size for m in (1, 2, 2.5, 5, 10)), key=lambda s: abs(s - raw))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(n * step, 12) for n in range(first, last + 1)]


def tick_label(value: float) -> str:
    """Write a number briefly: 20000 is 20k, 1e6 is 1M."""
    for unit, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:g}{sign}".replace("-", "−")
    return f"{value:.4g}".replace("-", "−")


def _y_axis(figure: Figure, top: float) -> _Axis:
    values: list[Numbers] = []
    for trace in figure.traces:
        if isinstance(trace, Heat):
            low, high = float(trace.y_edges[0]), float(trace.y_edges[-1])
            return _Axis(low, high, _HEIGHT - _BOTTOM, top)
        values.append(trace.y if isinstance(trace, Line) else trace.values)
        values += [np.atleast_1d(bound) for bound in (trace.low, trace.high) if bound is not None]
    if any(isinstance(trace, Bars) for trace in figure.traces) or figure.y_zero:
        values.append(np.zeros(1))
    joined = np.concatenate(values) if values else np.zeros(1)
    joined = joined[np.isfinite(joined)]
    log = figure.y_scale == "log" and bool(np.any(joined > 0))
    if log:
        joined = joined[joined > 0]
    low, high = (float(joined.min()), float(joined.max())) if joined.size else (0.0, 1.0)
    if log:
        low, high = 10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high))
        return _Axis(low, high if high > low else low * 10, _HEIGHT - _BOTTOM, top, True)
    margin = 0.05 * (high - low) or 0.5 * abs(high) or 1.0
    low = low if low == 0.0 else low - margin
    return _Axis(low, high if high == 0.0 < -low else high + margin, _HEIGHT - _BOTTOM, top)


def _x_axis(figure: Figure) -> _Axis:
    if figure.categories:
        return _Axis(0.0, float(len(figure.categories)), _LEFT, _WIDTH - _RIGHT)
    low, high = math.inf, -math.inf
    for trace in figure.traces:
        if isinstance(trace, Bars | Dots):
            continue
        x = trace.x_edges if isinstance(trace, Heat) else trace.x
        if x.size:
            low, high = min(low, float(x.min())), max(high, float(x.max()))
    if not high > low:
        low, high = (low - 0.5, low + 0.5) if math.isfinite(low) else (0.0, 1.0)
    return _Axis(low, high, _LEFT, _WIDTH - _RIGHT)


def _draw_axes(figure: Figure, x_axis: _Axis, y_axis: _Axis, top: float) -> list[str]:
    bottom = _HEIGHT - _BOTTOM
    parts = []
    for tick in _y_ticks(y_axis):
        y = y_axis.at(tick)
        parts.append(_segment(_LEFT, y, _WIDTH - _RIGHT, y, "grid"))
        parts.append(_text(_LEFT - 8, y + 4, tick_label(tick), "end"))
    if figure.categories:
        width = (_WIDTH - _LEFT - _RIGHT) / len(figure.categories)
        crowded = max(map(len, figure.categories)) * 7.6 > width
        room = int(width / (5.6 if crowded else 7.6))
        for index, name in enumerate(figure.categories):
            shown = name if len(name) <= room else name[: max(room - 1, 1)] + "…"
            size = "small" if crowded else ""
            parts.append(_text(x_axis.at(index + 0.5), bottom + 20, shown, "middle", size))
    else:
        for tick in nice_ticks(x_axis.low, x_axis.high, 6):
            parts.append(_text(x_axis.at(tick), bottom + 20, tick_label(tick), "middle"))
    parts.append(_segment(_LEFT, bottom, _WIDTH - _RIGHT, bottom, "axis"))
    parts.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 14, figure.x_title, "middle"))
    middle = (top + bottom) / 2
    parts.append(
        f'<text x="18" y="{middle:.1f}" text-anchor="middle" '
        f'transform="rotate(-90 18 {middle:.1f})">{escape(figure.y_title)}</text>'
    )
    return parts


def _y_ticks(axis: _Axis) -> list[float]:
    if not axis.log:
        return nice_ticks(axis.low, axis.high)
    first, last = round(math.log10(axis.low)), round(math.log10(axis.high))
    return [10.0**power for power in range(first, last + 1)]


def _draw_line(trace: Line, x_axis: _Axis, y_axis: _Axis) -> list[str]:
    parts = []
    if trace.low is not None and trace.high is not None and trace.x.size > 1:
        outline = [
            *_points(trace.x, trace.high, x_axis, y_axis),
            *reversed(_points(trace.x, trace.low, x_axis, y_axis)),
        ]
        fill = faint(trace.color, 0.16)
        parts.append(f'<polygon points="{_joined(outline)}" fill="{fill}" stroke="none"/>')
    points = _points(trace.x, trace.y, x_axis, y_axis)
    if not points:
        return parts
    if len(points) == 1:
        x, y = points[0]
        return [*parts, f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{trace.color}"/>']
    dashes = f' stroke-dasharray="{_DASHES[trace.dash]}"' if _DASHES.get(trace.dash) else ""
    parts.append(
        f'<polyline points="{_joined(points)}" fill="none" stroke="{trace.color}" '
        f'stroke-width="2"{dashes}/>'
    )
    return parts


def _draw_bars(
    trace: Bars, figure: Figure, position: int, x_axis: _Axis, y_axis: _Axis
) -> list[str]:
    share = 0.8 / sum(isinstance(other, Bars) for other in figure.traces)
    zero = y_axis.at(y_axis.low if y_axis.log else max(y_axis.low, min(0.0, y_axis.high)))
    parts = []
    for index, value in enumerate(trace.values):
        if not np.isfinite(value) or (y_axis.log and value <= 0):
            continue
        left = x_axis.at(index + 0.1 + share * position)
        right = x_axis.at(index + 0.1 + share * (position + 0.92))
        y = y_axis.at(float(value))
        parts.append(
            f'<rect x="{left:.1f}" y="{min(y, zero):.1f}" width="{right - left:.1f}" '
            f'height="{abs(zero - y):.1f}" fill="{trace.color}"/>'
        )
        if trace.low is not None and trace.high is not None and np.isfinite(trace.low[index]):
            middle = (left + right) / 2
            low, high = y_axis.at(float(trace.low[index])), y_axis.at(float(trace.high[index]))
            parts.append(_segment(middle, low, middle, high, "axis"))
    return parts


def _draw_dots(trace: Dots, figure: Figure, x_axis: _Axis, y_axis: _Axis) -> list[str]:
    x = x_axis.at(list(figure.categories).index(trace.category) + 0.5)
    parts = [
        f'<circle cx="{x - 9:.1f}" cy="{y_axis.at(float(value)):.1f}" r="4" '
        f'fill="{faint(trace.color, 0.45)}"/>'
        for value in trace.values
        if np.isfinite(value)
    ]
    if trace.low is not None and trace.high is not None:
        parts.append(
            f'<line x1="{x + 9:.1f}" y1="{y_axis.at(trace.low):.1f}" x2="{x + 9:.1f}" '
            f'y2="{y_axis.at(trace.high):.1f}" stroke="{trace.color}" stroke-width="2"/>'
        )
    if np.isfinite(trace.mean):
        y = y_axis.at(trace.mean)
        parts.append(f'<circle cx="{x + 9:.1f}" cy="{y:.1f}" r="5.5" fill="{trace.color}"/>')
    return parts


def _draw_heat(trace: Heat, x_axis: _Axis, y_axis: _Axis) -> list[str]:
    top = math.log10(max(trace.largest, 2))
    parts = []
    for row, column in zip(*np.nonzero(trace.counts), strict=True):
        left = x_axis.at(float(trace.x_edges[column]))
        right = x_axis.at(float(trace.x_edges[column + 1]))
        low = y_axis.at(float(trace.y_edges[row]))
        high = y_axis.at(float(trace.y_edges[row + 1]))
        share = math.log10(float(trace.counts[row, column])) / top
        parts.append(
            f'<rect x="{left:.1f}" y="{high:.1f}" width="{right - left + 0.3:.1f}" '
            f'height="{low - high + 0.3:.1f}" fill="{_heat_color(share)}"/>'
        )
    return parts


def _heat_color(share: float) -> str:
    stops = [[int(color[i : i + 2], 16) for i in (1, 3, 5)] for color in HEAT_COLORS]
    place = min(max(share, 0.0), 1.0) * (len(stops) - 1)
    index = min(int(place), len(stops) - 2)
    mix = place - index
    pairs = zip(stops[index], stops[index + 1], strict=True)
    return "#" + "".join(f"{round(a + (b - a) * mix):02x}" for a, b in pairs)


def _legend(figure: Figure) -> list[tuple[float, int, Line | Bars]]:
    """Place the legend's entries: x, row and trace of each."""
    named = [trace for trace in figure.traces if isinstance(trace, Line | Bars)]
    if len(named) < 2:
        return []
    placed: list[tuple[float, int, Line | Bars]] = []
    x, row = float(_LEFT), 0
    for trace in named:
        width = 46 + 7.4 * len(trace.name)
        if x + width > _WIDTH - _RIGHT and x > _LEFT:
            x, row = float(_LEFT), row + 1
        placed.append((x, row, trace))
        x += width
    return placed


def _legend_entry(trace: Line | Bars, row: int, x: float) -> str:
    y = _TOP + _LEGEND_ROW * row - 2
    dash = _DASHES.get(trace.dash, "") if isinstance(trace, Line) else ""
    width = 3 if isinstance(trace, Line) else 9
    return (
        f'<line x1="{x:.0f}" y1="{y}" x2="{x + 22:.0f}" y2="{y}" stroke="{trace.color}" '
        f'stroke-width="{width}" stroke-dasharray="{dash}"/>'
        + _text(x + 27, y + 4, trace.name, "start")
    )


def _points(x: Numbers, y: Numbers, x_axis: _Axis, y_axis: _Axis) -> list[tuple[float, float]]:
    floor = y_axis.low if y_axis.log else -math.inf
    return [
        (x_axis.at(float(a)), y_axis.at(max(float(b), floor)))
        for a, b in zip(x, y, strict=True)
        if np.isfinite(a) and np.isfinite(b)
    ]


def _joined(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _segment(x1: float, y1: float, x2: float, y2: float, css: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{css}"/>'


def _text(x: float, y: float, text: str, anchor: str, css: str = "") -> str:
    attribute = f' class="{css}"' if css else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{attribute}>{escape(text)}</text>'
