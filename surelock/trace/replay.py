"""The standalone replay: an HTML file with the page's script and style, Plotly and one trace. Notebooks show it too."""

import base64
import gzip
import html
import re
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Any

from surelock.decoding.described import describe
from surelock.places import ASSETS
from surelock.trace.format import compact_json, load_document
from surelock.trace.lessons import read_lessons
from surelock.values import Json, frozen

TEMPLATE = Path(__file__).with_name("replay.html")
#: A page that contains another page, compressed. It unpacks the other page and shows it instead of itself.
PACKED = Path(__file__).with_name("packed.html")
TRACE_HOLE = "__SURELOCK_TRACE__"  # assets/js/export/share.js fills it in the browser
FONT_FILE = re.compile(r"""url\(["']?\.\./fonts/([\w.-]+)["']?\)""")


def plotly_script() -> Path:
    """Return the path of Plotly's script."""
    import plotly

    return Path(plotly.__file__).with_name("package_data") / "plotly.min.js"


def embedded_json(value: Any) -> str:
    """Return JSON for a script element. "<" is escaped, so that no text can end the element."""
    text = compact_json(value).replace("<", "\\u003c")
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def data_scripts() -> str:
    """Return script elements with the settings, which assets/js/trace/described.js reads, and the lessons."""
    data = {"sl-settings": describe(), "sl-lessons": read_lessons()}
    scripts = [
        f'<script id="{name}" type="application/json">{embedded_json(value)}</script>'
        for name, value in data.items()
    ]
    return "".join(scripts)


def with_fonts(style: str) -> str:
    """Return a style sheet that contains its fonts, instead of the names of files in assets/fonts."""

    def embedded(match: re.Match[str]) -> str:
        font = (ASSETS / "fonts" / match[1]).read_bytes()
        return f'url("data:font/woff2;base64,{base64.b64encode(font).decode()}")'

    return FONT_FILE.sub(embedded, style)


@cache
def replay_shell() -> str:
    """Return the replay page (about 5 MB) with `TRACE_HOLE` in place of the trace."""
    page = TEMPLATE.read_text("utf-8")
    parts = {
        "__SURELOCK_CSS__": with_fonts((ASSETS / "scripts" / "stage.css").read_text("utf-8")),
        "__SURELOCK_SETTINGS__": data_scripts(),
        "__SURELOCK_PLOTLY__": plotly_script().read_text("utf-8").replace("</script", "<\\/script"),
        # The script contains TRACE_HOLE too, so it must come last.
        "__SURELOCK_SCRIPT__": (ASSETS / "scripts" / "replay.js").read_text("utf-8"),
    }
    return filled(page, parts)


def filled(page: str, holes: Mapping[str, str]) -> str:
    """Return a page in which the first occurrence of every hole is replaced by its text, in order."""
    for hole, text in holes.items():
        before, after = page.split(hole, 1)
        page = before + text + after
    return page


def replay_html(source: str | Path | Json) -> str:
    """Return an HTML page that replays a trace. It has about 6 MB, and needs no server and no network.

    source: the trace's path, or the parsed document.

    Raises TraceError (a ValueError) for another format or a damaged trace, OSError if the file cannot be read.
    """
    document = load_document(source)
    return filled(replay_shell(), {TRACE_HOLE: embedded_json(document)})


@frozen
class Shown:
    """A replay that Jupyter and Colab display through `_repr_html_`. height: in CSS pixels."""

    document: Json = field(repr=False)
    height: int

    def _repr_html_(self) -> str:
        # A notebook stores the shown page. Compressed, the page takes a third of its 6 MB.
        compressed = gzip.compress(replay_html(self.document).encode(), mtime=0)
        packed = base64.b64encode(compressed).decode()
        page = PACKED.read_text("utf-8").replace("__SURELOCK_PAGE__", packed)
        # The sandbox has no allow-same-origin, so nothing in the trace can reach the notebook.
        return (
            '<iframe title="SureLock replay" sandbox="allow-scripts allow-downloads" '
            f'style="width: 100%; height: {self.height}px; border: 0" srcdoc="{html.escape(page)}"></iframe>'
        )


def show(source: str | Path | Json, height: int = 900) -> Shown:
    """Return an object that shows a trace in a notebook.

    source: the trace's path, or the parsed document. height: in CSS pixels.

    Raises TraceError (a ValueError) for another format or a damaged trace, OSError if the file cannot be read, and
    ValueError for a height that is not a positive whole number.
    """
    if type(height) is not int or height < 1:
        raise ValueError(f"height must be a positive whole number, not {height!r:.40}.")
    return Shown(load_document(source), height)
