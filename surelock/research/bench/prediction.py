"""The time of a step on a GPU, predicted from its counted kernels: a model, whose assumptions are the constants here.

A kernel takes the longest of its bytes at BANDWIDTH, its operations at FLOPS (attention at half of that) and FLOOR. The
host launches one after the other, LAUNCH each, while the device computes: a step takes the longer of the two. A graph
is launched at once, and its kernels follow one another faster. Compiled reading takes three passes over the logits,
with KLs eight.

The tables of docs/gpu.md have these times beside those that `bench gpu` measured.
"""

import json
from collections import defaultdict
from functools import cache

from surelock.bench.timing import Figures
from surelock.config import NetworkConfig
from surelock.engines.break_even import is_faster
from surelock.engines.cuda_graph import bucket_of
from surelock.places import ASSETS
from surelock.research.bench.counts import SIZES, Counts, Kernel, count_step, meta_engine, plan_of

BANDWIDTH = 3.0e12  # bytes/s, read and written, that an H100 reaches
FLOPS = 594e12  # of its bfloat16 products
FLOOR, FLOOR_IN_GRAPH = 2.5e-6, 1.5e-6  # seconds of a kernel
LAUNCH = 4.5e-6  # seconds of the host for a kernel


def kernel_seconds(kernel: Kernel, floor: float = FLOOR) -> float:
    rate = FLOPS / 2 if kernel.name == "_varlen_attn" else FLOPS
    return max(kernel.nbytes / BANDWIDTH, kernel.flops / rate, floor)


def predicted(counts: Counts, mode: str, config: NetworkConfig) -> float:
    """Return the seconds of a step. mode: "plain", "graphs" or "fused" (compiled reading)."""
    layers = [kernel for layer in counts.layers for kernel in layer]
    rest = counts.rest
    if mode == "fused":
        rest = _fused(rest, config)
    floor = FLOOR_IN_GRAPH if mode == "graphs" else FLOOR
    device = sum(kernel_seconds(kernel, floor) for kernel in layers) + sum(map(kernel_seconds, rest))
    launched = len(rest) if mode == "graphs" else len(layers) + len(rest)
    return max(device, launched * LAUNCH)


def _fused(rest: list[Kernel], config: NetworkConfig) -> list[Kernel]:
    """The kernels outside the layers if reading is compiled: products, small ones, and a few passes over the logits."""
    row = 2 * config.vocab_size  # bytes in bfloat16
    products = [kernel for kernel in rest if kernel.name == "mm"]
    rows = sum(kernel.flops for kernel in products) // (2 * config.d_model * config.vocab_size)
    passes = 8 if any(kernel.name == "expm1" for kernel in rest) else 3  # with what KLs read and what is kept
    small = [kernel for kernel in rest if kernel.nbytes < row]
    return [*products, *small, Kernel("passes", passes * rows * row)]


# --- the tables -------------------------------------------------------------------------------------------------------

_LAUNCHED = {"plain": "one by one", "graphs": "as a graph", "fused": "compiled reading", "compiled": "compiled"}
_MEASURED_SIZES = ((256, 1), *SIZES)


def _measured(figure: str) -> list[Figures]:
    """The parts of `bench gpu` that hold a figure, none before it has run."""
    file = ASSETS / "results" / "gpu" / "gpu.jsonl"
    lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []
    return [line for line in lines if figure in line]


@cache
def _counted(gen_length: int, batch: int, locked: bool) -> tuple[int, int, Counts]:
    """The rows of a step, those that are read, and its counts."""
    engine = meta_engine()
    layout, plan = plan_of(engine, gen_length, batch, locked)
    return len(plan.slots), len(plan.read), count_step(engine, layout, plan)


def times() -> list[Figures]:
    """Return a row for each size and way to launch: predicted, and measured by each `bench gpu` (else empty)."""
    found: dict[tuple, list[str]] = defaultdict(list)
    for m in _measured("measured_ms"):
        found[m["gen"], m["batch"], m["locked"], m["mode"]].append(f"{m['measured_ms']:.1f}")
    rows, config = [], meta_engine().config
    for gen_length, batch in sorted(_MEASURED_SIZES, key=lambda size: size[0] * size[1]):
        for locked in (False, True):
            count, read, counts = _counted(gen_length, batch, locked)
            usable = {"plain": True, "graphs": bucket_of(count, compiled=False) > 0}
            usable |= {"fused": is_faster("compiled reading", read), "compiled": True}
            for mode, taken in usable.items():
                measured = found[gen_length, batch, locked, mode]
                if not (taken or measured):
                    continue
                as_graph = mode == "compiled" and bucket_of(count) > 0
                row = {"generated, batch": f"{gen_length}, {batch}"}
                row["rows"] = f"{count:,}{' (half locked)' if locked else ''}"
                row["launched"] = _LAUNCHED[mode] + ", as a graph" * as_graph
                row["predicted"] = "" if mode == "compiled" else f"{1e3 * predicted(counts, mode, config):.1f} ms"
                row["measured"] = f"{' and '.join(measured)} ms" if measured else ""
                rows.append(row)
    return rows


def runs() -> list[Figures]:
    """Return a row for each whole run that `bench gpu` measured, each time; empty places if there is none."""
    lines, rows = _measured("predicted_speedup"), []
    for gen_length, batch in _MEASURED_SIZES:
        found = [line for line in lines if (line["gen"], line["batch"]) == (gen_length, batch)]
        row = {"generated, batch": f"{gen_length}, {batch}"}
        row["rows computed"] = f"{found[-1]['rows']:.2f}" if found else ""
        row["speed-up, predicted"] = f"{found[-1]['predicted_speedup']:.2f}x" if found else ""
        row["speed-up, measured"] = " and ".join(f"{line['speedup']:.2f}x" for line in found)
        rows.append(row)
    return rows
