"""UpdateMASK (Algorithm 1, line 16): LLaDA's sampler and its variants.

A policy is one small function from a posterior to a score per masked position; the best scores are committed. What a
position would become, its candidate, does not depend on the policy.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def choose_tokens(logits: Tensor, banned: list[int], temperature: float, uniform: Tensor | None) -> Tensor:
    """Candidate tokens [C] of raw logits [C, V]: the argmax, or Gumbel-max over exp(logit) / (-log uniform)^T.

    uniform: [C, V] float64 in (0, 1), None at temperature 0. banned tokens (the mask, a suppressed EOS) never win.
    Overwrites both.
    """
    if uniform is not None:
        logits = uniform.log_().neg_().log_().mul_(-temperature).add_(logits)
    logits[:, banned] = -torch.inf
    return logits.argmax(dim=-1)


def _entropy(p: Tensor) -> Tensor:
    return torch.special.entr(p).sum(dim=-1).neg_()


def _margin(p: Tensor) -> Tensor:
    first, second = p.topk(2, dim=-1).values.unbind(dim=-1)
    return first - second


#: Scores [C] from the raw temperature-1 posterior p [C, V]. Of the other policies, `low_confidence` and `threshold`
#: score by the candidate's own probability, `random` draws its scores and `replay` needs none.
SCORES: dict[str, Callable[[Tensor], Tensor]] = {"entropy": _entropy, "margin": _margin}


def rank(scores: NDArray, late: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The order of committing: high scores first, the lowest position first among equals, late ones behind all."""
    return np.lexsort((-scores, late))


def commit_count(scores: NDArray, late: NDArray[np.bool_], quota: int, last_step: bool, threshold: float | None) -> int:
    """How many of the ranked positions a step commits: the quota, or with a threshold all above it, at least one."""
    if last_step:
        return len(scores)
    if threshold is None:
        return min(quota, len(scores))
    return max(1, int(((scores > threshold) & ~late).sum()))
