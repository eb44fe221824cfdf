"""Ours: how far a written token reaches, and how far a late row does. What a budget that counts nearness assumes."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from surelock.decoding.compute import BudgetRule, Everything
from surelock.decoding.loop import decode
from surelock.decoding.settings import DecodeSettings
from surelock.decoding.step import Layout, Plan
from surelock.model.language_model import LanguageModel
from surelock.quality.commit_error import dense_plan, kl_of_logits
from surelock.research import estimates
from surelock.research.drift import keys_and_values
from surelock.research.experiment import Experiment, drawn
from surelock.research.frontier import SETTINGS, frontier_decoder
from surelock.research.lab import Lab, inputs
from surelock.research.runner import Cell, Record, in_parts

LATE = 16
DISTANCES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_EACH = 8  # of every eighth step
_KERNELS = ("moved", "misled")


_GRIDS: dict[str, list[Cell]] = {
    "stories": in_parts(8, 4, sampler=SETTINGS["page"]),
    "paper": in_parts(16, 4, sampler={"gen_length": 256, "block_length": 32}, source="mt_bench"),
    "quick": in_parts(2, 2, sampler={"gen_length": 24}),
}


def _measure(lab: Lab, cell: Cell) -> Record:
    """Of each opening, at each distance the mean over steps; None where no step has such a row."""
    found = defaultdict(list)
    for number, prompt in enumerate(lab.prompts(cell), start=cell["seed"] + cell["skip"]):
        decoder = frontier_decoder(cell["sampler"], Everything(), [number])
        steps = list(decode(lab.lm, [prompt.ids], **decoder.keywords()))
        told: dict[str, dict[int, list[float]]] = {name: defaultdict(list) for name in _KERNELS}
        for t in range(LATE, len(steps) - 1, _EACH):
            before, after = (inputs(lab.lm, steps[s]) for s in (t, t + 1))
            written = np.flatnonzero(steps[t].newly_unmasked[0])
            if len(written) != 1 or len(changed := np.flatnonzero(before != after)) != 1 or changed[0] != written[0]:
                continue
            for name, values in (
                ("moved", _moved(lab.lm, before, after, int(written[0]))),
                ("misled", _misled(lab.lm, inputs(lab.lm, steps[t - LATE]), before, int(written[0]))),
            ):
                for distance, value in values:
                    told[name][distance].append(value)
        for name, by in told.items():
            found[name].append([float(np.mean(by[d])) if by[d] else None for d in DISTANCES])
    return dict(found)


def _moved(lm: LanguageModel, before: NDArray, after: NDArray, written: int) -> list[tuple[int, float]]:
    """(distance from the written position, how far keys and values move, as a share of their length)."""
    old, new = (keys_and_values(lm, torch.from_numpy(tokens[None])) for tokens in (before, after))
    share = np.linalg.norm(new - old, axis=1) / np.linalg.norm(old, axis=1)
    return [(distance, float(share[i])) for distance, i in _around(written, len(before))]


def _misled(lm: LanguageModel, then: NDArray, now: NDArray, read: int) -> list[tuple[int, float]]:
    """(distance of one late row, KL of the posterior at `read` from the one with no row late). A row is late if its
    keys and values are of the tokens `then`, and all others of `now`. Rows whose own token changed are left out.
    """
    late = [(distance, i) for distance, i in _around(read, len(now)) if then[i] == now[i]]
    if not late:
        return []
    length, count, engine = len(now), len(late) + 1, lm.engine
    memory = engine.memory(Layout((length,) * count, 1))
    asked = read + length * np.arange(count)
    engine.read(memory, dense_plan(lm, DecodeSettings(), np.tile(then, count), length, asked))
    left_out = np.array([i + length * (number + 1) for number, (_, i) in enumerate(late)])
    plan = _without(
        dense_plan(lm, DecodeSettings(), np.tile(now, count), length, asked),
        left_out,
        [length, *[length - 1] * len(late)],
    )
    engine.read(memory, plan)
    logits = engine.logits(memory, np.searchsorted(plan.slots, asked))
    nats = kl_of_logits(np.tile(logits[:1], (len(late), 1)), logits[1:])
    return [(distance, float(value)) for (distance, _), value in zip(late, nats, strict=True)]


def _without(plan: Plan, slots: NDArray[np.int64], counts: list[int]) -> Plan:
    """The second step of a dense plan, which leaves out `slots`."""
    kept = ~np.isin(plan.slots, slots)
    rows = ("slots", "tokens", "positions", "probed", "watches", "compares", "chooses")
    read = np.searchsorted(np.flatnonzero(kept), plan.read[kept[plan.read]])
    return replace(plan, step=1, counts=counts, read=read, **{name: getattr(plan, name)[kept] for name in rows})


def _around(position: int, length: int) -> list[tuple[int, int]]:
    """(distance, position) of what lies at one of the distances, on both sides."""
    found = [(d, position + side * d) for d in DISTANCES for side in (-1, 1)]
    return [(d, i) for d, i in found if 0 <= i < length]


def _table(records: list[Record]) -> pd.DataFrame:
    rule, distance = BudgetRule(), np.array(DISTANCES, dtype=float)
    assumed = {"moved": rule.owed(distance), "misled": rule.weight(distance) ** 2}
    frame = pd.DataFrame({"distance": DISTANCES})
    for name, kernel in assumed.items():
        own = np.array([values for record in records for values in record["result"][name]], dtype=float)
        told = [estimates.mean(column) for column in own.T]
        frame[name], frame[f"{name}_se"] = [each.value for each in told], [each.error for each in told]
        scale = np.exp(np.nanmean(np.log(frame[name]) - np.log(kernel)))
        frame[f"{name}_assumed"] = scale * kernel
    return frame


REACH = Experiment(
    title="Reach: why a budget counts what is near",
    note=f"""\
Every position is computed; of every eighth step from the {LATE + 1}th on. moved: how far the keys and values of a row
move, |after - before| / |before| over all layers, when the step's token is written at this distance. misled: KL in
nats, at the position that the step writes, of the posterior with every row computed from the one where a single row at
this distance is {LATE} steps late, its own token having been the same then. Means over both sides and all steps of an
opening, then over openings, with standard errors over these. _assumed: what the fixed budget assumes, in the scale that
fits best: its debt, and the square of its weight, since a small KL grows with the square of what causes it.""",
    grids=_GRIDS,
    measure=_measure,
    table=_table,
    picture=drawn("line", "distance", [*_KERNELS, *(f"{name}_assumed" for name in _KERNELS)], log_x=True, log_y=True),
)
