"""From logits to what the sampler and the lock rule need of each row's posterior, in bounded chunks of rows.

A chunk's logits are made, read once and, where a next step wants them, kept in the network's own dtype with their
log-sum-exp: the previous posterior without loss, in half the memory of a float32 table of probabilities.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from surelock.decoding.noise import BatchNoise
from surelock.decoding.settings import DecodeSettings
from surelock.decoding.stopwatch import Stopwatch
from surelock.decoding.unmasking import SCORES, choose_tokens
from surelock.model.language_model import LanguageModel

Logits = Callable[[int, int, Tensor], Tensor]

# Of one table [rows, V] in the wide dtype; three are used, beside one of logits.
_CHUNK_BYTES = {"cpu": 5 * 2**20, "cuda": 2**27}
_LEAST_ROWS = 32  # each chunk reads the whole head: with fewer rows a large vocabulary costs several forwards
NOTHING_FORBIDDEN = np.empty((2, 0), dtype=np.int64)


@dataclass(slots=True)
class StepRows:
    """The rows of a step: slots [R], ascending; probed [R], which only look; choosers [C], that may be committed.

    repeats [2, K]: (row, token) pairs of choosers that must not be chosen, ascending.
    """

    slots: NDArray[np.int64]
    probed: NDArray[np.bool_]
    choosers: NDArray[np.int64]
    repeats: NDArray[np.int64] = field(default_factory=lambda: NOTHING_FORBIDDEN)


@dataclass(slots=True)
class Reading:
    """What a step learnt. Of its R rows: finite, confidence (max_v p), kl (NaN if not asked for), top_ids and top_probs
    [R, k]. Of its C choosers: their candidate tokens, and the policy's scores. float64 and int64, on the host.
    """

    finite: bool
    confidence: NDArray
    kl: NDArray
    top_ids: NDArray[np.int64]
    top_probs: NDArray
    chosen: NDArray[np.int64]
    score: NDArray


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
    """Reads a run's posteriors step by step; with `remember`, each row's KL from the last time it was computed.

    observe: the KL is only looked at, so it does not count as the step's time; the top_k tokens never do.
    """

    def __init__(
        self,
        lm: LanguageModel,
        settings: DecodeSettings,
        slots: int,
        *,
        remember: bool,
        observe: bool,
        top_k: int,
        watch: Stopwatch,
    ) -> None:
        network, device = lm.network, lm.device
        vocab_size = network.config.vocab_size
        self._wide = torch.promote_types(network.dtype, torch.float32)
        chunk_bytes = _CHUNK_BYTES.get(device.type, _CHUNK_BYTES["cpu"])
        self._chunk = min(slots, max(_LEAST_ROWS, chunk_bytes // (vocab_size * self._wide.itemsize)))
        # A chunk's tables are made once: fresh memory for each costs more than the arithmetic on it (on the CPU).
        self._tables = torch.empty(3, self._chunk, vocab_size, dtype=self._wide, device=device)
        self._raw = torch.empty(self._chunk, vocab_size, dtype=network.dtype, device=device)
        self._previous = torch.empty(slots if remember else 0, vocab_size, dtype=network.dtype, device=device)
        self._previous_lse = torch.empty(slots, dtype=self._wide, device=device)
        self._stored = np.zeros(slots, dtype=bool)
        self._remember, self._observe, self._top_k, self._watch = remember, observe, top_k, watch
        self._settings = settings
        self.banned = [lm.mask_id]
        if settings.suppress_eos and lm.eos_id is not None:
            self.banned.append(lm.eos_id)

    def forget(self, slots: NDArray[np.int64]) -> None:
        """Drop the last posteriors of `slots`: their next KL is infinite."""
        self._stored[slots] = False

    def read(self, logits: Logits, rows: StepRows, noise: BatchNoise) -> Reading:
        """Read the posteriors of `rows`. logits(start, stop, out): those of a range of rows.

        [stop - start, V] in the network's dtype, put into `out`.
        """
        count = len(rows.slots)
        if not count:
            empty = np.empty(0)
            return Reading(
                True, empty, empty, np.empty((0, self._top_k), int), np.empty((0, self._top_k)), rows.slots, empty
            )
        chunks = -(-count // self._chunk)
        edges = [count * chunk // chunks for chunk in range(chunks + 1)]  # even: a last chunk of a few rows is dear
        parts = [self._read_chunk(logits, rows, noise, *ends) for ends in pairwise(edges)]
        stats, choices, tops = zip(*parts, strict=True)
        finite, confidence, kl = _to_host(torch.cat(stats, dim=1))
        kl[~self._stored[rows.slots]] = np.inf if self._remember else np.nan
        if self._remember:
            self._stored[rows.slots[~rows.probed]] = True
        chosen, score = _to_host(torch.cat(choices, dim=1))
        if self._settings.remasking == "random":
            score = noise.uniforms(rows.slots[rows.choosers])
        top_ids, top_probs = np.empty((2, count, 0))
        if self._top_k:
            with self._watch.excluded():
                top_ids, top_probs = _to_host(torch.cat(tops, dim=1))
        return Reading(
            bool(finite.all()), confidence, kl, top_ids.astype(np.int64), top_probs, chosen.astype(np.int64), score
        )

    def _read_chunk(
        self, logits: Logits, rows: StepRows, noise: BatchNoise, start: int, stop: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        p, _, _ = self._tables[:, : stop - start]
        raw = logits(start, stop, self._raw[: stop - start])
        z = raw.to(self._wide)
        torch.softmax(z, dim=-1, out=p)
        confidence = p.amax(dim=-1)
        lse = z.amax(dim=-1) - confidence.log()
        finite = z.sum(dim=-1).isfinite().to(self._wide)
        kl = top = torch.full_like(lse, torch.nan)
        if self._remember:
            with self._watch.excluded(self._observe):
                kl = self._compare(raw, z, lse, rows.slots[start:stop], rows.probed[start:stop])
        if self._top_k:
            with self._watch.excluded():
                probs, ids = p.topk(self._top_k, dim=-1)
                top = torch.stack((ids.to(torch.float64), probs.to(torch.float64)))
        first, last = np.searchsorted(rows.choosers, (start, stop))
        choice = self._choose(z, p, rows, rows.choosers[first:last], start, noise)
        return torch.stack((finite, confidence, kl)), choice, top

    def _compare(
        self, raw: Tensor, z: Tensor, lse: Tensor, slots: NDArray[np.int64], probed: NDArray[np.bool_]
    ) -> Tensor:
        """KL of each row from its slot's last posterior, which it then replaces (a probe's does not)."""
        p, other, scratch = self._tables[:, : len(slots)]
        target = torch.from_numpy(slots).to(raw.device)
        if not self._stored[slots].any():
            kl = torch.full_like(lse, torch.inf)
        else:
            if other.dtype == raw.dtype:
                torch.index_select(self._previous, 0, target, out=other)
            else:
                other.copy_(self._previous.index_select(0, target))
            kl = kl_divergence(p, z, lse, other, self._previous_lse[target], scratch)
        if probed.any():
            kept = torch.from_numpy(np.flatnonzero(~probed)).to(raw.device)
            raw, lse, target = raw[kept], lse[kept], target[kept]
        self._previous.index_copy_(0, target, raw)
        self._previous_lse.index_copy_(0, target, lse)
        return kl

    def _choose(
        self, z: Tensor, p: Tensor, rows: StepRows, choosers: NDArray[np.int64], start: int, noise: BatchNoise
    ) -> Tensor:
        """Candidates and scores of the chunk's choosers: [2, C] float64, which holds ids exactly."""
        if not len(choosers) or self._settings.remasking == "replay":
            return torch.empty(2, 0, dtype=torch.float64, device=z.device)
        index = torch.from_numpy(choosers - start).to(z.device)
        chosen, remasking = self._candidates(z, rows, choosers, start, index, noise), self._settings.remasking
        score = SCORES[remasking](p.index_select(0, index)) if remasking in SCORES else p[index, chosen]
        return torch.stack((chosen.to(torch.float64), score.to(torch.float64)))

    def _candidates(
        self, z: Tensor, rows: StepRows, choosers: NDArray[np.int64], start: int, index: Tensor, noise: BatchNoise
    ) -> Tensor:
        """The candidate token of each chooser. Overwrites z."""
        uniform = noise.gumbel(rows.slots[choosers]) if self._settings.temperature > 0 else None
        # Copying most of the rows would cost more than looking at all; noise is drawn for the choosers alone.
        in_place = uniform is None and 2 * len(choosers) >= len(z)
        first, last = np.searchsorted(rows.repeats[0], (start, start + len(z)))
        repeats = rows.repeats[:, first:last]
        at = repeats[0] - start if in_place else np.searchsorted(choosers, repeats[0])
        logits = z if in_place else z.index_select(0, index)
        if len(at):
            places, tokens = torch.from_numpy(np.stack((at, repeats[1]))).to(z.device)
            logits[places, tokens] = -torch.inf
        chosen = choose_tokens(logits, self.banned, self._settings.temperature, uniform)
        return chosen[index] if in_place else chosen


def _to_host(stacked: Tensor) -> tuple[NDArray, ...]:
    return tuple(stacked.to(torch.float64).numpy(force=True))
