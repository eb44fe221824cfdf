"""Experiment 1, Table 1: algorithmic FLOPs and active ratio, over the generated length and epsilon."""

from __future__ import annotations

import pandas as pd
import plotly.express as px
from plotly.graph_objects import Figure

from surelock.experiments.grid import PAPER, Cell, grid
from surelock.experiments.lab import Lab, decode_cell
from surelock.experiments.runner import Record

TITLE = "Algorithmic FLOPs (Experiment 1, Table 1)"
NOTE = """\
f_base, f_locked: FLOPs of whole runs per position of the batch, as the paper's tables print them, with pads neither
computed nor counted. f_base_padded: the baseline as the paper counts it, every sequence padded to N_b, the longest of
its batch. active_ratio: r, micro-averaged. `_to_eos`: without the positions after each sequence's first EOS, which lock
early and flatter the ratio."""
EPSILONS = [5e-4, 5e-3, 5e-2]
GRIDS = {
    "stories": grid(gen_length=[64, 128, 256], epsilon=EPSILONS, prompts=16, batch=4),
    "paper": grid(source="mt_bench_subset", gen_length=[64, 256, 1024], epsilon=EPSILONS, prompts=32, **PAPER),
    "quick": grid(gen_length=[8, 16], epsilon=[5e-4, 5e-2], prompts=3, batch=2),
}


def measure(lab: Lab, cell: Cell) -> Record:
    return decode_cell(lab, cell).figures


def table(records: list[Record]) -> pd.DataFrame:
    columns = ("active_ratio", "active_ratio_to_eos", "f_base_padded", "f_base", "f_locked")
    ratios = ("flops_ratio", "flops_ratio_padded", "flops_ratio_to_eos")
    return pd.DataFrame(
        [
            {name: r["cell"][name] for name in ("gen_length", "epsilon")}
            | {name: r["result"][name] for name in (*columns, *ratios)}
            for r in records
        ]
    )


def picture(frame: pd.DataFrame, records: list[Record]) -> Figure:
    return px.line(frame, "epsilon", "flops_ratio", color="gen_length", markers=True, log_x=True)
