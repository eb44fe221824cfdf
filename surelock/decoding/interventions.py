"""Changes of a run between two steps: events of a person, and commits that the policy takes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from surelock.decoding.calls import ask
from surelock.decoding.events import Event, apply
from surelock.decoding.state import NONE, Slots

if TYPE_CHECKING:
    from surelock.decoding.algorithm import Run


class Interventions(NamedTuple):
    """The slots, int64, that events before a step wrote, masked, locked and unlocked, and that the policy took back."""

    written: Slots = NONE
    masked: Slots = NONE
    locked: Slots = NONE
    unlocked: Slots = NONE
    taken_back: Slots = NONE


NOTHING = Interventions()


def intervene(run: Run) -> Interventions:
    """Apply the events of the coming step, then mask the slots that the policy takes back. Returns the changed slots.

    Raises ValueError for an event that does not fit the state of the run.
    """
    due = [event for event in run.events if event.step == run.state.step]
    done = _apply(run, due) if due else NOTHING
    running = np.flatnonzero(run.schedule.running).tolist()
    slots = np.concatenate(
        [ask(run.state.step, run.policy.takes_back, run.state, b) for b in running]
    )
    if not len(slots):
        return done
    run.state.mask(slots)
    run.state.kl[slots] = np.inf
    run.state.confidence[slots] = np.nan
    _forget(run, slots, changed=slots)
    return done._replace(taken_back=slots)


def _apply(run: Run, due: list[Event]) -> Interventions:
    state = run.state
    before = state.locked.copy()
    for event in due:
        if event.compute is not None:
            run.compute = event.compute
        else:
            apply(event, state)
    written, masked, unlocked = (_slots(run, due, kind) for kind in ("write", "mask", "unlock"))
    changed = np.concatenate((written, masked))
    opened = np.concatenate((changed, unlocked))
    _forget(run, opened[before[opened]], changed)  # includes slots that the same step locks again
    locked = np.flatnonzero(state.locked & ~before)
    return Interventions(written, masked, locked, np.flatnonzero(before & ~state.locked))


def _forget(run: Run, slots: Slots, changed: Slots) -> None:
    """Forget the kept posteriors of slots. changed: slots whose token has changed."""
    run.forgotten.append(slots)
    if run.blocks is not None:
        run.blocks.change(changed)


def _slots(run: Run, due: list[Event], kind: str) -> Slots:
    places = [
        run.canvas.slot(event.sequence, event.position or 0) for event in due if event.kind == kind
    ]
    return np.array(places, dtype=np.int64)
