"""`bench table`: the rows of README's table of speeds, resumable row by row, and the table itself.

Each row is one `bench decode` of the model, kept as a line of OUT/cells.jsonl as soon as it is measured, with the
model's weights, the machine, its load and the spread. The table is made of these lines alone. A row that is there is
not measured again: what was measured with another sampler has to be deleted first.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from surelock.decoding.choices import Decoder
from surelock.decoding.locking import LockRule
from surelock.decoding.settings import DecodeSettings
from surelock.experiments import machine
from surelock.experiments.bench import speeds
from surelock.experiments.bench.lockstep import DecodeBench
from surelock.experiments.bench.subjects import prompts_for, setup_of, with_room
from surelock.experiments.grid import Cell
from surelock.experiments.runner import Record, finished, run_cells
from surelock.model.flags import add_model_flags, set_threads, told_dtype
from surelock.model.language_model import LanguageModel
from surelock.model.loading import load


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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `bench table`; sets the parser's `run`."""
    add_model_flags(parser)
    add = parser.add_argument
    add("--row", action="append", choices=ROWS, help="gen_length x batch; repeatable (default: all of them)")
    add("--out", type=Path, default=Path("runs/bench"), help="where the rows are kept (default: %(default)s)")
    add("--write", type=Path, metavar="FILE", help="put the table of all rows kept there between FILE's two marks")
    add("--threads", type=int, help="CPU threads (default: torch's)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure the rows that are not there yet, then write the table, or print it. Raises ValueError, OSError."""
    set_threads(arguments.threads)
    if arguments.write is not None:
        speeds.check(arguments.write)  # a file without a place for it is refused before the work, not hours into it
    lm = load(arguments.model, device=arguments.device, dtype=told_dtype(arguments))
    setup = setup_of(lm) | {"model": Path(lm.name).name}
    cells = [ROWS[name] for name in dict.fromkeys(arguments.row or ROWS)]
    run_cells(cells, lambda cell: measure(lm, cell), arguments.out, setup)
    records = list(finished(arguments.out).values())
    if arguments.write is None:
        print(speeds.render(records))
    else:
        speeds.write(arguments.write, records)
    return {
        "benchmark": "table",
        "rows": len(records),
        "kept": str(arguments.out),
        "written": str(arguments.write or ""),
    }


def measure(lm: LanguageModel, cell: Cell) -> Record:
    """One row: the figures of `bench decode`, the load at the row's start, the day."""
    load_at_start = machine.load()
    prompts = prompts_for(lm, cell["batch"])
    settings = DecodeSettings(gen_length=cell["gen_length"], steps=cell["steps"])
    roomy = with_room(lm, max(map(len, prompts)) + cell["gen_length"])
    locked = Decoder(settings=settings, compute=LockRule(epsilon=cell["epsilon"]))
    figures = DecodeBench(roomy, prompts, locked).run(cell["repeats"])
    return {"load": load_at_start, "measured": datetime.now(UTC).date().isoformat(), **figures}
