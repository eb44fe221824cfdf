"""A race: lanes take turns, one step at a time, and every step is timed separately."""

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
    """The beginning of a lane: the snapshots of a run with the same past, and the step of one of these snapshots."""

    snapshots: Snapshots
    step: int


NOWHERE: Fields = MappingProxyType({})

#: A race yields rounds. A round is a step of every lane that still runs. If errors are measured, [] follows, and then a
#: round per lane with its errors.
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
    """Decode one prompt with several lanes. Yields rounds: a list with a step of every lane that still runs.

    prompt: token ids.
    top: whether to report the most likely tokens.
    shadow: `surelock.quality.commit_error.Shadow`, to measure commit errors; None: they are not measured. After the
    last round an empty list shows that the steps are over. Then [Errors] follows for every lane.
    begins: by lane, the beginning of its steps; other lanes begin at step 0.
    snapshots: by lane, the `Snapshots` to which its steps are added.

    Every round begins with another lane, so that no lane always runs with warm caches. `seconds` of a step excludes
    observation.

    Raises ValueError for lanes that cannot race together, and what `surelock.decode` raises.
    """
    check_field(lanes)
    top_k = min(TOP_K, lm.config.vocab_size) if top else 0
    options = {"observe": True, "top_k": top_k, "keep_logits": shadow is not None}
    runs = {lane.id: decode(lm, [prompt], **lane.decoder.keywords(), **options) for lane in lanes}
    shadows = {lane.id: shadow(lm, lane.decoder.settings) for lane in lanes} if shadow else {}
    for lane, (lane_snapshots, step) in begins.items():
        earlier_shadow = lane_snapshots.begin(runs[lane], step)
        if lane in shadows:
            shadows[lane] = earlier_shadow.copy()
    ids = list(runs)
    for first in cycle(range(len(ids))):
        steps = {lane: next(runs[lane], None) for lane in ids[first:] + ids[:first]}
        taken = {lane: step for lane in ids if (step := steps[lane]) is not None}
        if not taken:
            break
        yield [LaneStep(lane, replace(step, commit_logits=None)) for lane, step in taken.items()]
        for lane, lane_shadow in shadows.items():
            if lane in taken:
                lane_shadow.add(taken[lane])
        for lane, lane_snapshots in snapshots.items():
            if lane in taken:
                beside = shadows[lane].copy() if lane in shadows else None
                lane_snapshots.add(runs[lane], beside)
    if shadow:
        yield []
    for lane, lane_shadow in shadows.items():
        yield [Errors(lane, lane_shadow.result())]
