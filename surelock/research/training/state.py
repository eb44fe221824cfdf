"""What a training run leaves on disk: its whole state, written atomically, and its log."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from surelock.model.errors import first_line

STATE = "state.pt"
LOG = "log.jsonl"
#: What a state holds beside network and optimizer.
KEPT: dict[str, type] = {
    "step": int, "tokens": int, "elapsed": float, "progress": float, "best": dict, "losses": list,
}  # fmt: skip


def save_state(directory: Path, state: dict[str, Any]) -> None:
    """Write the state beside the old one, then put it in its place in one step."""
    directory.mkdir(parents=True, exist_ok=True)
    fresh = directory / f"{STATE}.new"
    torch.save(state, fresh)
    os.replace(fresh, directory / STATE)


def read_state(directory: Path) -> dict[str, Any]:
    """The state of an interrupted run. Raises ValueError when the directory holds none."""
    file = directory / STATE
    if not file.is_file():
        raise ValueError(f"resume: {directory} holds no {STATE}")
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, EOFError, RuntimeError, ValueError, KeyError, UnpicklingError) as error:
        raise ValueError(f"resume: {file} is damaged: {first_line(error)}") from error
    if not isinstance(state, dict):
        raise ValueError(f"resume: {file} is not the state of a run")
    for name, kind in KEPT.items():
        value: Any = state.get(name)
        if type(value) is not kind or (kind in (int, float) and not 0 <= value < math.inf):
            raise ValueError(f"resume: {file} is damaged: its {name} cannot be {value!r:.40}")
    return state


def log(directory: Path, entry: dict[str, Any]) -> None:
    """Append one line of JSON to the run's log."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / LOG).open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")


def truncate_log(directory: Path, step: int) -> None:
    """Drop the lines that a resumed run will write again, and those that were torn when it was interrupted."""
    file = directory / LOG
    if file.is_file():
        lines = [line for line in file.read_bytes().splitlines() if 0 <= _step_of(line) <= step]
        file.write_bytes(b"".join(line + b"\n" for line in lines))


def _step_of(line: bytes) -> float:
    """The step that a line of the log tells of; -1 where it is damaged."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return -1.0
