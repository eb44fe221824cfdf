"""A race: lanes take turns step by step, and each step is timed by itself."""

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
    """Where another race left a run with the same past: the snapshots of that run, and one of their steps."""

    snapshots: Snapshots
    step: int


NOWHERE: Fields = MappingProxyType({})

#: What a race yields at once: a step of each lane that still runs; nothing once the steps are over; then errors.
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
    """Decode one prompt with each lane. Yields a list for each round: one step of every lane that still runs.

    top: report likely tokens.
    shadow: what measures commit errors, `surelock.quality.commit_error.Shadow`; after the last round, an empty one says
    that the steps are over, then those of each lane follow.
    begins: by lane, where its steps begin; else at the first.
    snapshots: by lane, what takes its snapshots.

    The lanes take turns in going first, so that none always runs on warm caches. `seconds` excludes observation. Raises
    ValueError for lanes that cannot race together, and what `surelock.decode` raises.
    """
    check_field(lanes)
    top_k = min(TOP_K, lm.config.vocab_size) if top else 0
    how = {"observe": True, "top_k": top_k, "keep_logits": shadow is not None}
    runs = {lane.id: decode(lm, [prompt], **lane.decoder.keywords(), **how) for lane in lanes}
    shadows = {lane.id: shadow(lm, lane.decoder.settings) for lane in lanes} if shadow else {}
    for lane, (kept, step) in begins.items():
        found = kept.begin(runs[lane], step)
        if lane in shadows:
            shadows[lane] = found.copy()
    ids = list(runs)
    for first in cycle(range(len(ids))):
        steps = {lane: next(runs[lane], None) for lane in ids[first:] + ids[:first]}
        taken = {lane: step for lane in ids if (step := steps[lane]) is not None}
        if not taken:
            break
        yield [LaneStep(lane, replace(step, commit_logits=None)) for lane, step in taken.items()]
        for lane, each in shadows.items():
            if lane in taken:
                each.add(taken[lane])
        for lane, kept in snapshots.items():
            if lane in taken:
                kept.add(runs[lane], shadows[lane].copy() if lane in shadows else None)
    if shadow:
        yield []
    for lane, each in shadows.items():
        yield [Errors(lane, each.result())]
