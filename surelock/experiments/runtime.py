"""Experiment 4 and its appendix: end-to-end and step-wise throughput, over batch size and generated length."""

from __future__ import annotations

import pandas as pd
import plotly.express as px
from plotly.graph_objects import Figure

from surelock.experiments.grid import PAPER, grid
from surelock.experiments.runner import Record
from surelock.experiments.timing import compare_speed

TITLE = "Runtime (Experiment 4)"
NOTE = """\
E2E-TPS: unmasked tokens over the wall-clock time of all decoding calls, from before the first to after the last.
tps_ratio_min, tps_ratio_max: of single repeats; tps_ratio is empty where their quartiles lie further apart than it lies
from 1. step_ratio_first, step_ratio_last: ratio of Step-TPS over the first and the last eighth of the steps.
efficiency: tps_ratio * flops_ratio, 1 when every FLOP saved is time saved. Run it in one process on a quiet machine."""
GRIDS = {
    "stories": grid(batch=[1, 2, 4, 8], gen_length=[64, 256], epsilon=5e-3, prompts=8, repeats=4),
    "paper": grid(
        **PAPER | {"batch": [1, 2, 4, 8]},
        source="mt_bench_subset",
        gen_length=[64, 256, 1024],
        epsilon=5e-3,
        prompts=32,
        repeats=4,
    ),
    "quick": grid(batch=[1, 2], gen_length=12, epsilon=5e-3, prompts=2, repeats=4),
}
measure = compare_speed


def table(records: list[Record]) -> pd.DataFrame:
    rows = []
    for record in records:
        result = record["result"]
        steps = [a / b for a, b in zip(result["step_tps"], result["step_tps_base"], strict=True)]
        eighth = max(1, len(steps) // 8)
        row = {name: record["cell"][name] for name in ("batch", "gen_length", "epsilon")}
        row |= {name: result[name] for name in ("e2e_tps_base", "e2e_tps", "tps_ratio", "flops_ratio")}
        row |= {"tps_ratio_min": min(result["tps_ratios"]), "tps_ratio_max": max(result["tps_ratios"])}
        row |= {"step_ratio_first": sum(steps[:eighth]) / eighth, "step_ratio_last": sum(steps[-eighth:]) / eighth}
        ratio = result["tps_ratio"]
        row |= {"efficiency": None if ratio is None else ratio * result["flops_ratio"]}
        rows.append(row | {"device": result["device"], "threads": result["threads"]})
    return pd.DataFrame(rows)


def picture(frame: pd.DataFrame, records: list[Record]) -> Figure:
    points = pd.DataFrame(
        [
            {name: str(r["cell"][name]) for name in ("batch", "gen_length")}
            | {"progress": (t + 1) / len(r["result"]["step_tps"]), "step_tps_ratio": ours / base}
            for r in records
            for t, (ours, base) in enumerate(zip(r["result"]["step_tps"], r["result"]["step_tps_base"], strict=True))
        ]
    )
    return px.line(points, "progress", "step_tps_ratio", color="batch", facet_col="gen_length")
