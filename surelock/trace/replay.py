"""The standalone replay: an HTML file with the page's script and style, Plotly and one trace. A notebook shows it."""

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
#: A page that holds another page, compressed: it unpacks this page and shows it in its place.
PACKED = Path(__file__).with_name("packed.html")
TRACE_HOLE = "__SURELOCK_TRACE__"  # assets/js/export/share.js fills it in the browser
FONT_FILE = re.compile(r"""url\(["']?\.\./fonts/([\w.-]+)["']?\)""")


def plotly_script() -> Path:
    import plotly

    return Path(plotly.__file__).with_name("package_data") / "plotly.min.js"


def embedded_json(value: Any) -> str:
    """Return JSON for a script element. "<" is escaped: no text can end the element."""
    text = compact_json(value).replace("<", "\\u003c")
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def data_scripts() -> str:
    """Return the script elements with the settings (assets/js/trace/described.js) and the lessons."""
    data = {"sl-settings": describe(), "sl-lessons": read_lessons()}
    scripts = [
        f'<script id="{name}" type="application/json">{embedded_json(value)}</script>'
        for name, value in data.items()
    ]
    return "".join(scripts)


def with_fonts(style: str) -> str:
    """Return a style sheet with the contents of the fonts, in place of the names of files in assets/fonts."""

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
        # contains TRACE_HOLE, too
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
    """Return the page that replays a trace, about 6 MB of HTML that needs no server and no network.

    source: the trace's path, or the parsed document.

    Raises TraceError (a ValueError) for another format or a damaged trace, OSError if the file cannot be read.
    """
    document = load_document(source)
    return filled(replay_shell(), {TRACE_HOLE: embedded_json(document)})


@frozen
class Shown:
    """A replay that Jupyter and Colab display through `_repr_html_`."""

    document: Json = field(repr=False)
    height: int

    def _repr_html_(self) -> str:
        # A notebook keeps what it shows: packed, the page takes a third of its 6 MB.
        packed = base64.b64encode(
            gzip.compress(replay_html(self.document).encode(), mtime=0)
        ).decode()
        page = PACKED.read_text("utf-8").replace("__SURELOCK_PAGE__", packed)
        # In a sandbox without allow-same-origin nothing in the trace can reach the notebook.
        return (
            '<iframe title="SureLock replay" sandbox="allow-scripts allow-downloads" '
            f'style="width: 100%; height: {self.height}px; border: 0" srcdoc="{html.escape(page)}"></iframe>'
        )


def show(source: str | Path | Json, height: int = 900) -> Shown:
    """Show a trace in a notebook.

    height: in CSS pixels.

    Raises TraceError (a ValueError) for another format or a damaged trace, OSError if the file cannot be read, and
    ValueError for a height that is not a positive whole number.
    """
    if type(height) is not int or height < 1:
        raise ValueError(f"height must be a positive whole number, not {height!r:.40}.")
    return Shown(load_document(source), height)
