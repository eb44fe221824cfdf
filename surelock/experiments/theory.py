"""Theorem 1's quantities, measured: step-wise KL, the contraction rho of A2, the smoothness L of A3, C_tail."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from surelock.decoding.compute import Everything
from surelock.decoding.loop import Step, decode
from surelock.experiments.grid import Cell
from surelock.experiments.lab import Lab, decoder_of

#: Nats below which a step-wise KL in float32 may be rounding alone: a ratio of two such says nothing.
FLOOR = 1e-10
L_SM = math.sqrt(2)  # of log-softmax from the 2-norm to the max-norm: its gradient e_v - p is at most sqrt(2) long
_FEWEST = 8  # points for a fit to one position

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Drift:
    """An unlocked run of one sequence. kl [T, N]: D_s, infinite at s = 0. tail [T, N] bool: D_s and D_{s-1} both
    belong to a position whose token was visible to the network, as for s > t* of a position that locks.
    jump [T, N]: 2-norm of z_s - z_{s-1}, NaN where not asked for.
    """

    kl: Array
    tail: NDArray[np.bool_]
    jump: Array


def drifts(lab: Lab, cell: Cell, *, jumps: bool = False) -> Iterator[Drift]:
    """The unlocked runs of the cell's prompts."""
    for prompt in lab.prompts(cell):
        plain = replace(decoder_of(cell, prompt_seed(cell, prompt.key)), compute=Everything())
        steps = list(decode(lab.lm, [prompt.ids], **plain.keywords(), observe=True))
        kl = np.stack([step.kl[0].numpy() for step in steps]).astype(float)
        visible = np.stack([~step.masked[0].numpy() for step in steps])
        tail = np.zeros_like(visible)
        tail[3:] = visible[:-3]  # unmasked in step s - 3, seen in s - 2: what D_{s-1} compares with
        yield Drift(kl, tail, logit_jumps(lab, steps) if jumps else np.full_like(kl, np.nan))


def prompt_seed(cell: Cell, key: object) -> int:
    """The number of a prompt, as a seed; ids that are no numbers have none."""
    return key if isinstance(key, int) else 0


def inputs(lab: Lab, steps: list[Step]) -> Iterator[Tensor]:
    """[1, N] tokens that the network saw in each step: those after the step before."""
    first = steps[0]
    yield torch.where(first.masked | first.newly_unmasked, lab.lm.mask_id, first.tokens)
    for step in steps[:-1]:
        yield step.tokens


@torch.inference_mode()
def dense_logits(lab: Lab, tokens: Tensor) -> Tensor:
    """[N, V] logits of the unlocked sampler in a step with this input: it keeps no state, so that is all it takes."""
    logits = lab.lm.network(tokens.to(lab.lm.device))[0]
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def logit_jumps(lab: Lab, steps: list[Step]) -> Array:
    """[T, N] 2-norm of z_s - z_{s-1}; NaN at s = 0."""
    before, rows = None, []
    for tokens in inputs(lab, steps):
        logits = dense_logits(lab, tokens)
        rows.append(torch.full_like(logits[:, 0], torch.nan) if before is None else (logits - before).norm(dim=-1))
        before = logits
    return torch.stack(rows).double().numpy(force=True)


def ratios(drift: Drift) -> Array:
    """D_s / D_{s-1} over the tail, as a flat list: A2 wants all at most rho < 1."""
    pairs = drift.tail[1:] & (drift.kl[:-1] > FLOOR)
    return (drift.kl[1:] / np.maximum(drift.kl[:-1], FLOOR))[pairs]


def position_rhos(drift: Drift) -> Array:
    """rho of each position: exp of the slope of log D_s over its tail, by least squares."""
    found = []
    for kl, tail in zip(drift.kl.T, drift.tail.T, strict=True):
        steps = np.flatnonzero(tail & (kl > FLOOR))
        if len(steps) >= _FEWEST:
            found.append(fit_rho(steps, kl[steps]))
    return np.array(found)


def fit_rho(steps: NDArray[np.int64], kl: Array) -> float:
    """exp of the least-squares slope of log D over s."""
    return float(np.exp(np.polyfit(steps, np.log(kl), 1)[0]))


def smoothness(drift: Drift) -> Array:
    """|z_s - z_{s-1}| / sqrt(D_{s-1}) over the tail, as a flat list: A3 wants all at most L."""
    pairs = drift.tail[1:] & (drift.kl[:-1] > FLOOR) & np.isfinite(drift.kl[:-1])
    return (drift.jump[1:] / np.sqrt(np.clip(drift.kl[:-1], FLOOR, None)))[pairs]


def tail_constant(rho: float, smooth: float, steps: NDArray[np.int64] | None = None) -> Array | float:
    """C_tail = L_sm L / (1 - sqrt(rho)), infinite for rho >= 1.

    With the number of `steps` that follow a lock, the proof's own finite sum instead: it holds for any rho.
    """
    root = math.sqrt(rho)
    if steps is None:
        return L_SM * smooth / (1 - root) if root < 1 else math.inf
    left = steps.astype(float)
    return L_SM * smooth * (left if root == 1 else (1 - np.power(root, left)) / (1 - root))
