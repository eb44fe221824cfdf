"""Compute rules: which rows does a step compute? Every rule runs on the same packed forward and the same cache.

A rule is a small frozen dataclass with three methods. `rows(state, active)` is called before the forward pass. It
chooses from the active slots: those that are neither locked nor resting, in sequences that have not ended.
`watches(state, slots)` names the computed rows whose posterior the rule needs. `after(state, reading)` is called once
the step has committed its tokens. It names the slots that lock or unlock. The rules that lock are in `locking.py`.

The run overrides a rule twice. The first step computes every row, since nothing is cached yet. The last step of a block
also computes the positions of the block that are still masked, since it must commit them.

In a block-causal network the run decides alone about finished and later blocks, under every rule. When a block begins,
all its rows are computed. When it is finished (it and all blocks before it are written), the next step computes all its
rows once more, locked ones too: keys and values are then exact, no later token changes them, and the rows rest.

Not here: the adaptive update of dLLM-Cache. It compares the values of all rows in every layer with the cached values,
so it cannot choose rows before the forward pass.
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

#: nats. A smaller KL is rounding error, which depends on the batch: rows below it count as equally converged.
ZERO_KL = 1e-9
#: The weight of a row far from all candidates, where a candidate has 1 + FLOOR: at 0 far rows would never be computed.
FLOOR = 0.1
#: The masked rows that count as the next commits: so many of the most confident. Half as many and twice as many were
#: measured to be no better.
CANDIDATES = 4


class Changes(NamedTuple):
    """The decision of a rule after a step: the slots that lock or unlock from the next step on."""

    locked: Slots = NONE
    unlocked: Slots = NONE


class ComputeRule(Described):
    """The base class of compute rules.

    kind: the name of the rule in flags, links and traces.
    label: its name on the page.
    sentence: what it does, in one sentence.
    locks: whether positions lock under it. A rule that locks combines with one that does not: `LockRule() &
    SelectRule(0.8)`.
    measures: numbers that it needs of the candidates, see `Choice.measures`; `state.measures` holds those of the step
    before.
    """

    __slots__ = ()
    kind: ClassVar[str]
    label: ClassVar[str]
    sentence: ClassVar[str]
    locks: ClassVar[bool] = False
    measures: ClassVar[tuple[str, ...]] = ()

    def rows(self, state: State, active: Slots) -> Slots:
        """Return the slots that the step computes, ascending int64. Default: all active slots.

        active: slots that may be computed, ascending int64.

        A locked slot in the result is probed: its row is computed, and the cache keeps its old keys and values.
        """
        return active

    def watches(self, state: State, slots: Slots) -> tuple[Flags, Flags]:
        """Return which of the computed slots [R] the rule watches, and which of these need a KL now: twice [R] bool.

        The engine keeps the posteriors of watched rows until their next computation, and reports their confidence.
        Other rows have a confidence only where a candidate token is chosen. Default: none.
        """
        none = np.zeros(len(slots), dtype=bool)
        return none, none

    def after(self, state: State, reading: Reading) -> Changes:
        """Return the slots that lock and unlock after the step. `state.canvas` is the canvas after the commit."""
        return Changes()

    @property
    def kinds(self) -> str:
        """The kinds of the rules that it combines, such as "lock+select"."""
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
    """Compute a share of the active rows: those that were left out the longest (the paper's Experiment 5).

    fraction: a step computes ceil(fraction * M) of the M active rows of a sequence, 0 < fraction <= 1.

    The paper does not say which rows. Here rows are ordered by the step that computed them last, the earliest first;
    ties go to the larger last KL, then to the lower position.
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
    """What `BudgetRule` remembers: the debts of the slots [total], and tokens and number of its last step."""

    def __init__(self, total: int) -> None:
        self.of = np.zeros(total)
        self.tokens = np.full(total, -1)
        self.step = -2


@frozen
class BudgetRule(ComputeRule):
    """Compute the same number of rows in every step but the first: those with most changes around them, near the next
    commits. Ours.

    share: a step computes ceil(share * N) rows of a sequence of N positions that do not rest, 0 < share <= 1.
    near: the distance, in positions, over which the weight of a row falls by a factor e.

    The budget goes to three groups in turn:
    1. rows that were never computed with their present token;
    2. the most confident masked rows of the block, at most a third of the budget, so that the step can commit;
    3. rows by debt times weight, the largest first; ties go to the lower position.

    A token that changes adds 1 / distance to the debt of every row of its sequence, and 1 to that of its row. Computing
    a row clears its debt. The weight is FLOOR + exp(-d / near), where d is the distance to the nearest candidate: the
    CANDIDATES most confident masked rows of the block. KLs play no part. The first step under the rule computes every
    row, also when an event has set the rule in the middle of a run.
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
        debts.tokens[:], debts.step = state.tokens, state.step
        if begins:  # the run, or this rule after another one: every debt is zero
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
        """The masks of later blocks: their confidence is needed when their block begins. KLs play no part."""
        later = state.masked[slots] & ~state.open[slots]
        return later, np.zeros(len(slots), dtype=bool)

    def _chosen(self, state: State, b: int, slots: Slots, debt: NDArray) -> Slots:
        """The slots of sequence `b` that the budget pays for, ascending, of its active slots."""
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
    """Compute every row when a block begins, then the block alone (Fast-dLLM).

    dual: True computes the block (`generate_with_dual_cache`), False the block and all that follows it
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
            start = state.schedule.starts[b]
            stop = state.schedule.stops[b]
            part = state.canvas.parts[b]
            kept[part if step == 0 else slice(start, stop if self.dual else part.stop)] = True
        return active[kept[active]]


@frozen
class DelayedCache(ComputeRule):
    """Compute masked positions and those committed in the step before, and now and then every row (dKV-Cache-Decode).

    refresh: every so many steps of a block, a step computes every row.

    As in dKV-Cache's `llada_dkv_cache_decode.py`, steps are counted within a block, and the first two steps of a block
    compute every row.
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
        "Every so many steps, all positions are computed.",
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

    recent: so many of the latest commits of a sequence are computed.
    threshold: nats. If the entropy of a posterior from which the step before committed is above it, a step computes
    every row of the sequence.

    Ours: of the commits of one step the lower positions count as later. What an event writes is a commit without
    entropy. The first step under the rule computes every row. The paper's code is not public.
    """

    kind = "entropy_cache"
    label = "Entropy cache"
    sentence = "Computes masked and the latest positions, and every position after an uncertain token (EntropyCache)."
    measures = ("entropy",)

    recent: int = setting(
        "whole",
        16,
        "Latest computed",
        "So many of the tokens written last are computed.",
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
            latest = (
                np.argsort(-state.committed_at[part], kind="stable")[: self.recent] + part.start
            )
            kept[part if uncertain[part].any() else latest[state.committed_at[latest] >= 0]] = True
        return active[kept[active]]


@frozen
class Both(ComputeRule):
    """Two rules together: one locks positions, the other one selects from those that are not locked.

    lock: the rule that locks. select: the rule that does not; the two may stand in either order.

    The paper's hybrid is `LockRule() & SelectRule(0.8)`. Raises ValueError unless exactly one of the two locks.
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
        watched, compared = ask(state.step, self.lock.watches, state, slots)
        more, too = ask(state.step, self.select.watches, state, slots)
        return watched | more, compared | too

    def after(self, state: State, reading: Reading) -> Changes:
        return ask(state.step, self.lock.after, state, reading)
