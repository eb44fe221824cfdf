"""Ours: seconds of small budgets beside every position, the dual cache and locks, each text by itself, in turn."""

import time
from typing import Any

import numpy as np
import pandas as pd
import torch

from surelock.decoding.choices import read_compute
from surelock.decoding.loop import decode
from surelock.model.machine import processor
from surelock.research import estimates
from surelock.research.experiment import Experiment, drawn
from surelock.research.frontier import EVERY, NEAR, PAPER, RESTING, SETTINGS, frontier_decoder, threshold_of
from surelock.research.lab import Lab
from surelock.research.runner import Cell, Record, in_parts

#: What is timed: rules of `near`, and SureLock as the page has it.
TIMED: dict[str, list[Record]] = {
    EVERY: NEAR[EVERY],
    "budget, near and steep": NEAR["budget, near and steep"],
    "budget, all alike": NEAR["budget, all alike"][:3:2],
    "dual cache": NEAR["dual cache"],
    RESTING: NEAR[RESTING][1:3],
    PAPER: NEAR[PAPER],
    "by age": NEAR["by age"],
    "SureLock": [{"kind": "lock", "epsilon": 5e-4, "percentile": 20.0, "visible_steps": 1}],
}
#: What is timed of longer texts.
_LONGER = {rule: TIMED[rule] for rule in (EVERY, "dual cache", "SureLock")}
_LONGER["budget, near and steep"] = TIMED["budget, near and steep"][1:2]
_WARM_UP = 3  # steps


def _cells(length: int, lanes: dict[str, list[Record]], prompts: int = 5, **more: Any) -> list[Cell]:
    sampler = more.pop("sampler", SETTINGS["page"]) | {"gen_length": length}
    return in_parts(prompts, 1, lanes=lanes, sampler=sampler, **more)


_GRIDS: dict[str, list[Cell]] = {
    "stories": [*_cells(128, TIMED), *_cells(256, _LONGER), *_cells(512, _LONGER)],
    "paper": _cells(256, TIMED, 8, source="mt_bench", sampler={"block_length": 32}),
    "quick": _cells(12, {name: TIMED[name][:1] for name in (EVERY, "dual cache")}, 2, sampler={}),
}


def _lanes(cell: Cell) -> list[tuple[str, Record]]:
    return [(rule, compute) for rule, thresholds in cell["lanes"].items() for compute in thresholds]


def _measure(lab: Lab, cell: Cell) -> Record:
    """Of each lane and opening the seconds that it took the processor, and the rows; each opening begins with another
    lane.
    """
    lanes = _lanes(cell)
    told: list[dict[str, list[float]]] = [{"seconds": [], "rows": [], "positions": []} for _ in lanes]
    for number, prompt in enumerate(lab.prompts(cell), start=cell["skip"]):
        order = [(number + i) % len(lanes) for i in range(len(lanes))]
        for turn, lane in enumerate([order[-1], *order]):  # the first warms up
            decoder = frontier_decoder(cell["sampler"], read_compute(lanes[lane][1]), [cell["seed"] + number])
            rows = positions = 0
            begun = time.process_time()
            for step in decode(lab.lm, [prompt.ids], **decoder.keywords()):
                if not turn and step.index == _WARM_UP:
                    break
                rows, positions = rows + int(step.computed.sum()), positions + step.tokens.shape[1]
            own = {"seconds": time.process_time() - begun, "rows": rows, "positions": positions}
            for name, value in own.items() if turn else ():
                told[lane][name].append(value)
    return {"threads": torch.get_num_threads(), "processor": processor(), "lanes": told}


def _table(records: list[Record]) -> pd.DataFrame:
    rows = []
    for length in dict.fromkeys(record["cell"]["sampler"]["gen_length"] for record in records):
        own = [record for record in records if record["cell"]["sampler"]["gen_length"] == length]
        lanes = _lanes(own[0]["cell"])
        runs = [
            {name: [v for r in own for v in r["result"]["lanes"][i][name]] for name in ("seconds", "rows", "positions")}
            for i in range(len(lanes))
        ]
        every = next(run["seconds"] for (rule, _), run in zip(lanes, runs, strict=True) if rule == EVERY)
        for (rule, compute), run in zip(lanes, runs, strict=True):
            low, median, high = np.quantile(run["seconds"], [0.25, 0.5, 0.75])
            row: Record = {"gen_length": length, "rule": rule, "threshold": threshold_of(compute)}
            row |= {"openings": len(every), "rows": estimates.ratio(run["rows"], run["positions"]).value}
            row |= {"seconds": median, "seconds_25": low, "seconds_75": high}
            rows.append(row | {"time_ratio": float(np.median(np.divide(run["seconds"], every)))})
    return pd.DataFrame(rows)


PACE = Experiment(
    title="Pace: seconds of the rules of `near`",
    note="""\
seconds: processor seconds of decoding one text, all that a step does: the median over openings with its quartiles. On
one thread (`--threads 1`) they are the seconds of a quiet machine; other work lengthens them, less than the time that
passes. time_ratio: the median over openings of the share of the seconds that computing every position takes. The rules
go in turn on each opening, beginning with another one each time.""",
    grids=_GRIDS,
    measure=_measure,
    table=_table,
    picture=drawn("scatter", "rows", "seconds", color="rule", facet_col="gen_length", hover_data=["threshold"]),
)
