"""Theorem 1: the step-wise KL, the contraction rho of A2, the smoothness L of A3; does the bound hold, how loosely?"""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from surelock.decoding.compute import Everything
from surelock.decoding.loop import decode
from surelock.decoding.step import Step
from surelock.research.experiment import Experiment, row
from surelock.research.lab import Lab, decoder_of
from surelock.research.paper import EPSILONS
from surelock.research.prompts import Prompt
from surelock.research.runner import PAPER, Cell, Record, grid
from surelock.values import Flags, Floats, Json, Whole, frozen

#: Nats below which a step-wise KL in float32 may be rounding alone: a ratio of two such says nothing.
FLOOR = 1e-10
# of log-softmax from the 2-norm to the max-norm: its gradient e_v - p is at most sqrt(2) long
L_SM = math.sqrt(2)
_FEWEST = 8  # points for a fit to one position

Array = Floats


@frozen
class Drift:
    """An unlocked run of one sequence. kl [T, N]: D_s, infinite at s = 0. tail [T, N] bool: D_s and D_{s-1} both
    belong to a position whose token was visible to the network, as for s > t* of a position that locks.
    jump [T, N]: 2-norm of z_s - z_{s-1}, NaN where not asked for.
    """

    kl: Array
    tail: Flags
    jump: Array


def drifts(lab: Lab, cell: Cell, *, jumps: bool = False) -> Iterator[Drift]:
    for number, prompt in enumerate(lab.prompts(cell), cell.get("skip", 0)):
        plain = replace(decoder_of(cell, number), compute=Everything())
        steps = list(decode(lab.lm, [prompt.ids], **plain.keywords(), observe=True))
        kl = np.stack([step.kl[0] for step in steps]).astype(float)
        visible = np.stack([~step.masked[0] for step in steps])
        tail = np.zeros_like(visible)
        tail[3:] = visible[:-3]  # unmasked in step s - 3, seen in s - 2: what D_{s-1} compares with
        yield Drift(kl, tail, logit_jumps(lab, steps) if jumps else np.full_like(kl, np.nan))


@torch.inference_mode()
def dense_logits(lab: Lab, step: Step) -> Tensor:
    """[N, V] logits of the unlocked sampler on what a step read: it keeps no state, so that is all it takes."""
    read = np.where(step.newly_unmasked, lab.lm.mask_id, step.tokens)
    logits = lab.lm.network(torch.from_numpy(read).to(lab.lm.device))[0]
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def logit_jumps(lab: Lab, steps: list[Step]) -> Array:
    """[T, N] 2-norm of z_s - z_{s-1}; NaN at s = 0."""
    before = None
    rows = []
    for step in steps:
        logits = dense_logits(lab, step)
        rows.append(
            torch.full_like(logits[:, 0], torch.nan)
            if before is None
            else (logits - before).norm(dim=-1)
        )
        before = logits
    return torch.stack(rows).double().numpy(force=True)


def ratios(drift: Drift) -> Array:
    """D_s / D_{s-1} over the tail, as a flat list: A2 wants all at most rho < 1."""
    pairs = drift.tail[1:] & (drift.kl[:-1] > FLOOR)
    return (drift.kl[1:] / np.maximum(drift.kl[:-1], FLOOR))[pairs]


def position_rhos(drift: Drift) -> Array:
    """rho by position: exp of the slope of log D_s over its tail, by least squares."""
    rhos = []
    for kl, tail in zip(drift.kl.T, drift.tail.T, strict=True):
        steps = np.flatnonzero(tail & (kl > FLOOR))
        if len(steps) >= _FEWEST:
            rhos.append(fit_rho(steps, kl[steps]))
    return np.array(rhos)


def fit_rho(steps: Whole, kl: Array) -> float:
    return float(np.exp(np.polyfit(steps, np.log(kl), 1)[0]))


def smoothness(drift: Drift) -> Array:
    """|z_s - z_{s-1}| / sqrt(D_{s-1}) over the tail, as a flat list: A3 wants all at most L."""
    pairs = drift.tail[1:] & (drift.kl[:-1] > FLOOR) & np.isfinite(drift.kl[:-1])
    return (drift.jump[1:] / np.sqrt(np.clip(drift.kl[:-1], FLOOR, None)))[pairs]


def tail_constant(rho: float, smooth: float, steps: Whole | None = None) -> Array | float:
    """C_tail = L_sm L / (1 - sqrt(rho)), or with the `steps` that follow a lock the proof's own finite sum."""
    root = math.sqrt(rho)
    if steps is None:
        return L_SM * smooth / (1 - root) if root < 1 else math.inf
    left = steps.astype(float)
    return L_SM * smooth * (left if root == 1 else (1 - np.power(root, left)) / (1 - root))


# --- Assumption A2 and its appendix: does the step-wise KL of unlocked runs contract? ---------------------------------


def _contraction(lab: Lab, cell: Cell) -> Record:
    runs = list(drifts(lab, cell))
    steps = range(1, len(runs[0].kl))
    curve = [float(np.mean(np.concatenate([run.kl[s] for run in runs]))) for s in steps]
    pairs, rhos = (np.concatenate([f(run) for run in runs]) for f in (ratios, position_rhos))
    rising = np.concatenate([_rises(run) for run in runs])
    return {
        "rho_mean": fit_rho(np.array(steps), np.array(curve)),
        "mean_rises": float(np.mean(np.diff(curve) > 0)),
        "rises": float(np.mean(pairs > 1)),
        "positions_ok": float(np.mean(~rising)),
        "rho": float(np.median(rhos)),
        "rho_above_1": float(np.mean(rhos >= 1)),
    }


def _rises(run: Drift) -> Flags:
    """By position with a tail: whether D ever rises in it, above the floor."""
    up = run.tail[1:] & (run.kl[1:] > run.kl[:-1]) & (run.kl[:-1] > FLOOR)
    return np.any(up[:, np.any(run.tail, axis=0)], axis=0)


_CELLS = ("gen_length", "temperature", "prompts")
_RISES = ("rho_mean", "mean_rises", "rises", "positions_ok", "rho", "rho_above_1")
CONTRACTION = Experiment(
    title="Geometric tail contraction (Assumption A2)",
    shows="Figure 5",
    note="""\
Unlocked runs. mean_rises: steps at which the KL averaged over positions and prompts (the paper's figure) is above the
step before; rho_mean: fitted to that average. The tail of a position is what follows once the network has seen its
token. A2 wants D_s <= rho D_{s-1} with one rho < 1 for every pair of the tail: rises is the share of pairs with a ratio
above 1, which no rho < 1 allows; positions_ok the share of positions without any. rho: median of the fits to single
positions; rho_above_1: the share of fits at 1 or more.""",
    grids={
        "stories": grid(gen_length=[64, 128], temperature=[0.0, 1.0], prompts=16),
        "paper": grid(source="mt_bench_subset", gen_length=128, prompts=16, **PAPER),
        "quick": grid(gen_length=24, prompts=2),
    },
    measure=_contraction,
    table=lambda records: pd.DataFrame([row(record, _CELLS, _RISES) for record in records]),
)


# --- Theorem 1: does C_tail sqrt(D) bound the error of what locked positions would still have become? -----------------

_ERRORS = ("kl", "left", "error", "error_alone")


def _bound(lab: Lab, cell: Cell) -> Record:
    """The constants, from the prompts after the cell's own; and every position that its own prompts' runs locked."""
    others = list(
        drifts(lab, cell | {"prompts": cell["fit_prompts"], "skip": cell["prompts"]}, jumps=True)
    )
    rhos, smooth = (np.concatenate([f(run) for run in others]) for f in (position_rhos, smoothness))
    locked = [locked_positions(lab, cell, *numbered) for numbered in enumerate(lab.prompts(cell))]
    return {
        "rho": float(np.median(rhos)),
        "rho_above_1": float(np.mean(rhos >= 1)),
        "smooth_max": float(smooth.max()),
        **{name: np.concatenate([part[name] for part in locked]).tolist() for name in locked[0]},
    }


def locked_positions(lab: Lab, cell: Cell, number: int, prompt: Prompt) -> dict[str, Array]:
    """By position that locks: kl (D at the lock), left (steps that follow), and its errors in nats."""
    size = lab.lm.config.vocab_size
    decoder = decoder_of(cell, number)
    steps: list[Step] = []
    at_lock: dict[int, tuple[int, float, Tensor]] = {}
    for step in decode(lab.lm, [prompt.ids], **decoder.keywords(), top_k=size):
        for i in step.newly_locked[0].nonzero()[0].tolist():
            at_lock[i] = (step.index, float(step.kl[0, i]), _log_posterior(step, i))
        # two tables of the whole vocabulary
        steps.append(replace(step, top_ids=None, top_probs=None))
    final = dense_logits(lab, steps[-1]).log_softmax(dim=-1).double().cpu()
    out: dict[str, list[float]] = {name: [] for name in _ERRORS}
    for t in sorted({t for t, _, _ in at_lock.values()}):
        alone = dense_logits(lab, steps[t]).log_softmax(dim=-1).double().cpu()
        for i, (locked_at, kl, log_p) in at_lock.items():
            if locked_at == t:
                error, error_alone = ((final[i] - other).abs() for other in (log_p, alone[i]))
                values = (kl, len(steps) - 1 - t, error.max(), error_alone.max())
                for name, value in zip(out, values, strict=True):
                    out[name].append(float(f"{float(value):.6g}"))
    return {name: np.array(values) for name, values in out.items()}


def _log_posterior(step: Step, position: int) -> Tensor:
    """[V] float64 log-probabilities; those that underflowed count as the smallest normal float32."""
    assert step.top_ids is not None and step.top_probs is not None
    probabilities = np.empty(step.top_ids.shape[-1])
    probabilities[step.top_ids[0, position]] = step.top_probs[0, position]
    return torch.from_numpy(probabilities).clamp(min=torch.finfo(torch.float32).tiny).log()


def _bounds(result: Record) -> list[Json]:
    """One row per way of summing the tail."""
    kl, left, error, alone = (np.array(result[name]) for name in _ERRORS)
    errors = {
        "locked": len(kl),
        "error_50": float(np.median(error)),
        "error_95": float(np.quantile(error, 0.95)),
        "error_alone_50": float(np.median(alone)),
        "rank_correlation": float(pd.Series(kl).rank().corr(pd.Series(error).rank())),
    }
    rows = []
    for steps in ("all", "left"):
        c_tail = tail_constant(
            result["rho"], result["smooth_max"], left if steps == "left" else None
        )
        bound = c_tail * np.sqrt(kl)
        largest = float(np.max(c_tail))
        line = {"steps": steps, "rho": result["rho"], "L": result["smooth_max"], "C_tail": largest}
        line |= {"holds": float(np.mean(error <= bound)), "loose": float(np.median(bound / error))}
        line |= {"holds_alone": float(np.mean(alone <= bound)), "epsilon_at_1": 1 / largest**2}
        rows.append(line | errors)
    return rows


BOUND = Experiment(
    title="The bound of Theorem 1",
    shows="Theorem 1",
    note="""\
error: max over the vocabulary of |log p_T - log p_hat_T| of every locked position: p_hat_T is its posterior at the lock
in the locked run, p_T its posterior in the last step of an unlocked run that replays the same tokens. error_alone: the
theorem's own setting, in which no other position is locked: p_hat_T is the replaying run's posterior at that step.
rho (median of fits to single positions) and L (the largest |z_s - z_{s-1}| / sqrt(D_{s-1})) come from unlocked runs on
other prompts. holds: share of the locked positions with error <= C_tail
sqrt(D); loose: median of bound / error; `_alone`: likewise. steps "all": the theorem's infinite sum, which says nothing
at rho >= 1 (C_tail is infinite, the bound holds emptily and epsilon_at_1 is 0); "left": the proof's own sum over the
steps that were left, which holds for any rho. epsilon_at_1: the epsilon that promises a terminal error of 1 nat.
rank_correlation: of D at the lock and the error.""",
    grids={
        "stories": grid(epsilon=EPSILONS, gen_length=64, prompts=16, fit_prompts=16),
        "paper": grid(
            source="mt_bench_subset",
            epsilon=EPSILONS,
            gen_length=128,
            prompts=16,
            fit_prompts=16,
            **PAPER,
        ),
        "quick": grid(epsilon=[5e-2], gen_length=16, prompts=1, fit_prompts=1),
    },
    measure=_bound,
    table=lambda records: pd.DataFrame(
        [
            row(record, ("epsilon", "gen_length")) | bound
            for record in records
            for bound in _bounds(record["result"])
        ]
    ),
)
