"""Snapshots of a run: another run with the same past starts from one of them, not from its first step.

A snapshot is the run's decisions so far, and what the engine keeps of it. A step that computed every row needs no copy
of the engine's tables: the step, computed again, makes them. After other steps the rows computed since the snapshot
before are copied. Such a snapshot needs those before it, back to a step that computed every row.
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

MOST_BYTES = 2**26  # of the copied rows of all lanes of a race
EVERY = 7  # steps between two snapshots: with a step that is computed again, a run is at most eight from its first


class Allowance:
    """The bytes that the snapshots of several lanes may still take."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self.most = most
        self.used = 0

    def take(self, size: int) -> bool:
        """Take so many bytes, if there are as many left."""
        fits = self.used + size <= self.most
        if fits:
            self.used += size
        return fits


@frozen(eq=False)
class _Snapshot:
    run: Run
    beside: Any  # what the caller keeps with it
    again: Plan | None  # the step before, if it computed every row
    rows: Any  # those computed since the snapshot before, as the engine copies them; None with `again`

    @property
    def step(self) -> int:
        """The next step of the run."""
        return self.run.next_step


class Snapshots:
    """The snapshots of one lane, of a run that is observed.

    decoder: of the run.
    """

    def __init__(self, decoder: Decoder, engine: Engine, allowance: Allowance) -> None:
        self._decoder = decoder
        self._engine = engine
        self._allowance = allowance
        self._taken: list[_Snapshot] = []
        self._changed: Flags = np.zeros(0, dtype=bool)
        self._whole = False  # whether the snapshots reach back to a step that computed every row

    def add(self, steps: Steps, beside: Any = None) -> None:
        """Look at a run between two steps, and take a snapshot of it if one is due.

        beside: what to keep with it, which nothing changes any more.
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
        """The step from which a run of that decoder can go on: at most `most`, 0 if there is none."""
        if replace(decoder, events=()) != replace(self._decoder, events=()):
            return 0
        events = set(self._decoder.events)
        other = set(decoder.events)
        first = min([most, *(event.step for event in events ^ other)])
        return max((snapshot.step for snapshot in self._taken if snapshot.step <= first), default=0)

    def begin(self, steps: Steps, step: int) -> Any:
        """Set a run that has not begun to that step, see `before`. Returns what was kept beside."""
        number = next(i for i, snapshot in enumerate(self._taken) if snapshot.step == step)
        whole = max(
            i for i, snapshot in enumerate(self._taken[: number + 1]) if snapshot.again is not None
        )
        for snapshot in self._taken[whole : number + 1]:
            if snapshot.again is not None:
                self._engine.read(steps.memory, snapshot.again)
            else:
                self._engine.put_rows(steps.memory, snapshot.rows)
        steps.run.go_on_from(self._taken[number].run)
        return self._taken[number].beside

    def until(self, step: int, decoder: Decoder, allowance: Allowance) -> Snapshots:
        """Return the snapshots that a run of a decoder has at once when it begins at that step, as far as they fit."""
        made = Snapshots(decoder, self._engine, allowance)
        shared = [snapshot for snapshot in self._taken if snapshot.step <= step]
        if allowance.take(
            sum(snapshot.rows.nbytes for snapshot in shared if snapshot.again is None)
        ):
            made._taken = shared
            made._whole = True
        return made


def _dense(plan: Plan) -> Plan:
    """The plan without candidates and comparisons: every row is computed and its posterior kept."""
    none = np.zeros(len(plan.slots), dtype=bool)
    return replace(
        plan, watches=none, compares=none, choice=Choice(none, None), observe=True, top_k=0
    )
