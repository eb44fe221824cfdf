"""A table of many prompts as Parquet.

Every batch is written as a part, into a folder beside the file. `close` joins the parts into the file. While the folder
exists, it contains all rows, including the rows of a file from an earlier command. That file is replaced when the new
one is complete.
"""

import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd

from surelock.files import PART, part_of, replaced, sync
from surelock.model.language_model import LanguageModel
from surelock.trace.outputs import COLUMNS, Holding, Line, RowCounts, check_table_place
from surelock.trace.table import table
from surelock.trace.tasks import Decoded, Task

_PART = re.compile(r"(\d{6,})\.parquet")
#: The types of the columns in pandas. Texts are strings, because categories would differ between prompts.
_TYPES = dict.fromkeys(COLUMNS, "bool") | {
    **dict.fromkeys(("id", "text"), "str"),
    **dict.fromkeys(("step", "position"), "int64"),
    "token": "Int64",
    **dict.fromkeys(("kl", "confidence"), "float64"),
}


class ParquetTable:
    """A Parquet file, with a row group per prompt."""

    def __init__(self, file: Path) -> None:
        """Raises ValueError without pyarrow, for a file that is no table, and for a wrong folder of parts; OSError."""
        if find_spec("pyarrow") is None:
            raise ValueError(
                "--table: a .parquet file needs pyarrow (pip install pyarrow); name a .csv file"
            )
        check_table_place(file)
        self.place = file
        self.parts = parts_of(file)
        self._kept: Collection[str] = ()
        if self._is_table():
            _open(file).close()
        if self.parts.exists() and not self.parts.is_dir():
            raise ValueError(
                f"--table: {self.parts} must be a folder for the parts of the table, and is a file"
            )
        parts = self.parts.iterdir() if self.parts.exists() else ()
        for part in parts:
            if not _PART.fullmatch(part.name.removeprefix(PART)):
                raise ValueError(
                    f"--table: {part} is no part of the table: move it out of this folder"
                )

    def holding(self, tasks: Sequence[Task], done: Mapping[str, Line]) -> Holding:
        """Return which of the done prompts the table contains."""
        counts = RowCounts()
        for file in self._files():
            for name, rows in _prompts(file):
                computed = rows.column("computed").to_pandas().sum()
                last = rows.column("position").to_pandas().max()
                counts.add(name, len(rows), last, int(computed))
        return counts.holding(done)

    def keep(self, ids: Collection[str]) -> None:
        """Drop all prompts except `ids` from the parts."""
        self._kept = ids
        shutil.rmtree(part_of(self.parts), ignore_errors=True)  # left by a process that was killed
        if self.parts.exists() and not ids:
            self._remove_parts()
        for part in self._part_files():
            names = {name for name, _ in _prompts(part)}
            if not names & set(ids):
                part.unlink()
            elif not names <= set(ids):
                _write(part, [part], ids)

    def add(self, lm: LanguageModel, batch: Sequence[Decoded]) -> None:
        """Write the rows of a batch as a part."""
        if not self.parts.exists():
            self._make_parts()
        numbers = [int(part.stem) for part in self._part_files()]
        tables = [_to_arrow(decoded.task.id, table(decoded.steps, lm)) for decoded in batch]
        number = max(numbers, default=0) + 1
        _write_tables(self.parts / f"{number:06}.parquet", tables)

    def close(self) -> None:
        """Join the parts, if there are any."""
        parts = self._part_files()
        if parts:
            _write(self.place, parts)
        if self.parts.exists():
            self._remove_parts()

    def _files(self) -> list[Path]:
        """Return the files that contain the rows."""
        if self.parts.exists():
            return self._part_files()
        return [self.place] if self._is_table() else []

    def _is_table(self) -> bool:
        return self.place.is_file() and self.place.stat().st_size > 0

    def _part_files(self) -> list[Path]:
        """Return the files of the parts, in the order of their numbers."""
        if not self.parts.exists():
            return []
        parts = [path for path in self.parts.iterdir() if _PART.fullmatch(path.name)]
        return sorted(parts, key=lambda part: int(part.stem))

    def _make_parts(self) -> None:
        """Make the folder of the parts. Part 0 contains the kept rows of the file."""
        folder = part_of(self.parts)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        if self._kept:
            _write(folder / f"{0:06}.parquet", [self.place], self._kept)
        folder.replace(self.parts)
        sync(self.parts.parent)

    def _remove_parts(self) -> None:
        """Rename the folder of the parts, then remove it. So a killed process leaves all parts or no parts."""
        renamed = part_of(self.parts)
        shutil.rmtree(renamed, ignore_errors=True)
        self.parts.replace(renamed)
        sync(renamed.parent)
        shutil.rmtree(renamed)


def parts_of(file: Path) -> Path:
    """Return the folder for the parts of a table."""
    target = file.resolve()
    return target.with_name(f"{target.name}.parts")


def _to_arrow(prompt: str, frame: pd.DataFrame) -> Any:
    """Return the table of a prompt as an Arrow table. prompt: its id."""
    from pyarrow import Table

    columns = {name: prompt if name == "id" else frame[name] for name in COLUMNS}
    typed = pd.DataFrame(columns, index=frame.index).astype(_TYPES)
    return Table.from_pandas(typed, preserve_index=False)


def _open(file: Path) -> Any:
    """Return an opened Parquet file. Raises ValueError for a file that is no table of this command."""
    import pyarrow
    from pyarrow.parquet import ParquetFile

    try:
        opened = ParquetFile(file)
    except pyarrow.ArrowInvalid as error:
        problem = f"--table: {file} is damaged, or no Parquet file ({error}): remove it or choose another file"
        raise ValueError(problem) from error
    if not set(COLUMNS) <= set(opened.schema_arrow.names):
        raise ValueError(f"--table: {file} is no table of this command: choose another file")
    return opened


def _prompts(file: Path, ids: Collection[str] | None = None) -> Iterator[tuple[str, Any]]:
    """Yield (id, rows) of a file's prompts. The rows are an Arrow table. ids: the prompts to yield; None: all."""
    from pyarrow import compute

    with _open(file) as opened:
        for number in range(opened.num_row_groups):
            rows = opened.read_row_group(number, columns=list(COLUMNS))
            for name in rows.column("id").unique().to_pylist():
                if ids is None or name in ids:
                    yield name, rows.filter(compute.field("id") == name)


def _write(file: Path, sources: Iterable[Path], ids: Collection[str] | None = None) -> None:
    """Write the rows of other files into a file. ids: the prompts to write; None: all."""
    prompts = chain.from_iterable(_prompts(source, ids) for source in sources)
    _write_tables(file, (rows for _, rows in prompts))


def _write_tables(file: Path, tables: Iterable[Any]) -> None:
    """Write Arrow tables with the same columns and types into a file, as one row group per table."""
    from pyarrow import Schema
    from pyarrow.parquet import ParquetWriter

    schema = Schema.from_pandas(
        pd.DataFrame(columns=list(COLUMNS)).astype(_TYPES), preserve_index=False
    )
    with replaced(file) as part, ParquetWriter(part, schema) as writer:
        for rows in tables:
            writer.write_table(rows.select(schema.names).cast(schema))
