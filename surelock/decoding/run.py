"""A run decides which rows a step computes, what is committed and what locks. It uses no network, device or clock.

    run = Run(shape, prompts, decoder)
    while (plan := run.plan()) is not None:
        step = run.take(engine.read(memory, plan))

One iteration of this loop is one iteration of Algorithm 1.
"""

from __future__ import annotations

from copy import deepcopy
from typing import NamedTuple

import numpy as np

from surelock.config import Shape
from surelock.decoding.block_causal import BlockCausal
from surelock.decoding.choices import Decoder
from surelock.decoding.compute import Changes
from surelock.decoding.events import Event, apply, in_order
from surelock.decoding.flops import row_flops
from surelock.decoding.ngrams import repeating_tokens
from surelock.decoding.noise import draws
from surelock.decoding.state import NONE, Canvas, Flags, Schedule, Slots, State
from surelock.decoding.step import Choice, Layout, Plan, Reading, Step, Whole, barred_ends
from surelock.decoding.unmasking import Candidates


class NonFiniteLogits(ArithmeticError):
    """A logit of the network is NaN or infinite. The message names the step."""


class _Interventions(NamedTuple):
    """The slots that the events of a step wrote, masked again, locked and unlocked, and what the policy took back."""

    written: Slots = NONE
    masked: Slots = NONE
    locked: Slots = NONE
    unlocked: Slots = NONE
    taken_back: Slots = NONE


class Run:
    """One run of a batch.

    prompts: [B] lists of token ids, already checked. Masks in them are written like those behind them.
    decoder: settings, compute rule, unmask policy and events.
    top_k: report this many most likely tokens of each computed row. Above 0 it implies `observe`.

    Raises ValueError, one sentence, for an event that the run cannot have, and for what `Canvas` and `Schedule` refuse.
    """

    def __init__(
        self, shape: Shape, prompts: list[list[int]], decoder: Decoder, *, observe: bool = False, top_k: int = 0
    ) -> None:
        settings, policy = decoder.settings, decoder.unmask
        self.shape, self.settings, self.compute, self.policy = shape, settings, decoder.compute, policy
        self.canvas = Canvas(prompts, settings, shape.mask_id, shape.pad_id)
        self.schedule = Schedule(self.canvas, settings, policy.early, policy.quotas, shape.network.block_size)
        most = int(self.schedule.steps.max())
        self.events = in_order(decoder.events, self.canvas, most, shape.network.vocab_size, policy)
        self._blocks = BlockCausal(self.canvas, self.schedule, shape.network.block_size)
        self.state = State(self.canvas, self.schedule, self._blocks.rests)
        self.observe, self.top_k = observe or top_k > 0, top_k
        self.layout = Layout(tuple(self.canvas.lengths.tolist()), 2 if settings.cfg_scale > 0 else 1)
        self._ends, self._late = list(shape.ends), list(shape.ends) if settings.suppress_eos_confidence else []
        self._banned = [shape.mask_id, *(shape.ends[:1] if settings.suppress_eos else ())]
        # FLOPs [total] of each row, and of a row that is only probed
        canvas = self.canvas
        rows = shape.network, canvas.lengths[canvas.sequence], canvas.position
        whole, probe = (self.layout.passes * row_flops(*rows, probed=flag) for flag in (False, True))
        self._row_flops = whole, probe
        self._next = 0
        self._forgets: list[Slots] = []
        self._made: tuple[Plan, _Interventions] | None = None

    @property
    def next_step(self) -> int:
        return self._next

    def go_on_from(self, other: Run) -> None:
        """Take over a run of the same prompt between two steps. Its events up to there must be the same."""
        taken = deepcopy(other)
        self.canvas, self.schedule, self.state = taken.canvas, taken.schedule, taken.state
        self.compute = taken.compute
        self._blocks = taken._blocks
        self._forgets = taken._forgets
        self._next = taken._next

    def plan(self) -> Plan | None:
        """Return the plan of the next step (lines 5-8), the same one until `take`; None when the run is over.

        Raises ValueError for an event that does not fit the state of the run.
        """
        if self._made is None:
            if not self.schedule.running.any():
                if late := [event for event in self.events if event.step >= self._next]:
                    where, ended = late[0].where, f"the run ended before step {self._next}"
                    raise ValueError(f"{where}: there is no such step, {ended}")
                return None
            self.state.step = self._next
            self.state.alive = self.schedule.running[self.canvas.sequence]
            due = [event for event in self.events if event.step == self._next]
            done = self._intervene(due) if due else _Interventions()
            done = done._replace(taken_back=self._take_back())
            self._made = self._plan(), done
        return self._made[0]

    def take(self, reading: Reading) -> Step:
        """Finish the planned step with the engine's reading (lines 16-24).

        Raises NonFiniteLogits, and ValueError if there is no plan.
        """
        if self._made is None:
            raise ValueError("there is no plan to take a reading of: call plan() first")
        plan, done = self._made
        state = self.state
        if not reading.finite:
            raise NonFiniteLogits(f"the network put out NaN or infinite logits in step {state.step}")
        state.visible[plan.slots[~(plan.probed | state.masked[plan.slots])]] += 1
        unmasked = self._unmask(plan, reading)  # line 16: from the posteriors alone
        computed = ~plan.probed
        active = plan.slots[computed]
        state.probed_at[plan.slots[plan.probed]] = state.step
        state.computed_at[active] = state.step
        state.kl[active], state.confidence[active] = reading.kl[computed], reading.confidence[computed]
        changes = self.compute.after(state, reading)  # lines 17-24: the rule sees the canvas after the commit
        changes = changes._replace(locked=changes.locked[~state.locked[changes.locked]])  # a rule may name any
        state.lock(changes.locked)
        if len(changes.unlocked):
            state.unlock(changes.unlocked)
            self._forgets.append(changes.unlocked)
        self._made, self._next = None, self._next + 1
        return self._report(plan, reading, unmasked, changes, done)

    def _intervene(self, due: list[Event]) -> _Interventions:
        state = self.state
        before = state.locked.copy()
        for event in due:
            if event.compute is not None:
                self.compute = event.compute
            else:
                apply(event, state)
        written, masked, unlocked = (self._slots(due, kind) for kind in ("write", "mask", "unlock"))
        opened = np.concatenate((written, masked, unlocked))
        self._forgets.append(opened[before[opened]])  # also where the same step locks it again
        self._blocks.change(np.concatenate((written, masked)))
        locked, unlocked = (np.flatnonzero(slots) for slots in (state.locked & ~before, before & ~state.locked))
        return _Interventions(written, masked, locked, unlocked)

    def _take_back(self) -> Slots:
        """Mask again what the policy takes back before its rows are chosen; it starts anew."""
        state = self.state
        slots = [self.policy.takes_back(state, b) for b in np.flatnonzero(self.schedule.running).tolist()]
        slots = np.concatenate(slots)
        if len(slots):
            state.mask(slots)
            state.kl[slots], state.confidence[slots] = np.inf, np.nan
            self._forgets.append(slots)
            self._blocks.change(slots)
        return slots

    def _slots(self, due: list[Event], kind: str) -> Slots:
        found = [self.canvas.slot(event.sequence, event.position or 0) for event in due if event.kind == kind]
        return np.array(found, dtype=np.int64)

    def _plan(self) -> Plan:
        canvas, state, settings = self.canvas, self.state, self.settings
        slots = self._rows()
        tokens = canvas.tokens[slots]
        watches, compares = self._watched(slots)
        forgotten = np.concatenate((NONE, *self._forgets))
        self._forgets.clear()
        return Plan(
            step=state.step,
            slots=slots,
            counts=np.bincount(canvas.sequence[slots], minlength=canvas.batch).tolist(),
            tokens=tokens,
            positions=canvas.position[slots],
            probed=state.locked[slots] & ~self._blocks.settles[slots],
            watches=watches,
            compares=compares,
            choice=self._choice(slots),
            blind=np.where(canvas.is_prompt[slots], canvas.mask_id, tokens) if settings.cfg_scale > 0 else None,
            observe=self.observe,
            forgotten=forgotten,
            cfg_scale=settings.cfg_scale,
            top_k=self.top_k,
        )

    def _rows(self) -> Slots:
        """The slots that the step computes, ascending (line 6). It opens the masks that may be committed."""
        canvas, state, schedule = self.canvas, self.state, self.schedule
        state.open[:] = False
        ending = [NONE]
        for b in np.flatnonzero(schedule.running).tolist():
            part = slice(int(canvas.generated_from[b]), int(schedule.stops[b]))
            state.open[part] = canvas.masked[part]
            if schedule.closing[b]:
                ending.append(np.flatnonzero(canvas.masked[part]) + part.start)  # the step must commit them
        self._blocks.begin_step()
        present = state.alive & ~state.rests
        slots = self.compute.rows(state, np.flatnonzero(~state.locked & present))
        new = np.flatnonzero(self._blocks.settles | (present & (state.computed_at < 0)))  # nothing exact is cached
        return np.union1d(slots, np.concatenate((new, *ending))) if len(new) or len(ending) > 1 else slots

    def _watched(self, slots: Slots) -> tuple[Flags, Flags]:
        if self.events and not self.observe:  # one may open any row: the rule then goes by the row's last posterior
            every = np.ones(len(slots), dtype=bool)
            return every, every
        rule, policy = self.compute.watches(self.state, slots), self.policy.watches(self.state, slots)
        return rule[0] | policy[0], rule[1] | policy[1]

    def _choice(self, slots: Slots) -> Choice:
        """Which rows may be committed (line 8), and how their tokens are chosen."""
        settings, policy, schedule = self.settings, self.policy, self.schedule
        rows = policy.chooses(self.state, slots)
        candidates, scored = slots[rows], policy.scores == "noise"
        drawn = settings.temperature > 0 or scored
        best_alone = drawn and policy.by_posterior and not self._late
        return Choice(
            rows=rows,
            scores=policy.scores,
            measures=tuple(sorted({*policy.measures, *self.compute.measures})),
            quotas=np.where(schedule.closing, self.canvas.total, schedule.quota).tolist() if best_alone else None,
            banned=self._banned,
            barred=self._barred(candidates),
            temperature=settings.temperature,
            draws=draws(self.canvas, schedule, settings, self.state.step, candidates, scored) if drawn else None,
        )

    def _barred(self, choosers: Slots) -> Whole:
        """`Choice.barred`: an end of the text before given words, and what repeats an n-gram."""
        inner = choosers < self.canvas.given_until[self.canvas.sequence[choosers]]
        barred = barred_ends(inner, self._ends)
        if not self.settings.no_repeat_ngram_size or not len(choosers):
            return barred
        return np.unique(np.concatenate((barred, self._repeats(choosers, inner)), axis=1), axis=1)

    def _repeats(self, choosers: Slots, inner: Flags) -> Whole:
        """What `no_repeat_ngram_size` forbids, like `_barred`. inner: [C], which candidates must not become an end."""
        size, canvas, pairs = self.settings.no_repeat_ngram_size, self.canvas, []
        for b in range(canvas.batch):
            part = canvas.parts[b]
            positions, tokens = repeating_tokens(canvas.tokens[part], canvas.masked[part], size)
            pairs.append((positions + part.start, tokens))
        at, tokens = np.concatenate(pairs, axis=1)
        kept = np.isin(at, choosers) & ~np.isin(tokens, self._ends)
        at, tokens = at[kept], tokens[kept]
        rows = np.searchsorted(choosers, at)
        # Where nothing else is left to choose (a tiny vocabulary), repeating is better than committing a mask.
        open_to = np.full(len(choosers), self.shape.network.vocab_size - len(self._banned))
        open_to[inner] -= len(set(self._ends) - set(self._banned))
        left = np.bincount(rows, minlength=len(choosers))[rows] < open_to[rows]
        return np.stack((rows[left], tokens[left]))

    def _unmask(self, plan: Plan, reading: Reading) -> Slots:
        """Commit the tokens that the policy takes, and advance every schedule. Returns the committed slots."""
        state, schedule = self.state, self.schedule
        self.policy.prepare(state, reading)
        choosers = plan.slots[plan.choice.rows]
        state.measures = {name: np.full(self.canvas.total, np.nan) for name in reading.measures}
        for name, values in reading.measures.items():
            state.measures[name][choosers] = values
        draws = plan.choice.draws
        score = draws.scores() if draws is not None and draws.scored else reading.score
        late = np.isin(reading.tokens, self._late)
        unmasked = []
        for b, part in enumerate(self.canvas.split(choosers)):
            if not schedule.running[b]:
                continue
            found = choosers[part], reading.tokens[part], score[part], late[part]
            ranked = np.lexsort((-score[part], late[part]))
            ranked = ranked[state.open[choosers[part]][ranked]]
            slots, tokens = self.policy.commits(Candidates(state, b, *found, ranked, int(schedule.quota[b])))
            scores = score[np.searchsorted(choosers, slots)] if self.policy.scores else np.nan
            state.commit(slots, tokens, scores)
            schedule.advance(b, len(slots))
            unmasked.append(slots)
        unmasked = np.concatenate(unmasked)
        for values in state.measures.values():
            values[np.setdiff1d(choosers, unmasked)] = np.nan
        return unmasked

    def _report(self, plan: Plan, reading: Reading, unmasked: Slots, changes: Changes, done: _Interventions) -> Step:
        canvas, state = self.canvas, self.state
        computed = ~plan.probed
        slots, resting = plan.slots[computed], self._blocks.rests & ~self._blocks.settles
        whole, probe = self._row_flops
        present, flops = whole * (state.alive & ~resting), np.zeros(canvas.total)
        flops[plan.slots] = np.where(plan.probed, probe[plan.slots], whole[plan.slots])
        flops, baseline = (np.bincount(canvas.sequence, each, canvas.batch) for each in (flops, present))
        return Step(
            index=state.step,
            tokens=canvas.grid(canvas.tokens, canvas.pad_id),
            given=canvas.grid(canvas.is_prompt, False),
            open=canvas.grid(state.open, False) | canvas.flags(unmasked),
            scores=None if self.policy.scores == "noise" else self.policy.scores,
            masked=canvas.grid(canvas.masked, False),
            locked=canvas.grid(state.locked, False),
            newly_unmasked=canvas.flags(unmasked),
            newly_masked=canvas.flags(done.masked),
            taken_back=canvas.flags(done.taken_back),
            written=canvas.flags(done.written),
            newly_locked=canvas.flags(done.locked, changes.locked),
            newly_unlocked=canvas.flags(done.unlocked, changes.unlocked),
            computed=canvas.flags(slots),
            probed=canvas.flags(plan.slots[plan.probed]),
            resting=canvas.grid(resting, False),
            kl=canvas.grid(reading.kl[computed], np.nan, slots),
            confidence=canvas.grid(reading.confidence[computed], np.nan, slots),
            top_ids=canvas.grid(reading.top_ids[computed], -1, slots) if self.top_k else None,
            top_probs=canvas.grid(reading.top_probs[computed], np.nan, slots) if self.top_k else None,
            flops=flops,
            baseline_flops=baseline,
            seconds=reading.seconds,
        )
