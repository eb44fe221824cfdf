"""The experiments on Theorem 1: whether its assumptions A2 and A3 hold, whether its bound holds, and how loose it is.

D_s is the step-wise KL of a position at step s, rho the contraction of A2, L the smoothness of A3.
"""

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

#: Nats. A step-wise KL in float32 below this value may be rounding alone: the ratio of two such values says nothing.
FLOOR = 1e-10
#: The Lipschitz constant of log-softmax from the 2-norm to the max-norm: the gradient e_v - p is at most sqrt(2) long.
L_SM = math.sqrt(2)
_FEWEST = 8  # the fewest points of a fit to one position

Array = Floats


@frozen
class Drift:
    """The changes of the posteriors in an unlocked run of one sequence, with T steps and N positions.

    kl: [T, N], D_s in nats, infinite at s = 0.
    tail: [T, N] bool, whether the network had seen the token of the position both for D_s and for D_{s-1}. This holds
        for s > t* of a position that locks.
    jump: [T, N], the 2-norm of z_s - z_{s-1}, NaN if it was not computed.
    """

    kl: Array
    tail: Flags
    jump: Array


def drifts(lab: Lab, cell: Cell, *, jumps: bool = False) -> Iterator[Drift]:
    """Yield the drifts of a cell's prompts in unlocked runs. jumps: whether to compute `jump`."""
    for number, prompt in enumerate(lab.prompts(cell), cell.get("skip", 0)):
        plain = replace(decoder_of(cell, number), compute=Everything())
        steps = list(decode(lab.lm, [prompt.ids], **plain.keywords(), observe=True))
        kl = np.stack([step.kl[0] for step in steps]).astype(float)
        visible = np.stack([~step.masked[0] for step in steps])
        tail = np.zeros_like(visible)
        # a token that is unmasked in step s - 3 is seen in step s - 2, whose posterior D_{s-1} compares with
        tail[3:] = visible[:-3]
        yield Drift(kl, tail, logit_jumps(lab, steps) if jumps else np.full_like(kl, np.nan))


@torch.inference_mode()
def dense_logits(lab: Lab, step: Step) -> Tensor:
    """Return the logits of the unlocked sampler for the canvas that a step read, [N, V] in float32 or better.

    The unlocked sampler keeps no state, so the canvas decides the logits.
    """
    read = np.where(step.newly_unmasked, lab.lm.mask_id, step.tokens)
    logits = lab.lm.network(torch.from_numpy(read).to(lab.lm.device))[0]
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def logit_jumps(lab: Lab, steps: list[Step]) -> Array:
    """Return the 2-norms of z_s - z_{s-1}, [T, N]; NaN at s = 0."""
    before = None
    rows = []
    for step in steps:
        logits = dense_logits(lab, step)
        if before is None:
            rows.append(torch.full_like(logits[:, 0], torch.nan))
        else:
            rows.append((logits - before).norm(dim=-1))
        before = logits
    return torch.stack(rows).double().numpy(force=True)


def ratios(drift: Drift) -> Array:
    """Return all ratios D_s / D_{s-1} in the tail, [pairs]. A2 says that they are at most rho < 1."""
    pairs = drift.tail[1:] & (drift.kl[:-1] > FLOOR)
    return (drift.kl[1:] / np.maximum(drift.kl[:-1], FLOOR))[pairs]


def position_rhos(drift: Drift) -> Array:
    """Return rho of single positions: exp of the slope of log D_s in the tail, fitted by least squares.

    Positions with fewer than _FEWEST points are left out.
    """
    rhos = []
    for kl, tail in zip(drift.kl.T, drift.tail.T, strict=True):
        steps = np.flatnonzero(tail & (kl > FLOOR))
        if len(steps) >= _FEWEST:
            rhos.append(fit_rho(steps, kl[steps]))
    return np.array(rhos)


def fit_rho(steps: Whole, kl: Array) -> float:
    """Return exp of the slope of log(kl) over the steps, fitted by least squares."""
    return float(np.exp(np.polyfit(steps, np.log(kl), 1)[0]))


def smoothness(drift: Drift) -> Array:
    """Return all |z_s - z_{s-1}| / sqrt(D_{s-1}) in the tail, [pairs]. A3 says that they are at most L."""
    pairs = drift.tail[1:] & (drift.kl[:-1] > FLOOR) & np.isfinite(drift.kl[:-1])
    return (drift.jump[1:] / np.sqrt(np.clip(drift.kl[:-1], FLOOR, None)))[pairs]


def tail_constant(rho: float, smooth: float, steps: Whole | None = None) -> Array | float:
    """Return C_tail of Theorem 1, L_sm L / (1 - sqrt(rho)), or the finite sum in its proof.

    smooth: L.
    steps: the numbers of steps after a lock, for which the finite sum is returned; None for C_tail.
    """
    root = math.sqrt(rho)
    if steps is None:
        return L_SM * smooth / (1 - root) if root < 1 else math.inf
    left = steps.astype(float)
    if root == 1:
        return L_SM * smooth * left
    return L_SM * smooth * ((1 - np.power(root, left)) / (1 - root))


# --- Assumption A2 and its appendix: does the step-wise KL of unlocked runs contract? ---------------------------------


def _contraction(lab: Lab, cell: Cell) -> Record:
    """Return the figures of a cell on A2, see the experiment's note."""
    runs = list(drifts(lab, cell))
    steps = range(1, len(runs[0].kl))
    curve = [float(np.mean(np.concatenate([run.kl[s] for run in runs]))) for s in steps]
    pairs = np.concatenate([ratios(run) for run in runs])
    rhos = np.concatenate([position_rhos(run) for run in runs])
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
    """Return for every position with a tail whether D ever rises in the tail. Values below FLOOR do not count."""
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
    """Return the constants, and the figures of all positions that the cell's runs locked.

    The constants are fitted on other prompts: those that follow the prompts of the cell.
    """
    other_cell = cell | {"prompts": cell["fit_prompts"], "skip": cell["prompts"]}
    others = list(drifts(lab, other_cell, jumps=True))
    rhos = np.concatenate([position_rhos(run) for run in others])
    smooth = np.concatenate([smoothness(run) for run in others])
    locked = [locked_positions(lab, cell, *numbered) for numbered in enumerate(lab.prompts(cell))]
    return {
        "rho": float(np.median(rhos)),
        "rho_above_1": float(np.mean(rhos >= 1)),
        "smooth_max": float(smooth.max()),
        **{name: np.concatenate([part[name] for part in locked]).tolist() for name in locked[0]},
    }


def locked_positions(lab: Lab, cell: Cell, number: int, prompt: Prompt) -> dict[str, Array]:
    """Return arrays with one value per position that locks in the run of a prompt.

    kl: D at the lock, in nats. left: the number of steps after the lock.
    error, error_alone: the errors of the posterior at the lock in nats, see the experiment's note.
    """
    size = lab.lm.config.vocab_size
    decoder = decoder_of(cell, number)
    steps: list[Step] = []
    at_lock: dict[int, tuple[int, float, Tensor]] = {}
    for step in decode(lab.lm, [prompt.ids], **decoder.keywords(), top_k=size):
        for i in step.newly_locked[0].nonzero()[0].tolist():
            at_lock[i] = (step.index, float(step.kl[0, i]), _log_posterior(step, i))
        # without the two tables of the whole vocabulary, which take much memory
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
    """Return the log-probabilities at a position, [V] float64.

    A probability that underflowed counts as the smallest normal float32.
    """
    assert step.top_ids is not None and step.top_probs is not None
    probabilities = np.empty(step.top_ids.shape[-1])
    probabilities[step.top_ids[0, position]] = step.top_probs[0, position]
    return torch.from_numpy(probabilities).clamp(min=torch.finfo(torch.float32).tiny).log()


def _bounds(result: Record) -> list[Json]:
    """Return one table row per way of summing the tail: the infinite sum, and the sum over the steps that were left."""
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
        summed = left if steps == "left" else None
        c_tail = tail_constant(result["rho"], result["smooth_max"], summed)
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
