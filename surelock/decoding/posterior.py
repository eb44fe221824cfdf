"""From logits to what the sampler and the lock rule need of each row's posterior, in bounded chunks of rows.

A chunk's logits are made, read once and, where a next step wants them, kept in the network's own dtype with their
log-sum-exp: the previous posterior without loss, in half the memory of a float32 table of probabilities.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from surelock.decoding.stopwatch import Stopwatch
from surelock.model.language_model import LanguageModel

Logits = Callable[[int, int, Tensor], Tensor]
Choose = Callable[[Tensor, Tensor, int], Tensor]

# Of one table [rows, V] in the wide dtype; three are used, beside one of logits.
_CHUNK_BYTES = {"cpu": 5 * 2**20, "cuda": 2**27}
_LEAST_ROWS = 32  # each chunk reads the whole head: with fewer rows a large vocabulary costs several forwards


@dataclass(slots=True)
class StepRows:
    """The rows of a step: slots [R], ascending; probed [R], which only look; choosers [C], that may be committed.

    compared [R]: somebody decides by its step-wise KL. kept [R]: somebody will when it is computed next.
    """

    slots: NDArray[np.int64]
    probed: NDArray[np.bool_]
    choosers: NDArray[np.int64]
    compared: NDArray[np.bool_]
    kept: NDArray[np.bool_]


@dataclass(slots=True)
class Reading:
    """What a step learnt. Of its R rows: slots, probed, confidence (max_v p), kl (nats, infinite where there is no
    earlier posterior, NaN if not asked for), top_ids and top_probs [R, k]. Of its C choosers: their candidate tokens,
    and the policy's scores. finite: whether all logits were. float64 and int64, on the host.
    """

    slots: NDArray[np.int64]
    probed: NDArray[np.bool_]
    finite: bool
    confidence: NDArray
    kl: NDArray
    top_ids: NDArray[np.int64]
    top_probs: NDArray
    tokens: NDArray[np.int64]
    score: NDArray

    @property
    def uncertainty(self) -> NDArray:
        """u = 1 - max_v p (line 18)."""
        return 1 - self.confidence


def kl_divergence(
    p: Tensor, logits: Tensor, lse: Tensor, other: Tensor, other_lse: Tensor, scratch: Tensor | None = None
) -> Tensor:
    """KL(p || q) in nats, [R], of p [R, V] = softmax(logits) from q = softmax(other); lse and other_lse [R] are theirs.

    As sum_v p (delta + expm1(-delta)) with delta = log p - log q: what is added sums to zero and every term is at least
    zero, so that no digits are lost when p and q nearly agree. Overwrites `other` and `scratch`.
    """
    minus_delta = other.sub_(logits).add_((lse - other_lse)[:, None])
    return torch.expm1(minus_delta, out=scratch).sub_(minus_delta).mul_(p).sum(dim=-1)


class PosteriorReader:
    """Reads a run's posteriors step by step; with `remember`, also KLs from the last time that a row was computed.

    observe: of all rows. What nobody decides by does not count as the step's time, nor do the top_k tokens.
    """

    def __init__(
        self, lm: LanguageModel, slots: int, *, remember: bool, observe: bool, top_k: int, watch: Stopwatch
    ) -> None:
        network, device = lm.network, lm.device
        vocab_size = network.config.vocab_size
        self._wide = torch.promote_types(network.dtype, torch.float32)
        chunk_bytes = _CHUNK_BYTES.get(device.type, _CHUNK_BYTES["cpu"])
        self._chunk = min(slots, max(_LEAST_ROWS, chunk_bytes // (vocab_size * self._wide.itemsize)))
        # A chunk's tables are made once: fresh memory for each costs more than the arithmetic on it (on the CPU).
        self._tables = torch.empty(3, self._chunk, vocab_size, dtype=self._wide, device=device)
        self._raw = torch.empty(self._chunk, vocab_size, dtype=network.dtype, device=device)
        stored = slots if remember or observe else 0
        self._previous = torch.empty(stored, vocab_size, dtype=network.dtype, device=device)
        self._previous_lse = torch.empty(slots, dtype=self._wide, device=device)
        self._stored = np.zeros(slots, dtype=bool)
        self._observe, self._top_k, self._watch = observe, top_k, watch

    def forget(self, slots: NDArray[np.int64]) -> None:
        """Drop the last posteriors of `slots`: their next KL is infinite."""
        self._stored[slots] = False

    def read(self, logits: Logits, rows: StepRows, choose: Choose) -> Reading:
        """Read the posteriors of `rows`, chunk by chunk.

        logits(start, stop, out): those of a range of rows, [stop - start, V] in the network's dtype, put into `out`.
        choose(z, p, start): what the chunk's choosers become, [2, C] float64 tokens and scores, from its logits and
        posteriors; called last, it may overwrite z.
        """
        count = len(rows.slots)
        if not count:
            none = np.empty(0)
            top_ids, top_probs = np.empty((0, self._top_k), int), np.empty((0, self._top_k))
            return Reading(rows.slots, rows.probed, True, none, none, top_ids, top_probs, rows.slots, none)
        chunks = -(-count // self._chunk)
        edges = [count * chunk // chunks for chunk in range(chunks + 1)]  # even: a last chunk of a few rows is dear
        parts = [self._read_chunk(logits, rows, choose, *ends) for ends in pairwise(edges)]
        stats, choices, tops = zip(*parts, strict=True)
        total, confidence, kl = _to_host(torch.cat(stats, dim=1))
        known = rows.compared | self._observe
        kl[known & ~self._stored[rows.slots]] = np.inf
        self._stored[rows.slots[(rows.kept | self._observe) & ~rows.probed]] = True
        tokens, score = _to_host(torch.cat(choices, dim=1))
        top_ids, top_probs = np.empty((2, count, 0))
        if self._top_k:
            with self._watch.excluded():
                top_ids, top_probs = _to_host(torch.cat(tops, dim=1))
        top_ids, tokens = top_ids.astype(np.int64), tokens.astype(np.int64)
        finite = bool(np.isfinite(total).all())
        return Reading(rows.slots, rows.probed, finite, confidence, kl, top_ids, top_probs, tokens, score)

    def _read_chunk(
        self, logits: Logits, rows: StepRows, choose: Choose, start: int, stop: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        p, _, _ = self._tables[:, : stop - start]
        raw = logits(start, stop, self._raw[: stop - start])
        z = raw.to(self._wide)
        torch.softmax(z, dim=-1, out=p)
        confidence = p.amax(dim=-1)
        lse, total = z.amax(dim=-1) - confidence.log(), z.sum(dim=-1)
        kl, top = torch.full((2, stop - start), torch.nan, dtype=lse.dtype, device=lse.device)
        compared, kept, active = rows.compared[start:stop], rows.kept[start:stop], ~rows.probed[start:stop]
        slots = rows.slots[start:stop]
        if compared.any():
            self._compare(kl, z, lse, slots, compared)
        if self._observe:
            with self._watch.excluded():
                self._compare(kl, z, lse, slots, ~compared)
                self._keep(raw, lse, slots, ~kept & active)
        self._keep(raw, lse, slots, kept & active)
        if self._top_k:
            with self._watch.excluded():
                probs, ids = p.topk(self._top_k, dim=-1)
                top = torch.stack((ids.to(torch.float64), probs.to(torch.float64)))
        return torch.stack((total, confidence, kl)), choose(z, p, start), top

    def _compare(self, kl: Tensor, z: Tensor, lse: Tensor, slots: NDArray[np.int64], which: NDArray[np.bool_]) -> None:
        """Put into `kl` [R] that of the rows `which` from their slots' last posteriors, where there are any."""
        which = which & self._stored[slots]
        count = int(which.sum())
        if not count:
            return
        p, other, scratch = self._tables[:, : len(slots)]
        target = torch.from_numpy(slots[which]).to(z.device)
        rows = slice(None) if count == len(slots) else torch.from_numpy(np.flatnonzero(which)).to(z.device)
        if not isinstance(rows, slice):
            p, z, lse = p[rows], torch.index_select(z, 0, rows, out=scratch[:count]), lse[rows]
        other, scratch = other[:count], scratch[:count]
        if other.dtype == self._previous.dtype:
            torch.index_select(self._previous, 0, target, out=other)
        else:
            other.copy_(self._previous.index_select(0, target))
        kl[rows] = kl_divergence(p, z, lse, other, self._previous_lse[target], scratch)

    def _keep(self, raw: Tensor, lse: Tensor, slots: NDArray[np.int64], which: NDArray[np.bool_]) -> None:
        """The rows `which` become the last posteriors of their slots."""
        if not which.any():
            return
        if not which.all():
            rows = torch.from_numpy(np.flatnonzero(which)).to(raw.device)
            raw, lse, slots = raw[rows], lse[rows], slots[which]
        target = torch.from_numpy(slots).to(raw.device)
        self._previous.index_copy_(0, target, raw)
        self._previous_lse.index_copy_(0, target, lse)


def _to_host(stacked: Tensor) -> tuple[NDArray, ...]:
    return tuple(stacked.to(torch.float64).numpy(force=True))
