"""Experiments: the description of an experiment, and the files that it writes (CSV, Markdown and figures)."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from surelock.files import write_text
from surelock.research.charts import Panel, write_charts
from surelock.research.lab import Lab
from surelock.research.runner import Cell, Record

#: Continuations of a cell's prompts, by the name of the decoder. The name is "" if one decoder wrote all of them.
Texts = dict[str, list[str]]


@dataclass(slots=True, kw_only=True)
class Experiment:
    """The description of an experiment.

    title: the heading of its report. note: the explanation of its table.
    shows: the tables and figures of the paper that it repeats; "ours" for an experiment that is not in the paper.
    grids: its cells by preset.
    measure: returns the result of a cell.
    table: returns the table of finished cells.
    texts: returns the texts of a record that a judge reads, None if a judge reads none.
    judge_table: returns the table of records and, by record and decoder, their `judged.Scores`.
    judge_note: the explanation of that table.
    panels: returns the panels of the figure, None if there is no figure. columns: the number of panels in a row.
    """

    title: str
    note: str
    shows: str = "ours"
    grids: dict[str, list[Cell]]
    measure: Callable[[Lab, Cell], Record]
    table: Callable[[list[Record]], pd.DataFrame]
    texts: Callable[[Lab, Record], Texts] | None = None
    judge_table: Callable[[list[Record], list[dict[str, Any]]], pd.DataFrame] | None = None
    judge_note: str = ""
    panels: Callable[[list[Record]], list[Panel]] | None = None
    columns: int = 2


def row(record: Record, cell: Iterable[str] = (), result: Iterable[str] = ()) -> Record:
    """Return named values of a record. cell: names in its cell. result: names in its result."""
    return {name: record["cell"][name] for name in cell} | {
        name: record["result"][name] for name in result
    }


# --- files of an experiment -------------------------------------------------------------------------------------------


def write_report(
    directory: Path,
    experiment: Experiment,
    command: str,
    setup: Record,
    frame: pd.DataFrame,
    sections: Sequence[str] = (),
) -> None:
    """Write table.csv and table.md. Raises OSError.

    command: the command that measures the cells. setup: the model and the data.
    sections: Markdown that is added at the end of table.md.
    """
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
    """Write figure.html and figure.svg if the experiment has a figure. Raises OSError."""
    if experiment.panels is not None:
        write_charts(directory, "figure", experiment.panels(records), experiment.columns)


def rounded(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table with numbers rounded to ten significant digits.

    Further digits of a sum depend on the processor, which adds numbers in an order of its own.
    """
    return frame.map(lambda value: float(f"{value:.10g}") if isinstance(value, float) else value)


def write_csv(file: Path, frame: pd.DataFrame) -> None:
    write_text(file, frame.to_csv(index=False, lineterminator="\n"))


def markdown(frame: pd.DataFrame) -> str:
    """Return a table as Markdown, with numbers of four significant digits."""
    return markdown_lines(
        [*frame.columns], [[_cell(value) for value in row] for row in frame.itertuples(index=False)]
    )


def markdown_lines(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table of texts."""
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *rows))


def _plain(value: Any) -> str:
    """Return a value of the setup as a sentence shows it."""
    if isinstance(value, dict):
        return " ".join(f"{name} {item}" for name, item in value.items())
    return str(value)


def _cell(value: Any) -> str:
    if pd.isna(value):
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
