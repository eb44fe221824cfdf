"""From logits to what the sampler and the lock rule need of each row's posterior, in bounded chunks of rows.

A chunk's logits are made, read and, where a next step wants them, kept in the network's own dtype with their
log-sum-exp: the previous posterior without loss, in half the memory of a float32 table of probabilities.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from surelock.decoding.stopwatch import Stopwatch
from surelock.model.language_model import LanguageModel

Logits = Callable[[int, int, Tensor], Tensor]
Choose = Callable[[Tensor, Tensor, int], Tensor]
#: Of one sequence's compared rows, by their uncertainties [Z]: whose KL somebody looks at, [Z] bool. Whom it refuses
#: it also refuses where others' uncertainties are smaller.
Gate = Callable[[NDArray], NDArray[np.bool_]]

# Of one table [rows, V] in the wide dtype; three are used, beside one of logits.
_CHUNK_BYTES = {"cpu": 5 * 2**20, "cuda": 2**27}
_LEAST_ROWS = 32  # each chunk reads the whole head: with fewer rows a large vocabulary costs several forwards


@dataclass(slots=True)
class StepRows:
    """The rows of a step: slots [R], ascending; probed [R], which only look; choosers [C], that may be committed.

    compared [R]: somebody decides by its step-wise KL, if a gate admits it. kept [R]: somebody will when it is computed
    next. sequence [R]: which of the batch it belongs to. gate: a rule's `kl_gate`.
    """

    slots: NDArray[np.int64]
    probed: NDArray[np.bool_]
    choosers: NDArray[np.int64]
    compared: NDArray[np.bool_]
    kept: NDArray[np.bool_]
    sequence: NDArray[np.int64]
    gate: Gate | None = None

    @property
    def needed(self) -> NDArray[np.int64]:
        """The rows whose posteriors somebody decides by, now or later."""
        needed = self.compared | self.kept
        needed[self.choosers] = True
        return np.flatnonzero(needed)

    def part(self, which: NDArray[np.int64]) -> StepRows:
        """Some of the rows [K], ascending, all choosers among them."""
        choosers = np.searchsorted(which, self.choosers)
        compared, kept, sequence = self.compared[which], self.kept[which], self.sequence[which]
        return StepRows(self.slots[which], self.probed[which], choosers, compared, kept, sequence, self.gate)

    def admitted(self, uncertainty: NDArray) -> NDArray[np.bool_]:
        """[R]: which of the compared rows the gate admits, by uncertainties [R], infinite where not known yet."""
        admitted = self.compared.copy()
        if self.gate is not None:
            compared = np.flatnonzero(self.compared)
            sequence = self.sequence[compared]
            for rows in np.split(compared, np.flatnonzero(np.diff(sequence)) + 1) if len(compared) else ():
                admitted[rows] = self.gate(uncertainty[rows])
        return admitted


@dataclass(slots=True)
class Reading:
    """What a step learnt. Of its R rows: slots, probed, confidence (max_v p), kl (nats, infinite where there is no
    earlier posterior, NaN if nobody looks at it), top_ids and top_probs [R, k]. Of its C choosers: their candidate
    tokens, and the policy's scores. finite: whether all logits were. float64 and int64, on the host.
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

    def spread(self, rows: StepRows, which: NDArray[np.int64]) -> Reading:
        """This reading of a part of the rows as one of all: of the others confidence and KL are NaN."""
        confidence, kl = np.full((2, len(rows.slots)), np.nan)
        confidence[which], kl[which] = self.confidence, self.kl
        nothing = np.empty((len(rows.slots), 0))
        return replace(
            self, slots=rows.slots, probed=rows.probed, confidence=confidence, kl=kl, top_ids=nothing, top_probs=nothing
        )


def kl_divergence(
    p: Tensor, logits: Tensor, lse: Tensor, other: Tensor, other_lse: Tensor, scratch: Sequence[Tensor] | None = None
) -> Tensor:
    """KL(p || q) in nats, [R], of p [R, V] = softmax(logits) from q = softmax(other); lse and other_lse [R] are theirs.

    As sum_v p (delta + expm1(-delta)) with delta = log p - log q: what is added sums to zero and every term is at least
    zero, so that no digits are lost when p and q nearly agree. scratch: two tables [R, V] that are overwritten; the
    first may hold `other`, the second `logits`.
    """
    first, second = (None, None) if scratch is None else scratch
    minus_delta = torch.sub(other, logits, out=first).add_((lse - other_lse)[:, None])
    return torch.expm1(minus_delta, out=second).sub_(minus_delta).mul_(p).sum(dim=-1)


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
        posteriors. KLs are made once a chunk's uncertainties are known: of the rows that the gate may still admit.
        """
        count = len(rows.slots)
        if not count:
            none = np.empty(0)
            top_ids, top_probs = np.empty((0, self._top_k), int), np.empty((0, self._top_k))
            return Reading(rows.slots, rows.probed, True, none, none, top_ids, top_probs, rows.slots, none)
        total, confidence = np.empty((2, count))
        uncertainty, admitted = np.full(count, np.inf), rows.compared
        chunks = -(-count // self._chunk)
        edges = [count * chunk // chunks for chunk in range(chunks + 1)]  # even: a last chunk of a few rows is dear
        parts = []
        for start, stop in pairwise(edges):
            chunk = slice(start, stop)
            raw = logits(start, stop, self._raw[: stop - start])
            stats, lse, choices, top = self._read_chunk(raw, choose, start)
            total[chunk], confidence[chunk] = _to_host(stats)
            uncertainty[chunk] = 1 - confidence[chunk]
            admitted = rows.admitted(uncertainty)
            kl = self._compare_and_keep(raw, lse, rows, chunk, admitted[chunk])
            parts.append((kl[None], choices, top))
        kls, choices, tops = zip(*parts, strict=True)
        (kl,) = _to_host(torch.cat(kls, dim=1))
        known = admitted | self._observe
        kl[~known] = np.nan  # also of those that a later chunk's uncertainties have shut out
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

    def _read_chunk(self, raw: Tensor, choose: Choose, start: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Logits' sums and confidences [2, R], log-sum-exps [R], what is chosen, the likeliest tokens."""
        p, z = self._tables[0, : len(raw)], raw.to(self._wide)
        torch.softmax(z, dim=-1, out=p)
        confidence = p.amax(dim=-1)
        stats, lse = torch.stack((z.sum(dim=-1), confidence)), z.amax(dim=-1) - confidence.log()
        top = stats
        if self._top_k:
            with self._watch.excluded():
                probs, ids = p.topk(self._top_k, dim=-1)
                top = torch.stack((ids.to(torch.float64), probs.to(torch.float64)))
        return stats, lse, choose(z, p, start), top

    def _compare_and_keep(
        self, raw: Tensor, lse: Tensor, rows: StepRows, chunk: slice, admitted: NDArray[np.bool_]
    ) -> Tensor:
        """The KLs of a chunk's rows, [R]: of the admitted, and of all for whoever observes. Then the rows are kept."""
        slots, kept, active = rows.slots[chunk], rows.kept[chunk], ~rows.probed[chunk]
        kl = torch.full_like(lse, torch.nan)
        if admitted.any():
            self._compare(kl, raw, lse, slots, admitted)
        if self._observe:
            with self._watch.excluded():
                self._compare(kl, raw, lse, slots, ~admitted)
                self._keep(raw, lse, slots, ~kept & active)
        self._keep(raw, lse, slots, kept & active)
        return kl

    def _compare(
        self, kl: Tensor, raw: Tensor, lse: Tensor, slots: NDArray[np.int64], which: NDArray[np.bool_]
    ) -> None:
        """Put into `kl` [R] that of the rows `which` from their slots' last posteriors, where there are any."""
        chosen = np.flatnonzero(which & self._stored[slots])
        if not len(chosen):
            return
        index, target = _index(chosen, raw.device), _index(slots[chosen], raw.device)
        p, *scratch = self._tables[:, : len(chosen)]
        other, z = _take(self._previous, target, scratch[0]), _take(raw, index, scratch[1]).to(self._wide)
        torch.softmax(z, dim=-1, out=p)
        kl[index] = kl_divergence(p, z, lse[index], other, self._previous_lse[target], scratch)

    def _keep(self, raw: Tensor, lse: Tensor, slots: NDArray[np.int64], which: NDArray[np.bool_]) -> None:
        """The rows `which` become the last posteriors of their slots."""
        if not which.any():
            return
        index, target = _index(np.flatnonzero(which), raw.device), _index(slots[which], raw.device)
        self._previous[target] = raw[index]
        self._previous_lse[target] = lse[index]


def _index(places: NDArray[np.int64], device: torch.device) -> slice | Tensor:
    """Ascending places [R], at least one, to index with; neighbours as a slice, of which nothing is copied."""
    first, last = int(places[0]), int(places[-1])
    return slice(first, last + 1) if last - first + 1 == len(places) else torch.from_numpy(places).to(device)


def _take(table: Tensor, index: slice | Tensor, out: Tensor) -> Tensor:
    """Rows of a table: neighbours as they lie there, others copied together, into `out` where it has the dtype."""
    if isinstance(index, slice):
        return table[index]
    return torch.index_select(table, 0, index, out=out if out.dtype == table.dtype else None)


def _to_host(stacked: Tensor) -> tuple[NDArray, ...]:
    return tuple(stacked.to(torch.float64).numpy(force=True))
