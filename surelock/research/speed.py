"""Experiments 4 and 5: throughput by E2E-TPS and Step-TPS, as the paper's appendix on runtime metrics defines them."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from surelock.bench.timing import load_of_cores, summary
from surelock.decoding.decoder import Decoder
from surelock.decoding.loop import decode
from surelock.model.machine import device_name
from surelock.research.charts import Line, Panel
from surelock.research.experiment import Experiment, row
from surelock.research.lab import Lab, decoder_of
from surelock.research.runner import PAPER, Cell, Record, grid
from surelock.values import Json


def compare_speed(lab: Lab, cell: Cell) -> Record:
    """Time the sampler of a cell and its baseline in turn, cell["repeats"] times. Return the figures of all repeats.

    tps_ratio is None if its spread over single repeats is wider than its effect, see `bench.timing`.
    """
    load_at_start = load_of_cores()
    plain = cell | {"epsilon": None, "select_fraction": 1.0}
    samplers = {"baseline": list(lab.batches(plain)), "locked": list(lab.batches(cell))}
    for batches in samplers.values():  # the first call of a decoder is slower, so it is not timed
        ids, decoder = batches[0]
        next(decode(lab.lm, ids, **decoder.keywords()))
    runs: dict[str, list[Json]] = {name: [] for name in samplers}
    for repeat in range(cell["repeats"]):
        for name in sorted(samplers, reverse=repeat % 2 == 1):
            runs[name].append(_timed(lab, samplers[name], decoder_of(cell).steps_of()))

    def total(name: str, figure: str, repeats: Sequence[int]) -> Any:
        return sum(runs[name][repeat][figure] for repeat in repeats)

    def throughput(repeats: Sequence[int]) -> Record:
        base = total("baseline", "tokens", repeats) / total("baseline", "seconds", repeats)
        ours = total("locked", "tokens", repeats) / total("locked", "seconds", repeats)
        return {"e2e_tps_base": base, "e2e_tps": ours, "tps_ratio": ours / base}

    every = range(cell["repeats"])
    step = {
        name: total(name, "unmasked", every) / total(name, "step_seconds", every) for name in runs
    }
    locked = runs["locked"][-1]
    return {
        **summary(throughput, cell["repeats"], ratios=("tps_ratio",)),
        "tps_ratios": [throughput([repeat])["tps_ratio"] for repeat in every],
        "flops_ratio": locked["flops"] / locked["baseline_flops"],
        "step_tps_base": step["baseline"].tolist(),
        "step_tps": step["locked"].tolist(),
        "load": load_at_start,
        "threads": torch.get_num_threads(),
        "device": device_name(lab.lm.device),
    }


def _timed(lab: Lab, batches: Sequence[tuple[list[list[int]], Decoder]], steps: int) -> Json:
    """Return the times and counts of one pass over the batches. The gaps between batches count as time.

    Tokens and seconds of a step are summed over the batches.
    """
    unmasked = np.zeros(steps)
    indices: list[int] = []
    flops = baseline = 0.0
    marks = [time.perf_counter()]
    for ids, decoder in batches:
        for step in decode(lab.lm, ids, **decoder.keywords()):
            unmasked[step.index] += float(step.newly_unmasked.sum())
            indices.append(step.index)
            flops += float(step.flops.sum())
            baseline += float(step.baseline_flops.sum())
            marks.append(time.perf_counter())
    seconds = np.diff(marks)
    return {
        "seconds": float(seconds.sum()),
        "tokens": float(unmasked.sum()),
        "unmasked": unmasked,
        "step_seconds": np.bincount(indices, seconds, minlength=steps),
        "flops": flops,
        "baseline_flops": baseline,
    }


# --- Experiment 4 and its appendix: over batch size and generated length ----------------------------------------------


def _speeds(records: list[Record]) -> pd.DataFrame:
    """Return the table of Experiment 4, a row per cell."""
    rows = []
    for record in records:
        result = record["result"]
        steps = [
            ours / base
            for ours, base in zip(result["step_tps"], result["step_tps_base"], strict=True)
        ]
        eighth = max(1, len(steps) // 8)
        ratio = result["tps_ratio"]
        line = row(
            record,
            ("batch", "gen_length", "epsilon"),
            ("e2e_tps_base", "e2e_tps", "tps_ratio", "flops_ratio"),
        )
        line |= {
            "tps_ratio_min": min(result["tps_ratios"]),
            "tps_ratio_max": max(result["tps_ratios"]),
        }
        line |= {
            "step_ratio_first": sum(steps[:eighth]) / eighth,
            "step_ratio_last": sum(steps[-eighth:]) / eighth,
        }
        line |= {"efficiency": None if ratio is None else ratio * result["flops_ratio"]}
        rows.append(line | row(record, result=("device", "threads")))
    return pd.DataFrame(rows)


def _speed_panels(records: list[Record]) -> list[Panel]:
    """Return two panels per length: E2E-TPS over the batch, and the ratio of Step-TPS over the steps, by batch."""
    panels = []
    for length in dict.fromkeys(record["cell"]["gen_length"] for record in records):
        some = [record for record in records if record["cell"]["gen_length"] == length]
        batches = [record["cell"]["batch"] for record in some]
        speeds = {"baseline": "e2e_tps_base", "SureLock": "e2e_tps"}
        lines = [
            Line(name, batches, [record["result"][key] for record in some])
            for name, key in speeds.items()
        ]
        panels.append(Panel(f"N = {length}", "batch", "E2E-TPS", lines))
        lines = []
        for batch, record in zip(batches, some, strict=True):
            result = record["result"]
            ratio = [
                ours / base
                for ours, base in zip(result["step_tps"], result["step_tps_base"], strict=True)
            ]
            lines.append(Line(f"batch {batch}", range(1, len(ratio) + 1), ratio))
        panels.append(Panel(f"N = {length}", "step", "Step-TPS / baseline's", lines))
    return panels


RUNTIME = Experiment(
    title="Runtime (Experiment 4)",
    shows="Figure 3",
    note="""\
E2E-TPS: unmasked tokens over the wall-clock time of all decoding calls, from before the first to after the last.
tps_ratio_min, tps_ratio_max: of single repeats; tps_ratio is empty where their quartiles lie further apart than it lies
from 1. step_ratio_first, step_ratio_last: ratio of Step-TPS over the first and the last eighth of the steps.
efficiency: tps_ratio * flops_ratio, 1 when every FLOP saved is time saved. Run it in one process on a quiet machine.
""",
    grids={
        "stories": grid(
            batch=[1, 2, 4, 8], gen_length=[64, 256], epsilon=5e-3, prompts=8, repeats=4
        ),
        "paper": grid(
            **PAPER | {"batch": [1, 2, 4, 8]},
            **{
                "source": "mt_bench_subset",
                "gen_length": [64, 256, 1024],
                "epsilon": 5e-3,
                "prompts": 32,
            },
            repeats=4,
        ),
        "quick": grid(batch=[1, 2], gen_length=12, epsilon=5e-3, prompts=2, repeats=4),
    },
    measure=compare_speed,
    table=_speeds,
    panels=_speed_panels,
)


# --- Experiment 5: computing a fraction k of the active rows, locking, and both ---------------------------------------


def _methods(**fixed: object) -> list[Cell]:
    """Return the cells of Experiment 5: i) selection, ii) locking, iii) both."""
    variants = (
        {"select_fraction": 0.8},
        {"epsilon": 5e-4},
        {"select_fraction": 0.8, "epsilon": 5e-4},
    )
    return [cell | variant for cell in grid(**fixed) for variant in variants]


def _method_row(record: Record) -> Record:
    """Return a row of Experiment 5's table."""
    cell = record["cell"]
    parts = ["locking"] * (cell["epsilon"] is not None)
    parts += [f"selection k={cell['select_fraction']:g}"] * (cell["select_fraction"] < 1)
    figures = row(record, result=("tps_ratio", "flops_ratio", "device"))
    return row(record, ("gen_length",)) | {"method": " and ".join(parts)} | figures


SELECTION = Experiment(
    title="Selection, locking, and both (Experiment 5)",
    shows="Table 4",
    note="""\
Selection computes ceil(k M) of the M active rows in a step, those longest uncomputed first; every FLOP of Sec. 2.4 is
linear in the rows, so at k = 0.8 it costs 0.80 of the baseline (a little more: the first step computes all). The
paper's 0.64 does not follow from its text. 0.64 is k squared: it would take attention of the selected queries to the
selected keys alone AND a cost made of attention alone, while the projections and the feed-forward part, linear in the
rows, are 98.8 % of LLaDA-8B's FLOPs at N = 320. Its 0.28 for both is not 0.54 * 0.64 = 0.35 either. tps_ratio is empty
where the quartiles of the repeats' own lie further apart than it lies from 1.""",
    grids={
        "stories": _methods(gen_length=[64, 256], prompts=8, batch=4, repeats=4),
        "paper": _methods(source="mt_bench_subset", gen_length=256, prompts=32, repeats=4, **PAPER),
        "quick": _methods(gen_length=12, prompts=2, repeats=4),
    },
    measure=compare_speed,
    table=lambda records: pd.DataFrame([_method_row(record) for record in records]),
)
