"""A trace in a notebook: the replay page in a frame, without a server."""

import base64
import gzip
import html
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from surelock.trace.format import load_document
from surelock.trace.replay import replay_html

PACKED = Path(__file__).with_name("packed.html")  # unpacks and becomes the page that it holds


@dataclass(frozen=True, slots=True)
class Shown:
    """A replay that Jupyter and Colab display through `_repr_html_`."""

    document: dict[str, Any] = field(repr=False)
    height: int

    def _repr_html_(self) -> str:
        # A notebook keeps what it shows: packed, the page takes a third of its 6 MB.
        packed = base64.b64encode(gzip.compress(replay_html(self.document).encode(), mtime=0)).decode()
        page = PACKED.read_text("utf-8").replace("__SURELOCK_PAGE__", packed)
        # In a sandbox without allow-same-origin nothing in the trace can reach the notebook.
        return (
            '<iframe title="SureLock replay" sandbox="allow-scripts allow-downloads" '
            f'style="width: 100%; height: {self.height}px; border: 0" srcdoc="{html.escape(page)}"></iframe>'
        )


def show(source: str | Path | dict[str, Any], height: int = 900) -> Shown:
    """Show a trace in a notebook.

    height: in CSS pixels.

    Raises TraceError (a ValueError) for another format or a damaged trace, OSError if the file cannot be read, and
    ValueError for a height that is not a positive whole number.
    """
    if type(height) is not int or height < 1:
        raise ValueError(f"height must be a positive whole number, not {height!r:.40}.")
    return Shown(load_document(source), height)
