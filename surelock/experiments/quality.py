"""Experiment 3: quality and cost over length, steps and epsilon; answers and completions in the judges' own formats."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pandas as pd
import plotly.express as px
from plotly.graph_objects import Figure

from surelock.experiments import compare
from surelock.experiments.grid import PAPER, RECOMMENDED, Cell, grid
from surelock.experiments.judge_files import write_judge_files
from surelock.experiments.judged import texts_of_tokens
from surelock.experiments.lab import Lab
from surelock.experiments.runner import Record

TITLE = "Quality and cost (Experiment 3)"
NOTE = (
    compare.NOTE
    + """
MT-Bench scores and HumanEval's Pass@1 come from their own judges, run on the files written beside this table."""
)
_EPSILONS = [None, 5e-4, 5e-3]
_SIZES = [(64, 32), (64, 64), (128, 64), (128, 128), (256, 128), (256, 256), (512, 256), (512, 512)]


def _sized(sizes: list[tuple[int, int]], **fixed: object) -> list[Cell]:
    return [c for length, steps in sizes for c in grid(gen_length=length, steps=steps, epsilon=_EPSILONS, **fixed)]


GRIDS = {
    "stories": _sized([(32, 16), (32, 32), (64, 32), (64, 64), (128, 64), (128, 128)])
    + _sized([(128, 128)], **RECOMMENDED),
    "paper": _sized(_SIZES, source="wikitext", prompts=120, **PAPER)
    + _sized(_SIZES, source="mt_bench", prompts=80, **PAPER)
    + _sized([(256, 256)], source="humaneval", prompts=70, **PAPER),
    "quick": _sized([(12, 6), (12, 12)], prompts=2),
}
measure, texts = compare.measure, texts_of_tokens
_SAMPLER = ("block_length", "remasking", "temperature", "no_repeat_ngram_size")
_SETTINGS = ("source", "gen_length", "steps", *_SAMPLER, "epsilon")
judge_table, JUDGE_NOTE = partial(compare.judge_table, settings=_SETTINGS), compare.JUDGE_NOTE


def table(records: list[Record]) -> pd.DataFrame:
    return compare.table(records, _SETTINGS)


def picture(frame: pd.DataFrame, records: list[Record]) -> Figure:
    size = frame["gen_length"].astype(str) + " in " + frame["steps"].astype(str) + " steps, " + frame["remasking"]
    frame = frame.assign(size=size, epsilon=frame["epsilon"].map("{:g}".format))
    return px.scatter(frame, "flops_ratio", "bits_change", error_y="bits_change_se", color="size", symbol="epsilon")


def artifacts(lab: Lab, records: list[Record], directory: Path) -> None:
    write_judge_files(lab, records, directory)
