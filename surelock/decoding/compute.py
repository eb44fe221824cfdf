"""Compute rules: which rows does a step compute? Every rule runs on the same packed forward and the same cache.

A rule is a small frozen dataclass with three methods:
- `rows(state, active)` is called before the forward pass. It chooses from the active slots: slots that are neither
  locked nor resting, in sequences that have not ended.
- `watches(state, slots)` names the computed rows whose posterior the rule needs.
- `after(state, reading)` is called after the step has committed its tokens. It names the slots that lock or unlock.

The rules that lock are in `locking.py`.

The run overrides a rule twice. The first step computes every row, since nothing is cached yet. The last step of a block
also computes the positions of the block that are still masked, since it must commit them.

In a block-causal network the run decides about finished and later blocks, whatever the rule. When a block begins, all
its rows are computed. A block is finished when the block and all blocks before it are written. The next step then
computes all rows of the block a last time, locked rows too. Their keys and values are then exact, because no later
token changes them, and the rows rest.

The adaptive update of dLLM-Cache is not among the rules. It compares the values of all rows in every layer with the
cached values, so it cannot choose rows before the forward pass.
"""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surelock.decoding.calls import ask
from surelock.decoding.settings import Described, setting
from surelock.decoding.state import NONE, Slots, State
from surelock.decoding.step import Flags, Reading
from surelock.values import frozen

#: In nats. A smaller KL is rounding error, which depends on the batch: rows with a smaller KL count as equal.
ZERO_KL = 1e-9
#: The weight of a row far from all candidates; a candidate has the weight 1 + FLOOR. At 0, far rows would never be
#: computed.
FLOOR = 0.1
#: Number of most confident masked rows that count as the next commits. Measurements with 2 and 8 were no better.
CANDIDATES = 4


class Changes(NamedTuple):
    """The decision of a rule after a step: the slots that are locked or unlocked from the next step on, int64."""

    locked: Slots = NONE
    unlocked: Slots = NONE


class ComputeRule(Described):
    """The base class of compute rules.

    kind: the name of the rule in flags, links and traces.
    label: its name on the page.
    sentence: what the rule does, in one sentence.
    locks: whether the rule locks positions. `&` combines a rule that locks with one that does not: `LockRule() &
    SelectRule(0.8)`.
    measures: names of the numbers that the rule needs of the candidates, see `Choice.measures`. `state.measures`
    contains these numbers of the previous step.
    """

    __slots__ = ()
    kind: ClassVar[str]
    label: ClassVar[str]
    sentence: ClassVar[str]
    locks: ClassVar[bool] = False
    measures: ClassVar[tuple[str, ...]] = ()

    def rows(self, state: State, active: Slots) -> Slots:
        """Return the slots that the step computes, ascending int64. Default: all active slots.

        active: the active slots, ascending int64.

        A locked slot in the result is probed: its row is computed, and the cache keeps its old keys and values.
        """
        return active

    def watches(self, state: State, slots: Slots) -> tuple[Flags, Flags]:
        """Return two flags per computed slot, [R] bool: it is watched; it is watched and needs a KL now.

        slots: the computed slots [R], ascending int64.

        The engine keeps the posterior of a watched row until the row is computed again, and reports its confidence.
        Rows that are not watched have a confidence only if a candidate token is chosen there. Default: no row.
        """
        none = np.zeros(len(slots), dtype=bool)
        return none, none

    def after(self, state: State, reading: Reading) -> Changes:
        """Return the slots that lock and unlock after the step. `state.canvas` is the canvas after the commit.

        Default: no slots.
        """
        return Changes()

    @property
    def kinds(self) -> str:
        """The kind of the rule, or the kinds of two combined rules, such as "lock+select"."""
        return self.kind

    def __and__(self, other: ComputeRule) -> ComputeRule:
        return Both(self, other)


@frozen
class Everything(ComputeRule):
    """Compute every position in every step: LLaDA's sampler (`generate.py`)."""

    kind = "everything"
    label = "Every token"
    sentence = "Computes every position in every step, as LLaDA does."


@frozen
class SelectRule(ComputeRule):
    """Compute a share of the active rows: rows that were left out for the longest time (the paper's Experiment 5).

    fraction: share of the active rows. A step computes ceil(fraction * M) of the M active rows of a sequence. 0 <
    fraction <= 1.

    The paper does not say which rows are chosen. This rule orders rows by the step that last computed them, the
    earliest first. Ties go to the larger last KL, then to the lower position.
    """

    kind = "select"
    label = "Selection"
    sentence = (
        "Computes a share of the positions in every step: those that were left out the longest."
    )

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
            order = np.lexsort(
                (slots, -np.maximum(state.kl[slots], ZERO_KL), state.computed_at[slots])
            )
            chosen.append(np.sort(slots[order[:count]]))
        return np.concatenate(chosen)

    def watches(self, state: State, slots: Slots) -> tuple[Flags, Flags]:
        every = np.ones(len(slots), dtype=bool)
        return every, every


class _Debts:
    """The memory of `BudgetRule` between steps: debts [total], tokens [total], and the number of its last step."""

    def __init__(self, total: int) -> None:
        self.of = np.zeros(total)
        self.tokens = np.full(total, -1)
        self.step = -2


@frozen
class BudgetRule(ComputeRule):
    """Compute the same number of rows in every step but the first. This rule is ours.

    It prefers rows near the next commits, and rows around which many tokens have changed.

    share: share of the positions that do not rest. A step computes ceil(share * N) of N such rows of a sequence. 0 <
    share <= 1.
    near: the distance, in positions, over which the weight of a row falls by a factor e.

    The budget is spent on three groups, in this order:
    1. rows that were never computed with their present token;
    2. the most confident masked rows of the block, at most a third of the budget, so that the step can commit;
    3. rows by debt times weight, the largest first; ties go to the lower position.

    A token that changes adds 1 / distance to the debt of every other row of its sequence, and 1 to the debt of its row.
    Computing a row sets its debt to 0. The weight of a row is FLOOR + exp(-d / near), where d is the distance to the
    nearest candidate. Candidates are the CANDIDATES most confident masked rows of the block. KLs play no part.

    The first step under the rule computes every row, also when an event sets the rule in the middle of a run.
    """

    kind = "budget"
    label = "Fixed budget"
    sentence = "Computes the same share of the positions in every step: near the next tokens, where most has changed."

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
    )
    near: float = setting(
        "number",
        4.0,
        "Nearness",
        "Distance from the next tokens, in positions, at which a change has lost most of its weight.",
        low=0.1,
        offered=(1, 64, 1),
        flat="budget_near",
    )

    def rows(self, state: State, active: Slots) -> Slots:
        debts = state.memory(_Debts)
        debts.of[state.computed_at == state.step - 1] = 0
        changed = np.flatnonzero(debts.tokens != state.tokens)
        begins = debts.step != state.step - 1
        debts.tokens[:] = state.tokens
        debts.step = state.step
        if begins:  # first step of the run, or of this rule after another rule
            debts.of[:] = 0
            return active
        for slot in changed.tolist():
            part = state.canvas.parts[state.canvas.sequence[slot]]
            debts.of[part] += 1 / np.maximum(np.abs(np.arange(part.start, part.stop) - slot), 1)
        parts = [
            self._chosen(state, b, active[part], debts.of)
            for b, part in enumerate(state.split(active))
        ]
        return np.concatenate(parts)

    def watches(self, state: State, slots: Slots) -> tuple[Flags, Flags]:
        """Watch the masks of later blocks: the rule needs their confidence when their block begins. It needs no KL."""
        later = state.masked[slots] & ~state.open[slots]
        return later, np.zeros(len(slots), dtype=bool)

    def _chosen(self, state: State, b: int, slots: Slots, debt: NDArray) -> Slots:
        """Return the slots of sequence `b` that the step computes, ascending. slots: its active slots."""
        count = math.ceil(self.share * int((~state.rests[state.canvas.parts[b]]).sum()) - 1e-9)
        masks = np.flatnonzero(state.open[slots])
        confidence = np.nan_to_num(state.confidence[slots])
        masks = masks[np.lexsort((masks, -confidence[masks]))]
        rank = np.full(len(slots), 2)
        rank[masks[: math.ceil(count / 3)]] = 1
        rank[~state.masked[slots] & (state.visible[slots] == 0)] = 0
        worth = debt[slots]
        if len(masks):
            distance = np.abs(slots[:, None] - slots[masks[:CANDIDATES]]).min(axis=1)
            worth *= FLOOR + np.exp(-distance / self.near)
        return np.sort(slots[np.lexsort((slots, -worth, rank))][:count])


@frozen
class BlockCache(ComputeRule):
    """Compute every row in the first step of a block, and only the block in its other steps (Fast-dLLM).

    dual: True computes only the block (`generate_with_dual_cache`). False also computes all positions after the block
    (`generate_with_prefix_cache`).
    """

    kind = "block_cache"
    label = "Block cache"
    sentence = "Computes every position when a block begins, then only the block (Fast-dLLM)."

    dual: bool = setting(
        "flag",
        True,
        "Dual cache",
        "Compute only the block; off: the block and what follows it (prefix cache).",
    )

    def rows(self, state: State, active: Slots) -> Slots:
        kept = np.zeros(state.canvas.total, dtype=bool)
        for b, step in enumerate(state.schedule.steps_in_block.tolist()):
            part = state.canvas.parts[b]
            start = state.schedule.starts[b]
            stop = part.stop
            if step == 0:
                start = part.start
            elif self.dual:
                stop = state.schedule.stops[b]
            kept[start:stop] = True
        return active[kept[active]]


@frozen
class DelayedCache(ComputeRule):
    """Compute masked positions and positions that the previous step committed (dKV-Cache-Decode).

    Every row is computed in the first two steps of a block and in every `refresh`-th step. Steps are counted within a
    block, as in dKV-Cache's `llada_dkv_cache_decode.py`.

    refresh: number of steps from one step that computes every row to the next.
    """

    kind = "delayed_cache"
    label = "Delayed cache"
    sentence = (
        "Computes masked and just written positions, and every position now and then (dKV-Cache)."
    )

    refresh: int = setting(
        "whole",
        8,
        "Refresh every",
        "Number of steps from one step that computes all positions to the next.",
        low=1,
        offered=(1, 64, 1),
    )

    def rows(self, state: State, active: Slots) -> Slots:
        steps = state.schedule.steps_in_block
        whole = (steps < 2) | (steps % self.refresh == 0)
        unseen = state.masked[active] | (state.visible[active] == 0)
        return active[unseen | whole[state.canvas.sequence[active]]]


@frozen
class EntropyCache(ComputeRule):
    """Compute masked positions and the latest commits, and every row after an uncertain commit (arXiv 2603.18489).

    recent: number of latest commits of a sequence that are computed.
    threshold: entropy in nats. A step computes every row of a sequence if the previous step committed a token there
    from a posterior whose entropy is above the threshold.

    The paper's code is not public. These details are our choice: among the commits of one step, lower positions count
    as later; a token that an event writes is a commit without entropy; the first step under the rule computes every
    row.
    """

    kind = "entropy_cache"
    label = "Entropy cache"
    sentence = "Computes masked and the latest positions, and every position after an uncertain token (EntropyCache)."
    measures = ("entropy",)

    recent: int = setting(
        "whole",
        16,
        "Latest computed",
        "Number of latest written tokens whose positions are computed.",
        low=0,
        offered=(0, 64, 1),
    )
    threshold: float = setting(
        "number", 1.0, "Entropy", "Entropy (nats) of a written token above which all positions are computed.", low=0,
        offered=(0, 8, 0.1), flat="entropy_threshold",
    )  # fmt: skip

    def rows(self, state: State, active: Slots) -> Slots:
        if "entropy" not in state.measures:
            return active
        kept = state.masked.copy()
        uncertain = -state.measures["entropy"] > self.threshold
        for part in state.canvas.parts:
            if uncertain[part].any():
                kept[part] = True
                continue
            by_recency = np.argsort(-state.committed_at[part], kind="stable") + part.start
            latest = by_recency[: self.recent]
            kept[latest[state.committed_at[latest] >= 0]] = True
        return active[kept[active]]


@frozen
class Both(ComputeRule):
    """Two rules together: one rule locks positions, the other rule selects from the positions that are not locked.

    lock: the rule that locks.
    select: the rule that does not lock. The two arguments may be swapped.

    The paper's hybrid is `LockRule() & SelectRule(0.8)`. Raises ValueError unless exactly one of the two rules locks.
    """

    kind = "both"
    locks = True

    lock: ComputeRule
    select: ComputeRule

    def __post_init__(self) -> None:
        if not isinstance(self.select, ComputeRule):
            raise ValueError(
                f"a compute rule can be combined with another one only, not with {self.select!r}"
            )
        if self.select.locks and not self.lock.locks:
            lock, select = self.select, self.lock
            object.__setattr__(self, "lock", lock)
            object.__setattr__(self, "select", select)
        if (
            not self.lock.locks
            or self.select.locks
            or Both.kind in (self.lock.kind, self.select.kind)
        ):
            kinds = f"{self.lock.kind!r} and {self.select.kind!r} together"
            raise ValueError(
                f"compute cannot be {kinds}: one of two rules must lock positions, the other one must not"
            )

    @property
    def kinds(self) -> str:
        return f"{self.lock.kind}+{self.select.kind}"

    @property
    def label(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return f"{self.lock.label}, {self.select.label.lower()}"

    @property
    def measures(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.lock.measures + self.select.measures

    def rows(self, state: State, active: Slots) -> Slots:
        selected = ask(state.step, self.select.rows, state, active)
        return ask(state.step, self.lock.rows, state, selected)

    def watches(self, state: State, slots: Slots) -> tuple[Flags, Flags]:
        by_lock, compared_by_lock = ask(state.step, self.lock.watches, state, slots)
        by_select, compared_by_select = ask(state.step, self.select.watches, state, slots)
        return by_lock | by_select, compared_by_lock | compared_by_select

    def after(self, state: State, reading: Reading) -> Changes:
        return ask(state.step, self.lock.after, state, reading)
