"""The table of speeds as Markdown, and its place in a file, between two lines that are comments there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from surelock.experiments.runner import Record, write_text

BEGIN = "<!-- speeds: `surelock bench table --write` -->"
END = "<!-- end of speeds -->"
_HEAD = "| gen_length, batch | step, unlocked and locked | tokens/s | speed-up | FLOPs | efficiency | load |"


def render(records: Sequence[Record]) -> str:
    """For every machine and checkpoint what they are, and a table of their rows."""
    setups = {json.dumps(record["setup"]): record["setup"] for record in records}
    parts = []
    for setup in setups.values():
        own = sorted(
            (r for r in records if r["setup"] == setup), key=lambda r: (r["cell"]["batch"], r["cell"]["gen_length"])
        )
        parts += [_introduction(setup, own), "\n".join([_HEAD, "|---" * 7 + "|", *map(_line, own)])]
    return "\n\n".join(parts)


def _introduction(setup: Record, records: Sequence[Record]) -> str:
    days = sorted({record["result"]["measured"] for record in records})
    spans = " to ".join(dict.fromkeys(f"{day:%-d %B %Y}" for day in map(date.fromisoformat, (days[0], days[-1]))))
    where = setup["processor"] if setup["device"] == "cpu" else f"{setup['device']}, {setup['processor']}"
    return (
        f"`{setup['model']}` (weights {setup['weights']}, {setup['dtype']}) on {setup['cores']} cores of {where}, "
        f"{setup['threads']} thread{'s' * (setup['threads'] > 1)}, torch {setup['torch']}, {spans}:"
    )


def _line(record: Record) -> str:
    cell, told = record["cell"], record["result"]
    spread, ratio = told["spread"].get("speedup"), told["speedup"]
    length = f"{cell['gen_length']} in {cell['steps']} steps" if cell["steps"] else f"{cell['gen_length']}"
    between = f" ({spread[0]:.2f} to {spread[1]:.2f})" if spread else ""
    cells = (
        f"{length}, {cell['batch']}",
        f"{told['baseline_step_ms']:.3g} and {told['locked_step_ms']:.3g} ms",
        f"{told['baseline_tps']:.3g} and {told['locked_tps']:.3g}",
        ("refused" if ratio is None else f"{ratio:.2f}x") + between,
        f"{told['flops_ratio']:.2f}x",
        "" if ratio is None else f"{told['efficiency']:.2f}",
        "" if told["load"] is None else f"{told['load']:.1f}",
    )
    return f"| {' | '.join(cells)} |"


def split(text: str) -> tuple[str, str, str]:
    """What stands before the two marks, between and behind them. Raises ValueError when a mark is not there once."""
    before, begin, rest = text.partition(BEGIN)
    inside, end, behind = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in before + behind:
        raise ValueError(f"it must hold the mark {BEGIN!r} once and, behind it, {END!r} once")
    return before, inside.strip("\n"), behind


def check(file: Path) -> None:
    """Raise ValueError, which names the file, when it has no place for the table; OSError when it cannot be read."""
    try:
        split(file.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"--write {file}: {error}") from error


def write(file: Path, records: Sequence[Record]) -> None:
    """Put the table in its place in the file, which `check` has found."""
    before, _, behind = split(file.read_text("utf-8"))
    write_text(file, f"{before}{BEGIN}\n\n{render(records)}\n\n{END}{behind}")
