"""The common parts of the outputs of a run over many prompts, other than its results.

A prompt is done when its line is in the results. All other outputs are on the disk before that line is written. So
after a process was killed, the other outputs contain all done prompts, and perhaps a part of the next batch. That part
is dropped when the command runs again.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, Protocol

from surelock.errors import shown
from surelock.files import check_place, check_replaced
from surelock.model.language_model import LanguageModel
from surelock.trace.tasks import Decoded, Task
from surelock.values import frozen

Line = Mapping[str, Any]  # a line of the results, see `surelock.trace.results`
#: The columns of a table of many prompts: those of `surelock.table`, with the prompt's id instead of the sequence.
COLUMNS = (
    *("id", "step", "position", "token", "text"),
    *("masked", "computed", "locked", "taken_back"),
    *("kl", "confidence"),
)
_MOST_NAMED = 20


@dataclass(slots=True)
class Holding:
    """The ids of the prompts that an output contains."""

    whole: set[str] = field(default_factory=set)  # complete prompts
    # complete and incomplete prompts
    begun: set[str] = field(default_factory=set)


class Output(Protocol):
    """A file or a folder to which every prompt adds something.

    The constructor is called before the first decode, and raises ValueError or OSError for a place that cannot be used.
    Only `keep` and `add` change the content of the place.
    """

    place: Path

    def holding(self, tasks: Sequence[Task], done: Mapping[str, Line]) -> Holding:
        """Return which of the done prompts the output contains. done: by id, the line of a done prompt."""
        ...

    def keep(self, ids: Collection[str]) -> None:
        """Drop all prompts except `ids`, which are complete in the output. Called once, before `add`."""
        ...

    def add(self, lm: LanguageModel, batch: Sequence[Decoded]) -> None:
        """Add prompts. They are on the disk when the method returns."""
        ...

    def close(self) -> None:
        """Finish the output, for example by joining parts into one file."""
        ...


@frozen
class Lacking:
    """The done prompts that an output lacks."""

    # prompts that were done before the output was begun, or that are not in this command: they are not decoded again
    never: list[str]
    lost: list[str]  # prompts that the output should contain: they are decoded again


def lacking(holding: Holding, tasks: Sequence[Task], done: Mapping[str, Line]) -> Lacking:
    """Return the done prompts that an output lacks.

    If an output was added by a later command, it lacks the first prompts of the results: these are `never`. If it lacks
    a prompt after the first one that it contains, it has lost the prompt.
    """
    ids = {task.id for task in tasks}
    result = Lacking([], [])
    begun = False
    for name in done:
        begun = begun or name in holding.begun
        if name in holding.whole:
            continue
        if begun and name in ids:
            result.lost.append(name)
        else:
            result.never.append(name)
    return result


def names_of(ids: Sequence[str]) -> str:
    """Return the number of prompts and at most twenty ids, in words: "3 prompts ('1', '2', '3')"."""
    more = f" and {len(ids) - _MOST_NAMED} more" if len(ids) > _MOST_NAMED else ""
    count = "1 prompt" if len(ids) == 1 else f"{len(ids)} prompts"
    return f"{count} ({', '.join(map(shown, ids[:_MOST_NAMED]))}{more})"


class RowCounts:
    """Counts the rows of prompts in a table, to find out which prompts are complete."""

    def __init__(self) -> None:
        # by prompt: number of rows, largest position, number of rows of computed positions
        self._counts: dict[str, list[int]] = {}

    def add(self, name: str, rows: int, last: int, computed: int) -> None:
        """Count rows of a prompt.

        rows: the number of rows. last: their largest position. computed: number of the rows that were computed.
        """
        counts = self._counts.setdefault(name, [0, 0, 0])
        counts[0] += rows
        counts[1] = max(counts[1], last)
        counts[2] += computed

    def holding(self, done: Mapping[str, Line]) -> Holding:
        """Return which prompts are complete.

        A complete prompt has a row for every step and position, and as many computed rows as its line says.
        """
        result = Holding(begun=set(self._counts))
        for name, (rows, last, computed) in self._counts.items():
            line = done.get(name, {})
            if rows == line.get("steps", 0) * (last + 1) and computed == line.get("rows"):
                result.whole.add(name)
        return result


def check_apart(places: Mapping[str, Path]) -> None:
    """Raise ValueError if two flags name the same file or folder."""
    for (flag, one), (other, another) in combinations(places.items(), 2):
        same = one.exists() and another.exists() and os.path.samefile(one, another)
        if same or one.resolve() == another.resolve():
            raise ValueError(f"{flag} and {other} must be two places, and {str(another)!r} is both")


def target_file(flag: str, path: Path, suffixes: Sequence[str] = ()) -> Path:
    """Return the path of an output file.

    Raises ValueError for another suffix, for a folder, and for a file in a folder that does not exist.
    """
    if suffixes and path.suffix.lower() not in suffixes:
        raise ValueError(
            f"{flag} must be a file that ends in {' or '.join(suffixes)}, not {str(path)!r}"
        )
    if path.is_dir():
        raise ValueError(f"{flag} must be a file, and {str(path)!r} is a folder")
    if not path.parent.is_dir():
        raise ValueError(f"{flag} must lie in a folder that exists, not {str(path)!r}")
    return path


def check_table_place(file: Path) -> None:
    """Raise ValueError for a folder or a device, and OSError for a file that cannot be written and replaced."""
    if file.exists() and not file.is_file():
        raise ValueError(f"--table must be a file, and {str(file)!r} is something else")
    check_place(file)
    check_replaced(file)
