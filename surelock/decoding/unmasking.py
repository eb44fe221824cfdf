"""Unmask policies (UpdateMASK, Algorithm 1, line 16): which masked positions does a step commit?

A policy is a small frozen dataclass. It chooses the score of the candidates, the candidates that are committed, and
positions that are masked again before a step. The candidate token of a position does not depend on the policy.

The last step of a block commits every position of the block that is still masked, whatever the policy says. So a run
takes at most `steps` steps, and usually fewer under a policy with `early`. Only `Remask` and `Correct` take more.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from surelock.decoding.settings import Described, setting
from surelock.decoding.state import NONE, Canvas, Slots, State
from surelock.decoding.step import Flags, Reading
from surelock.values import Whole, frozen

#: A commit of a replay: (step, position counted from the first mask, token).
Commit = tuple[int, int, int]
_CHECKS = 16  # `Correct`: the largest number of steps of a block that begin without a mask


@dataclass(slots=True)
class Candidates:
    """The candidates of one sequence, by position: positions that the step computed and that `chooses` returned."""

    state: State
    b: int  # number of the sequence in the batch
    slots: Slots  # [C] int64, ascending
    tokens: Whole  # [C] int64, the candidate's token
    score: NDArray  # [C] float64, a higher score is better
    # [C] bool, whether the token ends the text and `suppress_eos_confidence` wants such tokens committed last
    late: Flags
    # int64, numbers of the candidates at open slots: high scores first, ties by position, late candidates at the end
    ranked: Whole
    quota: int  # the number of commits that the schedule asks for


class UnmaskPolicy(Described):
    """The base class of unmask policies.

    kind: the name of the policy in flags, links and traces.
    label: its name on the page.
    sentence: what the policy does, in one sentence.
    scores: the score of a candidate. It is computed from the posterior at temperature 1: "confidence" (the probability
    of the candidate token), "entropy" (negative, in nats) or "margin" (p1 - p2). It may also be "noise", a uniform
    random number, or None for a policy that needs neither scores nor candidate tokens.
    early: whether a block ends as soon as none of its positions is masked, even if it has steps left.
    by_posterior: whether the policy commits the candidates with the best scores, as many as the schedule asks for, and
    the scores do not depend on the candidate tokens.
    measures: names of further numbers that the policy needs of the candidates, see `Choice.measures`.
    server_only: whether the decoder in the browser lacks the policy.
    """

    __slots__ = ()
    kind: ClassVar[str]
    label: ClassVar[str]
    sentence: ClassVar[str]
    scores: ClassVar[str | None] = "confidence"
    early: ClassVar[bool] = False
    by_posterior: ClassVar[bool] = False
    measures: ClassVar[tuple[str, ...]] = ()
    server_only: ClassVar[bool] = False

    def quotas(self, masks: int, steps: int) -> list[int]:
        """Return, by step of a block, the number of commits that the step owes.

        masks: number of masks of the block. steps: number of steps that the schedule gives the block; the list may be
        longer. Default: an even share of the masks, with the remainder in the first steps.
        """
        return [masks // steps + (step < masks % steps) for step in range(steps)]

    def takes_back(self, state: State, b: int) -> Slots:
        """Return the written slots of sequence b that are masked again before the step, int64. Default: none."""
        return NONE

    def chooses(self, state: State, slots: Slots) -> Flags:
        """Return which of the computed slots [R] the step may commit, [R] bool."""
        return state.open[slots]

    def watches(self, state: State, slots: Slots) -> tuple[Flags, Flags]:
        """Return which of the computed slots the policy watches and compares, see `ComputeRule.watches`."""
        none = np.zeros(len(slots), dtype=bool)
        return none, none

    def prepare(self, state: State, reading: Reading) -> None:
        """Update the policy's arrays. Called once per step, before the sequences commit. Default: do nothing."""

    def take(self, candidates: Candidates) -> Whole:
        """Return the numbers of the candidates to commit, int64. Default: the `quota` best candidates."""
        return candidates.ranked[: candidates.quota]

    def commits(self, candidates: Candidates) -> tuple[Slots, Whole]:
        """Return the (slots, tokens) that the step commits in one sequence, [K] int64 each, slots ascending."""
        closing = candidates.state.schedule.closing[candidates.b]
        taken = np.union1d(self.take(candidates), candidates.ranked if closing else NONE)
        return candidates.slots[taken], candidates.tokens[taken]

    def after(self, state: State, b: int) -> bool:
        """Update the policy's arrays after the commits of sequence b.

        Returns whether an `early` policy stays in a block without masks. Default: False.
        """
        return False


@frozen
class LowConfidence(UnmaskPolicy):
    """Commit the most probable candidates first (LLaDA's `remasking="low_confidence"`)."""

    kind = "low_confidence"
    label = "Most confident first"
    sentence = "Writes the most certain positions first."


@frozen
class Random(UnmaskPolicy):
    """Commit positions in random order (LLaDA's `remasking="random"`)."""

    kind = "random"
    label = "Random order"
    sentence = "Writes the positions in random order."
    scores = "noise"


@frozen
class Entropy(UnmaskPolicy):
    """Commit the positions whose posterior has the least entropy first (Dream's `alg="entropy"`)."""

    kind = "entropy"
    label = "Least entropy first"
    sentence = "Writes first where the fewest tokens are likely."
    scores = "entropy"
    by_posterior = True


@frozen
class Margin(UnmaskPolicy):
    """Commit the positions with the largest margin first (Dream's `alg="topk_margin"`).

    The margin is the difference between the probabilities of the two most likely tokens.
    """

    kind = "margin"
    label = "Largest margin first"
    sentence = "Writes first where one token is far ahead of the next."
    scores = "margin"
    by_posterior = True


@frozen
class Threshold(UnmaskPolicy):
    """Commit every candidate above a confidence, at least one: parallel decoding (Fast-dLLM's `threshold`).

    p: the confidence, 0 to 1.

    Two deviations: Fast-dLLM also commits a candidate whose confidence equals p, and does not bound the steps.
    """

    kind = "threshold"
    label = "All above a confidence"
    sentence = "Writes all positions at once that are certain enough (Fast-dLLM)."
    early = True

    p: float = setting(
        "number",
        0.9,
        "Threshold",
        "All positions that are more certain than this are written together.",
        low=0,
        high=1,
        offered=(0.05, 1, 0.01),
        flat="threshold",
    )

    def take(self, candidates: Candidates) -> Whole:
        above = int(((candidates.score > self.p) & ~candidates.late).sum())
        return candidates.ranked[: max(1, above)]


def _stable_steps(total: int) -> Whole:
    """Return the memory of `Klass`: by slot, the number of stable passes in a row, [total] int64."""
    return np.zeros(total, dtype=np.int64)


@frozen
class Klass(UnmaskPolicy):
    """Commit every candidate that is confident and stable (KLASS, NeurIPS 2025, `stable_confident_decode`).

    If no candidate is confident and stable, the step commits its share of the block, the most confident candidates.

    confidence: a candidate is confident if its score is above this value, 0 to 1.
    kl: a pass is stable for a position if its step-wise KL is below this value, in nats.
    history: a candidate is stable after this many stable passes in a row.

    Two deviations: posteriors are at temperature 1 (KLASS adds the noise of the temperature first), and the last step
    of a block commits all positions that are left.
    """

    kind = "klass"
    label = "All that are confident and still"
    sentence = "Writes all positions at once that are certain and have stood still (KLASS)."
    early = True

    confidence: float = setting(
        "number",
        0.9,
        "Confidence",
        "A position is certain if its token is more probable than this.",
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
        "Steps in a row in which a position must have stood still.",
        low=1,
        offered=(1, 8, 1),
        flat="klass_history",
    )

    def watches(self, state: State, slots: Slots) -> tuple[Flags, Flags]:
        masked = state.masked[slots]
        return masked, masked

    def prepare(self, state: State, reading: Reading) -> None:
        """Count, by position, the stable passes in a row."""
        stable = state.memory(_stable_steps)
        stable[reading.slots] = np.where(reading.kl < self.kl, stable[reading.slots] + 1, 0)

    def take(self, candidates: Candidates) -> Whole:
        state = candidates.state
        b = candidates.b
        if state.schedule.steps_in_block[b] >= self.history - 1:
            stable = state.memory(_stable_steps)[candidates.slots] >= self.history
            confident = (candidates.score > self.confidence) & ~candidates.late
            ready = np.flatnonzero(stable & confident)
            if len(ready):
                return ready
        return candidates.ranked[: state.schedule.share[b]]


@frozen
class EntropyBound(UnmaskPolicy):
    """Commit the largest set of candidates whose joint entropy is bounded (EB-Sampler, Ben-Hamu et al. 2025).

    Candidates are taken in order of entropy. The step commits as many as possible, at least one, such that the sum of
    their entropies without the largest is at most gamma. The sum bounds the dependence between the positions, which
    a common commit ignores.

    gamma: the bound, in nats.

    Deviation: the only order offered is by entropy of the posterior at temperature 1.
    """

    kind = "entropy_bound"
    label = "All of bounded entropy"
    sentence = "Writes as many positions at once as are safe together."
    scores = "entropy"
    early = True

    gamma: float = setting(
        "number",
        0.1,
        "γ",
        "Largest joint entropy (nats) of positions that are written together.",
        low=0,
        offered=(1e-4, 10, 0),
        log=True,
        flat="gamma",
    )

    def take(self, candidates: Candidates) -> Whole:
        ranked = candidates.ranked
        entropy = np.maximum(-candidates.score[ranked], 0)
        # by candidate, the sum of the entropies of better candidates
        sums = np.concatenate(([0.0], np.cumsum(entropy)))[: len(ranked)]
        within = (sums <= self.gamma) & ~candidates.late[ranked]
        return ranked[: max(1, int(within.sum()))]


def _gap(default: float, third: str) -> Any:
    """Return the setting of `EarlyFinish` for a third of the run: "first", "middle" or "last"."""
    label = f"{third.capitalize()} third"
    help = f"Mean gap of logits that ends the run in its {third} third."
    return setting(
        "number", default, label, help, low=0, offered=(0, 20, 0.5), flat=f"finish_{third}"
    )


@frozen
class EarlyFinish(UnmaskPolicy):
    """Commit all masked positions at once when the network is sure of its answer (Prophet, arXiv 2508.19982).

    The measure is the gap between the two largest logits of a position, and its mean over positions. In step t of T,
    counted from 1 over the whole run, the network is sure if the mean is at least `first` while t / T < .33, `middle`
    while t / T < .67, and `last` later. If the network is not sure, the policy commits as `LowConfidence` does.

    first, middle, last: the smallest mean gaps at which the network is sure.
    answer: the mean is over five positions that begin here; 1 is the first mask. 0 takes the mean over all positions.

    Deviations: the mean is over masked positions that the step computed, and these positions are committed. Prophet's
    caller must name an answer, and written positions of the answer count in its mean.
    """

    kind = "early_finish"
    label = "All once the gap is wide"
    sentence = "Writes the most certain positions first, and all at once when the network is sure (Prophet)."
    early = True
    measures = ("gap",)

    first: float = _gap(7.5, "first")
    middle: float = _gap(5.0, "middle")
    last: float = _gap(2.5, "last")
    answer: int = setting(
        "whole", 0, "Answer", "First of the five positions that must be sure, from 1 at the first mask on; 0 is all.",
        low=0, flat="finish_answer", advanced=True,
    )  # fmt: skip

    def chooses(self, state: State, slots: Slots) -> Flags:
        return state.masked[slots]

    def take(self, candidates: Candidates) -> Whole:
        state = candidates.state
        b = candidates.b
        slots = candidates.slots
        share = (state.step + 1) / state.schedule.steps[b]
        least = self.last
        if share < 0.33:
            least = self.first
        elif share < 0.67:
            least = self.middle
        gaps = state.measures["gap"][slots]
        if self.answer:
            start = state.canvas.generated_from[b] + self.answer - 1
            gaps = gaps[(slots >= start) & (slots < start + 5)]
        if len(gaps) and np.cumsum(gaps)[-1] / len(gaps) >= least:
            return np.arange(len(slots))
        return candidates.ranked[: candidates.quota]


@frozen
class Remask(UnmaskPolicy):
    """Mask the least confident positions again, and commit as many (ReMDM's sampler for LLaDA, arXiv 2503.00307).

    A block that has S steps under other policies takes 2 S steps. Its first floor(begins * S) steps commit as
    `LowConfidence` does. The next S steps first mask `taken_back` written positions of the block: the positions whose
    tokens had the least probability when they were committed. These steps then commit the `taken_back` most confident
    candidates. The remaining steps commit as `LowConfidence` does.

    taken_back: number of positions that a step takes back.
    begins: share of the S steps before the first step that takes back, 0 to 1.

    Deviations: prompt positions, locked positions and tokens that an event wrote are not taken back. The last step of a
    block takes nothing back. The authors' code begins after seven eighths of the block's positions; in its settings a
    block has as many steps as positions.
    """

    kind = "remask"
    label = "Take back the least confident"
    sentence = "Writes the most certain positions first, then takes back and rewrites the least certain (ReMDM)."

    taken_back: int = setting(
        "whole",
        1,
        "Taken back",
        "Positions that a step takes back and writes anew.",
        low=1,
        offered=(1, 8, 1),
    )
    begins: float = setting(
        "number", 0.875, "Begins at", "Share of a block's steps after which it begins.", low=0, high=1,
        offered=(0, 1, 0.125), flat="taken_back_from",
    )  # fmt: skip

    def quotas(self, masks: int, steps: int) -> list[int]:
        even = UnmaskPolicy.quotas(self, masks, steps)
        begins = self._begins(steps)
        return [*even[:begins], *[self.taken_back] * steps, *even[begins:]]

    def takes_back(self, state: State, b: int) -> Slots:
        schedule = state.schedule
        steps = int(schedule.steps_of_block[b]) // 2
        begins = self._begins(steps)
        takes_back = begins <= schedule.steps_in_block[b] < begins + steps
        if not takes_back or schedule.closing[b]:
            return NONE
        slots = np.arange(schedule.starts[b], schedule.stops[b])
        slots = slots[~(state.locked[slots] | np.isnan(state.score[slots]))]
        worst = np.argsort(state.score[slots], kind="stable")[: self.taken_back]
        return np.sort(slots[worst])

    def _begins(self, steps: int) -> int:
        return math.floor(self.begins * steps + 1e-9)


@frozen
class LocalLeap(UnmaskPolicy):
    """Commit every sure candidate, and less sure candidates near a sure one (LocalLeap, arXiv 2510.07081).

    A candidate whose confidence is at least p is an anchor and is committed. A candidate near an anchor is committed if
    its confidence is at least `near`. If there is no anchor, the most confident candidate is committed.

    p: the smallest confidence of an anchor.
    near: the smallest confidence of a candidate near an anchor.
    radius: the largest distance between a candidate and an anchor near it, in positions.

    The defaults are those of DAWN's code, `get_transfer_index_localleap`. Deviation: that code does not bound the
    steps.
    """

    kind = "local_leap"
    label = "All near a sure one"
    sentence = "Writes all positions at once that are certain, and near them the less certain ones (LocalLeap)."
    early = True
    server_only = True

    p: float = setting(
        "number", 0.9, "Anchor", "What is at least as certain as this is written, and makes its neighbours easier.",
        low=0, high=1, offered=(0.05, 1, 0.01), flat="leap_from",
    )  # fmt: skip
    near: float = setting(
        "number", 0.75, "Near an anchor", "From this certainty on a neighbour of an anchor is written.",
        low=0, high=1, offered=(0.05, 1, 0.01), flat="leap_near",
    )  # fmt: skip
    radius: int = setting(
        "whole", 4, "Radius", "How many positions to either side of an anchor are its neighbours.",
        low=0, offered=(0, 16, 1), flat="leap_radius",
    )  # fmt: skip

    def take(self, candidates: Candidates) -> Whole:
        slots = candidates.slots
        score = candidates.score
        due = ~candidates.late
        anchors = slots[due & (score >= self.p)]
        distance = np.abs(slots[:, None] - anchors)
        is_near = (distance <= self.radius).any(axis=1)
        least = np.where(is_near, self.near, self.p)
        taken = np.flatnonzero(due & (score >= least))
        return taken if len(taken) else candidates.ranked[:1]


class _Revisions:
    """The memory of `Correct` between steps. Arrays have one value per slot, [total].

    doubted: bool, whether the next step masks the slot again.
    times: int64, how often the slot was masked again.
    checks: int64, at the first slot of a block, the number of the block's steps that began without a mask.
    """

    def __init__(self, total: int) -> None:
        self.doubted = np.zeros(total, dtype=bool)
        self.times, self.checks = np.zeros((2, total), dtype=np.int64)


@frozen
class Correct(UnmaskPolicy):
    """Commit by threshold, and mask unlikely tokens again (Targeted Remasking, arXiv 2604.18738, `low_prob`).

    A step commits as `Threshold` does. It also doubts tokens: written tokens of the block that the step's posterior at
    their position gives a probability below `doubt`. Doubted tokens are masked again before the next step.

    After all masks of a block are written, the block goes on with checks: steps that begin without a mask. A check that
    doubts no token ends the block. After sixteen checks, any step that doubts no token ends it.

    p: candidates above this confidence are committed.
    doubt: tokens below this probability are doubted, the least likely first.
    share: the largest share of the block's written tokens that a step may doubt, but at least one token.
    times: how often a position is masked again at most.

    Deviations: a block of S steps takes at most (2 + times) S steps, and the last of them takes nothing back. This does
    not limit a block if S is its number of masks and at least 16. Prompt positions, locked positions, positions that
    the step did not compute, and tokens that an event wrote are not taken back.
    """

    kind = "correct"
    label = "Take back what has become unlikely"
    sentence = "Writes all positions at once that are certain enough, and takes back what has become unlikely (T2M)."
    early = True
    measures = ("input",)
    server_only = True

    p: float = setting(
        "number", 0.7, "Threshold", "All positions that are more certain than this are written together.",
        low=0, high=1, offered=(0.05, 1, 0.01), flat="correct_from",
    )  # fmt: skip
    doubt: float = setting(
        "number", 0.5, "Doubt", "A written token that is less probable than this is taken back.",
        low=0, high=1, offered=(0, 1, 0.01), flat="correct_below",
    )  # fmt: skip
    share: float = setting(
        "number", 0.25, "At most", "Share of a block's written tokens that a step takes back at most; one in any case.",
        low=0, high=1, offered=(0, 1, 0.05), flat="correct_share",
    )  # fmt: skip
    times: int = setting(
        "whole", 5, "Times", "How often a position is taken back at most.",
        low=0, high=100, offered=(0, 10, 1), flat="correct_times",
    )  # fmt: skip

    def quotas(self, masks: int, steps: int) -> list[int]:
        further = (1 + self.times) * steps
        return [*UnmaskPolicy.quotas(self, masks, steps), *[0] * further]

    def takes_back(self, state: State, b: int) -> Slots:
        memory = state.memory(_Revisions)
        # since the last step, an event may have changed a doubted slot
        slots = np.flatnonzero(memory.doubted & _is_rewritable(state, b))
        memory.times[slots] += 1
        return slots

    def chooses(self, state: State, slots: Slots) -> Flags:
        rewritable = [_is_rewritable(state, b) for b in range(state.canvas.batch)]
        return (state.open | np.any(rewritable, axis=0))[slots]

    def take(self, candidates: Candidates) -> Whole:
        is_sure = (candidates.score > self.p) & ~candidates.late
        above = int(is_sure[candidates.ranked].sum())
        return candidates.ranked[: max(1, above)]

    def after(self, state: State, b: int) -> bool:
        memory = state.memory(_Revisions)
        part = state.canvas.parts[b]
        memory.doubted[part] = False
        if state.schedule.closing[b]:
            return False
        probability = state.measures["input"]
        was_written = _is_rewritable(state, b) & ~state.open & ~np.isnan(probability)
        slots = np.flatnonzero(was_written)
        most = max(1, int(self.share * len(slots)))
        unlikely = (probability[slots] < self.doubt) & (memory.times[slots] < self.times)
        slots = slots[unlikely]
        order = np.argsort(probability[slots], kind="stable")
        doubted = slots[order[:most]]
        memory.doubted[doubted] = True
        start = state.schedule.starts[b]
        is_check = not state.open[part].any()
        memory.checks[start] += is_check
        is_checked = is_check or memory.checks[start] == _CHECKS
        return len(doubted) > 0 or not is_checked


def _is_rewritable(state: State, b: int) -> Flags:
    """Return which slots of the present block of sequence b are unlocked and have a token that a step committed.

    The result is [total] bool.
    """
    rewritable = ~(state.locked | np.isnan(state.score))
    rewritable[: state.schedule.starts[b]] = False
    rewritable[state.schedule.stops[b] :] = False
    return rewritable


@frozen
class Replay(UnmaskPolicy):
    """Commit recorded tokens in recorded steps: teacher forcing, for comparing posteriors of several decoders.

    replay: by sequence, (step, position, token) triples, exactly one for every masked position. Positions are counted
    from the first mask of the sequence.

    Raises ValueError for values that are no such triples.
    """

    kind = "replay"
    label = "Given tokens"
    sentence = "Writes given tokens in given steps."
    scores = None

    replay: Sequence[Sequence[Commit]]

    def __post_init__(self) -> None:
        try:
            triples = tuple(
                tuple((index(step), index(at), index(token)) for step, at, token in commits)
                for commits in self.replay
            )
        except (TypeError, ValueError):
            raise ValueError(
                "replay must be (step, position, token) triples of whole numbers per sequence"
            ) from None
        if not triples:
            raise ValueError("replay must hold the triples of at least one sequence")
        object.__setattr__(self, "replay", triples)

    def watches(self, state: State, slots: Slots) -> tuple[Flags, Flags]:
        """Watch all masked rows: any of them may be committed in the next step, and may lock one step later."""
        return state.masked[slots], np.zeros(len(slots), dtype=bool)

    def chooses(self, state: State, slots: Slots) -> Flags:
        due = []
        for first, commits in zip(state.canvas.generated_from, self.replay, strict=True):
            due += [first + position for step, position, _ in commits if step == state.step]
        return state.open[slots] | np.isin(slots, due)

    def commits(self, candidates: Candidates) -> tuple[Slots, Whole]:
        state = candidates.state
        b = candidates.b
        due = sorted(
            (position, token) for step, position, token in self.replay[b] if step == state.step
        )
        slots, tokens = np.array(due, dtype=np.int64).reshape(-1, 2).T
        return slots + state.canvas.generated_from[b], tokens

    def check_against(self, canvas: Canvas, steps: Sequence[int], vocab_size: int) -> None:
        """Raise ValueError, which names the sequence, unless the triples fit the run.

        steps: by sequence, its number of steps.
        """
        if len(self.replay) != canvas.batch:
            raise ValueError(
                f"replay is given for {len(self.replay)} sequences, but there are {canvas.batch} prompts"
            )
        slots = np.flatnonzero(canvas.masked)
        for b, (commits, part) in enumerate(zip(self.replay, canvas.split(slots), strict=True)):
            where = f"replay of sequence {b}"
            masks = slots[part] - canvas.generated_from[b]
            count = steps[b]
            if sorted(position for _, position, _ in commits) != masks.tolist():
                raise ValueError(f"{where} must commit each of the {len(masks)} positions once")
            if any(not 0 <= step < count for step, _, _ in commits):
                raise ValueError(f"{where} must keep to steps 0 to {count - 1}")
            tokens: set[Any] = {token for _, _, token in commits}
            if any(not 0 <= token < vocab_size for token in tokens):
                raise ValueError(f"{where} holds token ids outside 0 to {vocab_size - 1}")
            if canvas.mask_id in tokens:
                raise ValueError(f"{where} holds the mask token (id {canvas.mask_id})")
