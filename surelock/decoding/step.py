"""The data between a run and an engine (Plan, Reading), and a run's report of a step (Step): numpy arrays.

The sequences of a run lie one after the other on one flat axis. A slot is an index on this axis. R is the number of
rows that a step computes, C the number of candidates: rows that may be committed.
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
    """The shape of a run. An engine allocates memory for it."""

    lengths: tuple[int, ...]  # by sequence, the number of its positions
    passes: int  # forward passes per step: 2 with guidance (the second pass does not see the prompt), otherwise 1
    # whether every step computes all rows, so that a step needs no keys and values of an earlier step
    once: bool = False


@frozen(eq=False)
class Choice:
    """The engine's instructions for choosing the candidates' tokens in a step. C is the number of candidates."""

    rows: Flags  # [R] bool, whether the row is a candidate: the engine returns its token and score
    # "confidence", "entropy" (negative, nats), "margin" (p1 - p2) or "noise"; None: the engine chooses no tokens
    scores: str | None = None
    #: Names of further numbers per candidate: "entropy" (negative, nats), "gap" (the difference of the two largest
    #: logits), "input" (the probability of the input token).
    measures: tuple[str, ...] = ()
    # by sequence, the number of candidates with the best scores that may be committed; None: all may be committed
    quotas: list[int] | None = None
    banned: Sequence[int] = ()  # tokens that no candidate may become
    # [2, K] int64, pairs of a candidate number (ascending) and a token that this candidate must not become
    barred: Whole = field(default_factory=lambda: NO_PAIRS)
    temperature: float = 0.0
    draws: Draws | None = (
        None  # the random numbers of the step; None if tokens and scores need none
    )

    @property
    def read(self) -> Flags:
        """[R] bool, the candidates whose posteriors the engine reads."""
        return self.rows & (self.scores is not None or bool(self.measures))

    def best(self, score: NDArray, counts: list[int]) -> Whole:
        """Return the numbers of the candidates that may be committed under `quotas`, ascending int64.

        score: [C] float64. counts: by sequence, the number of its rows.
        """
        candidates = [int(part.sum()) for part in np.split(self.rows, np.cumsum(counts)[:-1])]
        edges = pairwise(np.cumsum([0, *candidates]))
        committed = [
            start + np.argsort(-score[start:stop], kind="stable")[:quota]
            for (start, stop), quota in zip(edges, self.quotas or candidates, strict=True)
        ]
        return np.sort(np.concatenate(committed))


@frozen(eq=False)
class Plan:
    """The work of an engine in one step."""

    step: int
    slots: Whole  # [R] int64, ascending, the slots of the rows
    counts: list[int]  # by sequence, the number of its rows
    tokens: Whole  # [R] int64, the input tokens
    positions: Whole  # [R] int64, the position of the row in its sequence
    probed: Flags  # [R] bool, whether the row is probed: the cache keeps its old keys and values
    # [R] bool, whether the row's posterior is kept until the row is computed again. A probed row keeps its old one
    watches: Flags
    compares: Flags  # [R] bool, watched rows whose KL from the kept posterior is needed; infinite if none was kept
    choice: Choice  # the candidates, and how their tokens are chosen
    # [R] int64, input tokens of the second pass of guidance, in which the prompt is masked; None without guidance
    blind: Whole | None = None
    # whether every row and its KL are read. Readings that no rule needs do not count in the seconds of the step
    observe: bool = False
    # slots whose kept posteriors the engine drops before the step
    forgotten: Whole = field(default_factory=lambda: NO_ROWS)
    cfg_scale: float = 0.0
    top_k: int = 0  # the number of most likely tokens to report per row
    # row numbers for `Reading.listed`, ascending int64
    listed: Whole = field(default_factory=lambda: NO_ROWS)

    @property
    def read(self) -> Whole:
        """The rows whose posteriors are read, [K] int64, ascending."""
        return np.flatnonzero(self.watches | self.choice.rows | self.observe)

    @property
    def outdated(self) -> Whole:
        """The slots whose kept posteriors are dropped before the step, int64.

        These are the `forgotten` slots, and computed rows that are neither watched nor probed nor observed.
        """
        return np.concatenate(
            (self.forgotten, self.slots[~(self.watches | self.probed | self.observe)])
        )


@dataclass(slots=True, eq=False)
class Reading:
    """The numbers that an engine reads from the posteriors of a plan's rows."""

    slots: Whole  # [R] int64, `Plan.slots`
    probed: Flags  # [R] bool, `Plan.probed`
    confidence: NDArray  # [R] float64, the largest probability of the row's posterior; NaN if the row was not read
    kl: NDArray  # [R] float64, nats; infinite if no posterior was kept, NaN if neither compared nor observed
    tokens: (
        Whole  # [C] int64, candidate tokens; undefined for candidates that `Choice.quotas` excludes
    )
    score: NDArray  # [C] float64, the scores of the candidate tokens
    top_ids: Whole  # [R, top_k] int64, the most likely tokens
    top_probs: NDArray  # [R, top_k] float64, the probabilities of the most likely tokens
    measures: dict[str, NDArray] = field(default_factory=dict)  # [C] float64 by name, see `Choice`
    finite: bool = True  # whether all logits that were read are finite
    # [L, V] float64, log-probabilities of the rows `Plan.listed`; None if that is empty
    listed: NDArray | None = None
    seconds: float = 0.0  # time of the engine, without readings that no rule needs
    # computes `likeliest`, set by the engine; None: `likeliest` is -1 everywhere
    find_likeliest: Callable[[], Whole] | None = None
    _likeliest: Whole | None = None

    @classmethod
    def empty(cls, plan: Plan) -> Reading:
        """Return a reading in which no row was read."""
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
        """[R] int64, the most likely token of a watched row; -1 at rows that are not watched.

        Ties go to the lowest token id. The token may be the mask. The engine computes these tokens at the first access,
        which must be before the next step.
        """
        if self._likeliest is None:
            unknown = np.full(len(self.slots), -1)
            self._likeliest = unknown if self.find_likeliest is None else self.find_likeliest()
        return self._likeliest


class Shares(NamedTuple):
    """The probabilities of the words of a blank that has a list of words, as a step read them, see `WordList`."""

    sequence: int  # number of the sequence in the batch
    position: int  # position of the blank's first token in its sequence
    # [words] float64, probabilities of the words, normalised over the list; 0 for a word that tokens written so far
    # exclude
    shares: NDArray


@frozen(eq=False)
class Ended:
    """The sequences that end after a step because their text is complete (`stop_at_end`), and the work this saves.

    Arrays are padded as in `Step`.

    filled: [B, N] bool, masked positions after the end token. They became that end token without a choice.
    steps: [B] int64, the steps that the sequence had left. Under a policy that ends blocks early it is 1, because the
    number of steps left is unknown.
    rows: [B, N] int64, the number of saved steps that would have computed the position, without locks.
    flops: [B] float64, algorithmic FLOPs of the saved rows.
    """

    filled: Flags
    steps: Whole
    rows: Whole
    flops: NDArray


@frozen(eq=False)
class Step:
    """One denoising step of a batch.

    Arrays are [B, N]: sequences are padded on the left to the length of the longest. Flags are False at pads.

    index: the number of the step, 0-based.
    tokens: int64, the canvas after the step; the pad id at pads.
    given: bool, positions of the prompt: they were not masked before the first step.
    open: bool, positions that the step could have committed, computed or not, and the positions that it committed.
    scores: name of the policy's score, as in `Choice`; None if the policy has no score of the posterior.
    masked: bool, still masked after the step.
    locked: bool, locked after the step.
    newly_unmasked: bool, committed by the step; positions that `ended` fills are not included.
    newly_masked: bool, masked again by an event before the step.
    taken_back: bool, masked again by the policy before the step; the step may commit the position again.
    written: bool, written by an event before the step.
    newly_locked, newly_unlocked: bool, locked or unlocked by the step or by an event before the step.
    computed: bool, active rows that the step computed.
    probed: bool, locked rows that the step computed for a probe.
    resting: bool, rows of a block-causal network that no rule needs in this step: rows of finished blocks, whose keys
    and values are exact, and rows of later blocks, which no row sees.
    kl: float64, the step-wise KL of computed rows in nats; infinite if no earlier posterior was kept. NaN at all other
    places and, unless the run observes, where no rule needs the KL.
    confidence: float64, the largest probability of computed rows. NaN at all other places and, unless the run observes,
    where the row was not read.
    top_ids: [B, N, top_k] int64, the most likely tokens of computed rows, -1 at all other places; None if top_k is 0.
    top_probs: [B, N, top_k] float64, the probabilities of `top_ids`, NaN at all other places; None if top_k is 0.
    flops: [B] float64, algorithmic FLOPs of the step (Sec. 2.4).
    baseline_flops: [B] float64, FLOPs of a step that computes every row that does not rest, plus `ended.flops`.
    seconds: the time of the step, with the device synchronised, without readings that no rule needs.
    commit_logits: [K, V], the raw logits of the K newly unmasked positions, sequence by sequence, in the wider of the
    network's dtype and float32. NaN where a `Replay` committed a position that was not computed. None unless
    `keep_logits`.
    ended: the sequences that end after the step because their text is complete; None if there are none.
    shares: word probabilities of blanks with a list of words, for blanks with a computed mask that was `open`.
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
    """Return slices that divide `count` rows into parts of about equal size, at most `most` rows.

    A small last part would cost almost as much time as a full part.
    """
    parts = -(-count // most)  # rounded up
    return [slice(count * part // parts, count * (part + 1) // parts) for part in range(parts)]


def report(
    run: Run,
    plan: Plan,
    reading: Reading,
    unmasked: Whole,
    changes: Changes,
    ended: Ended | None = None,
) -> Step:
    """Return a run's report of a step.

    unmasked: the slots that the step committed. changes: the slots that it locked and unlocked. ended: the sequences
    that end after the step.
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
    if ended is not None:
        baseline += ended.flops
    top_ids = None
    top_probs = None
    if run.top_k:
        top_ids = canvas.grid(reading.top_ids[computed], -1, slots)
        top_probs = canvas.grid(reading.top_probs[computed], np.nan, slots)
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
        top_ids=top_ids,
        top_probs=top_probs,
        flops=np.bincount(canvas.sequence, flops, canvas.batch),
        baseline_flops=baseline,
        seconds=reading.seconds,
        ended=ended,
    )


class Rows(Protocol):
    """A copy of an engine's data for some slots: keys, values and kept posteriors."""

    @property
    def nbytes(self) -> int: ...


class Engine(Protocol):
    """Computes the rows of a model's runs.

    name: the name and version of the engine, as traces record them.
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
        """Return the memory of a run: an empty cache, and space for the posteriors of watched rows.

        The engine may reuse a memory that an earlier run released.

        keep_logits: keep `memory.logits` [slots, V]: the logits of the slot when it last was a candidate, 0 before.
        """
        ...

    def release(self, memory: Any) -> None:
        """Take back the memory of a run, for reuse by a later run. The caller must not use it after this."""
        ...

    def read(self, memory: Any, plan: Plan) -> Reading:
        """Compute the rows of a plan: write keys and values into the cache, and return the reading."""
        ...

    def copy_rows(self, memory: Any, slots: Whole) -> Rows:
        """Return a copy of the data that the memory keeps between steps for slots [K] int64."""
        ...

    def put_rows(self, memory: Any, rows: Any) -> None:
        """Write what `copy_rows` returned into the memory of a run of the same layout."""
        ...

    def logits(self, memory: Any, rows: NDArray) -> NDArray:
        """Return the logits [K, V] of rows [K] int64 of the last plan; NaN for a row that was not read."""
        ...


@contextmanager
def lent(engine: Engine, layout: Layout, keep_logits: bool = False) -> Iterator[Any]:
    """A context manager with the memory of a run. The memory is released at the end, also when the body raises."""
    memory = engine.memory(layout, keep_logits)
    try:
        yield memory
    finally:
        engine.release(memory)
