"""Line charts in panels, as in the paper's figures: written as Plotly's HTML, and as SVG without Plotly."""

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from surelock.files import write_text
from surelock.values import frozen

_COLOURS = ("#1668c7", "#a3360c", "#0f766e", "#6b7280", "#7c3aed", "#b45309")
# lengths in pixels
_WIDTH = 300  # the horizontal axis of a panel
_HEIGHT = 220  # the vertical axis of a panel
_LEFT = 60  # the margin at the left of a panel
_TOP = 40  # the margin above the panels
_GAP = 70  # the space between two rows of panels
_KEY = 24  # the height of the legend
_TICKS = 4  # the approximate number of ticks of an axis


@frozen
class Line:
    """A line of a panel.

    name: the name of the line in the legend. Lines of one name have one colour in all panels.
    x, y: [points], the coordinates.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]


@frozen
class Panel:
    """A pair of axes with lines.

    title: the title above the panel. x, y: the titles of the axes. The vertical axis begins at 0.
    """

    title: str
    x: str
    y: str
    lines: Sequence[Line]


def write_charts(directory: Path, name: str, panels: Sequence[Panel], columns: int) -> None:
    """Write the charts as NAME.html and NAME.svg. columns: the number of panels in a row. Raises OSError."""
    html = plotted(panels, columns).to_html(include_plotlyjs=True)
    write_text(directory / f"{name}.html", html)
    write_text(directory / f"{name}.svg", drawn(panels, columns))


def plotted(panels: Sequence[Panel], columns: int) -> go.Figure:
    """Return the charts as a figure of Plotly."""
    rows = -(-len(panels) // columns)
    figure = make_subplots(rows, columns, subplot_titles=[panel.title for panel in panels])
    names = _names(panels)
    for number, panel in enumerate(panels):
        row = number // columns + 1
        column = number % columns + 1
        for line in panel.lines:
            colour = _COLOURS[names.index(line.name) % len(_COLOURS)]
            trace = go.Scatter(
                x=[*line.x],
                y=[*line.y],
                name=line.name,
                legendgroup=line.name,
                line={"color": colour},
            )
            trace.showlegend = number == 0
            figure.add_trace(trace, row, column)
        figure.update_xaxes(title=panel.x, row=row, col=column)
        figure.update_yaxes(title=panel.y, rangemode="tozero", row=row, col=column)
    return figure.update_layout(height=_TOP + rows * (_HEIGHT + _GAP), template="plotly_white")


def drawn(panels: Sequence[Panel], columns: int) -> str:
    """Return the charts as SVG."""
    rows = -(-len(panels) // columns)
    names = _names(panels)
    width = columns * (_LEFT + _WIDTH) + _LEFT // 2
    height = _TOP + rows * (_HEIGHT + _GAP) + _KEY
    parts = [f'<rect width="{width}" height="{height}" fill="white"/>']
    for number, panel in enumerate(panels):
        left = _LEFT + number % columns * (_LEFT + _WIDTH)
        top = _TOP + number // columns * (_HEIGHT + _GAP)
        parts.append(f'<g transform="translate({left} {top})">{_panel(panel, names)}</g>')
    apart = (width - _LEFT) // len(names)
    for number, name in enumerate(names):
        x = _LEFT + apart * number
        colour = _COLOURS[number % len(_COLOURS)]
        parts.append(f'<path d="M{x} {height - _KEY / 2}h20" stroke="{colour}" stroke-width="2"/>')
        parts.append(_text(x + 26, height - _KEY / 2 + 4, name, "start"))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return (
        f'{head} font-family="sans-serif" font-size="12" fill="none">\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _panel(panel: Panel, names: Sequence[str]) -> str:
    """Return a panel as SVG elements. names: the names of all lines, which decide their colours."""
    across = _Scale([x for line in panel.lines for x in line.x], _WIDTH)
    upward = _Scale([0, *(y for line in panel.lines for y in line.y)], _HEIGHT)
    parts = [f'<path d="M0 0V{_HEIGHT}H{_WIDTH}" stroke="#6b7280"/>']
    for value in across.ticks():
        parts.append(_text(across.at(value), _HEIGHT + 16, f"{value:.3g}", "middle"))
    for value in upward.ticks():
        parts.append(_text(-6, _HEIGHT - upward.at(value) + 4, f"{value:.3g}", "end"))
    for line in panel.lines:
        points = (
            f"{across.at(x):.1f} {_HEIGHT - upward.at(y):.1f}"
            for x, y in zip(line.x, line.y, strict=True)
        )
        colour = _COLOURS[names.index(line.name) % len(_COLOURS)]
        parts.append(f'<path d="M{"L".join(points)}" stroke="{colour}" stroke-width="1.5"/>')
    parts.append(_text(_WIDTH / 2, -12, panel.title, "middle"))
    parts.append(_text(_WIDTH / 2, _HEIGHT + 34, panel.x, "middle"))
    turned = f'transform="rotate(-90 -44 {_HEIGHT / 2})"'
    parts.append(_text(-44, _HEIGHT / 2, panel.y, "middle", turned))
    return "".join(parts)


class _Scale:
    """Maps values to pixels along an axis."""

    def __init__(self, values: Sequence[float], pixels: int) -> None:
        self._low = min(values)
        high = max(values)
        self._span = (high - self._low) or 1.0
        self._pixels = pixels

    def at(self, value: float) -> float:
        """Return the distance of a value from the begin of the axis, in pixels."""
        return (value - self._low) / self._span * self._pixels

    def ticks(self) -> list[float]:
        """Return the values of about `_TICKS` ticks. They are multiples of 1, 2 or 5 times a power of ten."""
        rough = self._span / _TICKS
        power = 10.0 ** math.floor(math.log10(rough))
        step = power * min(factor for factor in (1, 2, 5, 10) if factor * power >= rough)
        first = math.ceil(self._low / step)
        last = math.floor((self._low + self._span) / step)
        return [step * number for number in range(first, last + 1)]


def _names(panels: Sequence[Panel]) -> list[str]:
    """Return the names of all lines, without repetitions."""
    return list(dict.fromkeys(line.name for panel in panels for line in panel.lines))


def _text(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#1f2937" {more}>{escape(text)}</text>'
