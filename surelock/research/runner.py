"""The resumable runner: one JSON line per finished cell, one file per process, merged by the first of them.

A cell is a flat dict of JSON values: all that its result depends on, but the model. Cells are split by rank over the
processes that `accelerate launch` started, and everything passes through files: an interrupted run, of any number of
processes, goes on where it stopped.
A finished cells.jsonl may be packed with xz: it is read, and merged into, as it is.
"""

import hashlib
import json
import lzma
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import nn
from tqdm import tqdm

from surelock.files import write_bytes
from surelock.values import Json

Cell = Json
Record = Json

#: What a grid does not name. epsilon None is the baseline; seed: of the first prompt, the next has the next.
DEFAULTS: Cell = {
    "source": "openings", "prompts": 64, "batch": 8, "gen_length": 64, "steps": None, "block_length": None,
    "remasking": "low_confidence", "temperature": 0.0, "no_repeat_ngram_size": 0, "epsilon": None, "percentile": 20.0,
    "visible_steps": 1, "select_fraction": 1.0, "unlock_period": None, "seed": 0,
}  # fmt: skip

#: The paper's own: batches of 4, and Algorithm 1 to the letter, which lets a position lock in the step that unmasks it.
PAPER: Cell = {"batch": 4, "visible_steps": 0}

#: What the embedded model's own generation_config.json recommends, and the page starts with.
RECOMMENDED: Cell = {
    "temperature": 0.5,
    "remasking": "entropy",
    "block_length": 32,
    "no_repeat_ngram_size": 5,
}


def grid(**axes: Any) -> list[Cell]:
    """The cells of a grid: axes given as lists are crossed, the last one fastest; other values hold in every cell."""
    choices = [value if isinstance(value, list) else [value] for value in axes.values()]
    return [DEFAULTS | dict(zip(axes, values, strict=True)) for values in product(*choices)]


def those_named(cells: Sequence[Cell], named: Sequence[str]) -> list[Cell]:
    """Return the cells with these values, "NAME=VALUE": of a name that comes twice, with either.

    Raises ValueError for a name that cells do not have, and where no cell has these values.
    """
    wanted: dict[str, set[str]] = {}
    for text in named:
        name, equals, value = text.partition("=")
        if not equals or not all(name in cell for cell in cells):
            raise ValueError(
                f"--cell must be NAME=VALUE with a name of {', '.join(cells[0])}, not {text!r}"
            )
        wanted.setdefault(name, set()).add(value)
    kept = [
        cell
        for cell in cells
        if all(_spelled(cell[name]) & values for name, values in wanted.items())
    ]
    if not kept:
        available = "; ".join(
            f"{name} of {', '.join(_shown_values(cells, name))}" for name in wanted
        )
        raise ValueError(
            f"--cell: no cell of this experiment and preset has {' and '.join(named)}: {available}"
        )
    return kept


def _spelled(value: Any) -> set[str]:
    """The ways to write a value of a cell."""
    return {json.dumps(value), str(value), f"{value:g}" if isinstance(value, float) else str(value)}


def _shown_values(cells: Sequence[Cell], name: str) -> list[str]:
    return list(dict.fromkeys(json.dumps(cell[name]) for cell in cells))


def file_of(source: str) -> str:
    """The name of a source's data: both MT-Bench sources read the same file."""
    return "mt_bench" if source == "mt_bench_subset" else source


def key_of(setup: Record, cell: Cell) -> str:
    """What makes two cells the same: their settings, and what of the setup (model, data) they depend on.

    That is the data of their source. Older records name more: a judge and MT-Bench's categories, which do not count.
    """
    parts = {name: value for name, value in setup.items() if name not in ("judge", "categories")}
    if "source" in cell and "data" in parts:
        parts["data"] = parts["data"].get(file_of(cell["source"]))
    return json.dumps([parts, cell], sort_keys=True)


def fingerprint(network: nn.Module, most: int = 4096) -> str:
    """Tells one checkpoint from another of the same name: a hash of the first `most` values of every tensor."""
    digest = hashlib.sha256()
    for parameter in network.parameters():
        digest.update(parameter.flatten()[:most].float().numpy(force=True).tobytes())
    return digest.hexdigest()[:16]


def finished(directory: Path) -> dict[str, Record]:
    """The records in `directory` by key, without a torn last line. Raises ValueError for any other bad line."""
    records = {}
    for file in _files(directory):
        for number, line in enumerate(_whole_lines(file), start=1):
            try:
                record = json.loads(line)
                if not all(isinstance(record[part], dict) for part in ("setup", "cell", "result")):
                    raise TypeError("setup, cell and result must be objects")
                records[key_of(record["setup"], record["cell"])] = record
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise ValueError(
                    f"{file}, line {number} is not the record of a cell: {error!r}"
                ) from error
    return records


def _files(directory: Path) -> list[Path]:
    return sorted([*directory.glob("cells*.jsonl"), *directory.glob("cells.jsonl.xz")])


def _whole_lines(file: Path) -> list[bytes]:
    data = file.read_bytes()
    if file.suffix == ".xz":
        try:
            data = lzma.decompress(data)
        except lzma.LZMAError as error:
            raise ValueError(f"{file} cannot be unpacked: {error}") from error
    return [
        line for line in data.splitlines(keepends=True) if line.endswith(b"\n") and line.strip()
    ]


@contextmanager
def launched(device: str | None) -> Iterator[Any]:
    """accelerate's state of this process among those that `accelerate launch` started."""
    from accelerate import PartialState

    on_cpu = device == "cpu" or not torch.cuda.is_available()
    # Between the first and the last process to finish lie hours, not the minutes that collectives are given.
    processes = PartialState(cpu=on_cpu, timeout=timedelta(days=30))
    try:
        yield processes
    finally:
        processes.destroy_process_group()


def run_cells(
    cells: Sequence[Cell],
    measure: Callable[[Cell], Record],
    directory: Path,
    setup: Record,
    *,
    rank: int = 0,
    world: int = 1,
) -> None:
    """Measure this process's share, by the grid alone, of what is not finished. Raises OSError; what is done stays."""
    directory.mkdir(parents=True, exist_ok=True)
    done = finished(directory)
    share = {key_of(setup, cell): cell for cell in cells[rank::world]}
    mine = [cell for key, cell in share.items() if key not in done]
    file = directory / (f"cells-{rank}.jsonl" if rank else "cells.jsonl")
    _say(_times(mine, [record for key, record in done.items() if key in share]))
    begun = time.monotonic()
    for number, cell in enumerate(
        tqdm(mine, desc=f"cells of process {rank}", disable=None), start=1
    ):
        started = time.monotonic()
        result = measure(cell)
        now = time.monotonic()
        append(
            file,
            {"setup": setup, "cell": cell, "result": result, "seconds": round(now - started, 1)},
        )
        if not sys.stderr.isatty():  # where no bar is shown
            left = (now - begun) / number * (len(mine) - number)
            what = ", ".join(f"{name} {cell[name]}" for name in _varied(cells) if name in cell)
            _say(
                f"cell {number} of {len(mine)} ({what}) took {now - started:.1f} s, about {left:.0f} s are left"
            )


def _say(text: str) -> None:
    print(f"surelock: {text}", file=sys.stderr, flush=True)


def _times(mine: Sequence[Cell], done: Sequence[Record]) -> str:
    """How long cells took, and will take. Older records do not say how long theirs took."""
    took = [record["seconds"] for record in done if "seconds" in record]
    head = f"{len(mine)} cells are to be measured, {len(done)} are finished"
    if not mine:
        return head
    if not took:
        return f"{head}; the first shows how long they take"
    mean = sum(took) / len(took)
    return f"{head}; {len(took)} of these took {sum(took):.0f} s, so that it will take about {mean * len(mine):.0f} s"


def _varied(cells: Sequence[Cell]) -> list[str]:
    """The names whose values differ among cells. A cell need not have every name."""
    names = dict.fromkeys(name for cell in cells for name in cell)
    return [name for name in names if any(cell.get(name) != cells[0].get(name) for cell in cells)]


def append(file: Path, record: Record) -> None:
    """Add one line to `file` on the disk, in place of a torn one. Raises OSError, with the line printed."""
    line = json.dumps(record).encode() + b"\n"
    try:
        with file.open("ab+") as stream:
            stream.truncate(file.read_bytes().rfind(b"\n") + 1)
            stream.write(line)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        sys.stderr.write(line.decode())
        kept = len(_whole_lines(file)) if file.exists() else 0
        lost = (
            f"the line above could not be added to {file}; the {kept} finished cells in it are kept"
        )
        goes_on = "the same command goes on from there"
        raise OSError(error.errno, f"{error.strerror}: {lost}, {goes_on}") from error


def merge(cells: Sequence[Cell], directory: Path, setup: Record) -> list[Record]:
    """The finished cells in the grid's order, in one file behind other records. Raises ValueError for a missing one."""
    done = finished(directory)
    keys = [key_of(setup, cell) for cell in cells]
    if missing := [key for key in keys if key not in done]:
        raise ValueError(
            f"{len(missing)} of {len(keys)} cells are missing in {directory}: run the same command again"
        )
    records = [done.pop(key) for key in keys]
    data = "".join(json.dumps(record) + "\n" for record in (*done.values(), *records)).encode()
    target = (
        packed if (packed := directory / "cells.jsonl.xz").exists() else directory / "cells.jsonl"
    )
    write_bytes(
        target, lzma.compress(data, preset=9 | lzma.PRESET_EXTREME) if target == packed else data
    )
    for file in _files(directory):
        if file != target:
            file.unlink()
    return records
