"""Throughput as the paper's appendix on runtime metrics defines it: E2E-TPS and Step-TPS of both samplers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from surelock.decoding.choices import Decoder
from surelock.decoding.loop import decode
from surelock.experiments.grid import Cell
from surelock.experiments.lab import Lab, decoder_of
from surelock.experiments.machine import device_name, load
from surelock.experiments.runner import Record
from surelock.experiments.spread import told

Batches = Sequence[tuple[list[list[int]], Decoder]]


class Clock:
    """Marks in time: CUDA events on a GPU, the performance counter elsewhere."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._marks: list[Any] = []
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    def mark(self) -> None:
        if self._device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)
            event.record(torch.cuda.current_stream(self._device))
            self._marks.append(event)
        else:
            self._marks.append(time.perf_counter())

    def seconds(self) -> list[float]:
        """Between each mark and the next."""
        pairs = list(zip(self._marks, self._marks[1:], strict=False))
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
            return [first.elapsed_time(second) / 1e3 for first, second in pairs]
        return [second - first for first, second in pairs]


def compare_speed(lab: Lab, cell: Cell) -> Record:
    """Time the cell's sampler beside the plain baseline, `repeats` times in turn; figures are over all repeats.

    Beside them what single repeats say (`tps_ratios`, `spread`) and the machine's load at the start. tps_ratio is None
    where its spread is wider than its effect, and `refused` says so (`surelock.experiments.spread`).
    """
    load_at_start = load()
    plain = cell | {"epsilon": None, "select_fraction": 1.0}
    samplers = {name: list(lab.batches(c)) for name, c in (("baseline", plain), ("locked", cell))}
    for batches in samplers.values():  # what a first call costs is not throughput
        ids, decoder = batches[0]
        next(decode(lab.lm, ids, **decoder.keywords()))
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in samplers}
    for repeat in range(cell["repeats"]):
        for name in sorted(samplers, reverse=repeat % 2 == 1):
            runs[name].append(_timed(lab, samplers[name], decoder_of(cell).settings.total_steps))

    def throughput(repeats: Sequence[int]) -> Record:
        tps = {
            n: sum(rs[r]["tokens"] for r in repeats) / sum(rs[r]["seconds"] for r in repeats) for n, rs in runs.items()
        }
        return {
            "e2e_tps_base": tps["baseline"],
            "e2e_tps": tps["locked"],
            "tps_ratio": tps["locked"] / tps["baseline"],
        }

    step = {
        name: np.sum([r["unmasked"] for r in rs], axis=0) / np.sum([r["step_seconds"] for r in rs], axis=0)
        for name, rs in runs.items()
    }
    locked = runs["locked"][-1]
    return {
        **told(throughput, cell["repeats"], ratios=("tps_ratio",)),
        "tps_ratios": [throughput([repeat])["tps_ratio"] for repeat in range(cell["repeats"])],
        "flops_ratio": locked["flops"] / locked["baseline_flops"],
        "step_tps_base": step["baseline"].tolist(),
        "step_tps": step["locked"].tolist(),
        "load": load_at_start,
        "threads": torch.get_num_threads(),
        "device": device_name(lab.lm.device),
    }


def _timed(lab: Lab, batches: Batches, steps: int) -> dict[str, Any]:
    """One pass over the prepared batches, gaps between them included. Step times are summed over the batches."""
    unmasked = np.zeros(steps)
    indices: list[int] = []
    flops = baseline = 0.0
    clock = Clock(lab.lm.device)
    clock.mark()
    for ids, decoder in batches:
        for step in decode(lab.lm, ids, **decoder.keywords()):
            unmasked[step.index] += float(step.newly_unmasked.sum())
            indices.append(step.index)
            flops += float(step.flops.sum())
            baseline += float(step.baseline_flops.sum())
            clock.mark()
    seconds = clock.seconds()
    return {
        "seconds": sum(seconds),
        "tokens": float(unmasked.sum()),
        "unmasked": unmasked,
        "step_seconds": np.bincount(indices, seconds, minlength=steps),
        "flops": flops,
        "baseline_flops": baseline,
    }
