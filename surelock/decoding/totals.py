"""Totals of a run: steps, seconds, FLOPs, and the active ratio with and without positions after EOS."""

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surelock.config import NetworkConfig
from surelock.decoding.ends import first_end
from surelock.decoding.flops import baseline_flops
from surelock.decoding.step import Step
from surelock.values import frozen


@frozen
class Totals:
    """Totals of a run of a batch. FLOPs are algorithmic (Sec. 2.4); a step with guidance counts twice."""

    steps: int
    tokens: int  # number of commits that were not taken back
    taken_back: int  # number of commits that the policy took back
    seconds: float
    flops: float
    baseline_flops: float  # FLOPs of the same run if every row that does not rest were computed
    # the baseline as the paper counts it: every sequence is padded to the longest
    padded_baseline_flops: float
    flops_ratio: float  # flops / baseline_flops
    # r = sum M / sum N, the share of rows that were computed. Resting rows do not count
    active_ratio: float
    # r without positions after the first end token of a sequence, since these positions lock early
    active_ratio_to_eos: float
    locked: float  # share of positions that are locked at the end
    spared: int  # steps saved because texts were complete, see `Ended`; the baselines include them


class Rows(NamedTuple):
    """Numbers of rows by sequence, summed over the steps: [B] int64."""

    computed: NDArray  # active rows that were computed
    probed: NDArray  # locked rows that were probed
    present: NDArray  # rows that a run without locks computes


class TotalsCounter:
    """Adds up the steps of one run.

    config: the network's sizes. ends: the token ids that end a text.
    guided: whether the run has classifier-free guidance, which doubles the forward passes.
    """

    def __init__(
        self, config: NetworkConfig, ends: Collection[int], *, guided: bool = False
    ) -> None:
        self._config = config
        self._ends = ends
        self._passes = 2 if guided else 1
        self._steps = self._tokens = self._taken_back = self._spared = 0
        self._seconds = self._flops = self._baseline = 0.0
        self._last: Step | None = None

    def add(self, step: Step) -> None:
        """Add the next step of the run."""
        if (
            self._last is None
        ):  # the first step computes every position that neither rests nor is a pad
            self._present = step.computed | step.resting
            self._computed, self._probed, self._due = np.zeros(
                (3, *step.computed.shape), dtype=np.int64
            )
            self._running = np.zeros(len(step.computed), dtype=np.int64)
        self._steps += 1
        self._taken_back += int(step.taken_back.sum())
        self._tokens += int(step.newly_unmasked.sum()) - int(step.taken_back.sum())
        self._seconds += step.seconds
        self._flops += float(step.flops.sum())
        self._baseline += float(step.baseline_flops.sum())
        self._computed += step.computed
        self._probed += step.probed
        running = step.baseline_flops > 0
        self._running += running
        self._due += running[:, None] & self._present & ~step.resting
        if step.ended is not None:
            self._running += step.ended.steps
            self._due += step.ended.rows
            self._spared += int(step.ended.steps.sum())
        self._last = step

    def totals(self) -> Totals:
        """Return the totals so far. Raises ValueError before the first step."""
        if self._last is None:
            raise ValueError("no step has been counted yet")
        width = self._present.shape[1]
        padded = self._passes * sum(
            baseline_flops(self._config, width, int(steps)) for steps in self._running
        )
        return Totals(
            steps=self._steps,
            tokens=self._tokens,
            taken_back=self._taken_back,
            seconds=self._seconds,
            flops=self._flops,
            baseline_flops=self._baseline,
            padded_baseline_flops=padded,
            flops_ratio=self._flops / self._baseline,
            active_ratio=active_ratio(self.rows()),
            active_ratio_to_eos=active_ratio(self.rows(to_eos=True)),
            locked=float(self._last.locked.sum()) / int(self._present.sum()),
            spared=self._spared,
        )

    def rows(self, *, to_eos: bool = False) -> Rows:
        """Return the numbers of rows so far.

        to_eos: leave out the positions after a sequence's first end token after its prompt.
        """
        assert self._last is not None
        counted = self._present.copy()
        if to_eos:
            for b, ids in enumerate(self._last.tokens.tolist()):
                before = np.flatnonzero(self._last.given[b] | ~self._present[b])  # prompt and pads
                start = int(before.max(initial=-1)) + 1
                end = start + first_end(ids[start:], self._ends)
                counted[b, end + 1 :] = False
        return Rows(
            computed=(self._computed * counted).sum(axis=1),
            probed=(self._probed * counted).sum(axis=1),
            present=(self._due * counted).sum(axis=1),
        )


def active_ratio(rows: Rows) -> float:
    """Return r = sum M / sum N (Sec. 2.4): the share of rows that were computed."""
    return float(rows.computed.sum() / rows.present.sum())
