"""The tables of docs/gpu.md: times that `surelock.bench.gpu_model` predicts, and times that `bench gpu` measured."""

import json
from collections import defaultdict
from functools import cache

from surelock.bench.counts import SIZES, Counts, count_step, meta_engine, plan_of
from surelock.bench.gpu_model import predicted
from surelock.bench.timing import Figures
from surelock.engines.break_even import is_faster
from surelock.engines.cuda_graph import bucket_of
from surelock.places import ASSETS

_LAUNCHED = {
    "plain": "one by one",
    "graphs": "as a graph",
    "fused": "compiled reading",
    "compiled": "compiled",
}
_MEASURED_SIZES = ((256, 1), *SIZES)


def _measured(figure: str) -> list[Figures]:
    """Return the recorded parts of `bench gpu` that contain a figure; [] if nothing is recorded."""
    file = ASSETS / "results" / "gpu" / "gpu.jsonl"
    lines = []
    if file.exists():
        lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    return [line for line in lines if figure in line]


@cache
def _counted(gen_length: int, batch: int, locked: bool) -> tuple[int, int, Counts]:
    """Return the number of rows of a step, the number of rows whose logits are read, and the counts of the step."""
    engine = meta_engine()
    layout, plan = plan_of(engine, gen_length, batch, locked)
    return len(plan.slots), len(plan.read), count_step(engine, layout, plan)


def times() -> list[Figures]:
    """Return a table row per size, lock state and mode, with the predicted time and all measured times.

    "measured" is empty if nothing was measured.
    """
    times_by_step: dict[tuple, list[str]] = defaultdict(list)
    for part in _measured("measured_ms"):
        step = part["gen"], part["batch"], part["locked"], part["mode"]
        times_by_step[step].append(f"{part['measured_ms']:.1f}")
    rows = []
    config = meta_engine().config
    for gen_length, batch in sorted(_MEASURED_SIZES, key=lambda size: size[0] * size[1]):
        for locked in (False, True):
            count, read, counts = _counted(gen_length, batch, locked)
            usable = {"plain": True, "graphs": bucket_of(count, compiled=False) > 0}
            usable |= {"fused": is_faster("compiled reading", read), "compiled": True}
            for mode, taken in usable.items():
                measured = times_by_step[gen_length, batch, locked, mode]
                if not (taken or measured):
                    continue
                as_graph = mode == "compiled" and bucket_of(count) > 0
                row = {"generated, batch": f"{gen_length}, {batch}"}
                row["rows"] = f"{count:,}{' (half locked)' if locked else ''}"
                row["launched"] = _LAUNCHED[mode] + ", as a graph" * as_graph
                row["predicted"] = ""
                if mode != "compiled":
                    row["predicted"] = f"{1e3 * predicted(counts, mode, config):.1f} ms"
                row["measured"] = f"{' and '.join(measured)} ms" if measured else ""
                rows.append(row)
    return rows


def runs() -> list[Figures]:
    """Return a table row per size, with the speed-ups of all whole runs that `bench gpu` measured.

    The fields of a size without a measured run are empty.
    """
    lines = _measured("predicted_speedup")
    rows = []
    for gen_length, batch in _MEASURED_SIZES:
        runs = [line for line in lines if (line["gen"], line["batch"]) == (gen_length, batch)]
        row = {"generated, batch": f"{gen_length}, {batch}"}
        row["rows computed"] = f"{runs[-1]['rows']:.2f}" if runs else ""
        row["speed-up, predicted"] = f"{runs[-1]['predicted_speedup']:.2f}x" if runs else ""
        row["speed-up, measured"] = " and ".join(f"{line['speedup']:.2f}x" for line in runs)
        rows.append(row)
    return rows
