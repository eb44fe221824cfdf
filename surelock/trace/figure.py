"""A run as a Plotly figure: the states of all positions in all steps, the texts, and curves of KL and savings."""

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from surelock.decoding.ends import up_to_end
from surelock.decoding.step import Step
from surelock.model.language_model import LanguageModel
from surelock.trace.format import load_document, opening
from surelock.trace.pieces import running_text
from surelock.trace.table import STATES, Cells, Run, cells_of
from surelock.trace.timing import paces
from surelock.values import Flags, Floats, Json

# The page's colours (assets/css/base.css): five colours for STATES, then four for lanes.
_LIGHT = [
    "#e4e8ee",
    "#f0a24a",
    "#1f4e86",
    "#b6d2ee",
    "#f7f8fa",
    "#6b7280",
    "#1668c7",
    "#0f766e",
    "#a3360c",
]
_DARK = [
    "#232c3d",
    "#d98a2b",
    "#7db4f0",
    "#34567c",
    "#131a27",
    "#9aa5b8",
    "#62a8ff",
    "#45cdbd",
    "#f3946a",
]
_ROW = 270  # height of a lane, in pixels
_EDGE = 90  # margin above the first lane and below the curves, in pixels


class _Lane(NamedTuple):
    """The data that is drawn of a lane."""

    name: str
    cells: Cells
    saved: Floats  # [steps], the share of FLOPs saved up to and including a step
    prompt: Flags  # [N], whether a position belongs to the prompt
    ends: Sequence[int]  # token ids that end the text
    stop: str  # text that ends the lane's text; "": none
    pace: str = ""  # its speed compared with the reference, in words

    @property
    def tokens(self) -> list[int]:
        """The tokens after the last step, -1 at masks."""
        blank = np.array([[-1] * self.cells.tokens.shape[1]])
        return np.concatenate([blank, self.cells.tokens])[-1].tolist()

    @property
    def start(self) -> int:
        """The first position that the run may write."""
        return int(self.prompt.argmin())

    @property
    def text(self) -> str:
        """The text from `start` on, up to its end."""
        prompt_end = int(np.flatnonzero(self.prompt).max(initial=-1)) + 1
        tokens = self.tokens[self.start :]
        return "".join(up_to_end(tokens, prompt_end - self.start, self.ends, self.stop, self._read))

    def _read(self, tokens: Sequence[int]) -> str:
        return running_text(
            self.cells.pieces, [token for token in tokens if token not in self.ends]
        )


def figure(run: Run, lm: LanguageModel | None = None, *, dark: bool = False) -> go.Figure:
    """Return a Plotly figure of a run: for every lane a raster of states and the text; below, curves of all lanes.

    run: a trace (a path, or a parsed document), or the steps of `surelock.decode`, whose sequences are the lanes.
    lm: the model of the steps, for the tokens' texts. Without `lm`, tokens are shown as ids.
    dark: whether the figure is dark.

    The curves are the median KL of a step's rows in nats, over rows with a finite KL, and the share of FLOPs saved so
    far.

    Raises TraceError (a ValueError) for another format or a damaged trace, OSError if the file cannot be read, and
    ValueError for a run without a step.
    """
    lanes = list(_of_trace(run) if isinstance(run, str | Path | dict) else _of_steps(list(run), lm))
    if not any(lane.cells.tokens.size for lane in lanes):
        raise ValueError("a figure needs a run of at least one step")
    last = len(lanes) + 1  # the row of the curves
    height = _ROW * last
    colours = _DARK if dark else _LIGHT
    specs = [[{}, None]] * len(lanes) + [[{}, {}]]
    columns = {"column_widths": [0.6, 0.4], "horizontal_spacing": 0.08}
    titles = [_title(lane) for lane in lanes]
    titles += ["Step-wise KL, median (nats)", "FLOPs saved so far"]
    drawn = make_subplots(
        last, 2, specs=specs, subplot_titles=titles, vertical_spacing=0.22 / last, **columns
    )
    for row, lane in enumerate(lanes, 1):
        steps = np.arange(1, len(lane.cells.steps) + 1)
        drawn.add_trace(_raster(lane, steps), row, 1)
        drawn.add_hline(lane.start - 0.5, line={"width": 1, "dash": "dot"}, row=row, col=1)  # pyright: ignore
        drawn.update_yaxes(type="category", nticks=14, autorange="reversed", row=row, col=1)
        lines = wrap(escape(lane.text, quote=False).strip(), 54, max_lines=12, placeholder=" …")
        place = {
            "xref": "x domain",
            "yref": "y domain",
            "xanchor": "left",
            "yanchor": "top",
            "row": row,
            "col": 1,
        }
        drawn.add_annotation(
            text="<br>".join(lines), x=1.05, y=1, showarrow=False, align="left", **place
        )
        line = {
            "name": escape(lane.name),
            "legendgroup": row,
            "x": steps,
            "line_color": colours[5 + (row - 1) % 4],
        }
        finite_kls = [kl[np.isfinite(kl)] for kl in lane.cells.kl]
        medians = [np.median(kl) if len(kl) else None for kl in finite_kls]
        drawn.add_trace(go.Scatter(y=medians, **line), last, 1)
        drawn.add_trace(go.Scatter(y=lane.saved, showlegend=False, **line), last, 2)
    drawn.update_xaxes(title="step", row=last)
    drawn.update_yaxes(type="log", exponentformat="power", dtick=1, row=last, col=1)
    drawn.update_yaxes(tickformat=".0%", row=last, col=2)
    scale = []  # five bands of one colour
    for state in range(5):
        scale += [(state / 5, colours[state]), ((state + 1) / 5, colours[state])]
    bar = {
        "orientation": "h",
        "x": 0.3,
        "y": 1 + 30 / height,
        "yanchor": "bottom",
        "len": 0.6,
        "thickness": 12,
    }
    bar |= {"tickvals": [*range(5)], "ticktext": STATES, "outlinewidth": 1}
    layout = {
        "template": "plotly_dark" if dark else "plotly_white",
        "width": 1100,
        "height": height + 2 * _EDGE,
    }
    layout |= {
        "margin": {"l": 110, "r": 20, "t": _EDGE, "b": _EDGE},
        "legend": {"orientation": "h", "y": -55 / height},
    }
    layout |= {"coloraxis": {"colorscale": scale, "cmin": -0.5, "cmax": 4.5, "colorbar": bar}}
    return drawn.update_layout(layout)


def _title(lane: _Lane) -> str:
    """Return the title of a lane, as HTML."""
    words = f"{lane.saved[-1:].sum():.0%} of the FLOPs saved"
    if lane.pace:
        words += f", {lane.pace}"
    return f"<b>{escape(lane.name)}</b>: {escape(words)}"


def _raster(lane: _Lane, steps: NDArray) -> go.Heatmap:
    """Return the raster of a lane's states, with a column per step and a row per position."""
    words = [
        escape(running_text(lane.cells.pieces, [token]).strip()[:16], quote=False)
        for token in lane.tokens
    ]
    hover = "step %{x}, position %{y}<br>KL %{customdata:.2e} nats<extra></extra>"
    more = {
        "customdata": lane.cells.kl.T.astype(np.float32),
        "hovertemplate": hover,
        "coloraxis": "coloraxis",
    }
    return go.Heatmap(
        x=steps, y=[f"{i} “{word}”" for i, word in enumerate(words)], z=lane.cells.states.T, **more
    )


def _of_trace(source: str | Path | Json) -> Iterator[_Lane]:
    """Yield the lanes of a trace."""
    document = load_document(source)
    header = document["header"]
    pace = paces(document)
    ends = header.get("ends", [header.get("eos_id")])
    for cells, lane in zip(cells_of(document), header["lanes"], strict=True):
        records = [record for record in document["records"] if record["lane"] == lane["id"]]
        flops = np.cumsum([record["flops"] for record in records])
        saved = 1 - flops / np.cumsum([record["baseline_flops"] for record in records])
        yield _Lane(
            lane["name"],
            cells,
            saved,
            opening(header) >= 0,
            ends,
            header.get("stop", ""),
            pace[lane["id"]],
        )


def _of_steps(steps: list[Step], lm: LanguageModel | None) -> Iterator[_Lane]:
    """Yield the sequences of steps as lanes."""
    ends, stop = (lm.ends, lm.stop) if lm else ((), "")
    for b, cells in enumerate(cells_of(steps, lm)):
        flops = np.cumsum([step.flops[b] for step in steps])
        saved = 1 - flops / np.cumsum([step.baseline_flops[b] for step in steps])
        prompt = steps[0].given[b, -cells.tokens.shape[1] :]
        yield _Lane(f"Sequence {b + 1}", cells, saved, prompt, ends, stop)
