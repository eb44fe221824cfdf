"""Where the time of a step goes, by part, at a few numbers of rows (`bench decode --profile`).

Real steps of a real run under a rule with all of the paper's arithmetic, but which computes exactly as many rows as it
is told and locks none. In each run plain and profiled steps take turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from tqdm import tqdm

from surelock.decoding.choices import Decoder
from surelock.decoding.compute import ComputeRule, Everything
from surelock.decoding.locking import LockRule
from surelock.decoding.loop import decode
from surelock.decoding.posterior import Reading
from surelock.decoding.state import Slots, State
from surelock.experiments.bench.lockstep import timed
from surelock.experiments.bench.parts import NAMES, Parts
from surelock.experiments.report import markdown
from surelock.experiments.spread import Figures, told
from surelock.model.language_model import LanguageModel

ROWS = (1, 8, 32, 128)
FIRST = 2  # the first step computes everything, the second is the first of its size
MOST = 60  # steps of a run that are timed
UNLOCKED = "unlocked"


@dataclass(frozen=True, slots=True, kw_only=True)
class SomeRows(LockRule):
    """The paper's rule with all of its arithmetic, on `count` rows of a sequence in each step but the first.

    Half of them are masked and half written, as far as there are such, the lowest positions first. None ever locks.
    """

    count: int

    def rows(self, state: State, active: Slots) -> Slots:
        if state.step == 0:
            return active
        masked = state.masked[active]
        half = (self.count + 1) // 2
        order = np.concatenate((active[masked][:half], active[~masked], active[masked][half:]))
        return np.sort(order[: self.count])

    def converged(self, state: State, reading: Reading, z: Slots) -> NDArray[np.bool_]:
        return np.zeros_like(LockRule.converged(self, state, reading, z))


@dataclass(slots=True)
class _Timed:
    """Seconds of the plain steps, [repeats][steps], and of the profiled ones' parts, [repeats][steps][NAMES]."""

    plain: list[list[float]]
    parts: list[list[list[float]]]


def profile(lm: LanguageModel, prompt: list[int], locked: Decoder, repeats: int) -> Figures:
    """The figures at each number of rows of ROWS that there are, of all rows, and of the unlocked sampler's step.

    `profile`: for each its median step_ms, of_unlocked (its ratio to the unlocked one's), parts_ms (means over the
    middle half of the profiled steps by their time), and sum_over_step (their sum to the plain step's time).
    `spread` and `refused` as in `surelock.experiments.spread`. Raises ValueError for fewer than four steps.
    """
    assert isinstance(locked.compute, LockRule)
    rule, positions = locked.compute, len(prompt) + locked.settings.gen_length
    if locked.settings.total_steps < FIRST + 2:
        raise ValueError(f"--profile needs at least {FIRST + 2} steps, not {locked.settings.total_steps}")
    rules: dict[str, ComputeRule] = {
        str(count): SomeRows(epsilon=rule.epsilon, count=count) for count in (*ROWS, positions) if count <= positions
    }
    rules[UNLOCKED] = Everything()
    taken = {name: _Timed([], []) for name in rules}
    for repeat in tqdm(range(repeats), desc="repeats", disable=None):
        for name in sorted(rules, reverse=repeat % 2 == 1):
            _add_run(taken[name], lm, prompt, replace(locked, compute=rules[name]), first_plain=repeat % 2 == 0)

    def measure(chosen: Sequence[int]) -> Figures:
        steps = {
            n: 1e3 * float(np.median(np.concatenate([each.plain[r] for r in chosen]))) for n, each in taken.items()
        }
        ratios = {f"of_unlocked {name}": step / steps[UNLOCKED] for name, step in steps.items() if name != UNLOCKED}
        return {f"step_ms {name}": step for name, step in steps.items()} | ratios

    figures = told(measure, repeats, ratios=[f"of_unlocked {name}" for name in rules if name != UNLOCKED])
    entries = {}
    for name, each in taken.items():
        parts, step = _middle(each.parts), figures.pop(f"step_ms {name}")
        entries[name] = {
            "step_ms": step,
            "of_unlocked": 1.0 if name == UNLOCKED else figures.pop(f"of_unlocked {name}"),
            "sum_over_step": sum(parts.values()) / step,
            "parts_ms": parts,
        }
    return {"profile": entries, **figures}


def _add_run(to: _Timed, lm: LanguageModel, prompt: list[int], decoder: Decoder, first_plain: bool) -> None:
    run, parts = decode(lm, [prompt], **decoder.keywords()), Parts(lm.network, type(decoder.compute))
    to.plain.append([])
    to.parts.append([])
    for t in range(min(decoder.settings.total_steps, FIRST + MOST)):
        if t < FIRST:
            next(run)
        elif (t % 2 == 0) == first_plain:
            to.plain[-1].append(timed(lm.device, lambda: next(run))[0])
        else:
            _, seconds = parts.step(lambda: next(run))
            to.parts[-1].append([seconds[name] for name in NAMES])


def _middle(parts: Sequence[Sequence[Sequence[float]]]) -> dict[str, float]:
    """Mean milliseconds of each part over the half of the steps that are neither fast nor slow: they add up."""
    steps = np.array([step for run in parts for step in run])
    order, quarter = np.argsort(steps.sum(axis=1)), len(steps) // 4
    return dict(zip(NAMES, (1e3 * steps[order[quarter : len(steps) - quarter]].mean(axis=0)).tolist(), strict=True))


def shown(figures: dict[str, Any]) -> str:
    """A table of the parts, in milliseconds: a line for each, a column for each number of rows."""
    entries = figures["profile"]
    columns = {name: {"step": each["step_ms"], **each["parts_ms"]} for name, each in entries.items()}
    frame = pd.DataFrame({name: {part: f"{ms:.3f}" for part, ms in own.items()} for name, own in columns.items()})
    return markdown(frame.rename_axis("ms").reset_index())
