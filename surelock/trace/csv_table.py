"""A table of many prompts as CSV.

The csv module is not used: whether it quotes a carriage return depends on the version of Python, and this module must
read its files back exactly.
"""

import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from surelock.files import append, replaced
from surelock.model.language_model import LanguageModel
from surelock.trace.outputs import COLUMNS, Holding, Line, RowCounts, check_table_place
from surelock.trace.table import table
from surelock.trace.tasks import Decoded, Task

_HEAD = f"{','.join(COLUMNS)}\n".encode()
_QUOTED = rb'"[^"]*(?:""[^"]*)*"'
_PLAIN = rb'[^",\r\n]*'
_ID = re.compile(rb"(%b|%b)," % (_QUOTED, _PLAIN))
#: A row: the id, the step, the position, the token, its text in quotation marks, four flags and two numbers.
_ROW = re.compile(
    rb"(?P<id>%b|%b),\d+,(?P<position>\d+),\d*,(?:%b)?,"
    rb"(?:True|False),(?P<computed>True|False),(?:True|False),(?:True|False),%b,%b\n"
    % (_QUOTED, _PLAIN, _QUOTED, _PLAIN, _PLAIN)
)
_FORMULA = "=+-@\uff1d\uff0b\uff0d\uff20"  # first characters of formulas, also in full width


def harmless(text: str) -> str:
    """Return a text that spreadsheets do not treat as a formula: the text, or an apostrophe and the text.

    The apostrophe is added to formulas, also after blanks and in full width, and to texts that begin with a tab, a line
    end or an apostrophe. assets/js/export/share.js has the same rule.
    """
    if text.startswith(("'", "\t", "\r", "\n")):
        return f"'{text}"
    for char in text:
        is_control = unicodedata.category(char)[0] == "C"
        if not char.isspace() and not is_control:
            return f"'{text}" if char in _FORMULA else text
    return text


def quoted(text: str) -> str:
    """Return a cell in quotation marks."""
    return '"' + text.replace('"', '""') + '"'


class CsvTable:
    """A CSV file to which the rows of the prompts are appended."""

    def __init__(self, file: Path) -> None:
        """Raises ValueError for a file that is no table, and OSError for a file that cannot be written."""
        check_table_place(file)
        start = b""
        if file.is_file():
            with file.open("rb") as opened:
                start = opened.read(len(_HEAD))
        if start != _HEAD[: len(start)]:
            raise ValueError(f"--table: {file} is no table of this command: choose another file")
        self.place = file
        self._names: set[str | None] = (
            set()
        )  # ids of the prompts in the file, and None if rows are damaged
        self._new = True

    def holding(self, tasks: Sequence[Task], done: Mapping[str, Line]) -> Holding:
        """Return which of the done prompts the table contains. Damaged rows do not count."""
        counts = RowCounts()
        for record in self._records():
            name = _id_of(record)
            row = _ROW.fullmatch(record)
            self._names.add(name if row else None)
            if row is not None and name is not None:
                counts.add(name, 1, int(row["position"]), int(row["computed"] == b"True"))
            elif name is not None:
                counts.add(name, 0, -1, 0)
        return counts.holding(done)

    def keep(self, ids: Collection[str]) -> None:
        """Drop the rows of all prompts except `ids`. If no prompt is kept, the first `add` replaces the file."""
        self._new = not ids
        if ids and not self._names <= set(ids):
            with replaced(self.place) as part, part.open("wb") as opened:
                opened.write(_HEAD)
                kept = (
                    record
                    for record in self._records()
                    if _ROW.fullmatch(record) and _id_of(record) in ids
                )
                opened.writelines(kept)

    def _records(self) -> Iterator[bytes]:
        """Yield the rows of the file as bytes. The last row may be incomplete."""
        if not self.place.is_file():
            return
        with self.place.open("rb") as opened:
            opened.readline()
            parts: list[bytes] = []
            marks = 0
            for line in opened:
                parts.append(line)
                marks += line.count(b'"')
                if marks % 2 == 0:
                    yield b"".join(parts)
                    parts = []
                    marks = 0
            if parts:
                yield b"".join(parts)

    def add(self, lm: LanguageModel, batch: Sequence[Decoded]) -> None:
        """Append the rows of prompts."""
        texts = [_rows(decoded.task.id, table(decoded.steps, lm)) for decoded in batch]
        rows = "".join(texts).encode()
        if self._new:
            with replaced(self.place) as part:
                part.write_bytes(_HEAD + rows)
            self._new = False
        else:
            with self.place.open("ab", buffering=0) as opened:
                append(opened, rows)

    def close(self) -> None:
        """Do nothing: all rows are on the disk."""


def _id_of(record: bytes) -> str | None:
    """Return the id at the beginning of a row, or None if it is damaged."""
    start = _ID.match(record)
    if start is None:
        return None
    cell = start[1].decode(errors="replace")
    if cell.startswith('"'):
        cell = cell[1:-1].replace('""', '"')
    return cell.removeprefix("'")


def _rows(prompt: str, frame: pd.DataFrame) -> str:
    """Return the rows of a prompt as lines. prompt: its id. frame: its table."""
    cell = harmless(prompt)
    plain = cell.isprintable() and cell == cell.strip() and not set(cell) & set('",')
    columns = [[cell if plain else quoted(cell)] * len(frame)]
    columns += [_cells(name, frame[name]) for name in COLUMNS[1:]]
    return "".join(f"{','.join(row)}\n" for row in zip(*columns, strict=True))


def _cells(name: str, column: Any) -> list[str]:
    """Return the cells of a column: numbers and flags as Python writes them, quoted texts, "" for missing values."""
    if name == "text":
        texts = {text: quoted(harmless(text)) for text in column.dropna().unique().tolist()}
        return [texts.get(text, "") for text in column.tolist()]
    values = zip(column.tolist(), column.isna().tolist(), strict=True)
    return ["" if missing else str(value) for value, missing in values]
