"""The lock rule (Algorithm 1, lines 17-24) and optional unlocking (the paper's appendix of that name).

All decisions are taken on the host from each row's KL and uncertainty; everything is per sequence.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from surelock.decoding.canvas import Canvas
from surelock.decoding.settings import LockRule

Slots = NDArray[np.int64]
NEVER = -(2**31)


def percentile(values: NDArray, m: float) -> float:
    """The m-th percentile as the lower order statistic, sorted(values)[floor(m (n - 1) / 100)].

    It admits the same positions as linear interpolation does, without its rounding traps.
    """
    k = int(m * (len(values) - 1) / 100)
    return float(np.partition(values, k)[k])


class Locks:
    """Which slots are locked, and since when. All arrays are flat [total].

    visible: forward passes that had the position's real token as input.
    """

    def __init__(self, canvas: Canvas, rule: LockRule | None) -> None:
        self._canvas = canvas
        self._rule = rule
        self.locked = np.zeros(canvas.total, dtype=bool)
        self.visible = np.zeros(canvas.total, dtype=int)
        self._locked_at = np.full(canvas.total, NEVER)
        self._unlocked_at = np.full(canvas.total, NEVER)
        self._probed_at = np.full(canvas.total, NEVER)
        self._schedule = None
        if rule is not None and rule.schedule is not None:
            if [len(steps) for steps in rule.schedule] != canvas.lengths.tolist():
                raise ValueError(f"schedule must give a step for each of the {canvas.lengths.tolist()} positions")
            self._schedule = np.concatenate([np.asarray(steps) for steps in rule.schedule])

    def update(self, step: int, rows: Slots, kl: NDArray, uncertainty: NDArray) -> Slots:
        """Lock what has converged among the computed `rows` [R], given their KL and u. Returns the slots."""
        rule = self._rule
        if rule is None:
            return rows[:0]
        # Candidates Z: active and unmasked (line 20); the paper's text lets a position lock in the step that unmasks
        # it, before any other has seen its token, so it must also have been visible for some steps.
        candidate = ~self._canvas.masked[rows] & (self.visible[rows] >= rule.visible_steps)
        new = []
        for part in self._canvas.split(rows):
            z = np.flatnonzero(candidate[part]) + part.start
            if len(z):
                new.append(z[self._converged(step, rows[z], kl[z], uncertainty[z], rule)])
        chosen = rows[np.concatenate(new)] if new else rows[:0]
        self.locked[chosen] = True
        self._locked_at[chosen] = step
        return chosen

    def _converged(
        self, step: int, slots: Slots, kl: NDArray, uncertainty: NDArray, rule: LockRule
    ) -> NDArray[np.bool_]:
        """Lines 21-23 for the candidates of one sequence."""
        passes = kl <= rule.epsilon
        if rule.percentile is not None:
            passes &= uncertainty <= percentile(uncertainty, rule.percentile)
        if rule.unlock is not None:
            unlocked_at = self._unlocked_at[slots]
            again = unlocked_at != NEVER
            passes &= ~again | ((step > unlocked_at + rule.unlock.cooldown) & (kl <= rule.unlock.rho * rule.epsilon))
        return passes if self._schedule is None else self._schedule[slots] <= step

    def probes(self, step: int) -> Slots:
        """The locked slots to probe in this step: the least recently probed first, then the lowest position."""
        unlock = self._rule.unlock if self._rule else None
        locked = np.flatnonzero(self.locked)
        if unlock is None or step == 0 or step % unlock.period:
            return locked[:0]
        chosen = []
        for part in self._canvas.split(locked):
            slots = locked[part]
            oldest = np.argsort(self._probed_at[slots], kind="stable")[: unlock.budget]
            chosen.append(np.sort(slots[oldest]))
        slots = np.concatenate(chosen)
        self._probed_at[slots] = step
        return slots

    def unlock(
        self, step: int, probes: Slots, kl: NDArray, uncertainty: NDArray, rows: Slots, row_uncertainty: NDArray
    ) -> Slots:
        """Unlock the probed slots that have drifted (the appendix' three conditions). Effective from the next step.

        kl, uncertainty: of the probes, the KL against the posterior at their lock. rows, row_uncertainty: the active
        rows of this step, whose percentile is theta. Returns the unlocked slots.
        """
        rule = self._rule
        if rule is None or rule.unlock is None or not len(probes):
            return probes[:0]
        settled = step - self._locked_at[probes] > rule.unlock.min_interval
        drifted = (kl > rule.unlock.epsilon_unlock) & settled
        if rule.percentile is not None:
            for part, active in zip(self._canvas.split(probes), self._canvas.split(rows), strict=True):
                if active.start < active.stop:
                    drifted[part] &= uncertainty[part] > percentile(row_uncertainty[active], rule.percentile)
        slots = probes[drifted]
        self.locked[slots] = False
        self._unlocked_at[slots] = step
        return slots
