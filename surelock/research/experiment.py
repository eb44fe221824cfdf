"""What an experiment is: its question, its grid, its table; and what it leaves behind: CSV, Markdown, a picture."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from plotly.graph_objects import Figure

from surelock.model.errors import first_line
from surelock.research.lab import Lab
from surelock.research.runner import Cell, Record, write_text

_FORMULA = re.compile(r"[\s\x00-\x1f\u200b-\u200f\ufeff]*[=+\-@＝＋－＠]|[\t\r\n]")  # noqa: RUF001

#: Continuations of a cell's prompts, by the name of the decoder; "" where one wrote all of them.
Texts = dict[str, list[str]]


@dataclass(slots=True, kw_only=True)
class Experiment:
    """grids: cells by preset. texts: what a judge reads of a record, where the cells keep what was generated.

    judge_table: of the records and, for each, the `judged.Scores` by decoder. artifacts: further files.
    """

    title: str
    note: str
    grids: dict[str, list[Cell]]
    measure: Callable[[Lab, Cell], Record]
    table: Callable[[list[Record]], pd.DataFrame]
    picture: Callable[[pd.DataFrame, list[Record]], Figure]
    texts: Callable[[Lab, Record], Texts] | None = None
    judge_table: Callable[[list[Record], list[dict[str, Any]]], pd.DataFrame] | None = None
    judge_note: str = ""
    artifacts: Callable[[Lab, Sequence[Record], Path], None] | None = None


def row(record: Record, cell: Iterable[str] = (), result: Iterable[str] = ()) -> Record:
    """Named values of a record's cell, then of its result."""
    return {name: record["cell"][name] for name in cell} | {name: record["result"][name] for name in result}


def rows(records: Sequence[Record], cell: Iterable[str], result: Iterable[str]) -> pd.DataFrame:
    """One such row for each record."""
    return pd.DataFrame([row(record, cell, result) for record in records])


def points(records: Sequence[Record], cell: Iterable[str], make: Callable[[Record], Iterable[Record]]) -> pd.DataFrame:
    """Several rows for each record: what `make` says of its result, behind named values of its cell."""
    return pd.DataFrame([row(record, cell) | point for record in records for point in make(record["result"])])


# --- what is left behind ----------------------------------------------------------------------------------------------


def write_report(
    directory: Path,
    experiment: Experiment,
    command: str,
    setup: Record,
    frame: pd.DataFrame,
    figure: Figure,
    sections: Sequence[str] = (),
) -> None:
    """table.csv, table.md, picture.html; raises OSError when one cannot be written. sections: what ends table.md."""
    write_csv(directory / "table.csv", frame)
    ran = ", ".join(f"{name} {_plain(value)}" for name, value in setup.items() if value)
    parts = [f"# {experiment.title}", f"`{command}`", f"With {ran}.", markdown(frame), experiment.note.strip()]
    write_text(directory / "table.md", "\n\n".join([*parts, *sections]) + "\n")
    figure.update_layout(title=experiment.title, template="plotly_white")
    page = figure.to_html(include_plotlyjs="cdn", config={"showSendToCloud": False}, div_id=directory.name)
    write_text(directory / "picture.html", page)


def rounded(frame: pd.DataFrame) -> pd.DataFrame:
    """Floats to ten significant digits, which every processor agrees on: a sum's last bits follow its vector width."""
    return frame.map(lambda value: float(f"{value:.10g}") if isinstance(value, float) else value)


def write_csv(file: Path, frame: pd.DataFrame) -> None:
    """A table; text that a spreadsheet would run as a formula begins with an apostrophe."""
    plain = frame.map(_harmless).rename(columns=_harmless)
    write_text(file, plain.to_csv(index=False, lineterminator="\n"))


def _harmless(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def write_png(figure: Figure, file: Path) -> None:
    """The picture as PNG, if kaleido and a browser are there; else a line that says why not."""
    try:
        figure.write_image(file, width=1000, height=600, scale=1)
    except (ImportError, ValueError, RuntimeError) as error:
        print(f"no {file.name}: {first_line(error)}", file=sys.stderr)


def markdown(frame: pd.DataFrame) -> str:
    """A Markdown table, numbers to four digits."""
    lines = [[_cell(value) for value in values] for values in frame.itertuples(index=False)]
    return "\n".join(f"| {' | '.join(line)} |" for line in ([*frame.columns], ["---"] * len(frame.columns), *lines))


def _plain(value: Any) -> str:
    return " ".join(f"{name} {item}" for name, item in value.items()) if isinstance(value, dict) else str(value)


def _cell(value: Any) -> str:
    if pd.isna(value):
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
