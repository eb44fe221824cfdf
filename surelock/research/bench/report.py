"""The tables of docs/gpu.md: times predicted beside those that `bench gpu` measured."""

import json
from collections import defaultdict
from functools import cache
from typing import Any

from surelock.engines.captured import bucket_of
from surelock.engines.fused import worth_fusing
from surelock.places import ASSETS
from surelock.research.bench.counts import SIZES, Counts, count_step, meta_engine, plan_of
from surelock.research.bench.prediction import predicted

_FOLDER = ASSETS / "results" / "gpu"
_LAUNCHED = {"plain": "one by one", "graphs": "as a graph", "fused": "compiled reading", "compiled": "compiled"}
_MEASURED_SIZES = ((256, 1), *SIZES)
Row = dict[str, Any]


def _lines(name: str) -> list[Row]:
    file = _FOLDER / name
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []


@cache
def _counted(gen_length: int, batch: int, locked: bool) -> tuple[int, int, Counts]:
    """The rows of a step, those that are read, and its counts."""
    engine = meta_engine()
    layout, plan = plan_of(engine, gen_length, batch, locked)
    return len(plan.slots), len(plan.read), count_step(engine, layout, plan)


def times() -> list[Row]:
    """Return a row for each size and way to launch: predicted, and measured by each `bench gpu` (else empty)."""
    found: dict[tuple, list[str]] = defaultdict(list)
    for m in _lines("gpu.jsonl"):
        if "measured_ms" in m:
            found[m["gen"], m["batch"], m["locked"], m["mode"]].append(f"{m['measured_ms']:.1f}")
    rows, config = [], meta_engine().config
    for gen_length, batch in sorted(_MEASURED_SIZES, key=lambda size: size[0] * size[1]):
        for locked in (False, True):
            count, read, counts = _counted(gen_length, batch, locked)
            usable = {"plain": True, "graphs": bucket_of(count) > 0, "fused": worth_fusing(read), "compiled": True}
            for mode in (mode for mode, can in usable.items() if can):
                measured = found[gen_length, batch, locked, mode]
                as_graph = mode == "compiled" and usable["graphs"]
                row = {"generated, batch": f"{gen_length}, {batch}"}
                row["rows"] = f"{count:,}{' (half locked)' if locked else ''}"
                row["launched"] = _LAUNCHED[mode] + ", as a graph" * as_graph
                row["predicted"] = "" if mode == "compiled" else f"{1e3 * predicted(counts, mode, config):.1f} ms"
                row["measured"] = f"{' and '.join(measured)} ms" if measured else ""
                rows.append(row)
    return rows


def runs() -> list[Row]:
    """Return a row for each whole run that `bench gpu` measured, each time; empty places if there is none."""
    lines = [line for line in _lines("gpu.jsonl") if "predicted_speedup" in line]
    rows = []
    for gen_length, batch in _MEASURED_SIZES:
        found = [line for line in lines if (line["gen"], line["batch"]) == (gen_length, batch)]
        row = {"generated, batch": f"{gen_length}, {batch}"}
        row["rows computed"] = f"{found[-1]['rows']:.2f}" if found else ""
        row["speed-up, predicted"] = f"{found[-1]['predicted_speedup']:.2f}x" if found else ""
        row["speed-up, measured"] = " and ".join(f"{line['speedup']:.2f}x" for line in found)
        rows.append(row)
    return rows
