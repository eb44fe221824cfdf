"""`bench gpu`: what only a GPU can answer, in at most 25 minutes of one that holds LLaDA-8B, resumable part by part.

First the tests of CUDA; then networks of known shape with random weights in bfloat16, whose positions are unmasked and
locked as recorded of the embedded model: every position, SureLock and the fixed budget in turn, beside the roofline.
Each part is kept as a line of OUT/cells.jsonl as soon as it is measured.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch

from surelock.bench import SHAPES, Figures, Lockstep, prompts_for, random_model
from surelock.decoding.choices import Decoder
from surelock.decoding.compute import BudgetRule
from surelock.decoding.locking import LockRule
from surelock.decoding.settings import DecodeSettings
from surelock.model.language_model import LanguageModel
from surelock.model.machine import device_name
from surelock.places import ASSETS
from surelock.research.bench.sizes import stretch
from surelock.research.bench.steps import rooflines
from surelock.research.runner import Cell, Record, finished, run_cells

_ROOT = ASSETS.parent
_LOCKS = ASSETS / "results" / "locks_stories_256.json"
_TESTS = "tests/test_cuda.py"
_STEPS = 128  # at most: the longest commit eight tokens in each


def _part(shape: str, gen_length: int, batch: int) -> Cell:
    steps = min(gen_length, _STEPS)
    return {
        "shape": shape,
        "gen_length": gen_length,
        "batch": batch,
        "steps": steps,
        "prompt_length": 128,
        "repeats": 3,
    }


#: In the order of their worth.
PARTS: list[Cell] = [
    {"tests": _TESTS},
    _part("llada-8b", 64, 1),
    _part("llada-8b", 256, 4),
    _part("llada-8b", 1024, 8),
    _part("qwen3-0.6b", 128, 1),
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `bench gpu`; sets the parser's `run`."""
    out = ASSETS / "results" / "gpu"
    parser.add_argument("--out", type=Path, default=out, help="where the parts are kept (default: %(default)s)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Figures:
    """Measure the parts that are not there yet; without a GPU, say which they are. Raises OSError."""
    if not torch.cuda.is_available():
        return {"benchmark": "gpu", "device": None, "would_run": PARTS}
    device = torch.device("cuda")
    setup = {"device": device_name(device), "torch": torch.__version__}
    run_cells(PARTS, lambda part: measure(part, device), arguments.out, setup)
    return {"benchmark": "gpu", **setup, "parts": len(finished(arguments.out)), "kept": str(arguments.out)}


def measure(part: Cell, device: torch.device) -> Record:
    """One part, and the day."""
    found = _tested(part["tests"]) if "tests" in part else _timed(part, device)
    return {"measured": datetime.now(UTC).date().isoformat(), **found}


def _tested(file: str) -> Record:
    """What pytest says last of a file of tests."""
    command = [sys.executable, "-m", "pytest", "-q", file]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True)
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
