"""Choices of rows of other papers, as far as they are choices, and controls: rules of the experiments alone."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from surelock.decoding.choices import read_compute
from surelock.decoding.compute import CANDIDATES, BudgetRule, Changes, ComputeRule
from surelock.decoding.locking import LockByAge, LockingRule, LockRule
from surelock.research.runner import Record


@dataclass(frozen=True, slots=True)
class LockByChance(LockingRule):
    """A control: each candidate locks with the same probability in each step.

    Drawn by step and slot of the batch, whatever the seed: the first sequences of two batches draw the same.
    """

    kind: ClassVar[str] = "chance"

    probability: float = 0.1

    def after(self, state: Any, reading: Any) -> Changes:
        return Changes(locked=self.locked(state, reading, 1))

    def converged(self, state: Any, reading: Any, z: Any) -> NDArray[np.bool_]:
        drawn = [np.random.default_rng([state.step, slot]).random() for slot in reading.slots[z].tolist()]
        return np.array(drawn) < self.probability


@dataclass(frozen=True, slots=True)
class RestByAge(LockByAge):
    """A control: locking by age with the freedom to leave out the masks of later blocks, as `LockRule(future=True)`."""

    kind: ClassVar[str] = "resting_age"

    def rows(self, state: Any, active: Any) -> Any:
        return LockRule(future=True).rows(state, active)


@dataclass(frozen=True, slots=True)
class BudgetOfWritten(BudgetRule):
    """A control: a fixed budget without the freedom to leave out masks. It computes all of them in every step, and
    ceil(share * N) written rows of a sequence of N positions: new ones first, then by debt times weight.
    """

    kind: ClassVar[str] = "written_budget"

    def _chosen(self, state: Any, b: int, slots: Any, debt: Any) -> Any:
        masked, open_ = state.masked[slots], slots[state.open[slots]]
        surest = open_[np.argsort(-np.nan_to_num(state.confidence[open_]), kind="stable")]
        worth = debt[slots] * self._nearness(slots, surest[:CANDIDATES])
        waits = ~masked & (state.visible[slots] > 0)
        size = state.canvas.parts[b].stop - state.canvas.parts[b].start
        count = int(masked.sum()) + math.ceil(self.share * size - 1e-9)
        return np.sort(slots[np.lexsort((slots, -worth, waits))][:count])


@dataclass(frozen=True, slots=True)
class SkipByImportance(ComputeRule):
    """ES-dLLM's importance (arXiv 2603.10088; `early_skipping.py` of github.com/zhuzj19/ES-dLLM) as a choice of rows.

    fraction: a step computes ceil(fraction * B) of the B rows of the block; the first step of a block computes all.
    alpha: the share of the confidence in the importance alpha * confidence + (1 - alpha) * change.

    The confidence is that of the row's last computation, 0 where the row is written. The two most confident masks come
    before all other rows, as there. Deviation: ES-dLLM takes the change of a row from its hidden state in early layers,
    which it computes for every row of the block. A choice before the forward knows the last change only: here the KL of
    the row's last computation from the one before, at most 1, and 1 where its token is new.
    """

    kind: ClassVar[str] = "es_dllm"

    fraction: float = 0.5
    alpha: float = 0.5

    def rows(self, state: Any, active: Any) -> Any:
        return np.concatenate([self._chosen(state, b, active[part]) for b, part in enumerate(state.split(active))])

    def watches(self, state: Any, slots: Any) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        block = np.zeros(state.canvas.total, dtype=bool)
        for start, stop in zip(state.schedule.starts, state.schedule.stops, strict=True):
            block[start:stop] = True
        return block[slots], block[slots]

    def _chosen(self, state: Any, b: int, slots: Any) -> Any:
        block = slice(state.schedule.starts[b], state.schedule.stops[b])
        if state.schedule.steps_in_block[b] == 0:
            return slots
        slots = slots[(slots >= block.start) & (slots < block.stop)]
        masked = state.masked[slots]
        confidence = np.where(masked, np.nan_to_num(state.confidence[slots]), 0)
        new = ~masked & (state.visible[slots] == 0)
        change = np.where(new, 1, np.minimum(np.nan_to_num(state.kl[slots], posinf=1), 1))
        importance = self.alpha * confidence + (1 - self.alpha) * change
        importance[np.lexsort((slots, -confidence))[: min(2, int(masked.sum()))]] += 2
        count = math.ceil(self.fraction * (block.stop - block.start) - 1e-9)
        return np.sort(slots[np.lexsort((slots, -importance))[:count]])


@dataclass(frozen=True, slots=True)
class CertaintyDensity(ComputeRule):
    """d²Cache's choice of masks (arXiv 2509.23094; `d2cache.py` of github.com/Kamichanw/d2Cache).

    masks: a step computes so many masked rows, those of the block before those of the next blocks, by the confidence of
    their last computation times the density of known tokens around them, and the rows whose tokens are new.
    sigma: the standard deviation, in positions, of the density's Gaussian.

    As there, blocks are searched until they hold enough masks, and what lies left of the generated part counts as
    known, what lies right of it if its last token is. Deviation: d²Cache also computes the rows that attention rollout
    names. That needs attention weights, which a reading does not hold: they are left out.
    """

    kind: ClassVar[str] = "d2_cache"

    masks: int = 32
    sigma: float = 10.0

    def rows(self, state: Any, active: Any) -> Any:
        return np.concatenate([self._chosen(state, b, active[part]) for b, part in enumerate(state.split(active))])

    def watches(self, state: Any, slots: Any) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        return state.masked[slots], np.zeros(len(slots), dtype=bool)

    def _chosen(self, state: Any, b: int, slots: Any) -> Any:
        if not len(slots):  # the sequence has ended
            return slots
        start, stop = int(state.canvas.generated_from[b]), state.canvas.parts[b].stop
        masks = np.flatnonzero(state.masked[start:stop])
        size = int(state.schedule.stops[b] - state.schedule.starts[b])
        last = int(masks[: self.masks][-1]) if len(masks) else 0
        near = masks[masks < (last // size + 1) * size]
        score = np.nan_to_num(state.confidence[start + near]) * self.density(~state.masked[start:stop])[near]
        open_ = state.open[start + near]
        chosen = start + near[np.lexsort((near, -score, ~open_))[: self.masks]]
        new = slots[~state.masked[slots] & (state.visible[slots] == 0)]
        return np.intersect1d(slots, np.concatenate((chosen, new)))

    def density(self, known: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return the share of known positions around each, weighted by a Gaussian of the distance."""
        n = len(known)
        padded = np.concatenate((np.ones(n), known, np.full(n, float(known[-1]))))
        kernel = np.exp(-(np.arange(1 - n, n) ** 2) / (2 * self.sigma**2))
        return np.convolve(padded, kernel, "same")[n : 2 * n] / kernel.sum()


_OWN = {rule.kind: rule for rule in (LockByChance, RestByAge, BudgetOfWritten, SkipByImportance, CertaintyDensity)}


def read_rule(plain: Record) -> ComputeRule:
    """Return the rule of a plain form, of the package or of the experiments."""
    values = dict(plain)
    return _OWN[values.pop("kind")](**values) if plain["kind"] in _OWN else read_compute(plain)
