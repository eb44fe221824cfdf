"""When does a position lock? Algorithm 1, lines 17-24, the appendix' optional unlocking, and a control.

All decisions are taken on the host from each row's KL and uncertainty; everything is per sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from surelock.decoding.compute import Changes, ComputeRule
from surelock.decoding.settings import Described, setting
from surelock.decoding.state import NONE

if TYPE_CHECKING:
    from surelock.decoding.state import Slots, State
    from surelock.decoding.step import Flags, Reading


def percentile(values: NDArray, m: float) -> float:
    """The m-th percentile as the lower order statistic, sorted(values)[floor(m (n - 1) / 100)].

    It admits the same positions as linear interpolation does, without its rounding traps.
    """
    k = int(m * (len(values) - 1) / 100)
    return float(np.partition(values, k)[k])


_SMOOTHED = "smoothed KL"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlockRule(Described):
    """Optional unlocking (the paper's appendix of that name).

    Every `period` steps, `budget` locked rows of each sequence are probed. A probed row is unlocked when its
    uncertainty is above the active rows' percentile, its KL from the posterior at its lock is above `epsilon_unlock`
    (nats), and more than `min_interval` steps have passed since. It does not lock again for `cooldown` steps, and then
    only at D <= rho * epsilon.
    """

    period: int = setting("whole", 8, "Probe every", "Steps between probes.", low=1, flat="unlock_period")
    budget: int = setting("whole", 8, "Probes", "Locked positions looked at.", low=1, flat="unlock_budget")
    epsilon_unlock: float = setting(
        "number", 5e-2, "ε to unlock", "KL from the posterior at the lock that unlocks, in nats.", low=0
    )
    min_interval: int = setting(
        "whole", 4, "Stay locked for", "Steps that a lock lasts at least.", low=0, flat="unlock_min_interval"
    )
    cooldown: int = setting("whole", 4, "Stay unlocked for", "Steps without a new lock.", low=0, flat="unlock_cooldown")
    rho: float = setting(
        "number", 0.5, "ρ", "What was unlocked locks again at this share of ε.", low=0, high=1, flat="unlock_rho"
    )


class LockingRule(ComputeRule):
    """A rule that computes all that is not locked, and locks some of its candidates in every step."""

    __slots__ = ()
    locks: ClassVar[bool] = True

    def locked(self, state: State, reading: Reading, wait: int) -> Slots:
        """Those of the candidates Z (line 20) that have converged: active, unmasked, and seen by `wait` passes."""
        rows = np.flatnonzero(~reading.probed) if reading.probed.any() else np.arange(len(reading.slots))
        slots = reading.slots[rows]
        # The paper's text lets a position lock in the step that unmasks it, before any other has seen its token, so
        # it must also have been visible for some steps.
        candidate = ~state.masked[slots] & (state.visible[slots] >= wait)
        new = []
        for part in state.split(slots):
            z = rows[np.flatnonzero(candidate[part]) + part.start]
            if len(z):
                new.append(z[self.converged(state, reading, z)])
        return reading.slots[np.concatenate(new)] if new else slots[:0]

    def converged(self, state: State, reading: Reading, z: Slots) -> NDArray[np.bool_]:
        """Which of one sequence's candidates, rows `z` of the reading, lock."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class LockRule(LockingRule):
    """When a position locks for good (Algorithm 1, lines 18-24).

    epsilon: largest step-wise KL in nats; below 0 never locks. percentile: m of the confidence gate, 0-100, None turns
    the gate off. visible_steps: forward passes that must have had the position's real token as input; 0 is Algorithm 1
    to the letter. smoothing: share of the past in the KL that epsilon is compared with (its exponential moving average
    over the row's computations), 0 for the paper's. unlock: an UnlockRule, None for the paper's permanent locks.
    future: masks of later blocks are computed when a block begins, and rest between; the paper never lets them rest.
    Prompt positions are candidates like any other: without that the paper's own active ratios cannot be reached.
    """

    kind: ClassVar[str] = "lock"
    label: ClassVar[str] = "Lock what has converged"
    sentence: ClassVar[str] = "Stops computing what has converged."

    epsilon: float = setting(
        "number",
        5e-4,
        "ε",
        "Largest step-wise KL (nats) at which a position locks.",
        offered=(1e-8, 1, 0),
        log=True,
    )
    percentile: float | None = setting(
        "number",
        20.0,
        "Percentile m",
        "Only the m % most certain of the candidates may lock in a step; 100 is no gate.",
        low=0,
        high=100,
        none="no gate",
        offered=(0, 100, 1),
    )
    visible_steps: int = setting(
        "whole",
        1,
        "Wait until seen",
        "Passes that must have seen the real token before its position locks; 0 is Algorithm 1 literally.",
        low=0,
        offered=(0, 8, 1),
    )
    smoothing: float = setting(
        "number",
        0.0,
        "Smoothing",
        "Share of the steps before in the KL that ε is compared with; 0 is the paper's.",
        low=0,
        high=0.99,
        offered=(0, 0.95, 0.05),
        advanced=True,
    )
    unlock: UnlockRule | None = setting(
        "group",
        None,
        "Unlock again",
        "Look at locked positions now and then, and unlock those that have moved.",
        none="never",
        group=UnlockRule,
        advanced=True,
    )
    future: bool = setting(
        "flag",
        False,
        "Later blocks rest",
        "Compute the masks of later blocks only when a block begins; off: in every step, as the paper does.",
        advanced=True,
    )

    def watches(self, state: State, slots: Slots) -> Flags:
        """Rows that may lock in this step or when they are computed next, so no masks that stay. All rows, where
        one may lock as soon as it is written, where an average is kept, and where what is locked may drift.
        """
        if self._follows_all():
            return np.ones(len(slots), dtype=bool)
        masked = state.masked[slots]
        seen = state.visible[slots] + ~masked  # after this step
        return (seen + 1 >= self.visible_steps) & (~masked | state.open[slots])

    def compares(self, state: State, slots: Slots) -> Flags:
        """What is masked cannot lock before its next computation."""
        return self.watches(state, slots) & (self._follows_all() | ~state.masked[slots])

    def _follows_all(self) -> bool:
        return not self.visible_steps or bool(self.smoothing) or self.unlock is not None

    def rows(self, state: State, active: Slots) -> Slots:
        """The active rows (line 6), but for masks that rest, and those that are probed where locks are not for good."""
        if self.future:
            begins = state.schedule.steps_in_block[state.canvas.sequence[active]] == 0
            active = active[begins | state.open[active] | ~state.masked[active]]
        if self.unlock is None or state.step == 0 or state.step % self.unlock.period:
            return active
        return np.union1d(active, self._probes(state, self.unlock.budget))

    def after(self, state: State, reading: Reading) -> Changes:
        if self.smoothing:
            self._smooth(state, reading)
        unlocked = NONE if self.unlock is None else self._drifted(state, reading, self.unlock)
        return Changes(self.locked(state, reading, self.visible_steps), unlocked)

    def converged(self, state: State, reading: Reading, z: Slots) -> NDArray[np.bool_]:
        """Lines 21-23: D <= epsilon and, with the gate on, u <= theta."""
        slots = reading.slots[z]
        kl = state.kept(_SMOOTHED, np.inf)[slots] if self.smoothing else reading.kl[z]
        passes = kl <= self.epsilon
        if self.percentile is not None:
            uncertainty = 1 - reading.confidence[z]  # line 18
            passes &= uncertainty <= percentile(uncertainty, self.percentile)
        if self.unlock is not None:
            unlocked_at = state.unlocked_at[slots]
            again, cooled = unlocked_at >= 0, state.step > unlocked_at + self.unlock.cooldown
            passes &= ~again | (cooled & (kl <= self.unlock.rho * self.epsilon))
        return passes

    def _smooth(self, state: State, reading: Reading) -> None:
        """The average of what the step computed; it begins with the first finite KL, and anew after an infinite one."""
        rows = ~reading.probed
        slots, kl, average = reading.slots[rows], reading.kl[rows], state.kept(_SMOOTHED, np.inf)
        before = average[slots]
        mixed = self.smoothing * before + (1 - self.smoothing) * kl
        average[slots] = np.where(np.isfinite(before), mixed, kl)

    def _probes(self, state: State, budget: int) -> Slots:
        """The locked slots to probe in this step: the least recently probed first, then the lowest position."""
        locked = np.flatnonzero(state.locked & state.alive)
        chosen = []
        for part in state.split(locked):
            slots = locked[part]
            oldest = np.argsort(state.probed_at[slots], kind="stable")[:budget]
            chosen.append(np.sort(slots[oldest]))
        return np.concatenate(chosen)

    def _drifted(self, state: State, reading: Reading, unlock: UnlockRule) -> Slots:
        """The probed slots that meet the appendix' three conditions; theta is the percentile over the active rows."""
        if not reading.probed.any():
            return NONE
        rows = np.flatnonzero(reading.probed)
        slots, uncertainty = reading.slots[rows], 1 - reading.confidence
        drifted = reading.kl[rows] > unlock.epsilon_unlock
        drifted &= state.step - state.locked_at[slots] > unlock.min_interval
        if self.percentile is not None:
            for part, all_rows in zip(state.split(slots), state.split(reading.slots), strict=True):
                active = uncertainty[all_rows][~reading.probed[all_rows]]
                if len(active):
                    drifted[part] &= uncertainty[rows[part]] > percentile(active, self.percentile)
        return slots[drifted]


@dataclass(frozen=True, slots=True)
class LockByAge(LockingRule):
    """The control that every cleverer rule must beat: a position locks once it has been seen for so many passes.

    steps: forward passes that had the position's real token as input. Nothing of the posterior is looked at. Ours.
    """

    kind: ClassVar[str] = "age"
    label: ClassVar[str] = "Lock by age"
    sentence: ClassVar[str] = "Stops computing what has been seen for some steps."

    steps: int = setting(
        "whole",
        12,
        "Age",
        "Passes that have seen the token when its position locks.",
        low=0,
        offered=(0, 64, 1),
        flat="age",
    )

    def after(self, state: State, reading: Reading) -> Changes:
        return Changes(locked=self.locked(state, reading, self.steps))

    def converged(self, state: State, reading: Reading, z: Slots) -> NDArray[np.bool_]:
        return np.ones(len(z), dtype=bool)
