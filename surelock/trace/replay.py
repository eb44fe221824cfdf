"""The standalone replay: one HTML file with the stage's script, its style, Plotly and one trace inside."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from surelock.decoding.described import describe
from surelock.places import ASSETS
from surelock.trace.lessons import read_lessons

TEMPLATE = Path(__file__).with_name("replay.html")
TRACE_HOLE = "__SURELOCK_TRACE__"  # assets/js/export/share.js fills it in the browser


def plotly_script() -> Path:
    """The plotly.min.js that ships inside the plotly package."""
    import plotly

    return Path(plotly.__file__).with_name("package_data") / "plotly.min.js"


def embedded_json(value: Any) -> str:
    """JSON that can stand inside a script element: "<" is escaped, so that nothing in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def described_script() -> str:
    """What the settings are called, where assets/js/trace/described.js looks for it."""
    return f'<script id="sl-settings" type="application/json">{embedded_json(describe())}</script>'


def lessons_script() -> str:
    """The lessons, where assets/js/lessons/lessons.js looks for them."""
    return f'<script id="sl-lessons" type="application/json">{embedded_json(read_lessons())}</script>'


@cache
def replay_shell() -> str:
    """The replay page (about 5 MB) with ``TRACE_HOLE`` where the trace goes. Raises OSError if an asset is missing."""
    page = TEMPLATE.read_text("utf-8")
    parts = {
        "__SURELOCK_CSS__": (ASSETS / "scripts" / "stage.css").read_text("utf-8"),
        "__SURELOCK_SETTINGS__": described_script() + lessons_script(),
        "__SURELOCK_PLOTLY__": plotly_script().read_text("utf-8").replace("</script", "<\\/script"),
        "__SURELOCK_SCRIPT__": (ASSETS / "scripts" / "replay.js").read_text("utf-8"),  # has a hole's name in it, too
    }
    for hole, text in parts.items():
        before, after = page.split(hole)
        page = before + text + after
    return page


def replay_html(document: dict[str, Any]) -> str:
    """The replay page of one trace document."""
    before, after = replay_shell().split(TRACE_HOLE, 1)
    return before + embedded_json(document) + after
