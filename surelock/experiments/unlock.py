"""The appendix's optional unlocking: with and without probes of the locked positions."""

from __future__ import annotations

from functools import partial

import pandas as pd
import plotly.express as px
from plotly.graph_objects import Figure

from surelock.experiments import compare
from surelock.experiments.grid import PAPER, Cell, grid
from surelock.experiments.judged import texts_of_tokens
from surelock.experiments.runner import Record

TITLE = "Optional unlocking (appendix)"
NOTE = "unlock_period: steps between probes of 8 locked positions per sequence; empty: locks are permanent.\n" + (
    compare.NOTE
)


def _grid(epsilons: list[float], periods: list[int | None], **fixed: object) -> list[Cell]:
    return grid(**fixed, epsilon=None) + grid(**fixed, epsilon=epsilons, unlock_period=periods)


GRIDS = {
    "stories": _grid([5e-3, 5e-2], [None, 8, 4], gen_length=64),
    "paper": _grid([5e-4, 5e-3], [None, 8, 4], source="wikitext", prompts=120, gen_length=128, **PAPER),
    "quick": _grid([5e-2], [None, 2], gen_length=12, prompts=2),
}
measure, texts = compare.measure, texts_of_tokens
_SETTINGS = ("epsilon", "unlock_period")
judge_table, JUDGE_NOTE = partial(compare.judge_table, settings=_SETTINGS), compare.JUDGE_NOTE


def table(records: list[Record]) -> pd.DataFrame:
    return compare.table(records, _SETTINGS)


def picture(frame: pd.DataFrame, records: list[Record]) -> Figure:
    frame = frame.assign(epsilon=frame["epsilon"].map("{:g}".format))
    return px.scatter(
        frame, "flops_ratio", "bits_change", error_y="bits_change_se", color="epsilon", text="unlock_period"
    )
