"""A race as one picture: an SVG without scripts and without anything to load."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
from numpy.typing import NDArray

from surelock.trace.format import load_document
from surelock.trace.lettering import FONT, cut, shown, wrap
from surelock.trace.outcomes import ACTIVE, LOCKED, MASKED, RESTING, STATES, WAITING, Outcome, outcomes_of
from surelock.trace.palette import palette
from surelock.trace.pieces import running_text

WIDTH, MARGIN, BETWEEN = 1280, 28, 32
LEFT, RASTER = MARGIN + 26, 640  # where a raster begins, and its width
RIGHT = LEFT + RASTER + BETWEEN  # where its text begins
LINE = 21  # from one line of text to the next
MOST_LINES = 200
#: The text of each state in the legend.
LEGEND = {
    MASKED: "masked",
    ACTIVE: "active: computed in this step",
    RESTING: "resting: not computed in this step",
    LOCKED: "locked: no longer computed",
    WAITING: "masked, not computed",
}
_ROOT = "surelock-picture"  # the class that the style applies to, if a page embeds the picture


def picture(source: str | Path | dict[str, Any]) -> str:
    """Return the text of an SVG file that draws a trace: of each lane its name, totals, raster and text.

    source: a path, or a parsed document.

    The raster shows the state of each position in each step. Colours are light or dark, as the viewer prefers. Raises
    TraceError (a ValueError) for another format or a damaged trace, OSError if the file cannot be read.
    """
    document = load_document(source)
    header = document["header"]
    lanes = outcomes_of(document)
    prompt = header.get("prompt") or running_text(document["pieces"], header["prompt_tokens"])
    root = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "class": _ROOT, "role": "figure"})
    root.set("font-family", FONT)
    verb = "continues" if len(lanes) == 1 else "continue"
    add(root, "title", cut(f"SureLock: {_names(lanes)} {verb} “{prompt}”", 200))
    add(root, "desc", " ".join([_about(header, lanes), *map(_sentence, lanes)]))
    add(root, "style", _style())
    ground = _box(root, "panel", 0, 0, WIDTH, 0)
    bottom = _head(root, header, prompt, lanes)
    for i, lane in enumerate(lanes):
        bottom = _draw(root, lane, header, f"lane-{i + 1}", bottom)
    ground.set("height", str(bottom))
    for name, value in (("width", WIDTH), ("height", bottom), ("viewBox", f"0 0 {WIDTH} {bottom}")):
        root.set(name, str(value))
    return ET.tostring(root, encoding="unicode")


def add(parent: ET.Element, tag: str, text: str | None = None, **attributes: Any) -> ET.Element:
    """A child; `class_` and `stroke_width` stand for class and stroke-width."""
    names = {name.rstrip("_").replace("_", "-"): _plain(value) for name, value in attributes.items()}
    child = ET.SubElement(parent, tag, names)
    child.text = None if text is None else shown(text)
    return child


def _plain(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def write(parent: ET.Element, text: str, x: float, y: float, size: int, kind: str = "ink", **more: Any) -> None:
    add(parent, "text", text, x=x, y=y, font_size=size, class_=kind, fill="currentColor", **more)


def _box(parent: ET.Element, kind: str, x: float, y: float, width: float, height: float, **more: Any) -> ET.Element:
    return add(parent, "rect", x=x, y=y, width=width, height=height, class_=kind, **{"fill": "currentColor"} | more)


def _style() -> str:
    """The page's colours, for the classes of the same names."""
    used = ["panel", "ink", "muted", "line", "prompt", *(f"raster-{state}" for state in STATES)]
    used += [f"lane-{i + 1}" for i in range(4)]

    def rules(colours: dict[str, str]) -> str:
        return "".join(f".{_ROOT} .{name}{{color:{colours[name]}}}" for name in used)

    return f"{rules(palette())}@media (prefers-color-scheme:dark){{{rules(palette(dark=True))}}}"


def _names(lanes: list[Outcome]) -> str:
    names = [f"“{lane.name}”" for lane in lanes]
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _about(header: dict[str, Any], lanes: list[Outcome]) -> str:
    which = "A raster" if len(lanes) == 1 else "One below the other, for each of them a raster"
    prompt = _count(len(header["prompt_tokens"]), "row")
    return (
        f"{which} with a row for each of {_count(header['length'], 'position')}, the first {prompt} the prompt's, and "
        f"a column for each of {_count(header['steps'], 'step')}; beside it the text."
    )


def _sentence(lane: Outcome) -> str:
    """A lane's states in a sentence."""
    if not lane.locked:
        return f"“{lane.name}” has taken no step."
    first = next((step for step, count in enumerate(lane.locked, 1) if count), None)
    locked = f"the first is locked in step {first}, {lane.locked[-1]} at the end" if first else "none is ever locked"
    return f"“{lane.name}”: {_totals(lane)}; of {len(lane.states)} positions {locked}."


def _totals(lane: Outcome) -> str:
    if not lane.locked:
        return "no step yet"
    time = "" if lane.seconds is None else f" in {_seconds(lane.seconds)}"
    parts = [_count(len(lane.locked), "step") + time]
    if math.isfinite(lane.rows):
        parts.append(f"{round(100 * lane.rows)} % of the rows computed")
    if math.isfinite(lane.flops):
        parts.append(f"{round(100 * (1 - lane.flops))} % of the FLOPs saved")
    if lane.pace:
        parts.append(lane.pace)
    return ", ".join(parts)


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


def _seconds(x: float) -> str:
    """Seconds with the digits that the page shows."""
    return f"{x:.{2 if x < 9.95 else 1 if x < 99.5 else 0}f} s"


def _head(root: ET.Element, header: dict[str, Any], prompt: str, lanes: list[Outcome]) -> int:
    """Draw title and prompt. Returns the y at which the lanes begin."""
    write(root, "SureLock: decoders race" if len(lanes) > 1 else "SureLock: a run", MARGIN, 40, 24, font_weight=700)
    about = f"{header['model']['name']}, {_count(header['length'] - len(header['prompt_tokens']), 'token')} to write"
    write(root, cut(about, 44), WIDTH - MARGIN, 40, 15, "muted", text_anchor="end")
    y = 70
    for line in wrap(prompt, (WIDTH - 2 * MARGIN) / 16, 4):
        write(root, line, MARGIN, y, 16)
        y += 23
    return _legend(root, header, lanes, y + 2) + 15


def _legend(root: ET.Element, header: dict[str, Any], lanes: list[Outcome], y: int) -> int:
    """Draw the legend in four columns. Returns the y at which it ends."""
    seen = {int(state) for lane in lanes for state in np.unique(lane.states)}
    entries = [(f"raster-{STATES[state]}", text) for state, text in LEGEND.items() if state in seen]
    if header["prompt_tokens"]:
        entries.append(("prompt", "the prompt's positions"))
    if any(0 < len(lane.locked) < header["steps"] for lane in lanes):
        entries.append(("panel", "no longer at work"))
    for i, (kind, text) in enumerate(entries):
        x, top = MARGIN + i % 4 * (WIDTH - 2 * MARGIN) // 4, y + i // 4 * 24
        if kind == "prompt":
            _box(root, kind, x + 10, top, 5, 17)
        else:
            _box(root, kind, x, top, 24, 17)
            _box(root, "line", x, top, 24, 17, fill="none", stroke="currentColor")
        write(root, text, x + 33, top + 13, 14, "muted")
    return y + (len(entries) + 3) // 4 * 24


def _draw(root: ET.Element, lane: Outcome, header: dict[str, Any], kind: str, top: int) -> int:
    """Draw a lane from `top` on. Returns the y at which it ends."""
    _box(root, kind, MARGIN, top, WIDTH - 2 * MARGIN, 4)
    write(root, cut(lane.name, (WIDTH - 2 * MARGIN) / 23), MARGIN, top + 32, 20, font_weight=700)
    write(root, cut(_totals(lane), (WIDTH - 2 * MARGIN) / 15), MARGIN, top + 55, 15, "muted")
    y = top + 70
    high = _raster(root, lane, header, y)
    text = wrap(lane.text, (WIDTH - MARGIN - RIGHT) / 15, MOST_LINES)
    column = add(root, "svg", x=RIGHT, y=y, width=WIDTH - RIGHT, height=LINE * len(text) + 6)  # clips what is too wide
    for i, line in enumerate(text):
        write(column, line, 0, LINE * i + 15, 15)
    return y + max(high + 22, LINE * len(text)) + 28


def _raster(root: ET.Element, lane: Outcome, header: dict[str, Any], y: int) -> int:
    """Draw the raster of the states. Returns its height. Columns behind the end of a lane are empty."""
    length, steps = header["length"], header["steps"]
    high = min(2 * RASTER, length * max(1, round(256 / length)))
    group = add(root, "g", role="img")
    add(group, "title", _sentence(lane))
    _box(group, "prompt", LEFT - 10, y, 5, high * len(header["prompt_tokens"]) / length)
    place = f"translate({LEFT} {y}) scale({RASTER / steps:g} {high / length:g})"
    cells = add(group, "g", transform=place, shape_rendering="crispEdges")
    if lane.locked:
        most = int(np.bincount(lane.states.ravel()).argmax())  # under all others, so that it takes one rectangle
        _box(cells, f"raster-{STATES[most]}", 0, 0, lane.states.shape[1], length)
        for state in set(np.unique(lane.states).tolist()) - {most}:
            add(
                cells,
                "path",
                class_=f"raster-{STATES[state]}",
                stroke="currentColor",
                transform="translate(0 .5)",
                d="".join(_strokes(lane.states == state)),
            )
    _box(group, "line", LEFT - 0.5, y - 0.5, RASTER + 1, high + 1, fill="none", stroke="currentColor")
    write(group, "step 1", LEFT, y + high + 17, 13, "muted")
    write(group, str(steps), LEFT + RASTER, y + high + 17, 13, "muted", text_anchor="end")
    turned = f"translate({MARGIN + 9} {y + high / 2:g}) rotate(-90)"
    write(group, f"{length} positions", 0, 0, 13, "muted", text_anchor="middle", transform=turned)
    return high


def _strokes(cells: NDArray[np.bool_]) -> Iterator[str]:
    """A path's moves to the True stretches of each row of [rows, columns], each from the end of the one before."""
    edges = np.diff(np.pad(cells, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    rows, starts = np.nonzero(edges > 0)
    ends = np.nonzero(edges < 0)[1]
    right, down = starts - np.concatenate(([0], ends[:-1])), np.diff(rows, prepend=0)
    for x, y, width in zip(right.tolist(), down.tolist(), (ends - starts).tolist(), strict=True):
        yield f"m{x} {y}h{width}"
