"""The snapshots that a race of the page takes, and the snapshots from which a branch of the race begins."""

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
    """The beginnings of the lanes of a race, and the snapshots that the race takes."""

    allowance: Allowance  # the memory that all snapshots of the race share
    # by id of the lane; a lane that begins at its first step is missing
    begins: dict[str, Beginning]
    taken: dict[str, Snapshots]  # by id of the lane


def snapshots_of(
    lm: LanguageModel, job: Job, recorder: Recorder, origin: SharedRace | None
) -> RaceSnapshots:
    """Return the snapshots of a new race: empty ones for new lanes, shared ones for lanes that continue a run.

    job: the request for the new race.
    recorder: the recorder of the new race. It adopts the steps that are not computed again.
    origin: the race that `job.origin` names, None if the race is gone.
    """
    snapshots = RaceSnapshots(Allowance(), {}, {})
    for number, lane in enumerate(job.lanes):
        snapshots.taken[lane.id] = Snapshots(lane.decoder, lm.engine, snapshots.allowance)
        if origin is None or origin.snapshots is None or job.origin is None:
            continue
        lane_snapshots = origin.snapshots.taken.get(job.origin.lane)
        header = origin.recorder.header
        same = header["prompt_tokens"] == job.tokens and header.get("lists") == recorder.header.get(
            "lists"
        )
        if lane_snapshots is None or not same:
            continue
        step = lane_snapshots.before(lane.decoder, job.origin.steps[number])
        if step:
            snapshots.begins[lane.id] = Beginning(lane_snapshots, step)
            snapshots.taken[lane.id] = lane_snapshots.until(step, lane.decoder, snapshots.allowance)
            recorder.adopt(lane.id, origin.recorder, job.origin.lane, step)
    return snapshots
