"""`python -m surelock experiment NAME`: one of the paper's experiments, resumable, over any number of processes."""

from __future__ import annotations

import argparse
import shlex
import sys
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from surelock.experiments.grid import Cell
from surelock.experiments.judged import merge_scores, pairs_of, read_scores, score_texts
from surelock.experiments.lab import Lab
from surelock.experiments.prompts import data_file
from surelock.experiments.runner import Record, finished, key_of, merge, run_cells
from surelock.model.flags import add_model_flags, set_threads, told_dtype
from surelock.model.loading import load
from surelock.quality.judge import Judge

#: Each is a module of this package: GRIDS by preset, measure(lab, cell), table(records), picture(frame, records); where
#: the cells keep what was generated also texts(lab, record), judge_table(records, scores), JUDGE_NOTE.
NAMES = (
    "flops",
    "dynamics",
    "quality",
    "runtime",
    "selection",
    "epsilon",
    "contraction",
    "bound",
    "seen",
    "unlock",
    "sampler",
    "arena",
    "frontier",
    "drift",
)
DATA = ("openings", "wikitext", "mt_bench", "humaneval")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `experiment`; sets the parser's `run`."""
    add = parser.add_argument
    add("name", metavar="NAME", choices=NAMES, help=", ".join(NAMES))
    add_model_flags(parser)
    add("--preset", choices=("stories", "paper"), default="stories", help="sizes and prompts (default: %(default)s)")
    add("--quick", action="store_true", help="a few seconds' worth, to see that it works")
    add("--data", action="append", default=[], metavar="SOURCE=FILE", help=f"SOURCE: {', '.join(DATA)}; repeatable")
    add("--category", action="append", default=[], help="of MT-Bench; repeatable (default: all)")
    add("--judge", metavar="MODEL", help="a causal model (hub id, directory, GGUF file) that scores the texts")
    add(
        "--out",
        type=Path,
        default=Path("runs/experiments"),
        help="results go to OUT/NAME, shared by all processes (default: %(default)s)",
    )
    add("--threads", type=int, help="CPU threads of each process (default: torch's)")
    add(
        "--png",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="a PNG too, where kaleido can make one (default: --png)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> dict[str, Any] | None:
    """Run what is not finished yet of an experiment; the first process writes its table and its picture."""
    from accelerate import PartialState

    # Between the first and the last process to finish lie hours, not the minutes that collectives are given.
    processes = PartialState(cpu=_on_cpu(arguments.device), timeout=timedelta(days=30))
    try:
        return _run(arguments, processes)
    finally:
        processes.destroy_process_group()


def _on_cpu(device: str | None) -> bool:
    return device == "cpu" or not torch.cuda.is_available()


def _run(arguments: argparse.Namespace, processes: Any) -> dict[str, Any] | None:
    set_threads(arguments.threads)
    experiment = import_module(f"surelock.experiments.{arguments.name}")
    if arguments.judge is not None and not hasattr(experiment, "texts"):
        raise ValueError(f"--judge: the cells of {arguments.name} keep no texts that it could score")
    data = parse_data(arguments.data)
    cells = with_data(experiment.GRIDS["quick" if arguments.quick else arguments.preset], data)
    lm = load(arguments.model, device=arguments.device or processes.device, dtype=told_dtype(arguments))
    lab = Lab(lm, data, arguments.category)
    for cell in {(cell["source"], cell.get("skip", 0)): cell for cell in cells}.values():
        lab.prompts(cell)  # wrong data or a wrong judge is refused before the work, not hours into it
    judge = None if arguments.judge is None else Judge.load(arguments.judge, lm.device)
    directory, setup = arguments.out / arguments.name, lab.setup()
    rank, world = processes.process_index, processes.num_processes
    run_cells(cells, lambda cell: experiment.measure(lab, cell), directory, setup, rank=rank, world=world)
    processes.wait_for_everyone()
    if judge is not None:
        done = finished(directory)
        pairs = pairs_of(lab, experiment.texts, [done[key_of(setup, cell)] for cell in cells])
        score_texts(judge, pairs, directory, rank=rank, world=world)
        processes.wait_for_everyone()
        if rank == 0:
            merge_scores(judge, pairs, directory)
    return _report(arguments, experiment, lab, cells, directory) if rank == 0 else None


def _report(
    arguments: argparse.Namespace, experiment: Any, lab: Lab, cells: list[Cell], directory: Path
) -> dict[str, Any]:
    from surelock.experiments.report import markdown, write_png, write_report

    records = merge(cells, directory, lab.setup())
    frame = table_of(experiment, records, directory)
    figure = experiment.picture(frame, records)
    told = (experiment.TITLE, experiment.NOTE, command(arguments), lab.setup())
    write_report(directory, *told, frame, figure, _judges(experiment, lab, records, directory))
    if arguments.png and not arguments.quick:
        write_png(figure, directory / "picture.png")
    if hasattr(experiment, "artifacts"):
        experiment.artifacts(lab, records, directory)
    print(markdown(frame), file=sys.stderr)
    return {"experiment": arguments.name, "cells": len(cells), "table": str(directory / "table.md")}


def table_of(experiment: Any, records: list[Record], directory: Path) -> Any:
    """The experiment's table. Raises ValueError when the cells hold something else than it is made of."""
    try:
        return experiment.table(records)
    except (LookupError, TypeError, AttributeError) as error:
        told = f"the cells in {directory} do not hold what their table is made of ({error!r})"
        raise ValueError(f"{told}: delete the damaged line and run the same command again") from error


def _judges(experiment: Any, lab: Lab, records: list[Record], directory: Path) -> list[str]:
    """The end of table.md: what each judge made of the texts; its own folder has that as CSV."""
    from surelock.experiments.report import markdown, write_csv

    if not hasattr(experiment, "texts"):
        return []
    sections = []
    for judged in read_scores(lab, pairs_of(lab, experiment.texts, records), directory):
        frame = experiment.judge_table(records, judged.scores)
        if frame.empty:  # the baseline has no score
            continue
        write_csv(judged.folder / "table.csv", frame)
        heading = "## By the judge {name}\n\nWith weights {weights}, dtype {dtype}.".format(**judged.setup)
        sections += [heading, markdown(frame), experiment.JUDGE_NOTE]
    return sections


def parse_data(given: list[str]) -> dict[str, Path]:
    """SOURCE=FILE flags as a mapping. Raises ValueError for an unknown source or a file that is not there."""
    data = {}
    for text in given:
        source, _, file = text.partition("=")
        if source not in DATA or not file:
            raise ValueError(f"--data must be SOURCE=FILE with a source of {', '.join(DATA)}, not {text!r}")
        if not Path(file).is_file():
            raise ValueError(f"--data {source}: there is no file {file}")
        data[source] = Path(file)
    return data


def with_data(cells: list[Cell], data: dict[str, Path]) -> list[Cell]:
    """The cells whose data is there. Raises ValueError, which names the flags, when none is."""
    sources = dict.fromkeys(cell["source"] for cell in cells)
    problems = []
    for source in sources:
        try:
            data_file(source, data)
        except ValueError as error:
            problems.append(str(error))
            cells = [cell for cell in cells if cell["source"] != source]
    if not cells:
        raise ValueError("; or ".join(problems))
    for problem in problems:
        print(f"left out: {problem}", file=sys.stderr)
    return cells


def command(arguments: argparse.Namespace) -> str:
    """The command that repeats this run. Paths of data and model are as they were given."""
    words = ["python", "-m", "surelock", "experiment", arguments.name, "--model", arguments.model]
    words += ["--preset", arguments.preset] + ["--quick"] * arguments.quick
    for flag in ("judge", "device", "dtype", "threads", "out"):
        if (value := getattr(arguments, flag)) is not None:
            words += [f"--{flag}", str(value)]
    for flag in ("data", "category"):
        for value in getattr(arguments, flag):
            words += [f"--{flag}", value]
    return shlex.join(words)
