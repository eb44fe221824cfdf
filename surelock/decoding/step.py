"""What passes between a run and an engine, and what a run tells of a step: data, in numpy arrays.

Slots are places on a run's flat axis, where its sequences lie one behind the other. R counts a step's rows, C those of
them that may be committed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surelock.decoding.noise import Draws

Whole = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Layout:
    """The shape of a run, which an engine makes its memory for.

    lengths: positions of each sequence. passes: 2 with guidance, whose second pass does not see the prompt, else 1.
    """

    lengths: tuple[int, ...]
    passes: int

    @property
    def slots(self) -> int:
        """Positions of all sequences."""
        return sum(self.lengths)


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What an engine is asked to compute in one step, and which candidate tokens it is asked for.

    step: 0-based.
    slots [R] int64, ascending. counts: rows of each sequence.
    tokens [R] int64: the input. blind [R]: that of guidance's second pass, with every prompt token masked; else None.
    positions [R] int64: in the row's own sequence.
    probed [R] bool: the row reads the cache and leaves its own keys and values there as they are.
    watches [R] bool: a rule follows the row's posterior. The engine keeps it for the next time, unless the row is
    probed.
    compares [R] bool: those that it watches whose KL from the posterior kept at the row's last computation it goes by
    now. The engine gives it, infinite where none was kept.
    chooses [R] bool: the row may be committed. The engine gives a candidate token and its score.
    observe: every row is read, and has a KL; what no rule asks for does not count as the step's time.
    forgets [F] int64: slots whose kept posteriors are dropped before the step.
    scores: what candidates are scored by, "confidence", "entropy" or "margin"; None: there are no candidates to choose.
    banned: tokens that no row becomes.
    repeats [2, K] int64: rows among the C, ascending, and a token that each must not become.
    temperature, draws: of Gumbel-max; draws is None where nothing is drawn.
    cfg_scale: of guidance. top_k: how many likely tokens of each row an observer wants.
    """

    step: int
    slots: Whole
    counts: list[int]
    tokens: Whole
    blind: Whole | None
    positions: Whole
    probed: Flags
    watches: Flags
    compares: Flags
    chooses: Flags
    observe: bool
    forgets: Whole
    scores: str | None
    banned: list[int]
    repeats: Whole
    temperature: float
    draws: Draws | None
    cfg_scale: float
    top_k: int

    def read(self) -> Whole:
        """Rows whose posteriors are read, [K], ascending."""
        return np.arange(len(self.slots)) if self.observe else np.flatnonzero(self.watches | self.chooses)

    def outdated(self) -> Whole:
        """Slots whose kept posteriors are dropped before the step: those it forgets, and its rows that none watches."""
        if self.observe:
            return self.forgets
        return np.concatenate((self.forgets, self.slots[~(self.watches | self.probed)]))


@dataclass(slots=True, eq=False)
class Reading:
    """What an engine found. Arrays are int64 and float64.

    slots, probed [R]: the plan's. confidence [R]: max_v p, NaN where the row was not read. kl [R]: nats, infinite where
    no earlier posterior was kept, NaN where the row was neither compared nor observed.
    tokens, score [C]: candidates.
    top_ids, top_probs [R, k]: likely tokens.
    finite: whether all logits that were read are. seconds: the engine's time, without what is only observed.
    """

    slots: Whole
    probed: Flags
    confidence: NDArray
    kl: NDArray
    tokens: Whole
    score: NDArray
    top_ids: Whole
    top_probs: NDArray
    finite: bool = True
    seconds: float = 0.0

    @classmethod
    def empty(cls, plan: Plan) -> Reading:
        """That nothing was found yet."""
        count, candidates = len(plan.slots), int(plan.chooses.sum())
        return cls(
            plan.slots,
            plan.probed,
            confidence=np.full(count, np.nan),
            kl=np.full(count, np.nan),
            tokens=np.zeros(candidates, dtype=np.int64),
            score=np.zeros(candidates),
            top_ids=np.full((count, plan.top_k), -1),
            top_probs=np.full((count, plan.top_k), np.nan),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One denoising step of a batch. Arrays are [B, N], sequences left-padded to the longest.

    index: 0-based.
    tokens int64: after the step; the pad id at pads.
    open bool: what the step could have committed, computed or not: masked before it, in the block or before that. False
    at pads.
    scores: what its policy scores by, as in `Plan`; None: by nothing that posteriors tell.
    masked, locked, newly_unmasked, newly_masked, written, newly_locked, newly_unlocked, computed, probed: bool, after
    the step; False at pads. newly_unmasked: committed by the step. newly_masked, written: masked again or written by an
    event before it. computed: active rows that the step computed. probed: locked rows that it only looked at.
    kl float64: nats, infinite where no earlier posterior was kept; NaN where the step was not computed, at pads and,
    unless observed, where no rule goes by it.
    confidence float64: max_v p; NaN where not computed, at pads and, unless observed, where the row was not read.
    top_ids int64, top_probs float64: [B, N, top_k], -1 and NaN where not computed and at pads; None when top_k is 0.
    commit_logits: [K, V] raw logits that the K newly_unmasked were chosen by, sequence by sequence, in the network's
    dtype or float32 if that is wider; NaN where a `Replay` committed what was not computed; None when not kept.
    flops, baseline_flops: [B] float64, algorithmic (Sec. 2.4), of the step and of one that computes every row.
    seconds: the step's own time, device synchronised, observation excluded.
    """

    index: int
    tokens: Whole
    open: Flags
    scores: str | None
    masked: Flags
    locked: Flags
    newly_unmasked: Flags
    newly_masked: Flags
    written: Flags
    newly_locked: Flags
    newly_unlocked: Flags
    computed: Flags
    probed: Flags
    kl: NDArray
    confidence: NDArray
    top_ids: Whole | None
    top_probs: NDArray | None
    flops: NDArray
    baseline_flops: NDArray
    commit_logits: NDArray | None = None
    seconds: float = 0.0
