"""Ours: how many forward passes must have seen a token before its position may lock (visible_steps 0, 1, 2)."""

from __future__ import annotations

from functools import partial

import pandas as pd
import plotly.express as px
from plotly.graph_objects import Figure

from surelock.experiments import compare
from surelock.experiments.grid import PAPER, Cell, grid
from surelock.experiments.judged import texts_of_tokens
from surelock.experiments.runner import Record

TITLE = "Lock only what the others have seen: visible_steps"
NOTE = (
    """\
visible_steps 0 is Algorithm 1 to the letter: a position may lock in the step that unmasks it, with keys and values of
the mask token, and no other position ever sees the token that was chosen. At temperature 0 the mask's hidden state
already carries that token; once tokens are sampled it does not.
"""
    + compare.NOTE
)


def _frontier(epsilons: list[float], **fixed: object) -> list[Cell]:
    """The baseline at each temperature, then every rule."""
    return grid(**fixed, epsilon=None) + grid(**fixed | {"visible_steps": [0, 1, 2], "epsilon": epsilons})


GRIDS = {
    "stories": _frontier([5e-4, 5e-3, 5e-2], temperature=[0.0, 0.5, 1.0], gen_length=64),
    "paper": _frontier(
        [5e-4, 5e-3, 5e-2], **PAPER, source="wikitext", prompts=120, temperature=[0.0, 0.6, 1.0], gen_length=128
    ),
    "quick": _frontier([5e-2], temperature=[1.0], gen_length=12, prompts=2),
}
measure, texts = compare.measure, texts_of_tokens
_SETTINGS = ("temperature", "visible_steps", "epsilon")
judge_table, JUDGE_NOTE = partial(compare.judge_table, settings=_SETTINGS), compare.JUDGE_NOTE


def table(records: list[Record]) -> pd.DataFrame:
    return compare.table(records, _SETTINGS)


def picture(frame: pd.DataFrame, records: list[Record]) -> Figure:
    frame = frame.assign(visible_steps=frame["visible_steps"].astype(str))
    return px.line(
        frame,
        "active_ratio",
        "bits_change",
        error_y="bits_change_se",
        color="visible_steps",
        facet_col="temperature",
        hover_data="epsilon",
        markers=True,
    )
