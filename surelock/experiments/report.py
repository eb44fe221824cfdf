"""What an experiment leaves behind: a table (CSV, Markdown) and a picture (HTML, PNG where kaleido can)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from plotly.graph_objects import Figure

from surelock.experiments.runner import Record, write_text
from surelock.model.errors import first_line


def write_report(
    directory: Path,
    title: str,
    note: str,
    command: str,
    setup: Record,
    frame: pd.DataFrame,
    figure: Figure,
    sections: Sequence[str] = (),
) -> None:
    """table.csv, table.md, picture.html; raises OSError when one cannot be written. sections: what ends table.md."""
    write_csv(directory / "table.csv", frame)
    ran = ", ".join(f"{name} {_plain(value)}" for name, value in setup.items() if value)
    parts = [f"# {title}", f"`{command}`", f"With {ran}.", markdown(frame), note.strip(), *sections]
    write_text(directory / "table.md", "\n\n".join(parts) + "\n")
    figure.update_layout(title=title, template="plotly_white")
    write_text(directory / "picture.html", figure.to_html(include_plotlyjs="cdn", config={"showSendToCloud": False}))


def write_csv(file: Path, frame: pd.DataFrame) -> None:
    """All digits of a table."""
    write_text(file, frame.to_csv(index=False, lineterminator="\n"))


def write_png(figure: Figure, file: Path) -> None:
    """The picture as PNG, if kaleido and a browser are there; else a line that says why not."""
    try:
        figure.write_image(file, width=1000, height=600, scale=1)
    except (ImportError, ValueError, RuntimeError) as error:
        print(f"no {file.name}: {first_line(error)}", file=sys.stderr)


def markdown(frame: pd.DataFrame) -> str:
    """A Markdown table, numbers to four digits."""
    rows = [[_cell(value) for value in row] for row in frame.itertuples(index=False)]
    return "\n".join(_line(row) for row in ([*frame.columns], ["---"] * len(frame.columns), *rows))


def _plain(value: Any) -> str:
    return " ".join(f"{name} {item}" for name, item in value.items()) if isinstance(value, dict) else str(value)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(value: Any) -> str:
    if pd.isna(value):
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
