"""The data between a run and an engine (Plan, Reading), and what a run reports of a step (Step): numpy arrays.

Slots are places on the flat axis of a run, where its sequences lie one behind the other. R is the number of rows of a
step, C the number of those that may be committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from surelock.config import NetworkConfig
from surelock.decoding.noise import Draws
from surelock.values import Flags, Whole, frozen

if TYPE_CHECKING:
    from surelock.decoding.algorithm import Run
    from surelock.decoding.compute import Changes

NO_ROWS: Whole = np.empty(0, dtype=np.int64)
NO_PAIRS: Whole = np.empty((2, 0), dtype=np.int64)


@frozen
class Layout:
    """The shape of a run, for which an engine allocates memory."""

    lengths: tuple[int, ...]  # by sequence, the number of its positions
    passes: int  # forward passes of a step: 2 with guidance, whose second pass does not see the prompt, else 1
    # every step computes all rows, so no keys and values need be kept for the next one
    once: bool = False


@frozen(eq=False)
class Choice:
    """How the tokens of candidates are chosen in a step. C is the number of candidates."""

    rows: Flags  # [R] bool, the candidates. The engine returns their tokens and scores
    # "confidence", "entropy" (negative, nats) or "margin" (p1 - p2); None: no tokens
    scores: str | None = None
    #: Further numbers of the candidates: "entropy", as above; "gap", of the two largest logits; or "input", the
    #: probability of the token that stands there.
    measures: tuple[str, ...] = ()
    # by sequence, how many are committed, the best by score; None: any may be
    quotas: list[int] | None = None
    banned: Sequence[int] = ()  # tokens that no candidate may become
    # [2, K]: candidate numbers, ascending, and their tokens
    barred: Whole = field(default_factory=lambda: NO_PAIRS)
    temperature: float = 0.0
    draws: Draws | None = None  # its random numbers; None if nothing is drawn

    @property
    def read(self) -> Flags:
        """The candidates of which the engine reads anything, [R] bool."""
        return self.rows & (self.scores is not None or bool(self.measures))

    def best(self, score: NDArray, counts: list[int]) -> Whole:
        """Return the candidate numbers that `quotas` lets be committed, ascending. counts: rows by sequence."""
        candidates = [int(part.sum()) for part in np.split(self.rows, np.cumsum(counts)[:-1])]
        edges = pairwise(np.cumsum([0, *candidates]))
        committed = [
            start + np.argsort(-score[start:stop], kind="stable")[:quota]
            for (start, stop), quota in zip(edges, self.quotas or candidates, strict=True)
        ]
        return np.sort(np.concatenate(committed))


@frozen(eq=False)
class Plan:
    """What an engine computes in one step."""

    step: int
    slots: Whole  # [R] int64, ascending, the slots of the rows
    counts: list[int]  # by sequence, the number of its rows
    tokens: Whole  # [R] int64, the input tokens
    positions: Whole  # [R] int64, by row, its position in its sequence
    probed: Flags  # [R] bool, whether the row leaves its keys and values in the cache as they are
    watches: Flags  # [R] bool, rows whose posteriors are kept for their next computation, unless they are probed
    compares: Flags  # [R] bool, watched rows whose KL from the kept posterior is needed; infinite if none was kept
    choice: Choice  # the candidates, and how their tokens are chosen
    # [R] int64, the tokens of guidance's second pass, in which the prompt is masked
    blind: Whole | None = None
    # read every row, and its KL: what no rule needs does not count as time of the step
    observe: bool = False
    # slots whose kept posteriors are worthless
    forgotten: Whole = field(default_factory=lambda: NO_ROWS)
    cfg_scale: float = 0.0
    top_k: int = 0  # the number of most likely tokens to report per row
    # rows whose `Reading.listed` is needed, ascending
    listed: Whole = field(default_factory=lambda: NO_ROWS)

    @property
    def read(self) -> Whole:
        """The rows whose posteriors are read, [K] int64, ascending."""
        return np.flatnonzero(self.watches | self.choice.rows | self.observe)

    @property
    def outdated(self) -> Whole:
        """The slots whose kept posteriors are dropped before the step: also of rows neither watched nor observed."""
        return np.concatenate(
            (self.forgotten, self.slots[~(self.watches | self.probed | self.observe)])
        )


@dataclass(slots=True, eq=False)
class Reading:
    """The result of a plan."""

    slots: Whole  # [R], those of the plan
    probed: Flags  # [R], those of the plan
    confidence: NDArray  # [R] float64, the largest probability of the row's posterior; NaN if the row was not read
    kl: NDArray  # [R] float64, nats; infinite if no posterior was kept, NaN if neither compared nor observed
    tokens: Whole  # [C] int64, candidate tokens; any, where `Choice.quotas` rules a candidate out
    score: NDArray  # [C] float64, their scores
    top_ids: Whole  # [R, top_k] int64, the most likely tokens
    top_probs: NDArray  # [R, top_k] float64, their probabilities
    measures: dict[str, NDArray] = field(default_factory=dict)  # [C] float64 by name, see `Choice`
    finite: bool = True  # whether all logits that were read are finite
    # [L, V] float64, log-probabilities of the plan's `listed` rows; None without any
    listed: NDArray | None = None
    seconds: float = 0.0  # the time of the engine, without the reading that no rule needs
    # the engine's: returns `likeliest`; None: nothing is known
    find_likeliest: Callable[[], Whole] | None = None
    _likeliest: Whole | None = None

    @classmethod
    def empty(cls, plan: Plan) -> Reading:
        count = len(plan.slots)
        candidates = int(plan.choice.rows.sum())
        return cls(
            plan.slots,
            plan.probed,
            confidence=np.full(count, np.nan),
            kl=np.full(count, np.nan),
            tokens=np.zeros(candidates, dtype=np.int64),
            score=np.zeros(candidates),
            top_ids=np.full((count, plan.top_k), -1),
            top_probs=np.full((count, plan.top_k), np.nan),
            measures={name: np.full(candidates, np.nan) for name in plan.choice.measures},
        )

    @property
    def likeliest(self) -> Whole:
        """The token with the largest probability in the posterior of a watched row, [R] int64; -1 at other rows.

        The lowest of equals. It may be the mask. The engine finds it once a rule asks, before the next step.
        """
        if self._likeliest is None:
            unknown = np.full(len(self.slots), -1)
            self._likeliest = unknown if self.find_likeliest is None else self.find_likeliest()
        return self._likeliest


class Shares(NamedTuple):
    """The words of a blank from a list, as a step read them, see `WordList`."""

    sequence: int  # in the batch
    position: int  # of the blank's first token in its sequence
    # [words] float64, the probability of a word, next to the others; 0 for what does not agree any more
    shares: NDArray


@frozen(eq=False)
class Ended:
    """The sequences whose text was over after a step (`stop_at_end`), and what they are spared. Arrays as in `Step`.

    filled: [B, N] bool, masked positions behind the end, which became that end without a choice.
    steps: [B] int64, the steps that the sequence had left. Under a policy that ends blocks early it is 1: nobody knows
    how many it would have taken.
    rows: [B, N] int64, in how many of these steps the position would have been computed, without locks.
    flops: [B] float64, algorithmic FLOPs of these rows.
    """

    filled: Flags
    steps: Whole
    rows: Whole
    flops: NDArray


@frozen(eq=False)
class Step:
    """One denoising step of a batch. Arrays are [B, N]: sequences left-padded to the longest. Flags are False at pads.

    index: the number of the step, 0-based.
    tokens: int64, the canvas after the step; the pad id at pads.
    given: bool, the prompt: what was not masked before the first step.
    open: bool, what the step could have committed, whether computed or not, and what it committed.
    scores: the score of the policy's candidates, as in `Choice`; None if the policy uses none.
    masked: bool, still masked after the step.
    locked: bool, locked after the step.
    newly_unmasked: bool, committed by the step; without what `ended` fills.
    newly_masked: bool, masked again by an event before the step.
    taken_back: bool, masked again by the policy before the step; the step may commit it anew.
    written: bool, written by an event before the step.
    newly_locked, newly_unlocked: bool, locked or unlocked by the step or by an event before it.
    computed: bool, active rows that the step computed.
    probed: bool, locked rows that it computed for a probe.
    resting: bool, rows of a block-causal network that the step did not need, whatever the rule: of finished blocks,
    whose keys and values are exact, and of later ones, which no row sees.
    kl: float64, the step-wise KL of computed rows in nats; infinite if no earlier posterior was kept. NaN at all other
    places and, unless observed, where no rule needs it.
    confidence: float64, the largest probability of computed rows. NaN at all other places and, unless observed, where
    the row was not read.
    top_ids: [B, N, top_k] int64, the most likely tokens of computed rows, -1 at all other places; None if top_k is 0.
    top_probs: [B, N, top_k] float64, their probabilities, NaN at all other places; None if top_k is 0.
    flops: [B] float64, algorithmic FLOPs of the step (Sec. 2.4).
    baseline_flops: [B] float64, those of a step that computes every row that does not rest, and of what `ended` spares.
    seconds: the time of the step, with the device synchronised, without the reading that no rule needs.
    commit_logits: [K, V], the raw logits of the K newly_unmasked, sequence by sequence, in the dtype of the network or
    in float32 if that is wider; NaN where a `Replay` committed a position that was not computed; None unless kept.
    ended: the sequences whose text was over after the step; None where there are none.
    shares: of the blanks from lists of which the step computed a mask that it could have committed.
    """

    index: int
    tokens: Whole
    given: Flags
    open: Flags
    scores: str | None
    masked: Flags
    locked: Flags
    newly_unmasked: Flags
    newly_masked: Flags
    taken_back: Flags
    written: Flags
    newly_locked: Flags
    newly_unlocked: Flags
    computed: Flags
    probed: Flags
    resting: Flags
    kl: NDArray
    confidence: NDArray
    top_ids: Whole | None
    top_probs: NDArray | None
    flops: NDArray
    baseline_flops: NDArray
    seconds: float
    commit_logits: NDArray | None = None
    ended: Ended | None = None
    shares: Sequence[Shares] = ()


def even(count: int, most: int) -> list[slice]:
    """Divide `count` rows into parts of at most `most` and of about one size: a few rows alone are dear."""
    parts = -(-count // most)
    return [slice(count * part // parts, count * (part + 1) // parts) for part in range(parts)]


def report(
    run: Run,
    plan: Plan,
    reading: Reading,
    unmasked: Whole,
    changes: Changes,
    ended: Ended | None = None,
) -> Step:
    """Return what a run reports of a step.

    unmasked: the slots that it committed. changes: those that it (un)locked. ended: the sequences that it ended.
    """
    canvas = run.canvas
    state = run.state
    done = run.interventions
    computed = ~plan.probed
    slots = plan.slots[computed]
    resting = state.rests & ~state.settles
    flops = np.zeros(canvas.total)
    flops[plan.slots] = np.where(
        plan.probed, run.probe_flops[plan.slots], run.row_flops[plan.slots]
    )
    present = run.row_flops * (state.alive & ~resting)
    baseline = np.bincount(canvas.sequence, present, canvas.batch)
    return Step(
        index=state.step,
        tokens=canvas.grid(canvas.tokens, canvas.pad_id),
        given=canvas.grid(canvas.is_prompt, False),
        open=canvas.grid(state.open, False) | canvas.flags(unmasked),
        scores=None if run.policy.scores == "noise" else run.policy.scores,
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
        top_ids=canvas.grid(reading.top_ids[computed], -1, slots) if run.top_k else None,
        top_probs=canvas.grid(reading.top_probs[computed], np.nan, slots) if run.top_k else None,
        flops=np.bincount(canvas.sequence, flops, canvas.batch),
        baseline_flops=baseline if ended is None else baseline + ended.flops,
        seconds=reading.seconds,
        ended=ended,
    )


class Rows(Protocol):
    """A copy of what an engine's memory keeps of some slots."""

    @property
    def nbytes(self) -> int: ...


class Engine(Protocol):
    """Computes the rows of a model's runs.

    name: the name and version of the engine, as traces hold them.
    device: the device of the logits, by its name in torch.
    dtype: the dtype of the computation, by its name in torch.
    network: the torch network of the same weights, for dense forwards.
    """

    name: str
    config: NetworkConfig

    @property
    def device(self) -> Any: ...

    @property
    def dtype(self) -> Any: ...

    @property
    def network(self) -> Any: ...

    def memory(self, layout: Layout, keep_logits: bool = False) -> Any:
        """Return the memory of a run: an empty cache, and room for watched posteriors. One of an earlier run serves.

        keep_logits: keep `memory.logits` [slots, V], those of a slot when it last was a candidate, 0 before.
        """
        ...

    def release(self, memory: Any) -> None:
        """Take the memory of a run back, for a later one. Nobody may use it any more."""
        ...

    def read(self, memory: Any, plan: Plan) -> Reading:
        """Compute the rows of a plan: write keys and values into the cache, and return the reading."""
        ...

    def copy_rows(self, memory: Any, slots: Whole) -> Rows:
        """Return a copy of all that the memory keeps of slots [K] int64 from step to step."""
        ...

    def put_rows(self, memory: Any, rows: Any) -> None:
        """Write what `copy_rows` returned into the memory of a run of the same layout."""
        ...

    def logits(self, memory: Any, rows: NDArray) -> NDArray:
        """Return the logits [K, V] of rows [K] int64 of the last plan; NaN for a row that was not read."""
        ...


@contextmanager
def lent(engine: Engine, layout: Layout, keep_logits: bool = False) -> Iterator[Any]:
    """A context with the memory of a run, which is returned also when the run fails or is left in the middle."""
    memory = engine.memory(layout, keep_logits)
    try:
        yield memory
    finally:
        engine.release(memory)
