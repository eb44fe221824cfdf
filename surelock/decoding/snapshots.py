"""Snapshots of a run. A run with the same past can go on from a snapshot instead of from the first step.

A snapshot contains the run's decisions so far, and enough to restore the engine's memory. After a step that computed
every row, the snapshot has that step's plan: computing the step again restores the memory. After other steps, the
snapshot has a copy of the rows computed since the previous snapshot. To restore it, all snapshots since the last step
that computed every row are needed.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from surelock.decoding.algorithm import Run
from surelock.decoding.decoder import Decoder
from surelock.decoding.step import Choice, Engine, Plan
from surelock.values import Flags, frozen

if TYPE_CHECKING:
    from surelock.decoding.loop import Steps

MOST_BYTES = 2**26  # limit for the copied rows of all lanes of a race
# Steps between two snapshots. A run from a snapshot then computes at most eight steps before its first new one: seven,
# and the step that restores the memory.
EVERY = 7


class Allowance:
    """A limit in bytes that the snapshots of several lanes share."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self.most = most
        self.used = 0

    def take(self, size: int) -> bool:
        """Take `size` bytes if that many are left. Returns whether they were."""
        fits = self.used + size <= self.most
        if fits:
            self.used += size
        return fits


@frozen(eq=False)
class _Snapshot:
    run: Run
    beside: Any  # the caller's data
    again: Plan | None  # the plan of the step before the snapshot, if that step computed every row
    rows: (
        Any  # the engine's copy of the rows computed since the previous snapshot; None with `again`
    )

    @property
    def step(self) -> int:
        """The next step of the run."""
        return self.run.next_step


class Snapshots:
    """The snapshots of one lane, whose run observes (`observe=True`).

    decoder: the run's decoder. engine: the engine that computes the run. allowance: the limit for copied rows.
    """

    def __init__(self, decoder: Decoder, engine: Engine, allowance: Allowance) -> None:
        self._decoder = decoder
        self._engine = engine
        self._allowance = allowance
        self._taken: list[_Snapshot] = []
        self._changed: Flags = np.zeros(0, dtype=bool)
        self._whole = False  # whether the snapshots reach back to a step that computed every row

    def add(self, steps: Steps, beside: Any = None) -> None:
        """Take a snapshot of a run between two steps, if one is due. Must be called after every step.

        beside: the caller's data for the snapshot, which must not change later.
        """
        run = steps.run
        plan = steps.plan
        assert plan is not None
        total = run.canvas.total
        if len(self._changed) != total:
            self._changed = np.zeros(total, dtype=bool)
        if len(plan.slots) == total and not plan.probed.any():
            self._changed[:] = False
            self._whole = True
            self._taken.append(_Snapshot(deepcopy(run), beside, _dense(plan), None))
            return
        self._changed[plan.slots[~plan.probed]] = True
        if not self._whole or run.next_step - self._taken[-1].step < EVERY:
            return
        copied = self._engine.copy_rows(steps.memory, np.flatnonzero(self._changed))
        self._whole = self._allowance.take(copied.nbytes)
        if self._whole:
            self._taken.append(_Snapshot(deepcopy(run), beside, None, copied))
            self._changed[:] = False

    def before(self, decoder: Decoder, most: int) -> int:
        """Return the step from which a run of `decoder` can go on: at most `most`, 0 if there is no snapshot for it."""
        if replace(decoder, events=()) != replace(self._decoder, events=()):
            return 0
        events = set(self._decoder.events)
        other = set(decoder.events)
        first = min([most, *(event.step for event in events ^ other)])  # first step that may differ
        return max((snapshot.step for snapshot in self._taken if snapshot.step <= first), default=0)

    def begin(self, steps: Steps, step: int) -> Any:
        """Set a run that has not begun to a step that `before` returned. Returns the snapshot's `beside`."""
        number = next(i for i, snapshot in enumerate(self._taken) if snapshot.step == step)
        first = number
        while self._taken[first].again is None:
            first -= 1
        for snapshot in self._taken[first : number + 1]:
            if snapshot.again is not None:
                self._engine.read(steps.memory, snapshot.again)
            else:
                self._engine.put_rows(steps.memory, snapshot.rows)
        steps.run.go_on_from(self._taken[number].run)
        return self._taken[number].beside

    def until(self, step: int, decoder: Decoder, allowance: Allowance) -> Snapshots:
        """Return the snapshots for a run of `decoder` that begins at `step`: those up to `step`, if they fit."""
        copy = Snapshots(decoder, self._engine, allowance)
        shared = [snapshot for snapshot in self._taken if snapshot.step <= step]
        size = sum(snapshot.rows.nbytes for snapshot in shared if snapshot.again is None)
        if allowance.take(size):
            copy._taken = shared
            copy._whole = True
        return copy


def _dense(plan: Plan) -> Plan:
    """Return a plan like `plan`, without candidates and comparisons. Every row is computed and its posterior kept."""
    none = np.zeros(len(plan.slots), dtype=bool)
    return replace(
        plan, watches=none, compares=none, choice=Choice(none, None), observe=True, top_k=0
    )
