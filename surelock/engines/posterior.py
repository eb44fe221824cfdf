"""Reads posteriors from logits, a few rows at a time.

The logits of a chunk are computed and read. Those of watched rows are kept in the dtype of the network with their
log-sum-exp: this is the posterior without loss, in bfloat16 at half the memory of float32 probabilities.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from surelock.decoding.step import Plan, Reading
from surelock.engines.chunks import chunk_rows, even
from surelock.engines.stopwatch import Stopwatch

# Of one table [rows, V] in the wide dtype.
_CHUNK_BYTES = {"cpu": 5 * 2**20, "cuda": 2**27}
_BY_TOKEN = {"cpu"}  # devices on which noise has one number for each token, as in recorded runs; see `choose_by_span`


def kl_divergence(p: Tensor, logits: Tensor, lse: Tensor, other: Tensor, other_lse: Tensor) -> Tensor:
    """Return KL(p || q) in nats, [R], of p = softmax(logits) from q = softmax(other).

    p, logits, other: [R, V].
    lse, other_lse: [R], the log-sum-exp of `logits` and of `other`.

    Computed as sum_v p (delta + expm1(-delta)) with delta = log p - log q. The added terms p expm1(-delta) sum to zero
    and make every term at least zero, so no digits are lost when p and q nearly agree.
    """
    minus_delta = torch.sub(other, logits).add_((lse - other_lse)[:, None])
    return torch.expm1(minus_delta).sub_(minus_delta).mul_(p).sum(dim=-1)


def choose_tokens(logits: Tensor, banned: list[int], temperature: float, uniform: Tensor | None) -> Tensor:
    """Return candidate tokens [C]: the argmax, or Gumbel-max over exp(logit) / (-log uniform)^T.

    logits: [C, V], overwritten.
    banned: tokens that are never chosen, such as the mask.
    temperature: T.
    uniform: [C, V] float64 in (0, 1), overwritten; None at temperature 0.
    """
    if uniform is not None:
        logits = uniform.log_().neg_().log_().mul_(-temperature).add_(logits)
    for token in banned:
        logits[:, token] = -torch.inf
    return logits.max(dim=-1).indices  # the first among equals, as argmax, which takes three times as long on a CPU


def choose_by_span(logits: Tensor, banned: list[int], temperature: float, uniform: Tensor) -> Tensor:
    """Return candidate tokens [C]: by Gumbel-max a span of tokens, then by Gumbel-max a token of the span.

    The distribution is that of `choose_tokens`, softmax(logits / T), from 2 sqrt(V) numbers for each candidate instead
    of V. So a step draws those of all its candidates at once, whatever the vocabulary.

    logits: [C, V], overwritten.
    banned: tokens that are never chosen, such as the mask.
    temperature: T.
    uniform: [C, number + size of `spans(V)`] float64 in [0, 1), overwritten.
    """
    number, size = spans(logits.shape[1])
    for token in banned:
        logits[:, token] = -torch.inf
    temperature = min(max(temperature, 1e-30), 1e30)  # what float32 divides by
    logits.sub_(logits.amax(dim=-1, keepdim=True)).div_(temperature)
    table = F.pad(logits, (0, number * size - logits.shape[1]), value=-torch.inf).view(-1, number, size)
    of_spans, of_tokens = uniform.log_().neg_().log_().neg_().split((number, size), dim=-1)
    span = of_spans.add(table.exp().sum(dim=-1).log()).argmax(dim=-1)
    token = of_tokens.add(table[torch.arange(len(span), device=span.device), span]).argmax(dim=-1)
    return token.add_(span, alpha=size)


def spans(vocab_size: int) -> tuple[int, int]:
    """Return the number and the size of the spans that `choose_by_span` divides a vocabulary into: about sqrt(V)."""
    size = 2 ** round(math.log2(vocab_size) / 2)
    return -(-vocab_size // size), size


def _entropy(p: Tensor) -> Tensor:
    return torch.special.entr(p).sum(dim=-1).neg_()


def _margin(p: Tensor) -> Tensor:
    first, second = p.topk(2, dim=-1).values.unbind(dim=-1)
    return first - second


#: Scores [C] of posteriors p [C, V] at temperature 1, by `UnmaskPolicy.scores`. Any other name is the probability of
#: the candidate token.
_SCORES: dict[str, Callable[[Tensor], Tensor]] = {"entropy": _entropy, "margin": _margin}


class Reader:
    """Reads the posteriors of a run step by step, and keeps those of watched rows.

    slots: the number of positions of the run.
    vocab_size: V.
    dtype, device: those of the logits.
    watch: the stopwatch from which observation is excluded.
    """

    def __init__(self, slots: int, vocab_size: int, dtype: torch.dtype, device: torch.device, watch: Stopwatch) -> None:
        wide = torch.promote_types(dtype, torch.float32)
        chunk_bytes = _CHUNK_BYTES.get(device.type, _CHUNK_BYTES["cpu"])
        self._rows, self._few = chunk_rows(chunk_bytes, vocab_size * wide.itemsize)
        self._raw = torch.empty(min(slots, self._rows), vocab_size, dtype=dtype, device=device)
        self._kept: Tensor | None = None  # [slots, V], made when a posterior is watched
        self._kept_lse = torch.empty(slots, dtype=wide, device=device)
        self._has = np.zeros(slots, dtype=bool)
        self._watch = watch

    def read(
        self, logits: Callable[[int, int, Tensor], Tensor], rows: NDArray[np.int64], plan: Plan, reading: Reading
    ) -> None:
        """Fill `reading` with confidences, candidates, KLs and likely tokens.

        logits: (start, stop, out) -> the logits of `rows[start:stop]`, written to `out` [stop - start, V].
        rows: [K] int64, ascending, the rows to read; all candidates are among them.
        """
        self._has[plan.outdated] = False
        uniform = _uniform(plan, self._raw)
        for part in even(len(rows), self._rows):
            raw, own = logits(part.start, part.stop, self._raw[: part.stop - part.start]), rows[part]
            for few in even(len(own), self._few):
                self._read(raw[few], own[few], uniform, plan, reading)

    def _read(self, raw: Tensor, own: NDArray[np.int64], uniform: Tensor | None, plan: Plan, reading: Reading) -> None:
        """Read the posteriors of a few rows.

        raw: [K, V], their logits.
        own: [K] int64, ascending, their numbers.
        uniform: the random numbers of all candidates of the step, see `_uniform`.
        """
        z = raw.to(self._kept_lse.dtype)
        p = z.softmax(dim=-1)
        confidence = p.amax(dim=-1)
        lse = z.amax(dim=-1) - confidence.log()
        total, reading.confidence[own] = _to_host(torch.stack((z.sum(dim=-1), confidence)))
        reading.finite &= bool(np.isfinite(total).all())
        choosers = np.flatnonzero(plan.chooses[own])
        if len(choosers) and plan.scores is not None:
            first = int(plan.chooses[: own[choosers[0]]].sum())  # of the candidates
            which = np.arange(first, first + len(choosers))
            reading.tokens[which], reading.score[which] = _to_host(_choose(z, p, choosers, which, uniform, plan))
        if plan.top_k:
            with self._watch.excluded():
                probs, ids = p.topk(plan.top_k, dim=-1)
                reading.top_ids[own], reading.top_probs[own] = ids.numpy(force=True), probs.numpy(force=True)
        if plan.observe:  # before what is kept becomes another
            with self._watch.excluded():
                self._follow(raw, lse, own, ~plan.compares[own], ~plan.watches[own], plan, reading)
        self._follow(raw, lse, own, plan.compares[own], plan.watches[own], plan, reading)

    def _follow(
        self,
        raw: Tensor,
        lse: Tensor,
        own: NDArray[np.int64],
        compared: NDArray[np.bool_],
        watched: NDArray[np.bool_],
        plan: Plan,
        reading: Reading,
    ) -> None:
        """Compute the KLs of the `compared` rows of a chunk, then keep the posteriors of the `watched` ones, unless
        probed.
        """
        slots, where = plan.slots[own], np.flatnonzero(compared)
        reading.kl[own[where]] = np.inf
        before = where[self._has[slots[where]]]
        if len(before) and self._kept is not None:
            index, target = as_index(before, raw.device), as_index(slots[before], raw.device)
            z = raw[index].to(lse.dtype)
            kl = kl_divergence(z.softmax(dim=-1), z, lse[index], self._kept[target], self._kept_lse[target])
            (reading.kl[own[before]],) = _to_host(kl[None])
        after = np.flatnonzero(watched & ~plan.probed[own])
        if len(after):
            if self._kept is None:
                self._kept = raw.new_empty(len(self._has), raw.shape[1])
            index, target = as_index(after, raw.device), as_index(slots[after], raw.device)
            self._kept[target] = raw[index]
            self._kept_lse[target] = lse[index]
            self._has[slots[after]] = True


def _choose(
    z: Tensor, p: Tensor, choosers: NDArray[np.int64], which: NDArray[np.int64], uniform: Tensor | None, plan: Plan
) -> Tensor:
    """Candidate tokens and scores [2, c] float64 of a chunk's candidates. which: [c], their numbers among the C."""
    index = as_index(choosers, z.device)
    first, last = np.searchsorted(plan.repeats[0], (which[0], which[-1] + 1))
    at, forbidden = plan.repeats[:, first:last]
    logits = z[index]
    if len(at):
        places, tokens = torch.from_numpy(np.stack((at - which[0], forbidden))).to(z.device)
        logits[places, tokens] = -torch.inf
    if uniform is not None:
        chosen = choose_by_span(logits, plan.banned, plan.temperature, uniform[which[0] : which[-1] + 1])
    else:
        draws = plan.draws if plan.temperature > 0 else None
        numbers = None if draws is None else torch.from_numpy(draws.gumbel(which, z.shape[1]))
        chosen = choose_tokens(logits, plan.banned, plan.temperature, numbers)
        del numbers  # before the scores' own copy of the posteriors is made
    own = p[index]
    score = _SCORES[plan.scores](own) if plan.scores in _SCORES else own.gather(1, chosen[:, None])[:, 0]
    return torch.stack((chosen.to(torch.float64), score.to(torch.float64)))


def _uniform(plan: Plan, like: Tensor) -> Tensor | None:
    """The random numbers of all candidates of a step for `choose_by_span`, on the device of `like` [..., V].

    None if nothing is drawn, and on a CPU, where each chunk draws one number for each token.
    """
    if plan.temperature == 0 or plan.draws is None or plan.scores is None or like.device.type in _BY_TOKEN:
        return None
    drawn = torch.from_numpy(plan.draws.gumbel(np.arange(len(plan.draws.row)), sum(spans(like.shape[1]))))
    return drawn.pin_memory().to(like.device, non_blocking=True) if like.is_cuda else drawn.to(like.device)


def as_index(places: NDArray[np.int64], device: torch.device) -> Tensor:
    return torch.from_numpy(places).to(device)


def _to_host(stacked: Tensor) -> tuple[NDArray, ...]:
    return tuple(stacked.to(torch.float64).numpy(force=True))
