"""What a training run leaves on disk: its whole state, written atomically, and its log."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch

STATE = "state.pt"
LOG = "log.jsonl"
SUMMARY = "summary.json"


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
    return torch.load(file, map_location="cpu", weights_only=True)


def write_summary(directory: Path, summary: dict[str, Any]) -> None:
    """Write what a finished run has to say of itself."""
    (directory / SUMMARY).write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")


def read_summary(directory: Path) -> dict[str, Any]:
    """What `write_summary` wrote."""
    return json.loads((directory / SUMMARY).read_text(encoding="utf-8"))


def log(directory: Path, entry: dict[str, Any]) -> None:
    """Append one line of JSON to the run's log."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / LOG).open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")


def truncate_log(directory: Path, step: int) -> None:
    """Drop the lines that a resumed run will write again."""
    file = directory / LOG
    if file.is_file():
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if json.loads(line)["step"] <= step]
        file.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
