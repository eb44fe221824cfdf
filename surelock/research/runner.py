"""Runs the cells of an experiment. An interrupted run, of any number of processes, continues where it stopped.

A cell is a flat dict of JSON values. It contains everything that its result depends on, except the model and the data.
A finished cell is one JSON line. The cells are distributed over the processes that `accelerate launch` started; every
process writes a file, and the first process merges the files.

A finished cells.jsonl may be compressed by xz. It is read, and merged into, in this form.
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

#: The values of a cell that its grid does not name. epsilon None is the baseline. seed is the seed of the first prompt;
#: the second prompt has seed + 1, and so on.
DEFAULTS: Cell = {
    "source": "openings", "prompts": 64, "batch": 8, "gen_length": 64, "steps": None, "block_length": None,
    "remasking": "low_confidence", "temperature": 0.0, "no_repeat_ngram_size": 0, "epsilon": None, "percentile": 20.0,
    "visible_steps": 1, "select_fraction": 1.0, "unlock_period": None, "seed": 0,
}  # fmt: skip

#: The paper's settings: batches of 4, and Algorithm 1 to the letter, in which a position may lock in the step that
#: unmasks it.
PAPER: Cell = {"batch": 4, "visible_steps": 0}

#: The settings that the embedded model's generation_config.json recommends, with which the page begins.
RECOMMENDED: Cell = {
    "temperature": 0.5,
    "remasking": "entropy",
    "block_length": 32,
    "no_repeat_ngram_size": 5,
}


def grid(**axes: Any) -> list[Cell]:
    """Return the cells of a grid: all combinations of the axes whose values are lists. The last axis varies fastest.

    An axis with a single value has it in every cell. Axes that are not named have the values of DEFAULTS.
    """
    choices = [value if isinstance(value, list) else [value] for value in axes.values()]
    return [DEFAULTS | dict(zip(axes, values, strict=True)) for values in product(*choices)]


def those_named(cells: Sequence[Cell], named: Sequence[str]) -> list[Cell]:
    """Return the cells with named values.

    named: texts "NAME=VALUE". If a name occurs twice, a cell may have either value.

    Raises ValueError for a name that cells do not have, and if no cell has these values.
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
    """Return the texts that mean a value of a cell."""
    texts = {json.dumps(value), str(value)}
    if isinstance(value, float):
        texts.add(f"{value:g}")
    return texts


def _shown_values(cells: Sequence[Cell], name: str) -> list[str]:
    """Return the different values of a name in cells, as JSON."""
    return list(dict.fromkeys(json.dumps(cell[name]) for cell in cells))


def file_of(source: str) -> str:
    """Return the name of a source's file in --data. Both MT-Bench sources read the same file."""
    return "mt_bench" if source == "mt_bench_subset" else source


def key_of(setup: Record, cell: Cell) -> str:
    """Return the key of a cell: its settings, the model, and the data of its source, as JSON.

    Two cells with the same key have the same result. Older records also name a judge and MT-Bench's categories, which
    do not count.
    """
    parts = {name: value for name, value in setup.items() if name not in ("judge", "categories")}
    if "source" in cell and "data" in parts:
        parts["data"] = parts["data"].get(file_of(cell["source"]))
    return json.dumps([parts, cell], sort_keys=True)


def fingerprint(network: nn.Module, most: int = 4096) -> str:
    """Return a hash of a network's weights, by which checkpoints of the same name can be told apart.

    most: the number of values of every tensor that the hash covers.
    """
    digest = hashlib.sha256()
    for parameter in network.parameters():
        digest.update(parameter.flatten()[:most].float().numpy(force=True).tobytes())
    return digest.hexdigest()[:16]


def finished(directory: Path) -> dict[str, Record]:
    """Return the records in a directory by key.

    An incomplete last line is left out. Raises ValueError for any other line that is no record.
    """
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
    """Return the files of records in a directory."""
    return sorted([*directory.glob("cells*.jsonl"), *directory.glob("cells.jsonl.xz")])


def _whole_lines(file: Path) -> list[bytes]:
    """Return the complete lines of a file, which may be compressed by xz. Raises ValueError."""
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
    """Return a context with accelerate's state of this process. `accelerate launch` may have started several processes.

    device: the value of --device.
    """
    from accelerate import PartialState

    on_cpu = device == "cpu" or not torch.cuda.is_available()
    # the first process may wait for the last one for hours; accelerate's default timeout is minutes
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
    """Measure the cells of this process that are not finished. The number of a cell alone decides its process.

    measure: returns the result of a cell.
    directory: where the records are.
    setup: the model and the data, see `Lab.setup`.
    rank: the number of this process. world: the number of processes.

    Raises OSError if a record cannot be written. Finished cells are kept.
    """
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
        record = {"setup": setup, "cell": cell, "result": result}
        append(file, record | {"seconds": round(now - started, 1)})
        if not sys.stderr.isatty():  # tqdm shows no bar there
            left = (now - begun) / number * (len(mine) - number)
            what = ", ".join(f"{name} {cell[name]}" for name in _varied(cells) if name in cell)
            _say(
                f"cell {number} of {len(mine)} ({what}) took {now - started:.1f} s, about {left:.0f} s are left"
            )


def _say(text: str) -> None:
    print(f"surelock: {text}", file=sys.stderr, flush=True)


def _times(mine: Sequence[Cell], done: Sequence[Record]) -> str:
    """Return a sentence on the seconds that finished cells took and that the rest will take.

    Some older records have no seconds.
    """
    took = [record["seconds"] for record in done if "seconds" in record]
    head = f"{len(mine)} cells are to be measured, {len(done)} are finished"
    if not mine:
        return head
    if not took:
        return f"{head}; the first shows how long they take"
    mean = sum(took) / len(took)
    return f"{head}; {len(took)} of these took {sum(took):.0f} s, so that it will take about {mean * len(mine):.0f} s"


def _varied(cells: Sequence[Cell]) -> list[str]:
    """Return the names whose values differ among cells. A name may be missing in a cell."""
    names = dict.fromkeys(name for cell in cells for name in cell)
    return [name for name in names if any(cell.get(name) != cells[0].get(name) for cell in cells)]


def append(file: Path, record: Record) -> None:
    """Add a record to a file, and wait until it is on the disk. An incomplete last line is replaced.

    If the record cannot be written, print it and raise OSError.
    """
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
    """Merge all files of a directory into one, and return the records of the cells in the grid's order.

    In the merged file, records of other cells come first. Raises ValueError if a cell is not finished.
    """
    done = finished(directory)
    keys = [key_of(setup, cell) for cell in cells]
    if missing := [key for key in keys if key not in done]:
        raise ValueError(
            f"{len(missing)} of {len(keys)} cells are missing in {directory}: run the same command again"
        )
    records = [done.pop(key) for key in keys]
    data = "".join(json.dumps(record) + "\n" for record in (*done.values(), *records)).encode()
    target = directory / "cells.jsonl.xz"
    if target.exists():
        data = lzma.compress(data, preset=9 | lzma.PRESET_EXTREME)
    else:
        target = directory / "cells.jsonl"
    write_bytes(target, data)
    for file in _files(directory):
        if file != target:
            file.unlink()
    return records
