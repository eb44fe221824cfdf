"""Experiment 2: the step-wise FLOPs ratio as decoding proceeds, for m = 10, 20 and 40 %."""

from __future__ import annotations

from itertools import pairwise

import pandas as pd
import plotly.express as px
from plotly.graph_objects import Figure

from surelock.experiments.flops import EPSILONS
from surelock.experiments.grid import PAPER, Cell, grid
from surelock.experiments.lab import Lab, decode_cell
from surelock.experiments.runner import Record

TITLE = "Step-wise FLOPs ratio (Experiment 2)"
NOTE = """\
at_25 ... at_100: FLOPs of the step at that percentage of the run over the baseline's; mean: over the whole run; rises:
steps in which the ratio was above the step before it (permanent locks allow none)."""
_PERCENTILES = [10.0, 20.0, 40.0]
GRIDS = {
    "stories": grid(percentile=_PERCENTILES, gen_length=[64, 256], epsilon=EPSILONS, prompts=8, batch=4),
    "paper": grid(
        source="mt_bench_subset",
        percentile=_PERCENTILES,
        gen_length=[64, 256, 1024],
        epsilon=EPSILONS,
        prompts=32,
        **PAPER,
    ),
    "quick": grid(percentile=_PERCENTILES, gen_length=16, epsilon=[5e-3], prompts=2, batch=2),
}


def measure(lab: Lab, cell: Cell) -> Record:
    curve = decode_cell(lab, cell).curve
    return {
        "flops_ratio": [a / b for a, b in zip(curve["flops"], curve["baseline_flops"], strict=True)],
        "active_ratio": [a / b for a, b in zip(curve["active"], curve["present"], strict=True)],
    }


def table(records: list[Record]) -> pd.DataFrame:
    rows = []
    for record in records:
        ratio = record["result"]["flops_ratio"]
        row = {name: record["cell"][name] for name in ("percentile", "gen_length", "epsilon")}
        row |= {f"at_{p}": ratio[max(0, round(p / 100 * len(ratio)) - 1)] for p in (25, 50, 75, 100)}
        rises = sum(b > a for a, b in pairwise(ratio))
        rows.append(row | {"mean": sum(ratio) / len(ratio), "rises": rises})
    return pd.DataFrame(rows)


def picture(frame: pd.DataFrame, records: list[Record]) -> Figure:
    points = pd.DataFrame(
        [
            {name: r["cell"][name] for name in ("percentile", "gen_length", "epsilon")}
            | {"progress": (t + 1) / len(r["result"]["flops_ratio"]), "flops_ratio": value}
            for r in records
            for t, value in enumerate(r["result"]["flops_ratio"])
        ]
    )
    points["epsilon"] = points["epsilon"].map("{:g}".format)
    return px.line(points, "progress", "flops_ratio", color="epsilon", facet_col="percentile", facet_row="gen_length")
