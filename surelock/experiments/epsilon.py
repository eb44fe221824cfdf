"""Experiment 6: quality against epsilon, from 5e-8 to 5e-2, on short generations."""

from __future__ import annotations

from functools import partial

import pandas as pd
import plotly.express as px
from plotly.graph_objects import Figure

from surelock.experiments import compare
from surelock.experiments.grid import PAPER, grid
from surelock.experiments.judged import texts_of_tokens
from surelock.experiments.runner import Record

TITLE = "Quality against epsilon (Experiment 6)"
NOTE = compare.NOTE
_EPSILONS = [None, 5e-8, 5e-7, 5e-6, 5e-5, 5e-4, 5e-3, 5e-2]
GRIDS = {
    "stories": grid(gen_length=64, epsilon=_EPSILONS),
    "paper": grid(source="wikitext", prompts=120, gen_length=64, epsilon=_EPSILONS, **PAPER),
    "quick": grid(gen_length=12, epsilon=[None, 5e-4, 5e-2], prompts=2),
}
measure, texts = compare.measure, texts_of_tokens
_SETTINGS = ("gen_length", "epsilon")
judge_table, JUDGE_NOTE = partial(compare.judge_table, settings=_SETTINGS), compare.JUDGE_NOTE


def table(records: list[Record]) -> pd.DataFrame:
    return compare.table(records, _SETTINGS)


def picture(frame: pd.DataFrame, records: list[Record]) -> Figure:
    return px.line(frame, "flops_ratio", "bits", error_y="bits_se", text="epsilon", markers=True).add_hline(
        y=frame["bits_base"].iloc[0], line_dash="dot", annotation_text="baseline"
    )
