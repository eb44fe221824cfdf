"""UpdateMASK (Algorithm 1, line 16): which masked positions does a step commit? LLaDA's policies and others'.

A policy is a small frozen dataclass: what it scores a candidate by, and which of the candidates it takes. What a
position would become, its candidate token, does not depend on the policy. In the last step of a block
everything that is still masked there is committed, whatever the policy says: `steps` is then a bound, and the policies
that take as many as seem safe (`early`) usually end before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from surelock.decoding.settings import Described, setting

if TYPE_CHECKING:
    from surelock.decoding.state import Slots, State
    from surelock.decoding.step import Flags, Reading

#: (step, position within the generated part, token): what a replay commits.
Commit = tuple[int, int, int]


@dataclass(slots=True)
class Candidates:
    """The masked positions of sequence `b` that this step computed and may commit, in order of position.

    slots [C], tokens [C] int64; score [C] float64; late [C] bool: would end the text, and is committed last. quota: how
    many the schedule asks for. state: the run's, before the commit.
    """

    state: State
    b: int
    slots: Slots
    tokens: NDArray[np.int64]
    score: NDArray
    late: NDArray[np.bool_]
    quota: int

    def ranked(self) -> NDArray[np.int64]:
        """The order of committing: high scores first, the lowest position first among equals, late ones behind all."""
        return np.lexsort((-self.score, self.late))


class UnmaskPolicy(Described):
    """What all policies share. kind: its name in plain forms. label: its name for people. sentence: what it does.

    scores: what candidates are scored by: their own probability ("confidence"), minus the posterior's "entropy", its
    "margin" (p1 - p2), all of the raw temperature-1 posterior; or "noise", one uniform number each; None: not at all,
    and no candidate tokens are chosen either. early: a block may end before its steps.
    """

    __slots__ = ()
    kind: ClassVar[str]
    label: ClassVar[str]
    sentence: ClassVar[str]
    scores: ClassVar[str | None] = "confidence"
    early: ClassVar[bool] = False

    def chooses(self, state: State, slots: Slots) -> Flags:
        """Which of the rows [R] that a step computes it may commit."""
        return state.open[slots]

    def watches(self, state: State, slots: Slots) -> Flags:
        """Which of them it follows beside, see `ComputeRule.watches`."""
        return np.zeros(len(slots), dtype=bool)

    def compares(self, state: State, slots: Slots) -> Flags:
        """Those of them whose KL it goes by, see `ComputeRule.compares`."""
        return self.watches(state, slots)

    def prepare(self, state: State, reading: Reading) -> None:
        """Called once a step, before any sequence commits."""

    def take(self, candidates: Candidates) -> NDArray[np.int64]:
        """Which of one sequence's candidates are committed: by default as many of the best as the schedule asks for."""
        return candidates.ranked()[: candidates.quota]

    def commits(self, candidates: Candidates) -> tuple[Slots, NDArray[np.int64]]:
        """(slots, tokens) that this step commits in one sequence, slots ascending."""
        if candidates.state.schedule.closing[candidates.b]:
            return candidates.slots, candidates.tokens
        taken = np.sort(self.take(candidates))
        return candidates.slots[taken], candidates.tokens[taken]


@dataclass(frozen=True, slots=True)
class LowConfidence(UnmaskPolicy):
    """The most probable candidates first (LLaDA's `remasking="low_confidence"`)."""

    kind: ClassVar[str] = "low_confidence"
    label: ClassVar[str] = "Most confident first"
    sentence: ClassVar[str] = "Writes the most certain positions first."


@dataclass(frozen=True, slots=True)
class Random(UnmaskPolicy):
    """Positions in random order (LLaDA's `remasking="random"`)."""

    kind: ClassVar[str] = "random"
    label: ClassVar[str] = "Random order"
    sentence: ClassVar[str] = "Writes the positions in random order."
    scores: ClassVar[str | None] = "noise"


@dataclass(frozen=True, slots=True)
class Entropy(UnmaskPolicy):
    """The posteriors of least entropy first (Dream's `alg="entropy"`)."""

    kind: ClassVar[str] = "entropy"
    label: ClassVar[str] = "Least entropy first"
    sentence: ClassVar[str] = "Writes where the fewest words are likely first."
    scores: ClassVar[str | None] = "entropy"


@dataclass(frozen=True, slots=True)
class Margin(UnmaskPolicy):
    """The largest difference of the two likeliest tokens' probabilities first (Dream's `alg="topk_margin"`)."""

    kind: ClassVar[str] = "margin"
    label: ClassVar[str] = "Largest margin first"
    sentence: ClassVar[str] = "Writes where one word is far ahead of the next first."
    scores: ClassVar[str | None] = "margin"


@dataclass(frozen=True, slots=True)
class Threshold(UnmaskPolicy):
    """Everything above a confidence, at least one: parallel decoding (Fast-dLLM, `threshold` of its `generate`).

    p: the confidence. Two deviations: Fast-dLLM takes what equals it, too; and has no bound on the steps.
    """

    kind: ClassVar[str] = "threshold"
    label: ClassVar[str] = "All above a confidence"
    sentence: ClassVar[str] = "Writes all positions at once that are certain enough."
    early: ClassVar[bool] = True

    p: float = setting(
        "number",
        0.9,
        "Threshold",
        "All positions that are more certain than this are unmasked together.",
        low=0,
        high=1,
        offered=(0.05, 1, 0.01),
        flat="threshold",
    )

    def take(self, candidates: Candidates) -> NDArray[np.int64]:
        above = int(((candidates.score > self.p) & ~candidates.late).sum())
        return candidates.ranked()[: max(1, above)]


@dataclass(frozen=True, slots=True)
class Klass(UnmaskPolicy):
    """Everything that is confident and has stood still (KLASS, NeurIPS 2025, `stable_confident_decode`).

    A candidate is ready when its probability is above `confidence` and its last `history` step-wise KLs are below `kl`
    (nats); without a ready one the most confident are committed, an even share of the block a step. Deviations: the
    posterior is the raw one (KLASS adds the temperature's noise first), a block's last step commits what is left.
    """

    kind: ClassVar[str] = "klass"
    label: ClassVar[str] = "All that are confident and still"
    sentence: ClassVar[str] = "Writes all positions at once that are certain and have stood still."
    early: ClassVar[bool] = True

    confidence: float = setting(
        "number",
        0.9,
        "Confidence",
        "Least probability of a token that is ready.",
        low=0,
        high=1,
        offered=(0.05, 1, 0.01),
        flat="klass_confidence",
    )
    kl: float = setting(
        "number",
        0.01,
        "KL threshold",
        "Step-wise KL (nats) below which a position stands still.",
        low=0,
        offered=(1e-6, 1, 0),
        log=True,
        flat="klass_kl",
    )
    history: int = setting(
        "whole",
        2,
        "Still for",
        "Passes in a row that must have found it still.",
        low=1,
        offered=(1, 8, 1),
        flat="klass_history",
    )

    def watches(self, state: State, slots: Slots) -> Flags:
        return state.masked[slots]

    def prepare(self, state: State, reading: Reading) -> None:
        """Count for how many passes in a row each position has stood still."""
        still = state.kept("klass_still", 0)
        still[reading.slots] = np.where(reading.kl < self.kl, still[reading.slots] + 1, 0)

    def take(self, candidates: Candidates) -> NDArray[np.int64]:
        state, b = candidates.state, candidates.b
        if state.schedule.steps_in_block[b] >= self.history - 1:
            still = state.kept("klass_still", 0)[candidates.slots] >= self.history
            ready = np.flatnonzero(still & (candidates.score > self.confidence) & ~candidates.late)
            if len(ready):
                return ready
        return candidates.ranked()[: state.schedule.share(b)]


@dataclass(frozen=True, slots=True)
class EntropyBound(UnmaskPolicy):
    """The largest set whose joint entropy is bounded (EB-Sampler, Ben-Hamu and others 2025).

    In order of entropy as long as the sum of the entropies less the largest is at most `gamma` (nats), at least one:
    the bound on what committing them together ignores. Deviations: entropy is the only order offered, of the raw
    posterior.
    """

    kind: ClassVar[str] = "entropy_bound"
    label: ClassVar[str] = "All of bounded entropy"
    sentence: ClassVar[str] = "Writes as many positions at once as are safe together."
    scores: ClassVar[str | None] = "entropy"
    early: ClassVar[bool] = True

    gamma: float = setting(
        "number",
        0.1,
        "γ",
        "Most joint entropy (nats) that unmasking together may ignore.",
        low=0,
        offered=(1e-4, 10, 0),
        log=True,
        flat="gamma",
    )

    def take(self, candidates: Candidates) -> NDArray[np.int64]:
        ranked = candidates.ranked()
        entropy = np.maximum(-candidates.score[ranked], 0)
        ignored = np.concatenate(([0.0], np.cumsum(entropy)))[: len(ranked)]  # all but the largest, which comes last
        within = (ignored <= self.gamma) & ~candidates.late[ranked]
        return ranked[: max(1, int(within.sum()))]


@dataclass(frozen=True, slots=True)
class Replay(UnmaskPolicy):
    """Commit given tokens in given steps: teacher forcing, which comparisons of posteriors need.

    replay: for each sequence its (step, position within the generated part, token) triples, every position once.
    """

    kind: ClassVar[str] = "replay"
    label: ClassVar[str] = "Given tokens"
    sentence: ClassVar[str] = "Writes given words in given steps."
    scores: ClassVar[str | None] = None

    replay: Sequence[Sequence[Commit]]

    def __post_init__(self) -> None:
        try:
            frozen = tuple(tuple((index(s), index(p), index(v)) for s, p, v in commits) for commits in self.replay)
        except (TypeError, ValueError):
            raise ValueError("replay must be (step, position, token) triples of whole numbers per sequence") from None
        if not frozen:
            raise ValueError("replay must hold the triples of at least one sequence")
        object.__setattr__(self, "replay", frozen)

    def watches(self, state: State, slots: Slots) -> Flags:
        """Every mask: any may be committed next, in whatever block, and may lock one step later."""
        return state.masked[slots]

    def compares(self, state: State, slots: Slots) -> Flags:
        return np.zeros(len(slots), dtype=bool)

    def chooses(self, state: State, slots: Slots) -> Flags:
        due = [
            int(state.canvas.generated_from[b]) + position
            for b, commits in enumerate(self.replay)
            for step, position, _ in commits
            if step == state.step
        ]
        return state.open[slots] | np.isin(slots, due)

    def commits(self, candidates: Candidates) -> tuple[Slots, NDArray[np.int64]]:
        state, b = candidates.state, candidates.b
        due = sorted((position, token) for step, position, token in self.replay[b] if step == state.step)
        slots, tokens = np.array(due, dtype=np.int64).reshape(-1, 2).T
        return slots + state.canvas.generated_from[b], tokens

    def check_against(self, batch: int, gen_length: int, steps: int, vocab_size: int, mask_id: int) -> None:
        """Raise ValueError, which names the sequence, unless it fits the run that is asked for."""
        if len(self.replay) != batch:
            raise ValueError(f"replay is given for {len(self.replay)} sequences, but there are {batch} prompts")
        for b, commits in enumerate(self.replay):
            where = f"replay of sequence {b}"
            if sorted(position for _, position, _ in commits) != list(range(gen_length)):
                raise ValueError(f"{where} must commit each of the {gen_length} positions once")
            if any(not 0 <= step < steps for step, _, _ in commits):
                raise ValueError(f"{where} must keep to steps 0 to {steps - 1}")
            tokens: set[Any] = {token for _, _, token in commits}
            if any(not 0 <= token < vocab_size for token in tokens):
                raise ValueError(f"{where} holds token ids outside 0 to {vocab_size - 1}")
            if mask_id in tokens:
                raise ValueError(f"{where} holds the mask token (id {mask_id})")
