"""When does a position lock? Algorithm 1, lines 17-24, the appendix' optional unlocking, and a control.

All decisions are taken on the host from each row's KL and uncertainty; everything is per sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from surelock.decoding.compute import Changes, ComputeRule
from surelock.decoding.setting import check, setting

if TYPE_CHECKING:
    from surelock.decoding.posterior import Gate, Reading
    from surelock.decoding.state import Slots, State


def percentile(values: NDArray, m: float) -> float:
    """The m-th percentile as the lower order statistic, sorted(values)[floor(m (n - 1) / 100)].

    It admits the same positions as linear interpolation does, without its rounding traps.
    """
    k = int(m * (len(values) - 1) / 100)
    return float(np.partition(values, k)[k])


_SMOOTHED = "smoothed KL"
_NONE: Slots = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlockRule:
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

    def __post_init__(self) -> None:
        check(self)


class LockingRule(ComputeRule):
    """A rule that computes all that is not locked, and locks some of its candidates in every step."""

    __slots__ = ()
    locks: ClassVar[bool] = True

    def after(self, state: State, reading: Reading) -> Changes:
        """Lock those of the candidates Z (line 20) that have converged: active and unmasked, visible long enough."""
        rows = np.flatnonzero(~reading.probed) if reading.probed.any() else np.arange(len(reading.slots))
        slots = reading.slots[rows]
        # The paper's text lets a position lock in the step that unmasks it, before any other has seen its token, so
        # it must also have been visible for some steps.
        candidate = ~state.masked[slots] & (state.visible[slots] >= self.wait)
        new = []
        for part in state.split(slots):
            z = rows[np.flatnonzero(candidate[part]) + part.start]
            if len(z):
                new.append(z[self.converged(state, reading, z)])
        return Changes(locked=reading.slots[np.concatenate(new)] if new else slots[:0])

    @property
    def wait(self) -> int:
        """Passes that must have seen a candidate's token."""
        raise NotImplementedError

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
    Prompt positions are candidates like any other: without that the paper's own active ratios cannot be reached.
    """

    kind: ClassVar[str] = "lock"
    label: ClassVar[str] = "Lock what has converged"
    sentence: ClassVar[str] = "Stops computing what has converged."
    needs_kl: ClassVar[bool] = True

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
        none="locks for good",
        group=UnlockRule,
        advanced=True,
    )

    @property
    def wait(self) -> int:
        return self.visible_steps

    @property
    def kl_from(self) -> int:
        """An average begins before a row may lock, and what is probed may drift at any time."""
        return 0 if self.smoothing or self.unlock is not None else self.visible_steps

    @property
    def kl_gate(self) -> Gate | None:
        """The confidence gate, where what it refuses can be known before the commit, and matters in no later step."""
        plain = self.visible_steps and not self.smoothing and self.unlock is None
        return self._certain if plain and self.percentile is not None else None

    def rows(self, state: State, active: Slots) -> Slots:
        """The active rows (line 6) and, where locks are not for good, those that are probed."""
        probes = self._probes(state)
        return np.union1d(active, probes) if len(probes) else active

    def after(self, state: State, reading: Reading) -> Changes:
        if self.smoothing:
            self._smooth(state, reading)
        unlocked = self._drifted(state, reading)
        return Changes(locked=LockingRule.after(self, state, reading).locked, unlocked=unlocked)

    def converged(self, state: State, reading: Reading, z: Slots) -> NDArray[np.bool_]:
        """Lines 21-23: D <= epsilon and, with the gate on, u <= theta."""
        slots = reading.slots[z]
        kl = state.kept(_SMOOTHED, np.inf)[slots] if self.smoothing else reading.kl[z]
        passes = kl <= self.epsilon
        if self.percentile is not None:
            passes &= self._certain(reading.uncertainty[z])
        if self.unlock is not None:
            unlocked_at = state.unlocked_at[slots]
            again, cooled = unlocked_at >= 0, state.step > unlocked_at + self.unlock.cooldown
            passes &= ~again | (cooled & (kl <= self.unlock.rho * self.epsilon))
        return passes

    def _certain(self, uncertainty: NDArray) -> NDArray[np.bool_]:
        """u <= theta (lines 21-23), of one sequence's candidates."""
        assert self.percentile is not None
        return uncertainty <= percentile(uncertainty, self.percentile)

    def _smooth(self, state: State, reading: Reading) -> None:
        """The average of what the step computed; it begins with the first finite KL, and anew after an infinite one."""
        rows = ~reading.probed
        slots, kl, average = reading.slots[rows], reading.kl[rows], state.kept(_SMOOTHED, np.inf)
        before = average[slots]
        mixed = self.smoothing * before + (1 - self.smoothing) * kl
        average[slots] = np.where(np.isfinite(before), mixed, kl)

    def _probes(self, state: State) -> Slots:
        """The locked slots to probe in this step: the least recently probed first, then the lowest position."""
        if self.unlock is None or state.step == 0 or state.step % self.unlock.period:
            return _NONE
        locked = np.flatnonzero(state.locked & state.alive)
        chosen = []
        for part in state.split(locked):
            slots = locked[part]
            oldest = np.argsort(state.probed_at[slots], kind="stable")[: self.unlock.budget]
            chosen.append(np.sort(slots[oldest]))
        return np.concatenate(chosen)

    def _drifted(self, state: State, reading: Reading) -> Slots:
        """The probed slots that meet the appendix' three conditions; theta is the percentile over the active rows."""
        if self.unlock is None or not reading.probed.any():
            return _NONE
        rows = np.flatnonzero(reading.probed)
        slots, uncertainty = reading.slots[rows], reading.uncertainty
        drifted = reading.kl[rows] > self.unlock.epsilon_unlock
        drifted &= state.step - state.locked_at[slots] > self.unlock.min_interval
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

    @property
    def wait(self) -> int:
        return self.steps

    def converged(self, state: State, reading: Reading, z: Slots) -> NDArray[np.bool_]:
        return np.ones(len(z), dtype=bool)
