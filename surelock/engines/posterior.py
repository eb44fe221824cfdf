"""Reads posteriors from logits, a few rows at a time.

The logits of watched rows are kept in the dtype of the network, with their log-sum-exp. Both together are the posterior
without loss. In bfloat16 they take half the memory of float32 probabilities.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from surelock.decoding.step import Plan, Reading, even
from surelock.engines.break_even import is_faster
from surelock.engines.fused import Reads
from surelock.engines.read_plan import ReadPlan, chunk_rows, plan_reading
from surelock.engines.stopwatch import Stopwatch
from surelock.values import Flags, Whole, frozen

# By device, the size in bytes of a table [rows, V] in the wide dtype: float32, or float64 for a float64 network.
_CHUNK_BYTES = {"cpu": 5 * 2**20, "cuda": 2**27}
# Devices on which a candidate has one random number per token, as in recorded runs; see `choose_by_span`.
_BY_TOKEN = {"cpu"}


def kl_divergence(
    p: Tensor, logits: Tensor, lse: Tensor, other: Tensor, other_lse: Tensor
) -> Tensor:
    """Return KL(p || q) in nats, [R], for p = softmax(logits) and q = softmax(other): D_t of Algorithm 1, line 19.

    p, logits, other: [R, V].
    lse, other_lse: [R], the log-sum-exp of `logits` and of `other`.

    Computed as sum_v p (delta + expm1(-delta)) with delta = log p - log q. The added terms p expm1(-delta) sum to zero
    and make every term at least zero, so no digits are lost when p and q nearly agree.
    """
    minus_delta = torch.sub(other, logits).add_((lse - other_lse)[:, None])
    return torch.expm1(minus_delta).sub_(minus_delta).mul_(p).sum(dim=-1)


def choose_tokens(
    logits: Tensor, banned: Sequence[int], temperature: float, uniform: Tensor | None
) -> Tensor:
    """Return candidate tokens [C] int64: the argmax, or Gumbel-max over exp(logit) / (-log uniform)^T.

    logits: [C, V], overwritten.
    banned: tokens that are never chosen, such as the mask.
    uniform: [C, V] float64 in (0, 1), overwritten; None at temperature 0.
    """
    if uniform is not None:
        logits = uniform.log_().neg_().log_().mul_(-temperature).add_(logits)
    for token in banned:
        logits[:, token].fill_(-torch.inf)
    # max returns the first of equal values, as argmax does, in a third of the time on a CPU
    return logits.max(dim=-1).indices


def choose_by_span(
    logits: Tensor, banned: Sequence[int], temperature: float, uniform: Tensor
) -> Tensor:
    """Return candidate tokens [C] int64: Gumbel-max chooses a span of tokens, then a token of the span.

    The distribution is softmax(logits / T), as for `choose_tokens`. It takes 2 sqrt(V) random numbers per candidate
    instead of V, so a step can draw the numbers of all its candidates at once, even for a large vocabulary.

    logits: [C, V], overwritten.
    banned: tokens that are never chosen, such as the mask.
    uniform: [C, number + size of `spans(V)`] float64 in [0, 1), overwritten.
    """
    number, size = spans(logits.shape[1])
    for token in banned:
        logits[:, token].fill_(-torch.inf)
    temperature = min(max(temperature, 1e-30), 1e30)  # a range in which float32 divides
    logits.sub_(logits.amax(dim=-1, keepdim=True)).div_(temperature)
    padding = number * size - logits.shape[1]
    table = F.pad(logits, (0, padding), value=-torch.inf).view(-1, number, size)
    gumbel = uniform.log_().neg_().log_().neg_()
    span_noise, token_noise = gumbel.split((number, size), dim=-1)
    span_logits = table.exp().sum(dim=-1).log()
    span = span_noise.add(span_logits).argmax(dim=-1)
    token_logits = table[torch.arange(len(span), device=span.device), span]
    token = token_noise.add(token_logits).argmax(dim=-1)
    return token.add_(span, alpha=size)


def rows_at_once(vocab_size: int, dtype: torch.dtype, device: torch.device) -> tuple[int, int]:
    """Return `chunk_rows` for logits of a dtype on a device."""
    wide = torch.promote_types(dtype, torch.float32)
    table_bytes = _CHUNK_BYTES["cpu" if device.type == "cpu" else "cuda"]
    return chunk_rows(table_bytes, vocab_size * wide.itemsize)


def spans(vocab_size: int) -> tuple[int, int]:
    """Return (number, size) of the spans into which `choose_by_span` divides a vocabulary. Both are about sqrt(V)."""
    size = 2 ** round(math.log2(vocab_size) / 2)
    return -(-vocab_size // size), size


#: By name, functions from posteriors p [C, V] at temperature 1 to scores or measures [C], see `Choice`. The other two
#: names are probabilities of a token: "confidence" of the candidate token, "input" of the input token.
_SCORES: dict[str, Callable[[Tensor], Tensor]] = {
    "entropy": lambda p: torch.special.entr(p).sum(dim=-1).neg_(),
    "margin": lambda p: -p.topk(2, dim=-1).values.diff(dim=-1)[:, 0],
    "gap": lambda p: -p.topk(2, dim=-1).values.log().diff(dim=-1)[:, 0],
}

Diverge = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # (rows, kept, slots, kept_lse) -> KLs


@dataclass(slots=True)
class _Buffers:
    read_plan: ReadPlan
    tensors: Mapping[str, Tensor]  # the arrays of `read_plan`, on the device
    table: Tensor  # all numbers that the host needs, copied there together
    sizes: dict[str, int]  # by name, the length of its part of `table`
    values: dict[str, Tensor]  # the parts of `table`, in the order of `sizes`
    lse: Tensor  # [K], the log-sum-exp of every read row
    before: dict[
        str, Tensor
    ]  # by group, the log-sum-exp of the kept posteriors with which rows are compared


@frozen(eq=False)
class KeptRows:
    """A copy of the kept posteriors of slots [K].

    has: [K] bool, whether a posterior of the slot is kept. kept: [M, V], logits of the M kept posteriors. lse: [M],
    their log-sum-exp.
    """

    slots: Whole
    has: Flags
    kept: Tensor
    lse: Tensor

    @property
    def nbytes(self) -> int:
        return self.kept.numel() * self.kept.element_size()


class Reader:
    """Reads the posteriors of a run step by step (Algorithm 1, lines 15, 18 and 19), and keeps those of watched rows.

    slots: the largest number of positions of a run.
    watch: stops while posteriors are read that no rule needs.
    reads: compiled functions for steps that read many posteriors; None: there are no such functions.
    """

    def __init__(
        self,
        slots: int,
        vocab_size: int,
        dtype: torch.dtype,
        device: torch.device,
        watch: Stopwatch,
        reads: Reads | None = None,
    ) -> None:
        wide = torch.promote_types(dtype, torch.float32)
        self._rows, self._few = rows_at_once(vocab_size, dtype, device)
        self._raw = torch.empty(min(slots, self._rows), vocab_size, dtype=dtype, device=device)
        self._kept: Tensor | None = None  # [slots, V], made when the first posterior is kept
        self._kept_lse = torch.empty(slots, dtype=wide, device=device)
        self._has = np.zeros(slots, dtype=bool)
        self._banned: tuple[list[int], Tensor] | None = None  # banned tokens, and `_bans` of them
        self._watch = watch
        self._reads = reads

    @property
    def nbytes(self) -> int:
        tables = [self._raw, self._kept_lse]
        if self._kept is not None:
            tables.append(self._kept)
        return sum(table.nbytes for table in tables)

    def reset(self) -> None:
        """Forget all posteriors."""
        self._has[:] = False
        self._banned = None

    def copy_rows(self, slots: Whole) -> KeptRows:
        """Return a copy of the kept posteriors of slots [K]."""
        has = self._has[slots]
        at = torch.from_numpy(slots[has]).to(self._kept_lse.device)
        kept = self._raw[:0] if self._kept is None else self._kept[at]
        return KeptRows(slots, has, kept, self._kept_lse[at])

    def put_rows(self, rows: KeptRows) -> None:
        """Write what `copy_rows` returned."""
        self._has[rows.slots] = rows.has
        if not rows.has.any():
            return
        at = torch.from_numpy(rows.slots[rows.has]).to(self._kept_lse.device)
        self._kept_table()[at] = rows.kept
        self._kept_lse[at] = rows.lse

    def likeliest(self, slots: Whole) -> Whole:
        """Return the token with the largest logit in the kept posterior of slots [K], [K] int64.

        All these slots must have a kept posterior.
        """
        tokens = np.empty(len(slots), dtype=np.int64)
        for part in even(len(slots), self._rows):
            at = torch.from_numpy(slots[part]).to(self._kept_lse.device)
            tokens[part] = self._kept_table()[at].max(dim=-1).indices.numpy(force=True)
        return tokens

    def _kept_table(self) -> Tensor:
        if self._kept is None:
            self._kept = self._raw.new_empty(len(self._has), self._raw.shape[1])
        return self._kept

    def plan(self, plan: Plan) -> ReadPlan:
        """Drop outdated posteriors, and return the plan of reading. On a GPU it includes the step's random numbers."""
        self._has[plan.outdated] = False
        read_plan = plan_reading(plan, self._has, self._rows, self._few)
        draws = plan.choice.draws
        is_drawn = plan.choice.temperature > 0 and len(read_plan.places["chosen"])
        if draws is not None and is_drawn and self._raw.device.type not in _BY_TOKEN:
            width = sum(spans(self._raw.shape[1]))
            read_plan.arrays["uniform"] = draws.gumbel(np.arange(len(draws.row)), width)
        return read_plan

    def read(
        self,
        logits: Callable[[int, int, Tensor], Tensor],
        read_plan: ReadPlan,
        tensors: Mapping[str, Tensor],
        plan: Plan,
        reading: Reading,
    ) -> None:
        """Fill `reading`.

        logits: a function (start, stop, out) that writes the logits of the read rows start:stop into `out`, and returns
        them.
        tensors: the arrays of `read_plan`, on the device.
        """
        buffers = self._begin(read_plan, tensors, plan.choice.measures)
        reads = self._reads if self._are_plain(buffers, plan) else None
        for part, chunks in read_plan.parts:
            raw = logits(part.start, part.stop, self._raw[: part.stop - part.start])
            for chunk in chunks:
                few = raw[chunk.start - part.start : chunk.stop - part.start]
                if reads is None:
                    diverge = self._read(few, chunk, buffers, plan, reading)
                else:
                    diverge = self._read_fused(reads, few, chunk, buffers, plan)
                # The observed group comes first, before the other group overwrites kept posteriors.
                for group in read_plan.groups:
                    with self._watch.excluded() if group else nullcontext():
                        self._follow(group, chunk, few, buffers, diverge)
        for group in read_plan.groups:
            kept_lse = buffers.lse[tensors[f"{group}kept_rows"]]
            self._kept_lse[tensors[f"{group}kept_slots"]] = kept_lse
            self._has[read_plan.arrays[f"{group}kept_slots"]] = True
        parts = np.split(buffers.table.cpu().numpy(), np.cumsum([*buffers.sizes.values()])[:-1])
        values = dict(zip(buffers.sizes, parts, strict=True))
        reading.finite = bool(np.isfinite(values["total"]).all())
        reading.confidence[plan.read] = values["confidence"]
        if len(values["tokens"]):
            reading.tokens[:] = values["tokens"]
            reading.score[:] = values["score"]
            reading.measures = {name: values[name].astype(float) for name in plan.choice.measures}
        reading.kl[plan.read[read_plan.infinite]] = np.inf
        for group in read_plan.groups:
            reading.kl[plan.read[read_plan.places[f"{group}compared"]]] = values[f"{group}compared"]

    def _begin(
        self, read_plan: ReadPlan, tensors: Mapping[str, Tensor], measures: Sequence[str]
    ) -> _Buffers:
        count = sum(part.stop - part.start for part, _ in read_plan.parts)
        candidates = len(read_plan.places["chosen"])
        sizes = {"total": count, "confidence": count}
        sizes |= dict.fromkeys(("tokens", "score", *measures), candidates)
        for group in read_plan.groups:
            name = f"{group}compared"
            sizes[name] = len(read_plan.places[name])
        # Token ids are below 2 ** 24, so float32 has them exactly.
        table = self._kept_lse.new_empty(sum(sizes.values()))
        values = dict(zip(sizes, table.split(list(sizes.values())), strict=True))
        if any(len(read_plan.places[f"{group}kept"]) for group in read_plan.groups):
            self._kept_table()
        before = {
            group: self._kept_lse[tensors[f"{group}compared_slots"]] for group in read_plan.groups
        }
        lse = self._kept_lse.new_empty(count)
        return _Buffers(read_plan, tensors, table, sizes, values, lse, before)

    def _are_plain(self, buffers: _Buffers, plan: Plan) -> bool:
        """Return whether compiled functions read the step. They can if tokens are chosen greedily, by confidence."""
        choice = plan.choice
        plain = choice.scores in (None, "confidence") and choice.temperature == 0
        plain = plain and not (choice.barred.size or choice.measures or plan.top_k)
        return plain and is_faster("compiled reading", len(buffers.lse))

    def _read_fused(
        self, reads: Reads, raw: Tensor, chunk: slice, buffers: _Buffers, plan: Plan
    ) -> Diverge:
        """Do the same as `_read`, with compiled functions."""
        values = buffers.values
        tensors = buffers.tensors
        banned = self._bans([*plan.choice.banned])
        total, confidence, lse, tokens, scores = reads.read(raw, banned)
        values["total"][chunk] = total
        values["confidence"][chunk] = confidence
        buffers.lse[chunk] = lse
        which = buffers.read_plan.in_chunk("chosen", chunk)
        if which.start < which.stop:
            chosen = tensors["chosen"][which]
            values["tokens"][which] = tokens[chosen]
            values["score"][which] = scores[chosen]

        def diverge(rows: Tensor, kept: Tensor, slots: Tensor, kept_lse: Tensor) -> Tensor:
            compared = rows, slots, kept_lse
            if len(rows) == 1:  # compiled functions require at least two rows
                compared = (tensor.expand(2) for tensor in compared)
            rows_of_two, slots_of_two, lse_of_two = compared
            return reads.diverge(raw, lse, rows_of_two, kept, slots_of_two, lse_of_two)[: len(rows)]

        return diverge

    def _bans(self, tokens: list[int]) -> Tensor:
        """Return [V], -inf at tokens that are never chosen, otherwise 0. Made once for a run."""
        if self._banned is None or self._banned[0] != tokens:
            table = self._kept_lse.new_zeros(self._raw.shape[1])
            for token in tokens:
                table[token].fill_(-torch.inf)
            self._banned = tokens, table
        return self._banned[1]

    def _read(
        self, raw: Tensor, chunk: slice, buffers: _Buffers, plan: Plan, reading: Reading
    ) -> Diverge:
        """Read the posteriors of a chunk of the read rows. raw: [k, V], the logits of the chunk's rows.

        Returns a function that computes KLs of these rows from kept posteriors, see `divergences`.
        """
        values = buffers.values
        lse = buffers.lse[chunk]
        z = raw.to(lse.dtype)
        p = z.softmax(dim=-1)
        confidence = torch.amax(p, dim=-1, out=values["confidence"][chunk])
        torch.sub(z.amax(dim=-1), confidence.log(), out=lse)
        torch.sum(z, dim=-1, out=values["total"][chunk])
        which = buffers.read_plan.in_chunk("chosen", chunk)
        if which.start < which.stop:
            chosen, score = _choose(
                z, p, which, buffers.read_plan.in_chunk("banned", chunk), buffers.tensors, plan
            )
            values["tokens"][which] = chosen
            values["score"][which] = score
            for name in plan.choice.measures:
                values[name][which] = _measured(name, p, which, buffers.tensors)
        if plan.top_k:
            with self._watch.excluded():
                rows = plan.read[chunk]
                probs, ids = p.topk(plan.top_k, dim=-1)
                reading.top_ids[rows] = ids.numpy(force=True)
                reading.top_probs[rows] = probs.numpy(force=True)

        return lambda rows, kept, slots, kept_lse: kl_divergence(
            p[rows], z[rows], lse[rows], kept[slots], kept_lse
        )

    def _follow(
        self, group: str, chunk: slice, raw: Tensor, buffers: _Buffers, diverge: Diverge
    ) -> None:
        """Compute the KLs of the compared rows of a chunk, then keep posteriors.

        group: see `ReadPlan.groups`. raw: [k, V], the logits of the chunk's rows.
        """
        if self._kept is None:
            return
        tensors = buffers.tensors
        compared = buffers.read_plan.in_chunk(f"{group}compared", chunk)
        kept = buffers.read_plan.in_chunk(f"{group}kept", chunk)
        if compared.start < compared.stop:
            rows = tensors[f"{group}compared"][compared]
            slots = tensors[f"{group}compared_slots"][compared]
            kl = diverge(rows, self._kept, slots, buffers.before[group][compared])
            buffers.values[f"{group}compared"][compared] = kl
        if kept.start < kept.stop:
            rows = tensors[f"{group}kept"][kept]
            slots = tensors[f"{group}kept_slots"][kept]
            self._kept[slots] = raw[rows]


def _measured(name: str, p: Tensor, which: slice, tensors: Mapping[str, Tensor]) -> Tensor:
    """Return a measure [c] of a chunk's candidates, see `Choice.measures`.

    which: numbers of the chunk's candidates among all candidates.
    """
    posteriors = p[tensors["chosen"][which]]
    if name == "input":
        return posteriors.gather(1, tensors["inputs"][which][:, None])[:, 0]
    return _SCORES[name](posteriors)


def _choose(
    z: Tensor, p: Tensor, which: slice, banned: slice, tensors: Mapping[str, Tensor], plan: Plan
) -> tuple[Tensor, Tensor]:
    """Return the tokens and scores [c] of a chunk's candidates.

    z, p: [k, V], logits and posteriors of the chunk's rows.
    which: numbers of the chunk's candidates among all candidates.
    banned: numbers of the chunk's pairs in `ReadPlan.arrays["banned"]`.
    """
    index = tensors["chosen"][which]
    choice = plan.choice
    logits = z[index]
    if banned.start < banned.stop:
        logits[tensors["banned_at"][banned], tensors["banned"][banned]] = -torch.inf
    if "uniform" in tensors:
        chosen = choose_by_span(
            logits, choice.banned, choice.temperature, tensors["uniform"][which]
        )
    else:
        uniform = None
        if choice.draws is not None and choice.temperature > 0:
            candidates = np.arange(which.start, which.stop)
            uniform = torch.from_numpy(choice.draws.gumbel(candidates, z.shape[1]))
        chosen = choose_tokens(logits, choice.banned, choice.temperature, uniform)
        del uniform  # frees memory before the posteriors are copied
    posteriors = p[index]
    score = _SCORES.get(choice.scores or "")
    if score is None:
        return chosen, posteriors.gather(1, chosen[:, None])[:, 0]
    return chosen, score(posteriors)
