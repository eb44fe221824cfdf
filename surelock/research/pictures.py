"""`python -m surelock.research.pictures [FOLDER]`: the pictures of the documents, drawn from the committed tables.

SVG files without scripts, light or dark as the viewer prefers.
"""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pandas as pd

from surelock.places import ASSETS
from surelock.research.frontier import AGE, ALIKE, DUAL, EVERY, PAPER, RESTING, TODAY
from surelock.research.runner import write_text
from surelock.trace.lettering import FONT
from surelock.trace.palette import palette

PICTURES = ASSETS / "pictures"
_COLOURS = ("panel", "ink", "muted", "line", "lane-1", "lane-2", "lane-3", "lane-4", "differs")
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM, _NAMES = 460, 300, 64, 74, 52, 230


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a chart. points: (x, y, half the length of y's error bar). mark: with a dot at each point. labels: what
    stands beside each of the points, on its left where `left`.
    """

    name: str
    colour: str
    points: Sequence[tuple[float, float, float]]
    mark: bool = True
    labels: Sequence[str] = ()
    left: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """Both axes are logarithmic. ticks: of x and of y. legend: where its last line stands; beside the chart if wide."""

    title: str
    x: str
    y: str
    ticks: tuple[Sequence[float], Sequence[float]]
    lines: Sequence[Line]
    legend: tuple[int, int] = (10, _HEIGHT - 14)


def drawn(charts: Sequence[Chart], title: str, told: str) -> str:
    """The text of an SVG file with charts side by side. told: what a reader who does not see it is told."""
    aside = _NAMES if charts[-1].legend[0] > _WIDTH else 0
    width, height = _LEFT + len(charts) * (_WIDTH + _LEFT) + aside, _TOP + _HEIGHT + _BOTTOM
    root = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "viewBox": f"0 0 {width} {height}"})
    root.attrib |= {"width": str(width), "height": str(height), "font-family": FONT, "role": "img"}
    _add(root, "title", title)
    _add(root, "desc", told)
    _add(root, "style", _style())
    _add(root, "rect", class_="panel", width=width, height=height, fill="currentColor")
    for number, chart in enumerate(charts):
        place = _add(root, "g", transform=f"translate({_LEFT + number * (_WIDTH + _LEFT)} {_TOP})")
        _chart(place, chart)
    return ET.tostring(root, encoding="unicode") + "\n"


def _style() -> str:
    def rules(colours: dict[str, str]) -> str:
        return "".join(f".{name}{{color:{colours[name]}}}" for name in _COLOURS)

    return f"{rules(palette())}@media (prefers-color-scheme:dark){{{rules(palette(dark=True))}}}"


def _add(parent: ET.Element, tag: str, text: str | None = None, **attributes: Any) -> ET.Element:
    """A child; `class_` and `stroke_width` stand for class and stroke-width."""
    names = {name.rstrip("_").replace("_", "-"): _plain(value) for name, value in attributes.items()}
    child = ET.SubElement(parent, tag, names)
    child.text = text
    return child


def _plain(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _write(parent: ET.Element, text: str, x: float, y: float, size: int = 13, **more: Any) -> None:
    _add(parent, "text", text, x=x, y=y, font_size=size, fill="currentColor", **{"class_": "ink"} | more)


def _chart(place: ET.Element, chart: Chart) -> None:
    at = [_scale(ticks, length) for ticks, length in zip(chart.ticks, (_WIDTH, _HEIGHT), strict=True)]

    def x(value: float) -> float:
        return at[0](value)

    def y(value: float) -> float:
        return _HEIGHT - at[1](value)

    _write(place, chart.title, -_LEFT + 20, -46, 16, font_weight="600")
    _write(place, chart.y, -_LEFT + 20, -18, class_="muted")
    _write(place, chart.x, _WIDTH / 2, _HEIGHT + 40, class_="muted", text_anchor="middle")
    for tick in chart.ticks[0]:
        _add(place, "path", d=f"M{x(tick):.1f} 0V{_HEIGHT}", stroke="currentColor", class_="line")
        _write(place, _tick(tick), x(tick), _HEIGHT + 18, 12, text_anchor="middle")
    for tick in chart.ticks[1]:
        _add(place, "path", d=f"M0 {y(tick):.1f}H{_WIDTH}", stroke="currentColor", class_="line")
        _write(place, _tick(tick), -8, y(tick) + 4, 12, text_anchor="end")
    for line in chart.lines:
        points = [(x(a), b, se) for a, b, se in line.points]
        group = _add(place, "g", class_=line.colour, stroke="currentColor", fill="none", stroke_width=2)
        if len(points) > 1:
            path = "M" + "L".join(f"{a:.1f} {y(b):.1f}" for a, b, _ in points)
            _add(group, "path", d=path, **{} if line.mark else {"stroke_dasharray": "5 5"})
        for a, b, se in points if line.mark else ():
            low = max(b - se, chart.ticks[1][0])
            _add(group, "path", d=f"M{a:.1f} {y(low):.1f}V{y(b + se):.1f}", stroke_width=1)
            _add(group, "circle", cx=f"{a:.1f}", cy=f"{y(b):.1f}", r=4, fill="currentColor", stroke="none")
        for (a, b, _), label in zip(points, line.labels, strict=False):
            at_x, anchor = (a - 7, "end") if line.left else (a + 7, "start")
            _write(place, label, round(at_x, 1), round(y(b) - 5, 1), 11, class_=line.colour, text_anchor=anchor)
    for row, line in enumerate(reversed(chart.lines)):
        left, top = chart.legend[0], chart.legend[1] - 18 * row
        dashes = {} if line.mark else {"stroke_dasharray": "5 3"}
        path = f"M{left} {top - 4}h20"
        _add(place, "path", d=path, class_=line.colour, stroke="currentColor", stroke_width=3, **dashes)
        _write(place, line.name, left + 28, top, class_=line.colour, font_weight="600")


def _tick(value: float) -> str:
    return f"{value:g}".replace("e-0", "e-")


def _scale(ticks: Sequence[float], length: float) -> Callable[[float], float]:
    low, high = math.log(ticks[0]), math.log(ticks[-1])
    return lambda value: length * (math.log(value) - low) / (high - low)


# --- what is drawn ----------------------------------------------------------------------------------------------------


def nearness(results: Path) -> str:
    """What `reach` measured beside what the fixed budget assumes."""
    frame = pd.read_csv(results / "reach" / "table.csv")
    ticks = (1, 2, 4, 8, 16, 32, 64)

    def lines(name: str) -> list[Line]:
        told = zip(frame["distance"], frame[name], frame[f"{name}_se"], strict=True)
        assumed = [(d, value, 0.0) for d, value in zip(frame["distance"], frame[f"{name}_assumed"], strict=True)]
        return [Line("measured", "lane-2", list(told)), Line("assumed by the budget", "lane-4", assumed, mark=False)]

    return drawn(
        [
            Chart("A written token moves what is near", "distance, positions",
                  "how far keys and values move, share of their length",
                  (ticks, (0.001, 0.01, 0.1, 1)), lines("moved")),
            Chart("A late row misleads what is near", "distance, positions",
                  "KL in nats at the position that is written next",
                  (ticks, (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)), lines("misled")),
        ],
        "Why a budget counts what is near",
        "Two charts over the distance: how far a written token moves keys and values, and how far a late row changes "
        "the posterior of the position that is written next. Both fall steeply.",
    )  # fmt: skip


_DRAWN = {
    TODAY: ("fixed budget", "lane-2"),
    ALIKE: ("budget, all alike", "lane-3"),
    RESTING: ("paper's rule, later blocks rest", "lane-4"),
    PAPER: ("paper's rule", "differs"),
    AGE: ("by age", "lane-1"),
    DUAL: ("dual cache", "ink"),
}


def seconds(results: Path) -> str:
    """Commit error (`near`) against seconds (`pace`) of the same rules."""
    near, pace = (pd.read_csv(results / name / "table.csv") for name in ("near", "pace"))
    near, pace = near.query("target.isna() and setting == 'page'"), pace.query("gen_length == 128")
    every = float(pace.loc[pace["rule"] == EVERY, "seconds"].iloc[0])
    timed = near.merge(pace[["rule", "threshold", "seconds"]]).sort_values("seconds")
    lines = []
    for rule, (name, colour) in _DRAWN.items():
        own = timed.query("rule == @rule")
        if len(own):
            points = own[["seconds", "error", "error_se"]].to_numpy().tolist()
            lines.append(Line(name, colour, points, labels=[*own["rows"].map("{:.0%}".format)], left=rule == ALIKE))
    taken = [point[0] for line in lines for point in line.points]
    ticks = [digit * 10.0**step for step in range(-2, 3) for digit in (1, 1.5, 2, 3, 5, 7)]
    first = max(i for i, tick in enumerate(ticks) if tick < min(taken))
    last = next(i for i, tick in enumerate(ticks) if tick > max(*taken, every))
    lines.append(Line("every position: no error", "ink", [(every, 0.1, 0.0), (every, 1e-4, 0.0)], mark=False))
    chart = Chart(
        "What skipping rows costs, and what it saves: percentages are of the rows",
        "processor seconds for 128 tokens, one thread",
        "commit error, nats",
        (ticks[first : last + 1], (1e-4, 1e-3, 1e-2, 1e-1)),
        lines,
        (_WIDTH + 24, 180),
    )
    return drawn([chart], chart.title, "Commit error over seconds: a line for each rule, a point for each threshold.")


DRAWN: dict[str, Callable[[Path], str]] = {"nearness": nearness, "seconds": seconds}


def main(arguments: Sequence[str]) -> None:
    folder = Path(arguments[0]) if arguments else PICTURES
    for name, draw in DRAWN.items():
        write_text(folder / f"{name}.svg", draw(ASSETS / "results"))


if __name__ == "__main__":
    main(sys.argv[1:])
