"""The decode loop: Algorithm 1 as one generator, with and without locking."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from surelock.decoding.canvas import Canvas, encode_prompts
from surelock.decoding.flops import step_flops
from surelock.decoding.locking import Locks
from surelock.decoding.ngrams import repeating_tokens
from surelock.decoding.noise import BatchNoise
from surelock.decoding.posterior import NOTHING_FORBIDDEN, PosteriorReader, Reading, StepRows
from surelock.decoding.schedule import Schedule
from surelock.decoding.selection import select_rows
from surelock.decoding.settings import DecodeSettings, LockRule
from surelock.decoding.stopwatch import Stopwatch
from surelock.decoding.unmasking import commit_count, rank
from surelock.model.cache import Rows
from surelock.model.language_model import LanguageModel


class NonFiniteLogits(ArithmeticError):
    """The network put out NaN or infinity; the message names the step."""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One denoising step of a batch. Tensors are [B, N] on the CPU, sequences left-padded to the longest.

    index: 0-based. tokens int64, after the step; the pad id at pads. masked, locked, newly_*, computed, probed: bool,
    after the step; False at pads. computed: active rows that the step computed; probed: locked rows that it only looked
    at. kl: nats, infinite where a row has no earlier posterior; confidence: max_v p; both NaN where not computed and
    at pads. top_ids, top_probs: [B, N, top_k], None when top_k is 0. flops, baseline_flops: [B] float64, algorithmic
    (Sec. 2.4). seconds: the step's own time, device synchronised, observation excluded.
    """

    index: int
    tokens: Tensor
    masked: Tensor
    locked: Tensor
    newly_unmasked: Tensor
    newly_locked: Tensor
    newly_unlocked: Tensor
    computed: Tensor
    probed: Tensor
    kl: Tensor
    confidence: Tensor
    top_ids: Tensor | None
    top_probs: Tensor | None
    flops: Tensor
    baseline_flops: Tensor
    seconds: float


def decode(
    lm: LanguageModel,
    prompts: Sequence[str] | Sequence[Sequence[int]],
    settings: DecodeSettings | None = None,
    *,
    lock: LockRule | None = None,
    observe: bool = False,
    top_k: int = 0,
) -> Iterator[Step]:
    """Decode a batch of prompts step by step (Algorithm 1); lock=None is the baseline sampler.

    prompts: texts or lists of token ids. observe: compute the step-wise KL without a lock rule too. top_k: also report
    each row's most likely tokens. What one sequence does never depends on the others of its batch.
    Raises ValueError for prompts that the model cannot continue, at the call; NonFiniteLogits from the iterator.
    """
    settings = settings or DecodeSettings()
    if not isinstance(top_k, int) or not 0 <= top_k <= lm.network.config.vocab_size:
        raise ValueError(f"top_k must be a whole number from 0 to the vocabulary's size, not {top_k!r}")
    if lock is not None and not isinstance(lock, LockRule):
        raise ValueError(f"lock must be a LockRule or None, not {lock!r}")
    canvas = Canvas(encode_prompts(lm, prompts, settings), settings, lm.mask_id, lm.pad_id)
    return _Run(lm, canvas, settings, lock, observe, top_k).steps()


def generate(
    lm: LanguageModel,
    prompts: Sequence[str] | Sequence[Sequence[int]],
    settings: DecodeSettings | None = None,
    *,
    lock: LockRule | None = None,
) -> list[str]:
    """Decode to the end and return the generated texts, each cut at its first EOS. Raises what `decode` raises."""
    settings = settings or DecodeSettings()
    lm.decode([])  # a model without a tokenizer is refused before the work, not after
    *_, final = decode(lm, prompts, settings, lock=lock)
    return [lm.decode(cut_at_eos(ids[-settings.gen_length :], lm.eos_id)) for ids in final.tokens.tolist()]


def cut_at_eos(ids: list[int], eos_id: int | None) -> list[int]:
    """The ids before the first EOS."""
    return ids[: ids.index(eos_id)] if eos_id in ids else ids


class _Run:
    """The state of one run: what Algorithm 1 lists at its lines 1-3, for a batch."""

    def __init__(
        self,
        lm: LanguageModel,
        canvas: Canvas,
        settings: DecodeSettings,
        rule: LockRule | None,
        observe: bool,
        top_k: int,
    ) -> None:
        network = lm.network
        self.lm, self.canvas, self.settings = lm, canvas, settings
        self.schedule = Schedule(canvas, settings)
        self.locks = Locks(canvas, rule)
        self.guided = settings.cfg_scale > 0
        self.passes = 2 if self.guided else 1
        self.wide = torch.promote_types(network.dtype, torch.float32)
        self.watch = Stopwatch(lm.device)
        needs_kl = rule is not None or settings.select_fraction < 1
        self.reader = PosteriorReader(
            lm,
            settings,
            canvas.total,
            remember=needs_kl or observe,
            observe=not needs_kl,
            top_k=top_k,
            watch=self.watch,
        )
        self.cache = network.make_cache(canvas.total * self.passes)
        self.computed_at = np.full(canvas.total, -1)
        self.last_kl = np.full(canvas.total, np.inf)
        self.end_ids = [i for i in (lm.eos_id, lm.eot_id) if i is not None]
        self.late_ids = self.end_ids if settings.suppress_eos_confidence else []
        self.top_k = top_k

    def steps(self) -> Iterator[Step]:
        for t in range(self.settings.total_steps):
            if self.schedule.finished:
                return
            yield self._step(t)

    def _step(self, t: int) -> Step:
        """One turn of Algorithm 1's loop (lines 5-25)."""
        canvas, locks = self.canvas, self.locks
        self.watch.start()
        running = np.array([self.schedule.running(b) for b in range(canvas.batch)])
        rows = self._plan(t, running)
        active, probed = rows.slots[~rows.probed], rows.slots[rows.probed]
        visible = active[~canvas.masked[active]]
        reading = self._forward(t, rows)
        locks.visible[visible] += 1

        unmasked = self._unmask(t, rows, reading, running)
        kl, uncertainty = reading.kl, 1 - reading.confidence
        self.computed_at[active] = t
        self.last_kl[active] = kl[~rows.probed]
        unlocked = locks.unlock(t, probed, kl[rows.probed], uncertainty[rows.probed], active, uncertainty[~rows.probed])
        locked = locks.update(t, active, kl[~rows.probed], uncertainty[~rows.probed])
        self.reader.forget(unlocked)
        self.last_kl[unlocked] = np.inf
        seconds = self.watch.seconds()
        return self._report(t, rows, reading, unmasked, locked, unlocked, running, seconds)

    def _plan(self, t: int, running: NDArray[np.bool_]) -> StepRows:
        """The rows of this step (lines 6-8): the active ones, or a selection of them, and the probed."""
        canvas, locks = self.canvas, self.locks
        alive = running[canvas.sequence]
        active = np.flatnonzero(~locks.locked & alive)
        if self.settings.select_fraction < 1 and t > 0:
            active = select_rows(
                canvas, self.schedule, active, self.settings.select_fraction, self.computed_at, self.last_kl
            )
        probes = locks.probes(t)
        probes = probes[alive[probes]]
        slots = np.union1d(active, probes) if len(probes) else active
        choosing = np.zeros(canvas.total, dtype=bool)
        for b in np.flatnonzero(running).tolist():
            block = self.schedule.block(b)
            choosing[block] = canvas.masked[block]
        choosers = np.flatnonzero(choosing[slots])
        return StepRows(slots, locks.locked[slots], choosers, self._repeats(slots, choosers))

    def _repeats(self, slots: NDArray[np.int64], choosers: NDArray[np.int64]) -> NDArray[np.int64]:
        """What `no_repeat_ngram_size` forbids in this step, [2, K]: rows and tokens."""
        canvas, size = self.canvas, self.settings.no_repeat_ngram_size
        if not size or not len(choosers):
            return NOTHING_FORBIDDEN
        pairs = []
        for start, length in zip(canvas.starts.tolist(), canvas.lengths.tolist(), strict=True):
            part = slice(start, start + length)
            positions, tokens = repeating_tokens(canvas.tokens[part], canvas.masked[part], size)
            pairs.append((positions + start, tokens))
        at, tokens = np.concatenate(pairs, axis=1)
        kept = np.isin(at, slots[choosers]) & ~np.isin(tokens, self.end_ids)
        at, tokens = at[kept], tokens[kept]
        _, place, counts = np.unique(at, return_inverse=True, return_counts=True)
        # Where nothing else is left to choose (a tiny vocabulary), repeating is better than committing a mask.
        left = (counts < self.lm.network.config.vocab_size - len(self.reader.banned))[place]
        return np.stack((np.searchsorted(slots, at[left]), tokens[left]))

    @torch.inference_mode()
    def _forward(self, t: int, rows: StepRows) -> Reading:
        """Lines 9-15: the packed forward of both passes, and what the posteriors say."""
        network, count = self.lm.network, len(rows.slots)
        noise = BatchNoise(self.canvas, self.schedule, self.settings, t, self.lm)
        hidden = network.forward_rows(*self._pack(rows), self.cache) if count else torch.empty(0)

        def logits(start: int, stop: int, out: Tensor) -> Tensor:
            z = network.logits(hidden[start:stop], out)
            if self.guided:
                blind = network.logits(hidden[count + start : count + stop]).to(self.wide)
                z.copy_(torch.add(blind, z.to(self.wide) - blind, alpha=self.settings.cfg_scale + 1))
            return z

        reading = self.reader.read(logits, rows, noise)
        if not reading.finite:
            raise NonFiniteLogits(f"the network put out NaN or infinite logits in step {t}")
        return reading

    def _pack(self, rows: StepRows) -> tuple[Tensor, Rows]:
        """Tokens and places of the rows; with guidance a second time, behind, with every prompt token masked."""
        canvas, device = self.canvas, self.lm.device
        tokens = [canvas.tokens[rows.slots]]
        if self.guided:
            tokens.append(np.where(canvas.is_prompt[rows.slots], canvas.mask_id, tokens[0]))
        offsets = canvas.total * np.arange(self.passes)[:, None]
        written = np.flatnonzero(np.tile(~rows.probed, self.passes)) if rows.probed.any() else None
        upload = (np.tile(canvas.position[rows.slots], self.passes), (rows.slots + offsets).ravel())
        counts = [part.stop - part.start for part in canvas.split(rows.slots)]
        return torch.from_numpy(np.concatenate(tokens)).to(device), Rows(
            *(torch.from_numpy(array).to(device) for array in upload),
            counts=counts * self.passes,
            lengths=canvas.lengths.tolist() * self.passes,
            written=None if written is None else torch.from_numpy(written).to(device),
        )

    def _unmask(self, t: int, rows: StepRows, reading: Reading, running: NDArray[np.bool_]) -> NDArray[np.int64]:
        """UpdateMASK (line 16): commit tokens and move every sequence's schedule on. Returns the slots committed."""
        canvas, schedule, settings = self.canvas, self.schedule, self.settings
        choosers = rows.slots[rows.choosers]
        late = np.isin(reading.chosen, self.late_ids)
        threshold = settings.threshold if settings.remasking == "threshold" else None
        unmasked = []
        for b, part in enumerate(canvas.split(choosers)):
            if not running[b]:
                continue
            if settings.replay is not None:
                commits = [(position, token) for step, position, token in settings.replay[b] if step == t]
                slots, tokens = np.array(sorted(commits), dtype=np.int64).reshape(-1, 2).T
                slots = slots + canvas.generated_from[b]
            else:
                score, is_late = reading.score[part], late[part]
                count = commit_count(score, is_late, schedule.quota(b), schedule.last_step(b), threshold)
                best = part.start + np.sort(rank(score, is_late)[:count])
                slots, tokens = choosers[best], reading.chosen[best]
            canvas.commit(slots, tokens)
            schedule.advance(b, len(slots))
            unmasked.append(slots)
        return np.concatenate(unmasked)

    def _report(
        self,
        t: int,
        rows: StepRows,
        reading: Reading,
        unmasked: NDArray[np.int64],
        locked: NDArray[np.int64],
        unlocked: NDArray[np.int64],
        running: NDArray[np.bool_],
        seconds: float,
    ) -> Step:
        canvas, config = self.canvas, self.lm.network.config
        computed = ~rows.probed
        slots = rows.slots[computed]
        flops, full = np.zeros((2, canvas.batch))
        for b, part in enumerate(canvas.split(rows.slots)):
            length, probed = int(canvas.lengths[b]), int(rows.probed[part].sum())
            flops[b] = self.passes * step_flops(config, length, part.stop - part.start - probed, probed)
            full[b] = self.passes * step_flops(config, length, length) if running[b] else 0.0
        return Step(
            index=t,
            tokens=canvas.grid(canvas.tokens, canvas.pad_id),
            masked=canvas.grid(canvas.masked, False),
            locked=canvas.grid(self.locks.locked, False),
            newly_unmasked=canvas.grid(canvas.mark(unmasked), False),
            newly_locked=canvas.grid(canvas.mark(locked), False),
            newly_unlocked=canvas.grid(canvas.mark(unlocked), False),
            computed=canvas.grid(canvas.mark(slots), False),
            probed=canvas.grid(canvas.mark(rows.slots[rows.probed]), False),
            kl=canvas.grid(reading.kl[computed], np.nan, slots),
            confidence=canvas.grid(reading.confidence[computed], np.nan, slots),
            top_ids=canvas.grid(reading.top_ids[computed], -1, slots) if self.top_k else None,
            top_probs=canvas.grid(reading.top_probs[computed], np.nan, slots) if self.top_k else None,
            flops=torch.from_numpy(flops),
            baseline_flops=torch.from_numpy(full),
            seconds=seconds,
        )
