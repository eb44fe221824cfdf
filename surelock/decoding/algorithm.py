"""Algorithm 1 of the paper for a batch, from top to bottom. "Line 6" in a comment is the paper's numbering.

    run = Run(shape, prompts, decoder)
    while (plan := run.plan()) is not None:        # line 5: one denoising step
        step = run.take(engine.read(memory, plan))

`Run.plan` is lines 6 to 8. An engine computes the plan, lines 9 to 15, and what lines 18 and 19 store: in torch by
`Network.run` and `Block.forward` (`surelock/model/network.py`), where line 11 writes keys and values into the cache.
`Run.take` is lines 16 to 25, of which the rule decides lines 20 to 23: `lock_candidates` and `converged` below are
`LockRule`'s. A run uses no network, device or clock.

What is not of the paper is called by name, and lies elsewhere: events and what a policy takes back (`interventions`),
banned tokens (`bans`), block-causal networks (`block_causal`), texts that are over (`stopping`), blanks from
lists (`word_lists`), blocks, blanks and early ends (`state`).
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from surelock.config import Shape
from surelock.decoding.bans import barred, check_vocabulary
from surelock.decoding.block_causal import BlockCausal
from surelock.decoding.calls import ask, tell
from surelock.decoding.events import in_order, refuse_later
from surelock.decoding.flops import row_flops
from surelock.decoding.interventions import NOTHING, intervene
from surelock.decoding.noise import draws
from surelock.decoding.state import NONE, Canvas, Flags, Schedule, Slots, State
from surelock.decoding.step import NO_PAIRS, Choice, Layout, Plan, Reading, Step, report
from surelock.decoding.stopping import stop
from surelock.decoding.unmasking import Candidates, UnmaskPolicy
from surelock.decoding.word_lists import listed_rows, put_words, slot_lists

if TYPE_CHECKING:
    from surelock.decoding.compute import ComputeRule
    from surelock.decoding.decoder import Decoder


class NonFiniteLogits(ArithmeticError):
    """A logit of the network is NaN or infinite. The message names the step."""


class Run:
    """One run of a batch.

    prompts: [B] lists of token ids, already checked. Masks in them are written like those behind them; a `Listed` one
    has blanks from lists, which are settled.
    decoder: settings, compute rule, unmask policy and events.
    top_k: report this many most likely tokens of a computed row. Above 0 it implies `observe`.

    Raises ValueError, one sentence, for an event that the run cannot have, and for what `Canvas` and `Schedule` refuse.
    """

    def __init__(
        self,
        shape: Shape,
        prompts: list[list[int]],
        decoder: Decoder,
        *,
        observe: bool = False,
        top_k: int = 0,
    ) -> None:
        settings = decoder.settings
        policy = decoder.unmask
        network = shape.network
        self.shape = shape
        self.settings = settings
        self.compute: ComputeRule = decoder.compute
        self.policy = policy
        self.observe = observe or top_k > 0
        self.top_k = top_k
        # Lines 1 to 3: nothing is locked or cached, no posterior is known, the prompt stands and the rest is masked.
        self.canvas = Canvas(prompts, settings, shape.mask_id, shape.pad_id)
        self.schedule = Schedule(
            self.canvas, settings, policy.early, policy.quotas, network.block_size
        )
        self.state = State(self.canvas, self.schedule)
        self.lists = slot_lists(shape, prompts, self.canvas.starts)
        self.blocks = (
            None if network.block_size is None else BlockCausal(self.state, network.block_size)
        )
        steps = int(self.schedule.steps.max())
        events = decoder.events
        self.events = (
            in_order(events, self.canvas, steps, network.vocab_size, policy) if events else []
        )
        # slots whose kept posteriors are worthless from the next step on
        self.forgotten: list[Slots] = []
        if settings.no_repeat_ngram_size:
            check_vocabulary(self)
        self.layout = Layout(
            tuple(self.canvas.lengths.tolist()), 2 if settings.cfg_scale > 0 else 1
        )
        self._late = list(shape.ends) if settings.suppress_eos_confidence else []
        self._bars = settings.no_repeat_ngram_size > 0 or self.canvas.has_blanks
        self._banned = [shape.mask_id, *(shape.ends[:1] if settings.suppress_eos else ())]
        rows = network, self.canvas.lengths[self.canvas.sequence], self.canvas.position
        self.row_flops = self.layout.passes * row_flops(*rows)  # [total] float64, of each row
        self.probe_flops = self.layout.passes * row_flops(*rows, probed=True)
        self.interventions = NOTHING
        self.takes_back = type(policy).takes_back is not UnmaskPolicy.takes_back
        self._intervenes = bool(events) or self.takes_back
        self._next = 0
        self._plan: Plan | None = None

    @property
    def next_step(self) -> int:
        return self._next

    def go_on_from(self, other: Run) -> None:
        """Take over a run of the same prompt between two steps. Its events up to there must be the same."""
        taken = deepcopy(other)
        self.canvas = taken.canvas
        self.schedule = taken.schedule
        self.state = taken.state
        self.blocks = taken.blocks
        self.compute = taken.compute
        self.forgotten = taken.forgotten
        self._next = taken._next

    # --- lines 5 to 8: which rows? ------------------------------------------------------------------------------------

    def plan(self) -> Plan | None:
        """Return the plan of the next step, the same one until `take`; None when the run is over.

        Raises ValueError for an event that does not fit the state of the run.
        """
        if self._plan is not None:
            return self._plan
        if not self.schedule.running.any():
            refuse_later(self.events, self._next)
            return None
        canvas = self.canvas
        state = self.state
        settings = self.settings
        state.step = self._next  # line 5: t
        state.alive = self.schedule.running[canvas.sequence]
        if self._intervenes:
            self.interventions = intervene(self)
        due = state.open_masks()
        if self.blocks is not None:
            self.blocks.begin_step()
        present = state.alive & ~state.rests
        active = np.flatnonzero(~state.locked & present)  # line 6: A_t. Locked slots are L_t
        uncached = np.flatnonzero(state.settles | (present & (state.computed_at < 0)))
        # SureLock computes A_t, others choose among it
        slots = ask(state.step, self.compute.rows, state, active)
        if len(uncached) or len(due):
            slots = np.union1d(slots, np.concatenate((uncached, due)))
        # line 7: X_t. A locked row needs none: its keys and values are cached
        tokens = canvas.tokens[slots]
        watches, compares = self._watched(slots)
        choice = self._choice(slots)
        forgotten = np.concatenate((NONE, *self.forgotten))
        self.forgotten.clear()
        self._plan = Plan(  # line 8: compute these rows
            step=state.step,
            slots=slots,
            counts=np.bincount(canvas.sequence[slots], minlength=canvas.batch).tolist(),
            tokens=tokens,
            positions=canvas.position[slots],
            probed=state.locked[slots] & ~state.settles[slots],
            watches=watches,
            compares=compares,
            choice=choice,
            blind=np.where(canvas.is_prompt[slots], canvas.mask_id, tokens)
            if settings.cfg_scale > 0
            else None,
            observe=self.observe,
            forgotten=forgotten,
            cfg_scale=settings.cfg_scale,
            top_k=self.top_k,
            listed=listed_rows(self, slots, choice.rows),
        )
        return self._plan

    def _watched(self, slots: Slots) -> tuple[Flags, Flags]:
        """Which rows [R] keep their posterior p_t, and which of these have a KL from the one before."""
        # one may open any row: the rule then goes by the row's last posterior
        if self.events and not self.observe:
            every = np.ones(len(slots), dtype=bool)
            return every, every
        state = self.state
        by_rule, compared_by_rule = ask(state.step, self.compute.watches, state, slots)
        by_policy, compared_by_policy = ask(state.step, self.policy.watches, state, slots)
        return by_rule | by_policy, compared_by_rule | compared_by_policy

    def _choice(self, slots: Slots) -> Choice:
        """Which rows may be committed, and how the engine chooses their tokens."""
        settings = self.settings
        policy = self.policy
        schedule = self.schedule
        rows = ask(self.state.step, policy.chooses, self.state, slots)
        candidates = slots[rows]
        scored = policy.scores == "noise"
        drawn = settings.temperature > 0 or scored
        best_alone = drawn and policy.by_posterior and not self._late
        return Choice(
            rows=rows,
            scores=policy.scores,
            measures=tuple(sorted({*policy.measures, *self.compute.measures})),
            quotas=np.where(schedule.closing, self.canvas.total, schedule.quota).tolist()
            if best_alone
            else None,
            banned=self._banned,
            barred=barred(self, candidates) if self._bars else NO_PAIRS,
            temperature=settings.temperature,
            draws=draws(self.canvas, schedule, settings, self.state.step, candidates, scored)
            if drawn
            else None,
        )

    # --- lines 9 to 15 are the engine's: layers, keys and values, posteriors ------------------------------------------

    # --- lines 16 to 25: what is written, what locks? -----------------------------------------------------------------

    def take(self, reading: Reading) -> Step:
        """Finish the planned step with the engine's reading.

        Raises NonFiniteLogits, and ValueError if there is no plan.
        """
        plan = self._plan
        state = self.state
        if plan is None:
            raise ValueError("there is no plan to take a reading of: call plan() first")
        if not reading.finite:
            raise NonFiniteLogits(
                f"the network put out NaN or infinite logits in step {state.step}"
            )
        seen = plan.slots[~(plan.probed | state.masked[plan.slots])]
        state.visible[seen] += 1
        shares = put_words(self, plan, reading)
        unmasked = self._update_mask(plan, reading)  # line 16: M_t, from the posteriors alone
        computed = ~plan.probed
        active = plan.slots[computed]  # line 17
        state.confidence[active] = reading.confidence[computed]  # line 18: u_t = 1 - confidence
        state.kl[active] = reading.kl[computed]  # line 19: D_t
        state.computed_at[active] = state.step
        state.probed_at[plan.slots[plan.probed]] = state.step
        # lines 20 to 23: F_t, after the commit
        changes = ask(state.step, self.compute.after, state, reading)
        locked = changes.locked[~state.locked[changes.locked]]  # a rule may name any
        state.lock(locked)  # lines 22, 24 and 25: what the row has in the cache stays there
        if len(changes.unlocked):  # the paper's appendix
            state.unlock(changes.unlocked)
            self.forgotten.append(changes.unlocked)
        ended = stop(self) if self.settings.stop_at_end else None
        step = report(self, plan, reading, unmasked, changes._replace(locked=locked), ended)
        self._plan = None
        self._next += 1
        return replace(step, shares=shares) if shares else step

    def _update_mask(self, plan: Plan, reading: Reading) -> Slots:
        """UpdateMASK: commit the tokens that the policy takes, and advance every schedule. Returns their slots."""
        state = self.state
        schedule = self.schedule
        policy = self.policy
        choosers = plan.slots[plan.choice.rows]
        draws = plan.choice.draws
        score = draws.scores() if draws is not None and draws.scored else reading.score
        tell(state.step, policy.prepare, state, reading)
        state.measures = {name: np.full(self.canvas.total, np.nan) for name in reading.measures}
        for name, values in reading.measures.items():
            state.measures[name][choosers] = values
        late = np.isin(reading.tokens, self._late)
        unmasked = []
        for b, part in enumerate(self.canvas.split(choosers)):
            if not schedule.running[b]:
                continue
            ranked = np.lexsort((-score[part], late[part]))
            ranked = ranked[state.open[choosers[part]][ranked]]
            quota = int(schedule.quota[b])
            of_candidates = choosers[part], reading.tokens[part], score[part], late[part]
            candidates = Candidates(state, b, *of_candidates, ranked, quota)
            slots, tokens = ask(state.step, policy.commits, candidates)
            scores = score[np.searchsorted(choosers, slots)] if policy.scores else np.nan
            state.commit(slots, tokens, scores)
            schedule.advance(b, len(slots), goes_on=policy.after(state, b))
            unmasked.append(slots)
        unmasked = np.concatenate(unmasked)
        for values in state.measures.values():
            values[np.setdiff1d(choosers, unmasked)] = np.nan
        return unmasked


# --- lines 20 to 23: `LockRule` and other rules that lock call these --------------------------------------------------


def lock_candidates(state: State, reading: Reading, visible_steps: int) -> list[Slots]:
    """Return Z_t of each sequence, as row numbers of the reading, int64: active rows that are unmasked (line 20).

    visible_steps: a candidate was computed with its token by so many forward passes. By the paper (0) a position may
    lock in the step that unmasks it, before any other position has seen its token.

    Rows of locked slots may be computed, for a probe or where they settle; they are no candidates.
    """
    slots = reading.slots
    active = ~state.locked[slots]
    visible = state.visible[slots] >= visible_steps
    z = np.flatnonzero(active & ~state.masked[slots] & visible)
    return [z[part] for part in state.split(slots[z])]


def converged(kl: NDArray, confidence: NDArray, epsilon: float, m: float | None) -> Flags:
    """Return F_t among the candidates Z_t of a sequence, bool in their shape (lines 21 and 23).

    kl: float64, nats, D_t of each candidate. confidence: float64, its largest probability.
    epsilon: the largest KL that locks, in nats.
    m: the percentile of the confidence gate, 0 to 100; None is no gate.
    """
    passes = kl <= epsilon  # line 23: D <= epsilon
    if m is not None:
        uncertainty = 1 - confidence  # line 18: u
        passes &= uncertainty <= percentile(uncertainty, m)  # lines 21 and 23: u <= theta_m
    return passes


def percentile(values: NDArray, m: float) -> float:
    """The m-th percentile as the lower order statistic: as a gate it admits what linear interpolation does."""
    k = int(m * (len(values) - 1) / 100)
    return float(np.partition(values, k)[k])
