"""The snapshots of a race of the page, and where a branch of it begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from surelock.decoding.snapshots import Allowance, Snapshots
from surelock.trace.race import Beginning

if TYPE_CHECKING:
    from surelock.model.language_model import LanguageModel
    from surelock.trace.recorder import Recorder
    from surelock.ui.request import Job
    from surelock.ui.shared_race import SharedRace


class RaceSnapshots(NamedTuple):
    """Where the lanes of a race begin, and the snapshots that it takes; both by lane."""

    allowance: Allowance
    begins: dict[str, Beginning]
    taken: dict[str, Snapshots]


def snapshots_of(
    lm: LanguageModel, job: Job, recorder: Recorder, origin: SharedRace | None
) -> RaceSnapshots:
    """Return what a new race takes its snapshots into, and where its lanes begin.

    recorder: of the new race. It adopts the steps that are not computed again.
    origin: the race that `job.origin` names, None if it is gone.
    """
    found = RaceSnapshots(Allowance(), {}, {})
    for number, lane in enumerate(job.lanes):
        found.taken[lane.id] = Snapshots(lane.decoder, lm.engine, found.allowance)
        if origin is None or origin.snapshots is None or job.origin is None:
            continue
        known = origin.snapshots.taken.get(job.origin.lane)
        header = origin.recorder.header
        same = header["prompt_tokens"] == job.tokens and header.get("lists") == recorder.header.get(
            "lists"
        )
        if known is None or not same:
            continue
        step = known.before(lane.decoder, job.origin.steps[number])
        if step:
            found.begins[lane.id] = Beginning(known, step)
            found.taken[lane.id] = known.until(step, lane.decoder, found.allowance)
            recorder.adopt(lane.id, origin.recorder, job.origin.lane, step)
    return found
