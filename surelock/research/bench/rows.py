"""`bench table`: what is measured row by row, resumable, each kept as a line of OUT/cells.jsonl.

The rows of the table of speeds, each one `bench steps` of the model, with the model's weights, the machine,
its load and the spread. A row that is there is not measured again: what was measured with another sampler has to be
deleted first. `python -m surelock.research.tables` writes the table.
"""

import argparse
import copy
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from surelock import bench
from surelock.bench import Figures, openings, setup_of
from surelock.decoding.choices import Decoder
from surelock.decoding.locking import LockRule
from surelock.decoding.settings import DecodeSettings
from surelock.engines.flags import add_engine_flag
from surelock.model.flags import add_model_flags, set_threads, told_dtype
from surelock.model.language_model import LanguageModel
from surelock.model.loading import load
from surelock.research.bench.steps import DecodeBench
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
