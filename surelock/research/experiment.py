"""What an experiment is: its question, its grid, its table; and what it leaves behind: CSV and Markdown."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from surelock.files import write_text
from surelock.research.charts import Panel, write_charts
from surelock.research.lab import Lab
from surelock.research.runner import Cell, Record

#: Continuations of a cell's prompts, by the name of the decoder; "" where one wrote all of them.
Texts = dict[str, list[str]]


@dataclass(slots=True, kw_only=True)
class Experiment:
    """texts: what a judge reads of a record. judge_table: of records and, by record, the `judged.Scores` by decoder.
    panels: of the paper's figure, from records; columns: how many stand in a row.
    """

    title: str
    note: str
    shows: str = "ours"  # the tables and figures of the paper
    grids: dict[str, list[Cell]]
    measure: Callable[[Lab, Cell], Record]
    table: Callable[[list[Record]], pd.DataFrame]
    texts: Callable[[Lab, Record], Texts] | None = None
    judge_table: Callable[[list[Record], list[dict[str, Any]]], pd.DataFrame] | None = None
    judge_note: str = ""
    panels: Callable[[list[Record]], list[Panel]] | None = None
    columns: int = 2


def row(record: Record, cell: Iterable[str] = (), result: Iterable[str] = ()) -> Record:
    """Named values of a record's cell, then of its result."""
    return {name: record["cell"][name] for name in cell} | {
        name: record["result"][name] for name in result
    }


# --- what is left behind ----------------------------------------------------------------------------------------------


def write_report(
    directory: Path,
    experiment: Experiment,
    command: str,
    setup: Record,
    frame: pd.DataFrame,
    sections: Sequence[str] = (),
) -> None:
    """table.csv and table.md; raises OSError when one cannot be written. sections: what ends table.md."""
    write_csv(directory / "table.csv", frame)
    ran = ", ".join(f"{name} {_plain(value)}" for name, value in setup.items() if value)
    parts = [
        f"# {experiment.title}",
        f"`{command}`",
        f"With {ran}.",
        markdown(frame),
        experiment.note.strip(),
    ]
    write_text(directory / "table.md", "\n\n".join([*parts, *sections]) + "\n")


def write_figure(directory: Path, experiment: Experiment, records: list[Record]) -> None:
    """figure.html and figure.svg, of an experiment that has a figure. Raises OSError."""
    if experiment.panels is not None:
        write_charts(directory, "figure", experiment.panels(records), experiment.columns)


def rounded(frame: pd.DataFrame) -> pd.DataFrame:
    """Floats to ten significant digits, which every processor agrees on: a sum's last bits follow its vector width."""
    return frame.map(lambda value: float(f"{value:.10g}") if isinstance(value, float) else value)


def write_csv(file: Path, frame: pd.DataFrame) -> None:
    write_text(file, frame.to_csv(index=False, lineterminator="\n"))


def markdown(frame: pd.DataFrame) -> str:
    """A Markdown table, numbers to four digits."""
    return markdown_lines(
        [*frame.columns], [[_cell(value) for value in row] for row in frame.itertuples(index=False)]
    )


def markdown_lines(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *rows))


def _plain(value: Any) -> str:
    return (
        " ".join(f"{name} {item}" for name, item in value.items())
        if isinstance(value, dict)
        else str(value)
    )


def _cell(value: Any) -> str:
    if pd.isna(value):
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
