"""The standalone replay: one HTML file with the stage's own modules, its style, Plotly and one trace inside."""

from __future__ import annotations

import base64
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

ASSETS = Path(__file__).resolve().parents[2] / "assets"
TEMPLATE = Path(__file__).with_name("replay.html")
TRACE_HOLE = "__SURELOCK_TRACE__"  # assets/js/share.js fills it in the browser
_IMPORT = re.compile(r'(from|import)(\s*)"\./([\w-]+\.js)"')


def plotly_script() -> Path:
    """The plotly.min.js that ships inside the plotly package."""
    import plotly

    return Path(plotly.__file__).with_name("package_data") / "plotly.min.js"


def _module_map() -> str:
    """An import map that holds every module of the stage as a data: URL under ``surelock/NAME``."""
    modules = {}
    for path in sorted((ASSETS / "js").glob("*.js")):
        source = _IMPORT.sub(r'\1\2"surelock/\3"', path.read_text("utf-8"))
        modules[f"surelock/{path.name}"] = "data:text/javascript;base64," + base64.b64encode(source.encode()).decode()
    return json.dumps({"imports": modules})


@cache
def replay_shell() -> str:
    """The replay page (about 5 MB) with ``TRACE_HOLE`` where the trace goes. Raises OSError if an asset is missing."""
    page = TEMPLATE.read_text("utf-8")
    parts = {
        "__SURELOCK_CSS__": (ASSETS / "css" / "stage.css").read_text("utf-8"),
        "__SURELOCK_MODULES__": _module_map(),
        "__SURELOCK_PLOTLY__": plotly_script().read_text("utf-8").replace("</script", "<\\/script"),
    }
    for hole, text in parts.items():
        before, after = page.split(hole)
        page = before + text + after
    return page


def replay_html(document: dict[str, Any]) -> str:
    """The replay page of one trace document; "<" is escaped, so that no token can end the script element."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    before, after = replay_shell().split(TRACE_HOLE, 1)
    return before + text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029") + after
