"""`python -m surelock experiment NAME` runs an experiment. It can be resumed, and shared by any number of processes."""

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

import pandas as pd

from surelock.engines.flags import add_model_flags
from surelock.loading import load_by
from surelock.model.machine import set_threads
from surelock.places import ASSETS
from surelock.research import paper, speed, theory
from surelock.research.experiment import (
    Experiment,
    markdown,
    rounded,
    write_csv,
    write_figure,
    write_report,
)
from surelock.research.fill import FILL
from surelock.research.frontier import FRONTIER
from surelock.research.judge import Judge
from surelock.research.judged import merge_scores, pairs_of, read_scores, score_texts
from surelock.research.lab import Lab
from surelock.research.parallel import PARALLEL
from surelock.research.prompts import FILES, HELD, parse_data
from surelock.research.runner import (
    Cell,
    Record,
    file_of,
    finished,
    key_of,
    launched,
    merge,
    run_cells,
    those_named,
)
from surelock.research.sampler import SAMPLER
from surelock.research.taking_back import TAKING_BACK
from surelock.values import Json

RESULTS = ASSETS / "results"
EXPERIMENTS: dict[str, Experiment] = {
    "flops": paper.FLOPS,
    "dynamics": paper.DYNAMICS,
    "quality": paper.QUALITY,
    "runtime": speed.RUNTIME,
    "selection": speed.SELECTION,
    "epsilon": paper.EPSILON,
    "contraction": theory.CONTRACTION,
    "bound": theory.BOUND,
    "unlock": paper.UNLOCK,
    "frontier": FRONTIER,
    "taking_back": TAKING_BACK,
    "parallel": PARALLEL,
    "fill": FILL,
    "sampler": SAMPLER,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `surelock experiment`."""
    add = parser.add_argument
    add("name", metavar="NAME", nargs="?", choices=EXPERIMENTS, help=", ".join(EXPERIMENTS))
    add(
        "--list",
        action="store_true",
        help="list the experiments with the tables and figures of the paper",
    )
    add_model_flags(parser, "torch")  # the engine of the recorded results
    sizes = parser.add_mutually_exclusive_group()
    what = "sizes and prompts (default: stories)"
    sizes.add_argument("--preset", choices=("stories", "paper"), help=what)
    what = "in place of a preset: about a minute's worth, to see that it works"
    sizes.add_argument("--quick", dest="preset", action="store_const", const="quick", help=what)
    add(
        "--data",
        action="append",
        default=[],
        metavar="SOURCE=FILE",
        help=f"SOURCE: {', '.join(FILES)}; repeatable",
    )
    what = "only the cells with this value, as in gen_length=64; repeatable: alternatives of one name, all of several"
    add("--cell", action="append", default=[], metavar="NAME=VALUE", help=what)
    what = (
        "measure nothing: the table and the figure of the committed cells go to OUT/recorded/NAME"
    )
    add("--recorded", action="store_true", help=what)
    add(
        "--judge",
        metavar="MODEL",
        help="a causal model (hub id, directory, GGUF file) that scores the texts",
    )
    what = "results go to OUT/NAME, shared by all processes (default: %(default)s)"
    add("--out", type=Path, default=Path("runs/experiments"), help=what)
    add("--threads", type=int, help="CPU threads of each process (default: torch's)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Json | None:
    """Run the cells of an experiment that are not finished yet. The first process writes the table.

    Returns the JSON object to print, None in other processes and with --list. Raises ValueError for flags that cannot
    be followed.
    """
    if arguments.list:
        for name, experiment in EXPERIMENTS.items():
            print(f"{name:<12} {experiment.shows:<29} {experiment.title}")
        return None
    if arguments.name is None:
        raise ValueError("name an experiment: --list shows them")
    if arguments.recorded:
        return _recorded(arguments)
    with launched(arguments.device) as processes:
        return _run(arguments, processes)


def _run(arguments: argparse.Namespace, processes: Any) -> Json | None:
    set_threads(arguments.threads)
    experiment = EXPERIMENTS[arguments.name]
    if arguments.judge is not None and experiment.texts is None:
        raise ValueError(
            f"--judge: the cells of {arguments.name} keep no texts that it could score"
        )
    data = parse_data(arguments.data)
    cells = those_named(
        with_data(experiment.grids[arguments.preset or "stories"], data), arguments.cell
    )
    lm = load_by(
        argparse.Namespace(**vars(arguments) | {"device": arguments.device or processes.device})
    )
    lab = Lab(lm, data)
    # Read the prompts of one cell per source and offset now, so that wrong data fails at once and not after hours.
    different = {(cell["source"], cell.get("skip", 0)): cell for cell in cells}
    for cell in different.values():
        lab.prompts(cell)
    judge = None if arguments.judge is None else Judge.load(arguments.judge, lm.device)
    directory = arguments.out / arguments.name
    setup = lab.setup()
    share = {"rank": processes.process_index, "world": processes.num_processes}
    run_cells(cells, lambda cell: experiment.measure(lab, cell), directory, setup, **share)
    processes.wait_for_everyone()
    if judge is not None and experiment.texts is not None:
        done = finished(directory)
        pairs = pairs_of(lab, experiment.texts, [done[key_of(setup, cell)] for cell in cells])
        score_texts(judge, pairs, directory, **share)
        processes.wait_for_everyone()
        if processes.is_main_process:
            merge_scores(judge, pairs, directory)
    if not processes.is_main_process:
        return None
    records = merge(cells, directory, setup)
    frame = report(experiment, command(arguments), lab, records, directory)
    print(markdown(frame), file=sys.stderr)
    return {"experiment": arguments.name, "cells": len(cells), "table": str(directory / "table.md")}


def _recorded(arguments: argparse.Namespace) -> Json:
    """Write the table and the figure of the cells that the repository has. No model is needed."""
    experiment = EXPERIMENTS[arguments.name]
    kept = RESULTS / arguments.name
    records = list(finished(kept).values())
    if not records:
        raise ValueError(f"--recorded: there are no cells of {arguments.name} in {kept}")
    recorded_cells = [record["cell"] for record in records]
    chosen = [key_of({}, cell) for cell in those_named(recorded_cells, arguments.cell)]
    records = [record for record in records if key_of({}, record["cell"]) in chosen]
    directory = arguments.out / "recorded" / arguments.name
    directory.mkdir(parents=True, exist_ok=True)
    frame = table_of(experiment, records, kept)
    write_csv(directory / "table.csv", frame)
    write_figure(directory, experiment, records)
    print(markdown(frame), file=sys.stderr)
    return {
        "experiment": arguments.name,
        "cells": len(records),
        "table": str(directory / "table.csv"),
    }


def report(
    experiment: Experiment, command: str, lab: Lab, records: list[Record], directory: Path
) -> pd.DataFrame:
    """Write the tables and the figure of finished cells. Return the experiment's table.

    command: the command that measures the cells.
    """
    frame = table_of(experiment, records, directory)
    setup = lab.setup()
    sources = {file_of(record["cell"]["source"]) for record in records}
    setup["data"] = {name: digest for name, digest in setup["data"].items() if name in sources}
    write_report(
        directory, experiment, command, setup, frame, _judges(experiment, lab, records, directory)
    )
    write_figure(directory, experiment, records)
    return frame


def table_of(experiment: Experiment, records: list[Record], directory: Path) -> pd.DataFrame:
    """Return the experiment's table. Raises ValueError if the cells lack the values that the table needs."""
    try:
        return rounded(experiment.table(records))
    except (LookupError, TypeError, AttributeError) as error:
        damage = f"the cells in {directory} do not hold what their table is made of ({error!r})"
        raise ValueError(
            f"{damage}: delete the damaged line and run the same command again"
        ) from error


def _judges(experiment: Experiment, lab: Lab, records: list[Record], directory: Path) -> list[str]:
    """Return the last sections of table.md, which have the scores of all judges. Write them as CSV, too."""
    sections = []
    if experiment.texts is None or experiment.judge_table is None:
        return sections
    for judged in read_scores(lab, pairs_of(lab, experiment.texts, records), directory):
        frame = rounded(experiment.judge_table(records, judged.scores))
        # nothing to compare, for example because the judge has not scored the baseline
        if frame.empty:
            continue
        write_csv(judged.folder / "table.csv", frame)
        heading = "## By the judge {name}\n\nWith weights {weights}, dtype {dtype}.".format(
            **judged.setup
        )
        sections += [heading, markdown(frame), experiment.judge_note]
    return sections


def with_data(cells: list[Cell], data: dict[str, Path]) -> list[Cell]:
    """Return the cells whose data is available. data: files by source.

    Raises ValueError if there are no such cells, and for data that no cell reads.
    """
    needed = {file_of(cell["source"]) for cell in cells}
    if unread := data.keys() - needed:
        raise ValueError(
            f"--data {min(unread)}: no cell of this experiment and preset reads it, so leave it out"
        )
    missing = sorted(needed - data.keys() - HELD.keys())
    problems = [f"--data {name}=FILE is needed: {FILES[name]}" for name in missing]
    kept = [cell for cell in cells if file_of(cell["source"]) not in missing]
    if not kept:
        raise ValueError("; or ".join(problems))
    for problem in problems:
        print(f"left out: {problem}", file=sys.stderr)
    return kept


def command(arguments: argparse.Namespace) -> str:
    """Return the command that reproduces these cells.

    --out is left out: in the same directory the cells are finished, and nothing would be measured. If the cells are in
    the default directory, a reader of the command must add another --out. Paths are written as they were typed.
    """
    words = ["python", "-m", "surelock", "experiment", arguments.name, "--model", arguments.model]
    if arguments.preset == "quick":
        words.append("--quick")
    else:
        words += ["--preset", arguments.preset or "stories"]
    for flag in ("tokenizer", "engine", "judge", "device", "dtype", "threads"):
        if (value := getattr(arguments, flag)) not in (None, "torch"):
            words += [f"--{flag}", str(value)]
    for flag in ("cell", "data"):
        for value in getattr(arguments, flag):
            words += [f"--{flag}", value]
    return shlex.join(words)
