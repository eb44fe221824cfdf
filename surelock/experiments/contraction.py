"""Assumption A2 and its appendix: does the step-wise KL of unlocked runs contract?"""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.express as px
from numpy.typing import NDArray
from plotly.graph_objects import Figure

from surelock.experiments.grid import PAPER, Cell, grid
from surelock.experiments.lab import Lab
from surelock.experiments.runner import Record
from surelock.experiments.theory import FLOOR, Drift, drifts, fit_rho, position_rhos, ratios

TITLE = "Geometric tail contraction (Assumption A2)"
NOTE = """\
Unlocked runs. mean_rises: steps at which the KL averaged over positions and prompts (the paper's figure) is above the
step before; rho_mean: fitted to that average. The tail of a position is what follows once the network has seen its
token. A2 wants D_s <= rho D_{s-1} with one rho < 1 for every pair of the tail: rises is the share of pairs with a ratio
above 1, which no rho < 1 allows; positions_ok the share of positions without any; ratio_50 and ratio_90 are quantiles
of the ratio; rho: median of the fits to single positions, rho_90 their 90 % quantile, rho_above_1 the share of fits at
1 or more. settled: share of the tail with D at most 1e-10 nats, where float32 cannot tell KL from rounding."""
GRIDS = {
    "stories": grid(gen_length=[64, 128], temperature=[0.0, 1.0], prompts=16),
    "paper": grid(source="mt_bench_subset", gen_length=128, prompts=16, **PAPER),
    "quick": grid(gen_length=24, prompts=2),
}


def measure(lab: Lab, cell: Cell) -> Record:
    runs = list(drifts(lab, cell))
    steps = range(1, len(runs[0].kl))
    curve = [float(np.mean(np.concatenate([run.kl[s] for run in runs]))) for s in steps]
    tails = [run.kl[s][run.tail[s]] for run in runs for s in steps]
    pairs, rhos = (np.concatenate([f(run) for run in runs]) for f in (ratios, position_rhos))
    rising = np.concatenate([_rises(run) for run in runs])
    return {
        "mean_kl": curve,
        "rho_mean": fit_rho(np.array(steps), np.array(curve)),
        "mean_rises": float(np.mean(np.diff(curve) > 0)),
        "rises": float(np.mean(pairs > 1)),
        "positions_ok": float(np.mean(~rising)),
        "ratio_50": float(np.quantile(pairs, 0.5)),
        "ratio_90": float(np.quantile(pairs, 0.9)),
        "rho": float(np.median(rhos)),
        "rho_90": float(np.quantile(rhos, 0.9)),
        "rho_above_1": float(np.mean(rhos >= 1)),
        "settled": float(np.mean(np.concatenate(tails) <= FLOOR)),
    }


def _rises(run: Drift) -> NDArray[np.bool_]:
    """Of each position with a tail: whether D ever rises in it, above the floor."""
    up = run.tail[1:] & (run.kl[1:] > run.kl[:-1]) & (run.kl[:-1] > FLOOR)
    return np.any(up[:, np.any(run.tail, axis=0)], axis=0)


def table(records: list[Record]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {name: r["cell"][name] for name in ("gen_length", "temperature", "prompts")}
            | {name: value for name, value in r["result"].items() if name != "mean_kl"}
            for r in records
        ]
    )


def picture(frame: pd.DataFrame, records: list[Record]) -> Figure:
    points = pd.DataFrame(
        [
            {"gen_length": r["cell"]["gen_length"], "temperature": r["cell"]["temperature"], "step": s, "kl": kl}
            for r in records
            for s, kl in enumerate(r["result"]["mean_kl"], start=1)
        ]
    )
    points["temperature"] = points["temperature"].astype(str)
    return px.line(points, "step", "kl", color="temperature", facet_col="gen_length", log_y=True)
