"""Damaged inputs by a seeded generator, in classes. `python -m tests.damage 10000` counts what becomes of so many."""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # before huggingface_hub reads it

import torch

from surelock.decoding.settings import DecodeSettings, to_plain
from surelock.model.families import CheckpointError
from surelock.model.loading import STORIES, load
from surelock.research.cli import table_of
from surelock.research.paper import FLOPS
from surelock.research.runner import finished
from surelock.trace.format import TraceError
from surelock.trace.frames import read_trace
from surelock.trace.lanes import Lane

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests"))  # where it is run as a command
from checkpoints import write_llada  # noqa: E402
from damage_commands import Told, flag_damage, log_damage, warm_up  # noqa: E402
from spoiling import damaged, spoil, torn  # noqa: E402

TRACES = [ROOT / "tests" / "traces" / "events.json", ROOT / "assets" / "runs" / "stories.json"]
MOST_SECONDS = 5.0


def checkpoint_damage(folder: Path, rng: random.Random) -> Callable[[], Any]:
    sizes = {"layers": 1, "d_model": 16, "heads": 2, "kv_heads": 1, "d_ff": 24, "vocab": 30, "tied": False, "seed": 1}
    write_llada(folder, **sizes)
    (folder / "generation_config.json").write_text('{"gen_length": 8, "steps": 8}')
    spoil(folder / rng.choice(["config.json"] * 4 + ["generation_config.json", "model.safetensors"]), rng)
    return lambda: load(folder, device="cpu")


def tokenizer_damage(folder: Path, rng: random.Random) -> Callable[[], Any]:
    shutil.copytree(STORIES, folder, dirs_exist_ok=True)
    spoil(folder / rng.choice(sorted(file.name for file in folder.glob("tokenizer*.json"))), rng)
    return lambda: load(folder, device="cpu").encode("Once upon a time")


def trace_damage(folder: Path, rng: random.Random) -> Callable[[], Any]:
    file = folder / "trace.json"
    document = json.loads(rng.choice(TRACES).read_text("utf-8"))
    document["records"] = document["records"][:8]
    file.write_text(json.dumps(document))
    spoil(file, rng)
    return lambda: read_trace(file)


def settings_damage(folder: Path, rng: random.Random) -> Callable[[], Any]:
    decoder = {
        "settings": to_plain(DecodeSettings()),
        "compute": {"kind": "lock", "epsilon": 0.1},
        "unmask": {"kind": "klass"},
    }
    plain = damaged({"id": "a", "name": "A", **decoder, "events": [{"step": 1, "kind": "lock", "position": 2}]}, rng)
    return lambda: Lane.from_plain(plain)


def cell_damage(folder: Path, rng: random.Random) -> Callable[[], Any]:
    """Lines of an experiment's cells, read for its table."""
    file = folder / "cells.jsonl"
    lines = (ROOT / "assets" / "results" / "flops" / file.name).read_bytes().splitlines()
    at = rng.randrange(len(lines))
    whole = json.dumps(damaged(json.loads(lines[at]), rng)).encode()
    lines[at] = torn(lines[at], rng) if rng.random() < 0.3 else whole
    file.write_bytes(b"\n".join(lines) + b"\n")
    return lambda: table_of(FLOPS, list(finished(folder).values()), folder)


Damage = Callable[[Path, random.Random], Callable[[], Any]]
#: Of each class what damages something, and returns what then reads it; and what may be raised.
KINDS: dict[str, tuple[Damage, type[Exception]]] = {
    "checkpoint": (checkpoint_damage, CheckpointError),
    "tokenizer": (tokenizer_damage, CheckpointError),
    "trace": (trace_damage, TraceError),
    "settings": (settings_damage, ValueError),
    "flags": (flag_damage, Told),
    "cells": (cell_damage, ValueError),
    "logs": (log_damage, ValueError),
}


def outcome(kind: str, seed: int) -> str:
    """'good' or 'refused', else what was wrong with the answer."""
    make, error_kind = KINDS[kind]
    with tempfile.TemporaryDirectory() as folder:
        act = make(Path(folder), random.Random(f"{kind}/{seed}"))
        begun = time.monotonic()
        try:
            act()
            told = "good"
        except error_kind as error:
            told = "refused" if str(error) and "\n" not in str(error).strip() else f"not one line: {error!r:.300}"
        except Exception as error:
            told = f"{type(error).__name__}: {error!s:.300}"
    return told if time.monotonic() - begun < MOST_SECONDS else f"took {time.monotonic() - begun:.1f} s"


def main(cases: int) -> None:
    """What becomes of so many cases, all classes together."""
    torch.set_num_threads(1)
    warm_up()
    for kind in KINDS:
        print(kind, dict(Counter(outcome(kind, seed) for seed in range(cases // len(KINDS)))), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
