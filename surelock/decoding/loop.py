"""The decode loop: Algorithm 1 as one generator, for any compute rule and any unmask policy."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from surelock.decoding.canvas import Canvas, encode_prompts
from surelock.decoding.choosing import Chooser
from surelock.decoding.compute import Changes, ComputeRule, Everything
from surelock.decoding.ends import text_of
from surelock.decoding.events import Event, Events, apply
from surelock.decoding.flops import step_flops
from surelock.decoding.guidance import guided_logits
from surelock.decoding.noise import BatchNoise
from surelock.decoding.posterior import PosteriorReader, Reading, StepRows
from surelock.decoding.schedule import Schedule
from surelock.decoding.settings import DecodeSettings
from surelock.decoding.state import Slots, State
from surelock.decoding.stopwatch import Stopwatch
from surelock.decoding.unmasking import Candidates, LowConfidence, Replay, UnmaskPolicy
from surelock.model.cache import Rows
from surelock.model.language_model import LanguageModel


class NonFiniteLogits(ArithmeticError):
    """The network put out NaN or infinity; the message names the step."""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One denoising step of a batch. Tensors are [B, N] on the CPU, sequences left-padded to the longest.

    index: 0-based. tokens int64, after the step; the pad id at pads. masked, locked, newly_*, written, computed,
    probed: bool, after the step; False at pads. newly_unmasked: committed by the step; newly_masked, written: masked
    again or written by an event before it. computed: active rows that the step computed; probed: locked rows that it
    only looked at. kl: nats, infinite where a row has no earlier posterior; confidence: max_v p; both NaN where not
    computed and at pads; unless observed, the KL also where neither rule nor policy looks at it (`LockRule` does only
    once a token has been seen, and at those that its confidence gate admits), and in a lean run both where nobody does.
    top_ids int64, top_probs: [B, N, top_k], None when top_k is 0; -1 and NaN where not computed and at pads. kl,
    confidence, top_probs: float64. commit_logits: [K, V] raw logits that the K newly_unmasked were chosen by, sequence
    by sequence, in the network's dtype; None when not kept.
    flops, baseline_flops: [B] float64, algorithmic (Sec. 2.4), of the step and of one that computes every row.
    seconds: the step's own time, device synchronised, observation excluded.
    """

    index: int
    tokens: Tensor
    masked: Tensor
    locked: Tensor
    newly_unmasked: Tensor
    newly_masked: Tensor
    written: Tensor
    newly_locked: Tensor
    newly_unlocked: Tensor
    computed: Tensor
    probed: Tensor
    kl: Tensor
    confidence: Tensor
    top_ids: Tensor | None
    top_probs: Tensor | None
    commit_logits: Tensor | None
    flops: Tensor
    baseline_flops: Tensor
    seconds: float


def decode(
    lm: LanguageModel,
    prompts: Sequence[str] | Sequence[Sequence[int]],
    settings: DecodeSettings | None = None,
    *,
    compute: ComputeRule | None = None,
    unmask: UnmaskPolicy | None = None,
    events: Iterable[Event] = (),
    observe: bool = False,
    top_k: int = 0,
    keep_logits: bool = False,
    lean: bool = False,
) -> Iterator[Step]:
    """Decode a batch of prompts step by step (Algorithm 1).

    prompts: texts or lists of token ids. compute: which rows a step computes; None is `Everything()`, LLaDA's sampler.
    unmask: which masked positions it commits; None is `LowConfidence()`. events: what a person does to the run.
    observe: report the step-wise KL of all computed rows, whoever needs it. top_k: also report each row's most likely
    tokens. keep_logits: also report the logits of what is committed, for `surelock.commit_error`.
    lean: make posteriors only of rows that somebody decides by, so that other rows have no confidence, and compute of
    the others nothing in the last block but keys and values (in a shifted network, all); it changes nothing where all
    are looked at, by an observer or a rule, or where a run replays or has events.
    What one sequence does depends on the others of its batch by rounding alone (a product's may, on its row count).
    Raises ValueError for what cannot be asked of the model, at the call, and for an event that does not fit what the
    run has become, from the iterator; NonFiniteLogits from the iterator.
    """
    settings, compute, unmask = settings or DecodeSettings(), compute or Everything(), unmask or LowConfidence()
    if not isinstance(top_k, int) or not 0 <= top_k <= lm.network.config.vocab_size:
        raise ValueError(f"top_k must be a whole number from 0 to the vocabulary's size, not {top_k!r}")
    for name, value, kind in (("compute", compute, ComputeRule), ("unmask", unmask, UnmaskPolicy)):
        if not isinstance(value, kind):
            raise ValueError(f"{name} must be a {kind.__name__} or None, not {value!r}")
    canvas = Canvas(encode_prompts(lm, prompts, settings), settings, lm.mask_id, lm.pad_id)
    vocab_size, steps = lm.network.config.vocab_size, settings.total_steps
    if isinstance(unmask, Replay):
        unmask.check_against(canvas.batch, settings.gen_length, steps, vocab_size, lm.mask_id)
    events = tuple(events)
    checked = Events(events, canvas, steps, vocab_size, unmask)
    lean = lean and not (observe or top_k or events or compute.needs_confidence or isinstance(unmask, Replay))
    return _Run(lm, canvas, settings, compute, unmask, checked, observe, top_k, keep_logits, lean).steps()


def generate(
    lm: LanguageModel,
    prompts: Sequence[str] | Sequence[Sequence[int]],
    settings: DecodeSettings | None = None,
    *,
    compute: ComputeRule | None = None,
    unmask: UnmaskPolicy | None = None,
    events: Iterable[Event] = (),
) -> list[str]:
    """Decode to the end and return the generated texts, each cut at its first EOS. Raises what `decode` raises."""
    settings = settings or DecodeSettings()
    lm.decode([])  # a model without a tokenizer is refused before the work, not after
    steps = decode(lm, prompts, settings, compute=compute, unmask=unmask, events=events, lean=True)
    (final,) = deque(steps, maxlen=1)
    return [text_of(lm, ids[-settings.gen_length :]) for ids in final.tokens.tolist()]


@dataclass(slots=True)
class _Interventions:
    """Slots that events of a step wrote, masked again, locked and unlocked."""

    written: Slots
    masked: Slots
    locked: Slots
    unlocked: Slots


_UNDISTURBED = _Interventions(*(np.empty(0, dtype=np.int64) for _ in range(4)))


class _Run:
    """One run of a batch. `_step` is the loop's body; the rule and the policy it asks are the decoder."""

    def __init__(
        self,
        lm: LanguageModel,
        canvas: Canvas,
        settings: DecodeSettings,
        compute: ComputeRule,
        policy: UnmaskPolicy,
        events: Events,
        observe: bool,
        top_k: int,
        keep_logits: bool,
        lean: bool,
    ) -> None:
        self.lm, self.canvas, self.settings = lm, canvas, settings
        self.compute, self.policy, self.events = compute, policy, events
        self.schedule = Schedule(canvas, settings, policy.early)
        self.state = State(canvas, self.schedule)
        self.chooser = Chooser(lm, settings, policy)
        self.guided = settings.cfg_scale > 0
        self.passes = 2 if self.guided else 1
        self.watch = Stopwatch(lm.device)
        rules = [rule for rule in (compute, *events.rules) if rule.needs_kl]
        self.kl_from = 0 if policy.needs_kl else min((rule.kl_from for rule in rules), default=None)
        self.gate = rules[0].kl_gate if len(rules) == 1 and not policy.needs_kl else None
        self.reader = PosteriorReader(
            lm, canvas.total, remember=self.kl_from is not None, observe=observe, top_k=top_k, watch=self.watch
        )
        self.packed = lm.packed(canvas.total * self.passes)
        self.top_k, self.keep_logits, self.lean = top_k, keep_logits, lean
        self.read: Slots = np.empty(0, dtype=np.int64)  # of the step's rows those whose outcome somebody wants: [K]
        self.hidden = torch.empty(0)  # theirs: [passes, K, d_model]

    def steps(self) -> Iterator[Step]:
        for t in range(self.settings.total_steps):
            if not self.schedule.running.any():
                return self.events.close(t)
            yield self._step(t)

    def _step(self, t: int) -> Step:
        """One turn of Algorithm 1's loop (lines 5-25)."""
        self.watch.start()
        done = self._intervene(t)  # what a person does comes before all else
        rows = self._plan()  # lines 6-8: which rows does this step compute?
        reading = self._forward(rows)  # lines 9-15: their posteriors, their keys and values in the cache
        unmasked = self._unmask(rows, reading)  # line 16: from the posteriors alone
        changes = self._decide(reading)  # lines 17-24: the rule sees the canvas after the commit
        return self._report(rows, reading, unmasked, changes, done, self.watch.seconds())

    def _intervene(self, t: int) -> _Interventions:
        """Apply the events of step t."""
        state, due = self.state, self.events.due(t)
        state.step, running = t, self.schedule.running
        state.alive = running[self.canvas.sequence] if not running.all() else state.alive
        if not due:
            return _UNDISTURBED
        before = state.locked.copy()
        for event in due:
            if event.compute is not None:
                self.compute = event.compute
            else:
                apply(event, state)
        written, masked, unlocked = (self._slots(due, kind) for kind in ("write", "mask", "unlock"))
        opened = np.concatenate((written, masked, unlocked))
        self.reader.forget(opened[before[opened]])  # also where the same step locks it again
        changed = (np.flatnonzero(slots) for slots in (state.locked & ~before, before & ~state.locked))
        return _Interventions(written, masked, *changed)

    def _slots(self, due: list[Event], kind: str) -> Slots:
        found = [self.canvas.slot(event.sequence, event.position or 0) for event in due if event.kind == kind]
        return np.array(found, dtype=np.int64)

    def _plan(self) -> StepRows:
        """The rows that the rule chooses, the masks that an ending block must commit, and who may be committed."""
        canvas, state, schedule = self.canvas, self.state, self.schedule
        active = np.flatnonzero(~state.locked & state.alive)
        slots = self.compute.rows(state, active)
        if state.step == 0:  # nothing is cached yet; the rule was asked because it may keep account
            slots = active
        choosing = np.zeros(canvas.total, dtype=bool)
        for b in np.flatnonzero(schedule.running).tolist():
            part = schedule.open(b)
            choosing[part] = canvas.masked[part]
            if schedule.last_step(b):
                slots = np.union1d(slots, np.flatnonzero(canvas.masked[part]) + part.start)
        probed, compared = state.locked[slots], np.zeros(len(slots), dtype=bool)
        kept = compared
        if self.kl_from is not None:
            seen = state.visible[slots] + ~canvas.masked[slots]  # after this step
            compared, kept = seen >= self.kl_from, seen + 1 >= self.kl_from
            if self.gate is not None:  # it chooses among those that may lock
                compared &= ~probed
            if self.lean:  # what cannot be committed now stays masked: its KL is not asked for in the next step
                kept &= compared | choosing[slots] | ~canvas.masked[slots]
        choosers = np.flatnonzero(choosing[slots])
        return StepRows(slots, probed, choosers, compared, kept, canvas.sequence[slots], self.gate)

    @torch.inference_mode()
    def _forward(self, rows: StepRows) -> Reading:
        """The packed forward of both passes, and what the posteriors say."""
        state = self.state
        visible = rows.slots[~(rows.probed | self.canvas.masked[rows.slots])]
        draws = self.policy.scores == "noise"
        noise = BatchNoise(self.canvas, self.schedule, self.settings, state.step, self.lm, draws)
        which = rows.needed if self.lean else None
        read = rows if which is None else rows.part(which)
        repeats = self.chooser.repeats(state, read)
        self.read = read.slots
        if len(rows.slots):
            self.hidden = self.packed(*self._pack(rows)).unflatten(0, (self.passes, -1))

        def logits(start: int, stop: int, out: Tensor) -> Tensor:
            return self._logits(slice(start, stop), out)

        def choose(z: Tensor, p: Tensor, start: int) -> Tensor:
            return self.chooser.choose(z, p, start, read, repeats, noise)

        reading = self.reader.read(logits, read, choose)
        if which is not None:
            reading = reading.spread(rows, which)
        if not reading.finite:
            raise NonFiniteLogits(f"the network put out NaN or infinite logits in step {state.step}")
        if draws:
            reading.score = noise.uniforms(rows.slots[rows.choosers])
        state.visible[visible] += 1
        return reading

    def _logits(self, rows: slice | Tensor, out: Tensor | None = None) -> Tensor:
        """Logits of some rows of the step's forward, guided, in the network's dtype."""
        z = self.lm.network.logits(self.hidden[0, rows], out)
        if self.guided:
            z.copy_(guided_logits(z, self.lm.network.logits(self.hidden[1, rows]), self.settings.cfg_scale))
        return z

    @torch.inference_mode()
    def _commit_logits(self, unmasked: Slots) -> Tensor | None:
        """What the tokens of this step were chosen by."""
        if not self.keep_logits:
            return None
        network, known = self.lm.network, np.isin(unmasked, self.read)  # a `Replay` may commit what was not computed
        found = torch.full((len(unmasked), network.config.vocab_size), torch.nan, dtype=network.dtype)
        if known.any():
            at = torch.from_numpy(np.searchsorted(self.read, unmasked[known])).to(self.hidden.device)
            found[torch.from_numpy(known)] = self._logits(at).cpu()
        return found

    def _pack(self, rows: StepRows) -> tuple[Tensor, Rows]:
        """Tokens and places of the rows, and which of them are read; with guidance a second time, behind, with every
        prompt token masked.
        """
        canvas, device = self.canvas, self.lm.device
        tokens = [canvas.tokens[rows.slots]]
        if self.guided:
            tokens.append(np.where(canvas.is_prompt[rows.slots], canvas.mask_id, tokens[0]))
        offsets = canvas.total * np.arange(self.passes)[:, None]
        written = np.flatnonzero(np.tile(~rows.probed, self.passes)) if rows.probed.any() else None
        upload = (np.tile(canvas.position[rows.slots], self.passes), (rows.slots + offsets).ravel())
        read = None
        if 0 < len(self.read) < len(rows.slots):
            read = np.searchsorted(rows.slots, self.read) + len(rows.slots) * np.arange(self.passes)[:, None]
        return torch.from_numpy(np.concatenate(tokens)).to(device), Rows(
            *(torch.from_numpy(array).to(device) for array in upload),
            counts=canvas.counts(rows.slots) * self.passes,
            lengths=canvas.lengths.tolist() * self.passes,
            written=None if written is None else torch.from_numpy(written).to(device),
            read=None if read is None else torch.from_numpy(read.ravel()).to(device),
            read_counts=None if read is None else canvas.counts(self.read) * self.passes,
        )

    def _unmask(self, rows: StepRows, reading: Reading) -> Slots:
        """Commit what the policy takes, and move every sequence's schedule on. Returns the slots committed."""
        state, schedule = self.state, self.schedule
        self.policy.prepare(state, reading)
        choosers = rows.slots[rows.choosers]
        late = self.chooser.late(reading.tokens)
        unmasked = []
        for b, part in enumerate(self.canvas.split(choosers)):
            if not schedule.running[b]:
                continue
            found = (choosers[part], reading.tokens[part], reading.score[part], late[part])
            slots, tokens = self.policy.commits(Candidates(state, b, *found, schedule.quota(b)))
            self.canvas.commit(slots, tokens)
            schedule.advance(b, len(slots))
            unmasked.append(slots)
        return np.concatenate(unmasked)

    def _decide(self, reading: Reading) -> Changes:
        """Ask the rule what locks or unlocks from the next step on."""
        state, computed = self.state, ~reading.probed
        active = reading.slots[computed]
        state.probed_at[reading.slots[reading.probed]] = state.step
        state.computed_at[active] = state.step
        state.kl[active], state.confidence[active] = reading.kl[computed], reading.confidence[computed]
        changes = self.compute.after(state, reading)
        state.lock(changes.locked)
        state.unlock(changes.unlocked)
        self.reader.forget(changes.unlocked)
        return changes

    def _report(
        self,
        rows: StepRows,
        reading: Reading,
        unmasked: Slots,
        changes: Changes,
        done: _Interventions,
        seconds: float,
    ) -> Step:
        canvas, config = self.canvas, self.lm.network.config
        computed = ~rows.probed
        slots = rows.slots[computed]
        flops, full = np.zeros((2, canvas.batch))
        for b, part in enumerate(canvas.split(rows.slots)):
            length, probed = int(canvas.lengths[b]), int(rows.probed[part].sum())
            flops[b] = self.passes * step_flops(config, length, part.stop - part.start - probed, probed)
            alive = self.state.alive[canvas.starts[b]]
            full[b] = self.passes * step_flops(config, length, length) if alive else 0.0

        def flags(*lists: Slots) -> Tensor:
            return canvas.grid(canvas.mark(np.concatenate(lists)), False)

        return Step(
            index=self.state.step,
            tokens=canvas.grid(canvas.tokens, canvas.pad_id),
            masked=canvas.grid(canvas.masked, False),
            locked=canvas.grid(self.state.locked, False),
            newly_unmasked=flags(unmasked),
            newly_masked=flags(done.masked),
            written=flags(done.written),
            newly_locked=flags(done.locked, changes.locked),
            newly_unlocked=flags(done.unlocked, changes.unlocked),
            computed=flags(slots),
            probed=flags(rows.slots[rows.probed]),
            kl=canvas.grid(reading.kl[computed], np.nan, slots),
            confidence=canvas.grid(reading.confidence[computed], np.nan, slots),
            top_ids=canvas.grid(reading.top_ids[computed], -1, slots) if self.top_k else None,
            top_probs=canvas.grid(reading.top_probs[computed], np.nan, slots) if self.top_k else None,
            commit_logits=self._commit_logits(unmasked),
            flops=torch.from_numpy(flops),
            baseline_flops=torch.from_numpy(full),
            seconds=seconds,
        )
