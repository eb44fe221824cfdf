"""A race: lanes take turns, one step at a time, and every step is timed by itself."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from types import MappingProxyType
from typing import Any, NamedTuple

from surelock.decoding.loop import decode
from surelock.decoding.settings import DecodeSettings
from surelock.decoding.snapshots import Snapshots
from surelock.decoding.step import Step
from surelock.model.language_model import LanguageModel
from surelock.trace.format import TOP_K
from surelock.trace.lanes import Lane, check_field
from surelock.values import Fields, frozen


@frozen
class LaneStep:
    """A step of a lane, without the logits of its commits."""

    lane: str
    step: Step


@frozen
class Errors:
    """The commit errors of a lane, a `surelock.CommitError`."""

    lane: str
    commits: Any


class Beginning(NamedTuple):
    """Where a lane begins: the snapshots of a run with the same past, and the step of one of them."""

    snapshots: Snapshots
    step: int


NOWHERE: Fields = MappingProxyType({})

#: A race yields rounds: a step of every lane that still runs; then, if errors are measured, [] and the errors.
Round = list[LaneStep | Errors]


def race(
    lm: LanguageModel,
    prompt: list[int],
    lanes: Sequence[Lane],
    *,
    top: bool = True,
    shadow: Callable[[LanguageModel, DecodeSettings], Any] | None = None,
    begins: Mapping[str, Beginning] = NOWHERE,
    snapshots: Mapping[str, Snapshots] = NOWHERE,
) -> Iterator[Round]:
    """Decode one prompt with several lanes. Yields a list for every round: a step of every lane that still runs.

    top: whether to report likely tokens.
    shadow: `surelock.quality.commit_error.Shadow`, to measure commit errors. After the last round an empty list
    says that the steps are over; then [Errors] of the lanes follow.
    begins: by lane, where its steps begin; other lanes begin at step 0.
    snapshots: by lane, the `Snapshots` that its steps are added to.

    The lanes take turns in going first: none always runs on warm caches. `seconds` excludes observation.
    Raises ValueError for lanes that cannot race together, and what `surelock.decode` raises.
    """
    check_field(lanes)
    top_k = min(TOP_K, lm.config.vocab_size) if top else 0
    options = {"observe": True, "top_k": top_k, "keep_logits": shadow is not None}
    runs = {lane.id: decode(lm, [prompt], **lane.decoder.keywords(), **options) for lane in lanes}
    shadows = {lane.id: shadow(lm, lane.decoder.settings) for lane in lanes} if shadow else {}
    for lane, (kept, step) in begins.items():
        former = kept.begin(runs[lane], step)  # the shadow that was kept beside the snapshot
        if lane in shadows:
            shadows[lane] = former.copy()
    ids = list(runs)
    for first in cycle(range(len(ids))):
        steps = {lane: next(runs[lane], None) for lane in ids[first:] + ids[:first]}
        taken = {lane: step for lane in ids if (step := steps[lane]) is not None}
        if not taken:
            break
        yield [LaneStep(lane, replace(step, commit_logits=None)) for lane, step in taken.items()]
        for lane, measured in shadows.items():
            if lane in taken:
                measured.add(taken[lane])
        for lane, kept in snapshots.items():
            if lane in taken:
                kept.add(runs[lane], shadows[lane].copy() if lane in shadows else None)
    if shadow:
        yield []
    for lane, measured in shadows.items():
        yield [Errors(lane, measured.result())]
