"""Compare the tokens of a prompt in two runs. If they differ, measure how close the decision was.

A run decides by comparing numbers with an edge: logits, scores, KLs, confidences. Two runs of one prompt decide
differently if their numbers lie on different sides of the edge. The distance of the two numbers is the width of the
tie: neither number is further from the edge. A width within the lower half of the dtype's digits is explained by
rounding. If all numbers are equal, or a run decided against its numbers, rounding does not explain the difference.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from surelock.decoding.algorithm import Run
from surelock.decoding.step import Plan, Reading, Step
from surelock.decoding.word_lists import read_lists
from surelock.model.language_model import LanguageModel
from surelock.trace.table import split_step
from surelock.trace.tasks import Task, joint_decoder
from surelock.values import Flags, Whole, frozen


@frozen(eq=False)
class Moment:
    """A sequence of N positions after a step, with the numbers by which the run decided.

    tokens: [N] int64, the mask's id at masks.
    computed: [N] bool, rows that the step computed.
    locked: [N] bool, rows that are locked after the step.
    kl, confidence: [N] float64, nats and probability, from the last step that read the row; NaN if no step has.
    chosen: [N] int64, the tokens of the policy's candidates; -1 at all other places.
    score: [N] float64, the scores of the policy's candidates; NaN at all other places.
    """

    tokens: Whole
    computed: Flags
    locked: Flags
    kl: NDArray
    confidence: NDArray
    chosen: Whole
    score: NDArray


class Place(NamedTuple):
    """A step and a position of a sequence, both from 0."""

    step: int
    position: int


@frozen
class Difference:
    """The first difference between the tokens of a prompt in a run by itself and in another run, and its cause.

    place: the first step with different tokens, and its lowest position with a different token.
    tokens: the token in the run by itself, and the token in the other run.
    cause: "token" (another token was more likely), "order" (other positions were committed) or "rows" (before this
    place, other rows were computed or locked).
    since: the step and the position of the cause.
    width: the width of the tie: in nats for "token", in the unit of the score for "order", in nats or as a probability
    for "rows".
    is_tie: whether rounding explains the width.
    """

    place: Place
    tokens: tuple[int, int]
    cause: str
    since: Place
    width: float
    is_tie: bool


def rounding(lm: LanguageModel) -> float:
    """Return the widest tie that rounding explains: the square root of the dtype's epsilon, 3.5e-4 in float32."""
    return float(torch.finfo(getattr(torch, lm.dtype)).eps ** 0.5)


class Watched(Iterator[list[Moment]]):
    """A run of some tasks, whose decoders differ only in their seeds. Yields, by step, the moments of its sequences."""

    def __init__(self, lm: LanguageModel, tasks: Sequence[Task]) -> None:
        prompts = [task.tokens for task in tasks]
        decoder = joint_decoder(tasks)
        self._engine = lm.engine
        self._device = lm.device
        self._run = Run(lm.shape, prompts, decoder)
        self._sizes = [len(prompt) + decoder.settings.gen_length for prompt in prompts]
        self._starts = np.cumsum([0, *self._sizes])
        self._memory: Any = None
        self._plan: Plan | None = None
        self._latest: list[Moment | None] = [None] * len(tasks)

    def __next__(self) -> list[Moment]:
        plan = self._run.plan()
        if plan is None:
            raise StopIteration
        if self._memory is None:
            self._memory = self._engine.memory(self._run.layout)
        self._plan = plan
        reading = self._engine.read(self._memory, plan)
        read_lists(self._engine, self._memory, plan, reading)
        step = self._run.take(reading)
        chosen, scores = self._candidates(plan, reading)
        moments = []
        for b, part in enumerate(split_step(step, self._sizes)):
            slots = slice(self._starts[b], self._starts[b + 1])
            moments.append(_moment(part, chosen[slots], scores[slots], self._latest[b]))
        self._latest = [*moments]
        return moments

    def preference(self, sequence: int, position: int, tokens: Sequence[int]) -> tuple[float, bool]:
        """Return by how much the last step preferred the first of two tokens for a candidate, in nats.

        The second value is whether the number is complete. On a GPU it lacks the noise of a temperature, which is not
        known there for single tokens.
        """
        plan = self._plan
        assert plan is not None
        slot = self._starts[sequence] + position
        (rows,) = np.nonzero(plan.slots == slot)
        logits = self._engine.logits(self._memory, rows)[0].astype(np.float64)
        choice = plan.choice
        if choice.draws is None or choice.temperature == 0:
            return float(logits[tokens[0]] - logits[tokens[1]]), True
        if self._device.type != "cpu":
            return float(logits[tokens[0]] - logits[tokens[1]]), False
        (candidate,) = np.nonzero(plan.slots[choice.rows] == slot)
        uniform = choice.draws.gumbel(candidate, len(logits))[0]
        with np.errstate(divide="ignore"):
            noisy = logits - choice.temperature * np.log(-np.log(uniform))
        return float(noisy[tokens[0]] - noisy[tokens[1]]), True

    def close(self) -> None:
        """Return the memory to the engine."""
        memory = self._memory
        self._memory = None
        if memory is not None:
            self._engine.release(memory)

    @property
    def chooses_before_it_ranks(self) -> bool:
        """Whether a candidate's score depends on its token, so that tokens of all candidates are chosen first."""
        return self._plan is not None and self._plan.choice.scores == "confidence"

    def _candidates(self, plan: Plan, reading: Reading) -> tuple[Whole, NDArray]:
        """Return the candidate tokens and their scores, [total] each; -1 and NaN at other slots."""
        slots = plan.slots[plan.choice.rows]
        chosen = np.full(self._starts[-1], -1)
        chosen[slots] = reading.tokens
        scores = np.full(self._starts[-1], np.nan)
        draws = plan.choice.draws
        scores[slots] = draws.scores() if draws is not None and draws.scored else reading.score
        return chosen, scores


def _moment(step: Step, chosen: Whole, score: NDArray, before: Moment | None) -> Moment:
    """Return the moment of a step of one sequence. before: the moment of the previous step."""
    kl = step.kl[0]
    confidence = step.confidence[0]
    if before is not None:
        kl = np.where(np.isnan(kl), before.kl, kl)
        confidence = np.where(np.isnan(confidence), before.confidence, confidence)
    return Moment(step.tokens[0], step.computed[0], step.locked[0], kl, confidence, chosen, score)


def moments_alone(lm: LanguageModel, task: Task) -> Iterator[Moment]:
    """Yield the moments of a prompt that is decoded by itself."""
    with closing(Watched(lm, [task])) as watched:
        for (moment,) in watched:
            yield moment


class Comparison:
    """Decodes tasks together, and compares the steps with those of the prompts by themselves.

    references: by task, the moments of its prompt by itself.
    lm_alone: the model of the references, if it differs from `lm`.

    differences: by number of a task, its first difference.
    """

    def __init__(
        self,
        lm: LanguageModel,
        tasks: Sequence[Task],
        references: Sequence[Sequence[Moment]],
        lm_alone: LanguageModel | None = None,
    ) -> None:
        self._lm = lm
        self._lm_alone = lm_alone or lm
        self._tasks = tasks
        self._references = references
        self._watched = Watched(lm, tasks)
        self._steps = 0
        self._before: list[Moment | None] = [None] * len(tasks)
        # by number of a task, where its rows first differ, and the width of the tie
        self._edges: dict[int, tuple[Place, float]] = {}
        self.differences: dict[int, Difference] = {}

    def step(self) -> bool:
        """Decode and compare a step. Returns False if the run is over."""
        moments = next(self._watched, None)
        if moments is None:
            self.close()
            return False
        for b, moment in enumerate(moments):
            if b not in self.differences and self._steps < len(self._references[b]):
                self._compare(b, moment)
        self._before = [*moments]
        self._steps += 1
        return True

    def close(self) -> None:
        """Return the memory to the engine."""
        self._watched.close()

    def _compare(self, b: int, moment: Moment) -> None:
        reference = self._references[b][self._steps]
        if b not in self._edges:
            self._find_edge(b, reference, moment)
        (differing,) = np.nonzero(reference.tokens != moment.tokens)
        if not len(differing):
            return
        place = Place(self._steps, int(differing[0]))
        tokens = int(reference.tokens[place.position]), int(moment.tokens[place.position])
        if b in self._edges:
            since, width = self._edges[b]
            cause = "rows"
        else:
            since = place
            cause, width = self._decision(b, reference, moment, differing)
        is_tie = 0 < width <= rounding(self._lm)
        self.differences[b] = Difference(place, tokens, cause, since, width, is_tie)

    def _find_edge(self, b: int, reference: Moment, moment: Moment) -> None:
        """Record the first place at which the rows of a task differ."""
        (computed,) = np.nonzero(reference.computed != moment.computed)
        (locked,) = np.nonzero(reference.locked != moment.locked)
        before = self._before[b]
        if len(computed):
            place = Place(self._steps, int(computed[0]))
            earlier = self._references[b][self._steps - 1]
            width = np.inf if before is None else _furthest(earlier, before)
            self._edges[b] = place, width
        elif len(locked) and np.array_equal(reference.tokens, moment.tokens):
            place = Place(self._steps, int(locked[0]))
            self._edges[b] = place, _furthest(reference, moment)

    def _decision(
        self, b: int, reference: Moment, moment: Moment, differing: NDArray
    ) -> tuple[str, float]:
        """Return the cause of differing tokens, and the width of its tie."""
        mask = self._lm.mask_id
        alone = differing[reference.tokens[differing] != mask]
        other = differing[moment.tokens[differing] != mask]
        turned = np.intersect1d(alone, other)  # both runs committed them
        if self._watched.chooses_before_it_ranks:
            candidates = (reference.chosen >= 0) & (moment.chosen >= 0)
            changed = candidates & (reference.chosen != moment.chosen)
            turned = np.union1d(turned, differing[changed[differing]])
        if len(turned):
            return "token", self._width_of_token(b, reference, moment, int(turned[0]))
        if not (len(alone) and len(other)):  # one run committed more: some number passed an edge
            scores = _width(reference.score[differing], moment.score[differing])
            return "order", max(scores, _furthest(reference, moment))
        first = alone[0]
        second = other[0]
        gap_alone = float(reference.score[first] - reference.score[second])
        gap_together = float(moment.score[first] - moment.score[second])
        if np.isnan(gap_alone - gap_together):  # a policy took back other tokens
            return "order", _furthest(reference, moment)
        return "order", _width_of_edge(gap_alone, gap_together)

    def _width_of_token(self, b: int, reference: Moment, moment: Moment, position: int) -> float:
        tokens = [int(reference.chosen[position]), int(moment.chosen[position])]
        place = Place(self._steps, position)
        gap_alone, _ = preference_alone(self._lm_alone, self._tasks[b], place, tokens)
        gap_together, is_whole = self._watched.preference(b, position, tokens)
        if is_whole:
            return _width_of_edge(gap_alone, gap_together)
        return abs(gap_alone - gap_together)


def preference_alone(
    lm: LanguageModel, task: Task, place: Place, tokens: Sequence[int]
) -> tuple[float, bool]:
    """Decode a prompt by itself up to the step of a place, and return `Watched.preference` for its position."""
    with closing(Watched(lm, [task])) as watched:
        for _ in range(place.step + 1):
            next(watched)
        return watched.preference(0, place.position, tokens)


def _width_of_edge(gap_alone: float, gap_together: float) -> float:
    """Return the width of a tie between two options.

    gap_alone, gap_together: by how much a run prefers the option that the run of the prompt by itself took.

    If both runs decided by their numbers, the gaps have different signs, and the width is their distance.
    """
    return max(abs(gap_alone - gap_together), abs(gap_alone), abs(gap_together))


def _furthest(one: Moment, other: Moment) -> float:
    """Return the largest difference between the KLs or the confidences of two runs."""
    return max(_width(one.kl, other.kl), _width(one.confidence, other.confidence))


def _width(one: NDArray, other: NDArray) -> float:
    """Return the largest difference of two arrays. Places that are NaN or infinite in both count as equal."""
    finite = np.isfinite(one) | np.isfinite(other)
    if not finite.any():
        return 0.0
    apart = np.abs(one[finite] - other[finite])
    return float(np.nan_to_num(apart, nan=np.inf).max())
