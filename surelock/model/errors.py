"""What a person is told of an error."""

from __future__ import annotations

import re

_LONGEST = 200
_PATH = re.compile(r"(?:/[\w.@+-]+){2,}")


def first_line(error: BaseException) -> str:
    """What an error says, without the rest of a long message; its kind where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:_LONGEST]


def without_paths(error: BaseException) -> str:
    """`first_line` without the paths of this machine: of each only the last part."""
    return _PATH.sub(lambda path: path[0].rsplit("/", 1)[1], first_line(error))


def reason_of(error: BaseException) -> str:
    """What went wrong, for the end of a sentence."""
    if isinstance(error, MemoryError) or "out of memory" in str(error).lower():
        return "the device ran out of memory; try a shorter run"
    return first_line(error)
