"""Which rows does a step compute? Every rule is a choice of rows on the same packed forward and the same cache.

A rule is a small frozen dataclass with two methods. `rows(state, active)`, before the forward, chooses from the active
slots (not locked, of sequences that have not ended); `after(state, reading)`, once the step's tokens are committed,
says what locks or unlocks for good. The rules that lock are in `locking.py`. Whatever a rule says, the first step
computes all, since nothing is cached yet, and the sampler adds the masked positions of a block in the block's last
step: they must be committed in it, from a posterior of their own.

Not here: dLLM-Cache's adaptive update compares the values of all rows in every layer with the cached ones, so it is no
choice of rows that a step could make before its forward.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surelock.decoding.settings import Described, setting
from surelock.decoding.state import NONE

if TYPE_CHECKING:
    from surelock.decoding.state import Slots, State
    from surelock.decoding.step import Flags, Reading

#: A KL below this is rounding, which depends on the shape of the batch: such rows count as equally converged.
ZERO_KL = 1e-9
_FAR = 0.05  # what a change adds to the debt of rows however far they are


class Changes(NamedTuple):
    """What a rule decides after a step: slots that lock or unlock from the next step on."""

    locked: Slots = NONE
    unlocked: Slots = NONE


class ComputeRule(Described):
    """What all rules share. kind: its name in plain forms. label: its name for people. sentence: what it does.

    locks: positions lock under it, so that it can be combined with a rule that only chooses (`LockRule() &
    SelectRule(0.8)`).
    """

    __slots__ = ()
    kind: ClassVar[str]
    label: ClassVar[str]
    sentence: ClassVar[str]
    locks: ClassVar[bool] = False

    def rows(self, state: State, active: Slots) -> Slots:
        """The slots that a step after the first computes, ascending: all active ones, unless a rule knows better.

        A locked slot among them is probed: it runs, but the cache keeps its former keys and values.
        """
        return active

    def watches(self, state: State, slots: Slots) -> Flags:
        """Which of the rows [R] that a step computes the rule follows: their posteriors are kept for the next time, and
        it is told their confidence; that of other rows only where a candidate is chosen.
        """
        return np.zeros(len(slots), dtype=bool)

    def compares(self, state: State, slots: Slots) -> Flags:
        """Those of them whose KL from the posterior kept last it is told: all, unless a rule needs fewer."""
        return self.watches(state, slots)

    def after(self, state: State, reading: Reading) -> Changes:
        """What locks or unlocks now. The canvas is the one after the commit."""
        return Changes()

    @property
    def kinds(self) -> str:
        """The kinds of all rules in it: "lock+select"."""
        return self.kind

    def __and__(self, other: ComputeRule) -> ComputeRule:
        return Both(self, other)


@dataclass(frozen=True, slots=True)
class Everything(ComputeRule):
    """Every position in every step: the plain sampler of LLaDA (its `generate.py`)."""

    kind: ClassVar[str] = "everything"
    label: ClassVar[str] = "Every position"
    sentence: ClassVar[str] = "Computes every position in every step."


@dataclass(frozen=True, slots=True)
class SelectRule(ComputeRule):
    """The ceil(fraction * M) of each sequence's M active rows that were uncomputed the longest (Experiment 5).

    The paper does not say which rows. Here the longest uncomputed come first, among equals the larger last KL, then the
    lowest position.
    """

    kind: ClassVar[str] = "select"
    label: ClassVar[str] = "Selection"
    sentence: ClassVar[str] = "Computes a share of the positions in a step, those left out the longest."

    fraction: float = setting(
        "number",
        0.8,
        "Share computed",
        "Share of the positions that are not locked that a step computes.",
        low=0,
        above=True,
        high=1,
        offered=(0.05, 1, 0.05),
        flat="select_fraction",
    )

    def rows(self, state: State, active: Slots) -> Slots:
        if self.fraction == 1:
            return active
        chosen = []
        for part in state.split(active):
            slots = active[part]
            count = math.ceil(self.fraction * len(slots) - 1e-9)
            order = np.lexsort((slots, -np.maximum(state.kl[slots], ZERO_KL), state.computed_at[slots]))
            chosen.append(np.sort(slots[order[:count]]))
        return np.concatenate(chosen)

    def watches(self, state: State, slots: Slots) -> Flags:
        return np.ones(len(slots), dtype=bool)


@dataclass(frozen=True, slots=True)
class BlockCache(ComputeRule):
    """Everything when a block begins, then only the block (Fast-dLLM's `generate_with_dual_cache`).

    dual=False: the block and what follows it (its `generate_with_prefix_cache`).
    """

    kind: ClassVar[str] = "block_cache"
    label: ClassVar[str] = "Block cache"
    sentence: ClassVar[str] = "Computes everything when a block begins, then only the block."

    dual: bool = setting(
        "flag", True, "Dual cache", "Compute only the block; off: the block and what follows it (prefix cache)."
    )

    def rows(self, state: State, active: Slots) -> Slots:
        kept = np.zeros(state.canvas.total, dtype=bool)
        for b, step in enumerate(state.schedule.steps_in_block.tolist()):
            block, own = state.schedule.block(b), state.canvas.slots_of(b)
            kept[own if step == 0 else block if self.dual else slice(block.start, own.stop)] = True
        return active[kept[active]]


@dataclass(frozen=True, slots=True)
class DelayedCache(ComputeRule):
    """What is masked or was committed in the step before; everything every `refresh` steps (dKV-Cache, decode variant).

    As in its `llada_dkv_cache_decode.py`, steps are counted within a block, whose first two compute everything.
    """

    kind: ClassVar[str] = "delayed_cache"
    label: ClassVar[str] = "Delayed cache"
    sentence: ClassVar[str] = "Computes what is masked or was just written, and everything now and then."

    refresh: int = setting(
        "whole", 8, "Refresh every", "Steps after which everything is computed again.", low=1, offered=(1, 64, 1)
    )

    def rows(self, state: State, active: Slots) -> Slots:
        steps = state.schedule.steps_in_block
        whole = (steps < 2) | (steps % self.refresh == 0)
        unseen = state.masked[active] | (state.visible[active] == 0)
        return active[unseen | whole[state.canvas.sequence[active]]]


@dataclass(frozen=True, slots=True)
class BudgetRule(ComputeRule):
    """ceil(share * N) rows of a sequence of N positions in every step: what has changed most near what is next. Ours.

    First come the rows that were never computed with the token that they have now; then, in at most a third of the
    budget, the masked rows of the block that were most confident when last computed, so that there is something to
    commit; then those with the largest debt. Each token that changes adds 1 / (1 + distance) + 0.05 to the debt of
    every row, and a row's debt is paid when it is computed. A row is read by what is written next, so its debt counts
    floor + exp(-d / near) times, where d is its distance from the nearest of the `candidates` most confident masked
    rows of the block; near None counts every debt alike. Ties go to the lowest position; how far a posterior has moved
    is not looked at. The first step under it computes all, also after other rules.
    """

    kind: ClassVar[str] = "budget"
    label: ClassVar[str] = "Fixed budget"
    sentence: ClassVar[str] = (
        "Computes the same share of the positions in every step: what has changed most near what may be written next."
    )

    share: float = setting(
        "number",
        0.3,
        "Budget",
        "Share of all positions that a step computes.",
        low=0,
        above=True,
        high=1,
        offered=(0.2, 1, 0.05),
        flat="budget",
        unsaid=0.4,
    )
    near: float | None = setting(
        "number",
        4.0,
        "Nearness",
        "Positions over which a change counts less the farther it is from what may be written next.",
        low=0.1,
        none="wherever it is",
        offered=(1, 64, 1),
        flat="budget_near",
        unsaid=None,
    )
    floor: float = setting(
        "number",
        0.1,
        "Far away",
        "What a change counts however far it is, beside 1 where it is near.",
        low=0,
        high=1,
        offered=(0, 1, 0.05),
        flat="budget_floor",
        advanced=True,
    )
    candidates: int = setting(
        "whole",
        4,
        "Written next",
        "So many of the most confident masked positions of the block are what may be written next.",
        low=1,
        offered=(1, 32, 1),
        flat="budget_candidates",
        advanced=True,
    )

    def rows(self, state: State, active: Slots) -> Slots:
        read, debt = state.kept("tokens of the last budget", -1), state.kept("debt", 0.0)
        last = state.kept("step of the last budget", -2)
        begins = last[0] != state.step - 1
        debt[state.computed_at == state.step - 1] = 0
        changed = np.flatnonzero(read != state.tokens)
        read[:], last[:] = state.tokens, state.step
        if begins:  # in the run, or after other rules: nothing is owed
            debt[:] = 0
            return active
        for slot in changed.tolist():
            own = state.canvas.slots_of(int(state.canvas.sequence[slot]))
            debt[own] += _FAR + 1 / (1 + np.abs(np.arange(own.start, own.stop) - slot))
        parts = [self._chosen(state, b, active[part], debt) for b, part in enumerate(state.split(active))]
        return np.concatenate(parts)

    def watches(self, state: State, slots: Slots) -> Flags:
        """The masks of blocks to come, whose confidence counts when their block begins."""
        return state.masked[slots] & ~state.open[slots]

    def _chosen(self, state: State, b: int, slots: Slots, debt: NDArray) -> Slots:
        """Of one sequence's active slots those that are worth most."""
        count = math.ceil(self.share * int(state.canvas.lengths[b]) - 1e-9)
        masks, confidence = np.flatnonzero(state.open[slots]), np.nan_to_num(state.confidence[slots])
        masks = masks[np.lexsort((masks, -confidence[masks]))]
        rank = np.full(len(slots), 2)
        rank[masks[: math.ceil(count / 3)]] = 1
        rank[~state.masked[slots] & (state.visible[slots] == 0)] = 0
        worth = debt[slots] * self._nearness(slots, slots[masks[: self.candidates]])
        return np.sort(slots[np.lexsort((slots, -worth, rank))][:count])

    def _nearness(self, slots: Slots, candidates: Slots) -> NDArray:
        """What the debts of slots count."""
        if self.near is None or not len(candidates):
            return np.ones(len(slots))
        distance = np.abs(slots[:, None] - candidates).min(axis=1)
        return self.floor + np.exp(-distance / self.near)


@dataclass(frozen=True, slots=True)
class Both(ComputeRule):
    """A rule that locks, and one that chooses from what is not locked.

    The paper's hybrid is `LockRule() & SelectRule(0.8)`. Raises ValueError for any other pair.
    """

    kind: ClassVar[str] = "both"

    lock: ComputeRule
    select: ComputeRule

    def __post_init__(self) -> None:
        if not isinstance(self.select, ComputeRule):
            raise ValueError(f"a compute rule can be combined with another one only, not with {self.select!r}")
        if self.select.locks and not self.lock.locks:
            lock, select = self.select, self.lock
            object.__setattr__(self, "lock", lock)
            object.__setattr__(self, "select", select)
        if not self.lock.locks or self.select.locks or Both.kind in (self.lock.kind, self.select.kind):
            kinds = f"{self.lock.kind!r} and {self.select.kind!r} together"
            raise ValueError(f"compute cannot be {kinds}: one of two rules must lock positions, the other one must not")

    @property
    def kinds(self) -> str:
        return f"{self.lock.kind}+{self.select.kind}"

    @property
    def label(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return f"{self.lock.label}, {self.select.label.lower()}"

    @property
    def sentence(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return f"{self.lock.sentence} {self.select.sentence}"

    @property
    def locks(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return True

    def rows(self, state: State, active: Slots) -> Slots:
        return self.lock.rows(state, self.select.rows(state, active))

    def watches(self, state: State, slots: Slots) -> Flags:
        return self.lock.watches(state, slots) | self.select.watches(state, slots)

    def compares(self, state: State, slots: Slots) -> Flags:
        return self.lock.compares(state, slots) | self.select.compares(state, slots)

    def after(self, state: State, reading: Reading) -> Changes:
        return self.lock.after(state, reading)
