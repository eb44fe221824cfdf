"""`bench table` and `bench gpu`: what is measured row by row, resumable, each kept as a line of OUT/cells.jsonl.

`table`: the rows of the table of speeds, each one `bench steps` of the model, with the model's weights, the machine,
its load and the spread. A row that is there is not measured again: what was measured with another sampler has to be
deleted first. `python -m surelock.research.tables` writes the table.

`gpu`: what only a GPU can answer, in at most 25 minutes of one that holds LLaDA-8B. First the tests of CUDA; then
networks of known shape with random weights in bfloat16, whose positions are unmasked and locked as recorded of the
embedded model: every position, SureLock and the fixed budget in turn, beside the roofline.
"""

import argparse
import copy
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch

from surelock import bench
from surelock.bench import SHAPES, Figures, Lockstep, openings, prompts_for, random_model, setup_of
from surelock.decoding.choices import Decoder
from surelock.decoding.compute import BudgetRule
from surelock.decoding.locking import LockRule
from surelock.decoding.settings import DecodeSettings
from surelock.engines.flags import add_engine_flag
from surelock.model.flags import add_model_flags, set_threads, told_dtype
from surelock.model.language_model import LanguageModel
from surelock.model.loading import load
from surelock.model.machine import device_name
from surelock.places import ASSETS
from surelock.research.bench.steps import DecodeBench, rooflines, stretch
from surelock.research.lab import weights_of
from surelock.research.runner import Cell, Record, finished, run_cells


def _row(gen_length: int, batch: int, steps: int | None = None, repeats: int = 5) -> Cell:
    return {"gen_length": gen_length, "batch": batch, "steps": steps, "epsilon": 5e-4, "repeats": repeats}


#: The longest is measured in fewer steps, each of which commits eight tokens: in one each it would take hours.
ROWS = {
    f"{cell['gen_length']}x{cell['batch']}": cell
    for cell in (
        _row(128, 1),
        _row(256, 1),
        _row(512, 1),
        _row(1024, 1, repeats=3),
        _row(2048, 1, steps=256, repeats=3),
        _row(256, 4),
        _row(256, 16, repeats=3),
    )
}


def add_table_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `bench table`; sets the parser's `run`."""
    add_model_flags(parser)
    add_engine_flag(parser)
    add = parser.add_argument
    add("--row", action="append", choices=ROWS, help="gen_length x batch; repeatable (default: all of them)")
    add("--out", type=Path, default=Path("runs/bench"), help="where the rows are kept (default: %(default)s)")
    add("--threads", type=int, help="CPU threads (default: torch's)")
    parser.set_defaults(run=run_table)


def run_table(arguments: argparse.Namespace) -> Figures:
    """Measure the rows that are not there yet. Raises ValueError, OSError."""
    set_threads(arguments.threads)
    lm = load(arguments.model, device=arguments.device, dtype=told_dtype(arguments), engine=arguments.engine)
    setup = setup_of(lm) | weights_of(lm) | {"model": Path(lm.name).name}
    cells = [ROWS[name] for name in dict.fromkeys(arguments.row or ROWS)]
    run_cells(cells, lambda cell: measure_row(lm, cell), arguments.out, setup)
    return {"benchmark": "table", "rows": len(finished(arguments.out)), "kept": str(arguments.out)}


def measure_row(lm: LanguageModel, cell: Cell) -> Record:
    """One row: the figures of `bench steps`, the load at the row's start, the day."""
    load_at_start = bench.load_of_cores()
    prompts = openings(lm, cell["batch"])
    settings = DecodeSettings(gen_length=cell["gen_length"], steps=cell["steps"])
    roomy = with_room(lm, max(map(len, prompts)) + cell["gen_length"])
    locked = Decoder(settings=settings, compute=LockRule(epsilon=cell["epsilon"]))
    figures = DecodeBench(roomy, prompts, locked).run(cell["repeats"])
    return {"load": load_at_start, "measured": _today(), **figures}


def with_room(lm: LanguageModel, positions: int) -> LanguageModel:
    """The model, if need be for more positions than it was made for: what it writes there is no text, the time is."""
    if lm.config.max_length >= positions:
        return lm
    engine = copy.copy(lm.engine)
    engine.config = replace(lm.config, max_length=positions)
    return replace(lm, engine=engine)


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


# --- what only a GPU can answer ---------------------------------------------------------------------------------------

_LOCKS = ASSETS / "results" / "locks_stories_256.json"


def _part(shape: str, gen_length: int, batch: int) -> Cell:
    steps = min(gen_length, 128)  # the longest commit eight tokens in each
    sizes = {"shape": shape, "gen_length": gen_length, "batch": batch, "steps": steps}
    return sizes | {"prompt_length": 128, "repeats": 3}


#: In the order of their worth.
PARTS: list[Cell] = [
    {"tests": "tests/test_cuda.py"},
    _part("llada-8b", 64, 1),
    _part("llada-8b", 256, 4),
    _part("llada-8b", 1024, 8),
    _part("qwen3-0.6b", 128, 1),
]


def add_gpu_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `bench gpu`; sets the parser's `run`."""
    out = ASSETS / "results" / "gpu"
    parser.add_argument("--out", type=Path, default=out, help="where the parts are kept (default: %(default)s)")
    parser.set_defaults(run=run_gpu)


def run_gpu(arguments: argparse.Namespace) -> Figures:
    """Measure the parts that are not there yet; without a GPU, say which they are. Raises OSError."""
    if not torch.cuda.is_available():
        return {"benchmark": "gpu", "device": None, "would_run": PARTS}
    device = torch.device("cuda")
    setup = {"device": device_name(device), "torch": torch.__version__}
    run_cells(PARTS, lambda part: measure_part(part, device), arguments.out, setup)
    return {"benchmark": "gpu", **setup, "parts": len(finished(arguments.out)), "kept": str(arguments.out)}


def measure_part(part: Cell, device: torch.device) -> Record:
    """One part, and the day."""
    found = _tested(part["tests"]) if "tests" in part else _timed(part, device)
    return {"measured": _today(), **found}


def _tested(file: str) -> Record:
    """What pytest says last of a file of tests."""
    command = [sys.executable, "-m", "pytest", "-q", file]
    done = subprocess.run(command, cwd=ASSETS.parent, capture_output=True, text=True)
    return {"passed": done.returncode == 0, "said": done.stdout.strip().rpartition("\n")[2]}


def _timed(part: Cell, device: torch.device) -> Record:
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    lm = random_model(part["shape"], device, dtype)
    settings = DecodeSettings(gen_length=part["gen_length"], steps=part["steps"])
    prompts = prompts_for(lm, part["batch"], part["prompt_length"])
    locked = Decoder(settings=settings, compute=LockRule())
    locked = stretch(_LOCKS, locked, prompts, SHAPES[part["shape"]].vocab_size)
    return Threefold(lm, prompts, locked).run(part["repeats"])


class Threefold(Lockstep):
    """Every position, SureLock and the fixed budget in lockstep."""

    def __init__(self, lm: LanguageModel, prompts: list[list[int]], locked: Decoder) -> None:
        super().__init__(lm, prompts, locked)
        self.decoders["budget"] = replace(locked, compute=BudgetRule())

    def measure(self, repeats: Sequence[int], tokens: int) -> Figures:
        base, budget = (np.median([self.seconds[name][r] for r in repeats], axis=0) for name in ("baseline", "budget"))
        return super().measure(repeats, tokens) | {
            "budget_step_ms": 1e3 * float(np.median(budget)),
            "budget_tps": tokens / float(budget.sum()),
            "budget_speedup": float(base.sum() / budget.sum()),
        }

    def result(self, ratios: Sequence[str] = ("speedup", "budget_speedup")) -> Figures:
        return {**super().result(ratios), **rooflines(self.lm.network, self.steps)}
