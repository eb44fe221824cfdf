"""What the outputs of a run over many prompts have in common, besides its results.

A prompt is done when its line is in the results. All other outputs are on the disk before that line. So after a
kill they hold all done prompts, and perhaps a part of the next batch, which is dropped.
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

Line = Mapping[str, Any]  # of the results, see `surelock.trace.results`
#: The columns of a table of many prompts: those of `surelock.table`, with the prompt's id in place of the sequence.
COLUMNS = (
    *("id", "step", "position", "token", "text"),
    *("masked", "computed", "locked", "taken_back"),
    *("kl", "confidence"),
)
_MOST_NAMED = 20


@dataclass(slots=True)
class Holding:
    """The ids of the prompts that an output holds."""

    whole: set[str] = field(default_factory=set)  # that it holds completely
    # of which it holds anything, the whole ones included
    begun: set[str] = field(default_factory=set)


class Output(Protocol):
    """A file or a folder to which every prompt adds something.

    The constructor is called before the first decode, and raises ValueError or OSError for a place that cannot be
    used. What the place holds is changed by `keep` and `add` alone.
    """

    place: Path

    def holding(self, tasks: Sequence[Task], done: Mapping[str, Line]) -> Holding:
        """Return which of the done prompts the output holds. Changes nothing."""
        ...

    def keep(self, ids: Collection[str]) -> None:
        """Drop all prompts but `ids`, which the output holds completely. Called once, before `add`."""
        ...

    def add(self, lm: LanguageModel, batch: Sequence[Decoded]) -> None:
        """Add prompts: the disk has them on return."""
        ...

    def close(self) -> None:
        """Join what is still in parts into one file."""
        ...


@frozen
class Lacking:
    """The done prompts that an output lacks."""

    # done before the output was begun, or no prompts of this command: it does without them
    never: list[str]
    lost: list[str]  # it should hold them: they are decoded again


def lacking(holding: Holding, tasks: Sequence[Task], done: Mapping[str, Line]) -> Lacking:
    """Return the done prompts that an output lacks.

    An output that an earlier command did not have lacks the first lines of the results. An output that lost
    prompts lacks later lines.
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
    """Return "3 prompts ('1', '2', '3')", of at most twenty ids, as a sentence names them."""
    more = f" and {len(ids) - _MOST_NAMED} more" if len(ids) > _MOST_NAMED else ""
    count = "1 prompt" if len(ids) == 1 else f"{len(ids)} prompts"
    return f"{count} ({', '.join(map(shown, ids[:_MOST_NAMED]))}{more})"


class RowCounts:
    """Counts the rows of the prompts in a table, to tell whether they are complete."""

    def __init__(self) -> None:
        # by prompt: rows, last position, computed positions
        self._counts: dict[str, list[int]] = {}

    def add(self, name: str, rows: int, last: int, computed: int) -> None:
        """Count rows of a prompt. last: their largest position. computed: how many are of computed positions."""
        counts = self._counts.setdefault(name, [0, 0, 0])
        counts[0] += rows
        counts[1] = max(counts[1], last)
        counts[2] += computed

    def holding(self, done: Mapping[str, Line]) -> Holding:
        """Return which prompts have a row for every step and position, and as many computed ones as their lines say."""
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
    """Raise ValueError for what is no file, and OSError for a file that cannot be written and replaced."""
    if file.exists() and not file.is_file():
        raise ValueError(f"--table must be a file, and {str(file)!r} is something else")
    check_place(file)
    check_replaced(file)
