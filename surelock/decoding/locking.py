"""Rules that lock positions: Algorithm 1, lines 20 to 23, optional unlocking from the paper's appendix, and a control.

The rules decide in numpy, from the KL and the uncertainty of the rows. Sequences of a batch do not affect each other.
"""

import warnings

import numpy as np

from surelock.decoding.algorithm import converged, lock_candidates, percentile
from surelock.decoding.compute import Changes, ComputeRule
from surelock.decoding.settings import Described, check, setting
from surelock.decoding.state import NONE, Slots, State
from surelock.decoding.step import Flags, Reading
from surelock.values import frozen


@frozen(kw_only=True)
class UnlockRule(Described):
    """Optional unlocking (the appendix "Optional unlocking" of the paper).

    A probed row unlocks if three conditions are met:
    - its KL is above `epsilon_unlock`;
    - its uncertainty is above the m-th percentile of the active rows' uncertainties (left out if there is no m);
    - its lock is more than `min_interval` steps old.
    """

    period: int = setting(
        "whole", 8, "Probe every", "Steps between probes.", low=1, flat="unlock_period"
    )
    budget: int = setting(
        "whole", 8, "Probes", "Locked positions in a probe.", low=1, flat="unlock_budget"
    )
    epsilon_unlock: float = setting(
        "number",
        5e-2,
        "ε to unlock",
        "A locked position whose posterior has moved by more than this KL (nats) unlocks.",
        low=0,
    )
    min_interval: int = setting(
        "whole",
        4,
        "Stay locked for",
        "Steps that a lock lasts at least.",
        low=0,
        flat="unlock_min_interval",
    )
    cooldown: int = setting(
        "whole",
        4,
        "Stay unlocked for",
        "Steps before an unlocked position may lock again.",
        low=0,
        flat="unlock_cooldown",
    )
    rho: float = setting(
        "number",
        0.5,
        "ρ",
        "An unlocked position locks again at this share of ε.",
        low=0,
        high=1,
        flat="unlock_rho",
    )


class LockingRule(ComputeRule):
    """Base class of rules that lock: they compute every active row, and may lock lock candidates after a step."""

    __slots__ = ()
    locks = True

    def locked(self, state: State, reading: Reading, wait: int) -> Slots:
        """Return the slots that lock, int64: the `lock_candidates` that have converged.

        wait: number of forward passes that must have had a candidate's token as input.
        """
        rows = []
        for z in lock_candidates(state, reading, wait):
            if len(z):
                rows.append(z[self.converged(state, reading, z)])
        return reading.slots[np.concatenate(rows)] if rows else NONE

    def converged(self, state: State, reading: Reading, z: Slots) -> Flags:
        """Return which candidates of one sequence lock, [len(z)] bool.

        z: row numbers of the candidates in the reading, int64.
        """
        raise NotImplementedError


@frozen(kw_only=True)
class LockRule(LockingRule):
    """SureLock: lock a position once its posterior has converged (Algorithm 1, lines 18 to 25).

    epsilon: the largest step-wise KL, in nats, at which a position locks; below 0 nothing locks.
    percentile: m of the confidence gate, 0 to 100: only the m % of the candidates with the least uncertainty may lock
    in a step. None turns the gate off.
    visible_steps: number of forward passes that must have had the position's real token as input before it may lock. 0
    is Algorithm 1 to the letter.
    unlock: an `UnlockRule`; with None a lock is permanent, as in Algorithm 1.
    future: True computes the masks of later blocks only in the first step of a block; False, as in the paper, computes
    them in every step.

    Prompt positions may lock like generated positions. The paper's active ratios cannot be reached without locking
    them.
    """

    kind = "lock"
    label = "Lock what has converged"
    sentence = "Stops computing positions that have converged."

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
        "Steps that must have seen the real token before its position locks; 0 is Algorithm 1 to the letter.",
        low=0,
        offered=(0, 8, 1),
    )
    unlock: UnlockRule | None = setting(
        "group",
        None,
        "Unlock again",
        "Probe locked positions now and then, and unlock those whose posterior has moved.",
        none="never",
        of=UnlockRule,
        advanced=True,
    )
    future: bool = setting(
        "flag",
        False,
        "Later blocks rest",
        "Compute the masks of later blocks only when a block begins; off: in every step, as the paper does.",
        advanced=True,
    )

    def __post_init__(self) -> None:
        check(self)
        if self.percentile is not None and 0 < self.percentile < 1:
            warnings.warn(
                f"percentile={self.percentile} means {self.percentile} %: for a fifth pass 20",
                stacklevel=3,
            )

    def watches(self, state: State, slots: Slots) -> tuple[Flags, Flags]:
        """Watch rows that may lock in this step or when they are computed next.

        These are written rows that have been visible for long enough, and masks of the open block. Only written rows
        are compared, because a masked row cannot lock in this step.

        If `visible_steps` is 0, a row may lock in the step that writes it, so all rows are watched and compared. All
        rows are also watched and compared if locked rows are probed.
        """
        if not self.visible_steps or self.unlock is not None:
            every = np.ones(len(slots), dtype=bool)
            return every, every
        masked = state.masked[slots]
        seen = state.visible[slots] + ~masked  # after this step
        watched = (seen + 1 >= self.visible_steps) & (~masked | state.open[slots])
        return watched, watched & ~masked

    def rows(self, state: State, active: Slots) -> Slots:
        """Return the active rows (line 6).

        With `future`, masks of later blocks are left out. With `unlock`, probed rows are added in every `period`-th
        step.
        """
        if self.future:
            begins = state.schedule.steps_in_block[state.canvas.sequence[active]] == 0
            active = active[begins | state.open[active] | ~state.masked[active]]
        if self.unlock is None or state.step == 0 or state.step % self.unlock.period:
            return active
        return np.union1d(active, self._probes(state, self.unlock.budget))

    def after(self, state: State, reading: Reading) -> Changes:
        unlocked = NONE if self.unlock is None else self._drifted(state, reading, self.unlock)
        return Changes(self.locked(state, reading, self.visible_steps), unlocked)

    def converged(self, state: State, reading: Reading, z: Slots) -> Flags:
        """Return which candidates lock, [len(z)] bool: those that have `converged` (lines 21 and 23).

        A candidate that was unlocked earlier must also have waited for its cooldown, and its KL must be at most rho
        times epsilon.
        """
        kl = reading.kl[z]
        passes = converged(kl, reading.confidence[z], self.epsilon, self.percentile)
        if self.unlock is not None:
            unlocked_at = state.unlocked_at[reading.slots[z]]
            again = unlocked_at >= 0
            cooled = state.step > unlocked_at + self.unlock.cooldown
            passes &= ~again | (cooled & (kl <= self.unlock.rho * self.epsilon))
        return passes

    def _probes(self, state: State, budget: int) -> Slots:
        """Return the locked slots to probe, at most `budget` of a sequence, ascending.

        Slots that were probed least recently are taken first; ties go to the lower position.
        """
        locked = np.flatnonzero(state.locked & state.alive & ~state.rests)
        chosen = []
        for part in state.split(locked):
            slots = locked[part]
            oldest = np.argsort(state.probed_at[slots], kind="stable")[:budget]
            chosen.append(np.sort(slots[oldest]))
        return np.concatenate(chosen)

    def _drifted(self, state: State, reading: Reading, unlock: UnlockRule) -> Slots:
        """Return the probed slots that unlock: those that meet the three conditions of `UnlockRule`."""
        if not reading.probed.any():
            return NONE
        rows = np.flatnonzero(reading.probed)
        slots = reading.slots[rows]
        uncertainty = 1 - reading.confidence
        drifted = reading.kl[rows] > unlock.epsilon_unlock
        drifted &= state.step - state.locked_at[slots] > unlock.min_interval
        if self.percentile is not None:
            for part, all_rows in zip(state.split(slots), state.split(reading.slots), strict=True):
                active = uncertainty[all_rows][~state.locked[reading.slots[all_rows]]]
                if len(active):
                    drifted[part] &= uncertainty[rows[part]] > percentile(active, self.percentile)
        return slots[drifted]


@frozen
class LockByAge(LockingRule):
    """Lock a position a fixed number of steps after its token was written.

    This rule is not from the paper. It is a control for rules that look at posteriors.

    steps: number of forward passes that must have had the position's real token as input.
    """

    kind = "age"
    label = "Lock by age"
    sentence = "Stops computing a position some steps after it was written, whatever its posterior: a control."

    steps: int = setting(
        "whole",
        12,
        "Age",
        "Number of steps that must have seen a position's token before the position locks.",
        low=0,
        offered=(0, 64, 1),
        flat="age",
    )

    def after(self, state: State, reading: Reading) -> Changes:
        return Changes(locked=self.locked(state, reading, self.steps))

    def converged(self, state: State, reading: Reading, z: Slots) -> Flags:
        return np.ones(len(z), dtype=bool)
