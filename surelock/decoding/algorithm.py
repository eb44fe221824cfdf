"""Algorithm 1 of the paper for a batch, from top to bottom. "Line 6" in a comment is line 6 of Algorithm 1.

    run = Run(shape, prompts, decoder)
    while (plan := run.plan()) is not None:        # line 5: one denoising step
        step = run.take(engine.read(memory, plan))

- `Run.plan` is lines 6 to 8.
- An engine does lines 9 to 15, and computes the numbers that lines 18 and 19 store. In torch this is `Network.run` and
  `Block.forward` (`surelock/model/network.py`); line 11 there writes keys and values into the cache.
- `Run.take` is lines 16 to 25. The compute rule decides lines 20 to 23. `LockRule` decides them with `lock_candidates`
  and `converged`, at the end of this file.

A run uses no network, device or clock.

Additions to the paper are calls of functions from other files: events and commits that a policy takes back
(`interventions`), banned tokens (`bans`), block-causal networks (`block_causal`), sequences that end early
(`stopping`), blanks whose words come from a list (`word_lists`), blocks of positions (`state`).
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
    """Raised for a logit of the network that is NaN or infinite. The message names the step."""


class Run:
    """One run: a batch that one decoder decodes from the first step to the last.

    shape: sizes and special token ids of the model.
    prompts: [B] lists of token ids, already checked. Masks inside a prompt are decoded like the masks after it. Blanks
    with lists of words (`Listed` prompts) have a known number of masks, see `surelock.settled`.
    decoder: settings, compute rule, unmask policy and events.
    observe: report confidence and step-wise KL of every computed row.
    top_k: number of most likely tokens to report of a computed row. A value above 0 implies `observe`.

    Raises ValueError, one sentence, for an impossible event and for prompts that `Canvas` or `Schedule` refuses.
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
        # Lines 1 to 3: no position is locked or cached, no posterior is known, all positions but the prompt are masked.
        self.canvas = Canvas(prompts, settings, shape.mask_id, shape.pad_id)
        self.schedule = Schedule(
            self.canvas, settings, policy.early, policy.quotas, network.block_size
        )
        self.state = State(self.canvas, self.schedule)
        self.lists = slot_lists(shape, prompts, self.canvas.starts)
        self.blocks: BlockCausal | None = None
        if network.block_size is not None:
            self.blocks = BlockCausal(self.state, network.block_size)
        steps = int(self.schedule.steps.max())
        self.events = in_order(decoder.events, self.canvas, steps, network.vocab_size, policy)
        # slots whose kept posteriors the engine drops before the next step
        self.forgotten: list[Slots] = []
        if settings.no_repeat_ngram_size:
            check_vocabulary(self)
        passes = 2 if settings.cfg_scale > 0 else 1
        self.layout = Layout(tuple(self.canvas.lengths.tolist()), passes)
        # tokens whose candidates are committed after all other candidates
        self._late = list(shape.ends) if settings.suppress_eos_confidence else []
        self._bars = settings.no_repeat_ngram_size > 0 or self.canvas.has_blanks
        self._banned = [shape.mask_id]
        if settings.suppress_eos:
            self._banned += shape.ends[:1]
        rows = network, self.canvas.lengths[self.canvas.sequence], self.canvas.position
        self.row_flops = passes * row_flops(*rows)  # [total] float64, FLOPs of a computed row
        self.probe_flops = passes * row_flops(*rows, probed=True)
        self.interventions = NOTHING
        self.takes_back = type(policy).takes_back is not UnmaskPolicy.takes_back
        self._intervenes = bool(self.events) or self.takes_back
        self._next = 0
        self._plan: Plan | None = None

    @property
    def next_step(self) -> int:
        """The number of the step that the next `take` finishes, 0-based."""
        return self._next

    def go_on_from(self, other: Run) -> None:
        """Go on from a copy of another run's state between two steps.

        Both runs must have the same prompts, and the same events before that step.
        """
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
        """Return the plan of the next step, or None when the run is over. Until `take`, further calls return that plan.

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
        active = np.flatnonzero(~state.locked & present)  # line 6: A_t. The locked slots are L_t
        uncached = np.flatnonzero(state.settles | (present & (state.computed_at < 0)))
        # SureLock computes all of A_t. Other rules may choose a part of A_t.
        slots = ask(state.step, self.compute.rows, state, active)
        if len(uncached) or len(due):
            slots = np.union1d(slots, np.concatenate((uncached, due)))
        # line 7: X_t. A locked row needs no input token: its keys and values are cached.
        tokens = canvas.tokens[slots]
        watches, compares = self._watched(slots)
        choice = self._choice(slots)
        forgotten = np.concatenate((NONE, *self.forgotten))
        self.forgotten.clear()
        blind = None
        if settings.cfg_scale > 0:
            blind = np.where(canvas.is_prompt[slots], canvas.mask_id, tokens)
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
            blind=blind,
            observe=self.observe,
            forgotten=forgotten,
            cfg_scale=settings.cfg_scale,
            top_k=self.top_k,
            listed=listed_rows(self, slots, choice.rows),
        )
        return self._plan

    def _watched(self, slots: Slots) -> tuple[Flags, Flags]:
        """Return two flags per row, [R] bool: the engine keeps its posterior p_t; the engine computes its KL, D_t.

        D_t compares p_t with the posterior that was kept when the row was last computed.
        """
        # An event may unlock or mask any row, and the rule needs that row's last posterior.
        if self.events and not self.observe:
            every = np.ones(len(slots), dtype=bool)
            return every, every
        state = self.state
        by_rule, compared_by_rule = ask(state.step, self.compute.watches, state, slots)
        by_policy, compared_by_policy = ask(state.step, self.policy.watches, state, slots)
        return by_rule | by_policy, compared_by_rule | compared_by_policy

    def _choice(self, slots: Slots) -> Choice:
        """Return which rows may be committed, and how the engine chooses their tokens."""
        settings = self.settings
        policy = self.policy
        schedule = self.schedule
        rows = ask(self.state.step, policy.chooses, self.state, slots)
        candidates = slots[rows]
        scored = policy.scores == "noise"
        random_numbers = None
        quotas = None
        if settings.temperature > 0 or scored:
            random_numbers = draws(
                self.canvas, schedule, settings, self.state.step, candidates, scored
            )
            # The posteriors alone decide which candidates are committed: only these need a drawn token.
            if policy.by_posterior and not self._late:
                quotas = np.where(schedule.closing, self.canvas.total, schedule.quota).tolist()
        barred_tokens = NO_PAIRS
        if self._bars:
            barred_tokens = barred(self, candidates)
        return Choice(
            rows=rows,
            scores=policy.scores,
            measures=tuple(sorted({*policy.measures, *self.compute.measures})),
            quotas=quotas,
            banned=self._banned,
            barred=barred_tokens,
            temperature=settings.temperature,
            draws=random_numbers,
        )

    # --- lines 9 to 15, layers, keys and values, posteriors: the engine computes them ---------------------------------

    # --- lines 16 to 25: which tokens are committed, which positions lock? --------------------------------------------

    def take(self, reading: Reading) -> Step:
        """Finish the planned step with the engine's reading, and return the step's report.

        Raises NonFiniteLogits for a reading that is not finite, and ValueError if there is no plan.
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
        # lines 20 to 23: F_t, from the canvas after the commit
        changes = ask(state.step, self.compute.after, state, reading)
        locked = changes.locked[~state.locked[changes.locked]]  # a rule may name locked slots too
        state.lock(locked)  # lines 22, 24 and 25: the row's keys and values stay in the cache
        if len(changes.unlocked):  # the paper's appendix
            state.unlock(changes.unlocked)
            self.forgotten.append(changes.unlocked)
        ended = stop(self) if self.settings.stop_at_end else None
        step = report(self, plan, reading, unmasked, changes._replace(locked=locked), ended)
        self._plan = None
        self._next += 1
        return replace(step, shares=shares) if shares else step

    def _update_mask(self, plan: Plan, reading: Reading) -> Slots:
        """UpdateMASK: commit the policy's tokens, advance the schedules, and return the committed slots."""
        state = self.state
        schedule = self.schedule
        policy = self.policy
        candidate_slots = plan.slots[plan.choice.rows]
        draws = plan.choice.draws
        score = draws.scores() if draws is not None and draws.scored else reading.score
        tell(state.step, policy.prepare, state, reading)
        state.measures = {name: np.full(self.canvas.total, np.nan) for name in reading.measures}
        for name, values in reading.measures.items():
            state.measures[name][candidate_slots] = values
        late = np.isin(reading.tokens, self._late)
        unmasked = []
        for b, part in enumerate(self.canvas.split(candidate_slots)):
            if not schedule.running[b]:
                continue
            slots = candidate_slots[part]
            # best score first, but late tokens after all others
            ranked = np.lexsort((-score[part], late[part]))
            ranked = ranked[state.open[slots][ranked]]
            quota = int(schedule.quota[b])
            candidates = Candidates(
                state, b, slots, reading.tokens[part], score[part], late[part], ranked, quota
            )
            committed, tokens = ask(state.step, policy.commits, candidates)
            scores = np.nan
            if policy.scores:
                scores = score[np.searchsorted(candidate_slots, committed)]
            state.commit(committed, tokens, scores)
            schedule.advance(b, len(committed), goes_on=policy.after(state, b))
            unmasked.append(committed)
        unmasked = np.concatenate(unmasked)
        for values in state.measures.values():
            values[np.setdiff1d(candidate_slots, unmasked)] = np.nan
        return unmasked


# --- lines 20 to 23, for `LockRule` and other rules that lock ---------------------------------------------------------


def lock_candidates(state: State, reading: Reading, visible_steps: int) -> list[Slots]:
    """Return Z_t (line 20) by sequence, as row numbers of the reading, int64.

    Z_t contains the active rows that are unmasked. Computed rows of locked slots (probes, settling rows) are excluded.

    visible_steps: number of forward passes that must have had a candidate's token as input. At 0, as in the paper, a
    position may lock in the step that unmasks it, before any other position has seen its token.
    """
    slots = reading.slots
    active = ~state.locked[slots]
    visible = state.visible[slots] >= visible_steps
    z = np.flatnonzero(active & ~state.masked[slots] & visible)
    return [z[part] for part in state.split(slots[z])]


def converged(kl: NDArray, confidence: NDArray, epsilon: float, m: float | None) -> Flags:
    """Return which candidates Z_t of one sequence are in F_t (lines 21 and 23): [len(Z_t)] bool.

    kl: [len(Z_t)] float64, D_t in nats.
    confidence: [len(Z_t)] float64, the largest probability of the candidate's posterior.
    epsilon: the largest KL, in nats, at which a position locks.
    m: the percentile of the confidence gate, 0 to 100; None turns the gate off.
    """
    passes = kl <= epsilon  # line 23: D <= epsilon
    if m is not None:
        uncertainty = 1 - confidence  # line 18: u
        passes &= uncertainty <= percentile(uncertainty, m)  # lines 21 and 23: u <= theta_m
    return passes


def percentile(values: NDArray, m: float) -> float:
    """Return the m-th percentile of `values`, as the lower of the two neighbouring order statistics.

    A gate at this value admits the same rows as a gate at the linearly interpolated percentile.
    """
    k = int(m * (len(values) - 1) / 100)
    return float(np.partition(values, k)[k])
