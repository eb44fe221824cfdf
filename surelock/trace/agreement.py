"""Whether a prompt gets the same tokens in two runs, and where not, how close the decision was.

A run decides by numbers: logits, scores, KLs, confidences. Two runs of one prompt take other decisions where these
numbers lie on two sides of an edge. So the edge is no further from either number than the two are from one another:
this is the width of the tie. A width in the lower half of the digits of the dtype is rounding. Where all numbers are
equal, or a run decided against its numbers, nothing explains the difference.
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
    computed, locked: [N] bool, the rows that the step computed, and those that are locked after it.
    kl, confidence: [N] float64, nats and probability, of the last step that read the row; NaN if none has.
    chosen: [N] int64, the tokens of the policy's candidates; -1 at all other places.
    score: [N] float64, their scores; NaN at all other places.
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
    """Where the tokens of a prompt first differ from those that it gets alone, and what was decided otherwise there.

    place: the first step and its lowest position whose token differs.
    tokens: alone and in the other run.
    cause: "token" (another token was likelier), "order" (other positions were committed) or "rows" (before that, other
    rows were computed or locked).
    since: the step and the position of the cause.
    width: of the tie; nats for "token", score for "order", nats or probability for "rows".
    is_tie: whether the width is that of rounding.
    """

    place: Place
    tokens: tuple[int, int]
    cause: str
    since: Place
    width: float
    is_tie: bool


def rounding(lm: LanguageModel) -> float:
    """Return the widest tie that rounding explains: the root of the dtype's epsilon, 3.5e-4 in float32."""
    return float(torch.finfo(getattr(torch, lm.dtype)).eps ** 0.5)


class Watched(Iterator[list[Moment]]):
    """A run of some tasks, whose decoders differ in their seeds alone. Yields the moments of its sequences."""

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

        The second value says whether the noise of a temperature is in it: on a GPU it is not known for single tokens.
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
        """Give the memory back."""
        memory = self._memory
        self._memory = None
        if memory is not None:
            self._engine.release(memory)

    @property
    def chooses_before_it_ranks(self) -> bool:
        """Whether a candidate's score depends on its token, which is then chosen for all candidates."""
        return self._plan is not None and self._plan.choice.scores == "confidence"

    def _candidates(self, plan: Plan, reading: Reading) -> tuple[Whole, NDArray]:
        """The token and the score of the slots, twice [total]."""
        slots = plan.slots[plan.choice.rows]
        chosen = np.full(self._starts[-1], -1)
        chosen[slots] = reading.tokens
        scores = np.full(self._starts[-1], np.nan)
        draws = plan.choice.draws
        scores[slots] = draws.scores() if draws is not None and draws.scored else reading.score
        return chosen, scores


def _moment(step: Step, chosen: Whole, score: NDArray, before: Moment | None) -> Moment:
    """The moment of a step of one sequence."""
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
    """Decodes tasks once more, together, and compares the steps with what the prompts get alone.

    references: by task, its moments alone.
    lm_alone: the model that they are of, if it is another one.

    `differences` holds the first difference of a task, by its number.
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
        # where the rows of a task first differ, and by what
        self._edges: dict[int, tuple[Place, float]] = {}
        self.differences: dict[int, Difference] = {}

    def step(self) -> bool:
        """Decode and compare a step. Returns False once the run is over."""
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
        """Give the memory back."""
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
        """Keep where the rows of a task differ for the first time."""
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
        """The cause of differing tokens, and the width of its tie."""
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
        return (
            _width_of_edge(gap_alone, gap_together) if is_whole else abs(gap_alone - gap_together)
        )


def preference_alone(
    lm: LanguageModel, task: Task, place: Place, tokens: Sequence[int]
) -> tuple[float, bool]:
    """Decode a prompt by itself up to a step, and return `Watched.preference` of a position in it."""
    with closing(Watched(lm, [task])) as watched:
        for _ in range(place.step + 1):
            next(watched)
        return watched.preference(0, place.position, tokens)


def _width_of_edge(gap_alone: float, gap_together: float) -> float:
    """The width of a tie between two options. gap_alone, gap_together: by how much a run prefers the option that the
    prompt alone took.

    Two runs that decided by their numbers lie on two sides of 0, and their distance is the largest of the three.
    """
    return max(abs(gap_alone - gap_together), abs(gap_alone), abs(gap_together))


def _furthest(one: Moment, other: Moment) -> float:
    """How far the KLs and the confidences of two runs lie apart, at most."""
    return max(_width(one.kl, other.kl), _width(one.confidence, other.confidence))


def _width(one: NDArray, other: NDArray) -> float:
    """The largest difference of two arrays. Places that are NaN or infinite in both are equal."""
    finite = np.isfinite(one) | np.isfinite(other)
    if not finite.any():
        return 0.0
    apart = np.abs(one[finite] - other[finite])
    return float(np.nan_to_num(apart, nan=np.inf).max())
