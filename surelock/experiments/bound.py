"""Theorem 1: does C_tail sqrt(D) bound the error of what locked positions would still have become, and how loosely?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import plotly.express as px
import torch
from plotly.graph_objects import Figure
from torch import Tensor

from surelock.decoding.loop import Step, decode
from surelock.experiments.grid import PAPER, Cell, grid
from surelock.experiments.lab import Lab, decoder_of
from surelock.experiments.prompts import Prompt
from surelock.experiments.runner import Record
from surelock.experiments.theory import (
    Array,
    dense_logits,
    drifts,
    inputs,
    position_rhos,
    prompt_seed,
    smoothness,
    tail_constant,
)

TITLE = "The bound of Theorem 1"
NOTE = """\
error: max over the vocabulary of |log p_T - log p_hat_T| of every locked position: p_hat_T is its posterior at the lock
in the locked run, p_T its posterior in the last step of an unlocked run that replays the same tokens. error_alone: the
theorem's own setting, in which no other position is locked: p_hat_T is the replaying run's posterior at that step.
error_token: of the token alone that stands there; the largest is mostly of tokens nobody would choose.
rho (median of fits to single positions) and L (`smooth`: the largest, or the 99 % quantile, of |z_s - z_{s-1}| /
sqrt(D_{s-1})) come from unlocked runs on other prompts. holds: share of the locked positions with error <= C_tail
sqrt(D); loose: median of bound / error; `_alone`: likewise. steps "all": the theorem's infinite sum, which says nothing
at rho >= 1 (C_tail is infinite, the bound holds emptily and epsilon_at_1 is 0); "left": the proof's own sum over the
steps that were left, which holds for any rho. epsilon_at_1: the epsilon that promises a terminal error of 1 nat.
rank_correlation: of D at the lock and the error."""
EPSILONS = [5e-4, 5e-3, 5e-2]
GRIDS = {
    "stories": grid(epsilon=EPSILONS, gen_length=64, prompts=16, fit_prompts=16),
    "paper": grid(source="mt_bench_subset", epsilon=EPSILONS, gen_length=128, prompts=16, fit_prompts=16, **PAPER),
    "quick": grid(epsilon=[5e-2], gen_length=16, prompts=1, fit_prompts=1),
}


def measure(lab: Lab, cell: Cell) -> Record:
    """The constants, from the prompts after the cell's own; and every position that its own prompts' runs locked."""
    others = list(drifts(lab, cell | {"prompts": cell["fit_prompts"], "skip": cell["prompts"]}, jumps=True))
    rhos, smooth = (np.concatenate([f(run) for run in others]) for f in (position_rhos, smoothness))
    locked = [locked_positions(lab, cell, prompt) for prompt in lab.prompts(cell)]
    return {
        "rho": float(np.median(rhos)),
        "rho_above_1": float(np.mean(rhos >= 1)),
        "smooth_max": float(smooth.max()),
        "smooth_99": float(np.quantile(smooth, 0.99)),
        **{name: np.concatenate([part[name] for part in locked]).tolist() for name in locked[0]},
    }


def locked_positions(lab: Lab, cell: Cell, prompt: Prompt) -> dict[str, Array]:
    """Of each position that locks: kl (D at the lock), left (steps that follow), and its errors in nats."""
    size = lab.lm.network.config.vocab_size
    decoder = decoder_of(cell, prompt_seed(cell, prompt.key))
    steps: list[Step] = []
    at_lock: dict[int, tuple[int, float, Tensor]] = {}
    for step in decode(lab.lm, [prompt.ids], **decoder.keywords(), top_k=size):
        for i in step.newly_locked[0].nonzero()[:, 0].tolist():
            at_lock[i] = (step.index, float(step.kl[0, i]), _log_posterior(step, i))
        steps.append(replace(step, top_ids=None, top_probs=None))  # two tables of the whole vocabulary
    fed = list(inputs(lab, steps))
    final = dense_logits(lab, fed[-1]).log_softmax(dim=-1).double().cpu()
    out: dict[str, list[float]] = {name: [] for name in ("kl", "left", "error", "error_alone", "error_token")}
    for t in sorted({t for t, _, _ in at_lock.values()}):
        alone = dense_logits(lab, fed[t]).log_softmax(dim=-1).double().cpu()
        for i, (locked_at, kl, log_p) in at_lock.items():
            if locked_at == t:
                error, error_alone = ((final[i] - other).abs() for other in (log_p, alone[i]))
                own = error[steps[-1].tokens[0, i]]
                values = (kl, len(fed) - 1 - t, error.max(), error_alone.max(), own)
                for name, value in zip(out, values, strict=True):
                    out[name].append(float(f"{float(value):.6g}"))
    return {name: np.array(values) for name, values in out.items()}


def _log_posterior(step: Step, position: int) -> Tensor:
    """[V] float64 log-probabilities; those that underflowed count as the smallest normal float32."""
    assert step.top_ids is not None and step.top_probs is not None
    probabilities = torch.empty(step.top_ids.shape[-1], dtype=torch.float64)
    probabilities[step.top_ids[0, position]] = step.top_probs[0, position].double()
    return probabilities.clamp(min=torch.finfo(torch.float32).tiny).log()


def table(records: list[Record]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"epsilon": r["cell"]["epsilon"], "gen_length": r["cell"]["gen_length"]} | row
            for r in records
            for row in _rows(r["result"])
        ]
    )


def _rows(result: Record) -> list[dict[str, Any]]:
    """One row for each way of taking L and of summing the tail."""
    kl, left, error, alone = (np.array(result[name]) for name in ("kl", "left", "error", "error_alone"))
    errors = {
        "locked": len(kl),
        "error_50": float(np.median(error)),
        "error_95": float(np.quantile(error, 0.95)),
        "error_token_50": float(np.median(result["error_token"])),
        "error_token_95": float(np.quantile(result["error_token"], 0.95)),
        "error_alone_50": float(np.median(alone)),
        "rank_correlation": float(pd.Series(kl).rank().corr(pd.Series(error).rank())),
    }
    rows = []
    for smooth in ("max", "99"):
        constant = result[f"smooth_{smooth}"]
        for steps in ("all", "left"):
            c_tail = tail_constant(result["rho"], constant, left if steps == "left" else None)
            bound = c_tail * np.sqrt(kl)
            largest = float(np.max(c_tail))
            rows.append(
                {"smooth": smooth, "steps": steps, "rho": result["rho"], "L": constant, "C_tail": largest}
                | {"holds": float(np.mean(error <= bound)), "loose": float(np.median(bound / error))}
                | {"holds_alone": float(np.mean(alone <= bound))}
                | {"epsilon_at_1": 1 / largest**2}
                | errors
            )
    return rows


def picture(frame: pd.DataFrame, records: list[Record]) -> Figure:
    points = pd.concat(
        [
            pd.DataFrame({name: r["result"][name] for name in ("kl", "error", "left")}).assign(
                epsilon=f"{r['cell']['epsilon']:g}"
            )
            for r in records
        ]
    )
    return px.scatter(points[points["kl"] > 0], "kl", "error", color="epsilon", log_x=True, log_y=True, opacity=0.5)
