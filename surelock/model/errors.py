"""What a person is told of an error."""

from __future__ import annotations

import re
from typing import Any

_LONGEST, _LONGEST_VALUE = 200, 60
_MOST_BITS = 53
_PATH = re.compile(r"(?:/[\w.@+-]+){2,}")


def first_line(error: BaseException) -> str:
    """What an error says, without the rest of a long message; its kind where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:_LONGEST]


def panics() -> tuple[type[BaseException], ...]:
    """What a panic of a library in Rust is raised as: each has a class of its own, in no module, from its first one on.
    To be asked where it is caught.
    """
    return tuple(kind for kind in BaseException.__subclasses__() if kind.__name__ == "PanicException")


def cut(text: Any, most: int = 3 * _LONGEST) -> str:
    """A text of at most so many characters and an ellipsis."""
    text = str(text)
    return text if len(text) <= most else f"{text[:most]}…"


def shown(value: Any) -> str:
    """A value as a sentence shows it: its repr, cut."""
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:  # Python does not write the longest
        return "a number beyond 2^53"
    try:
        return cut(repr(value), _LONGEST_VALUE)
    except RecursionError:
        return "something nested too deeply"


def without_paths(error: BaseException) -> str:
    """`first_line` without the paths of this machine: of each only the last part."""
    return _PATH.sub(lambda path: path[0].rsplit("/", 1)[1], first_line(error))


def reason_of(error: BaseException) -> str:
    """What went wrong, for the end of a sentence."""
    if isinstance(error, MemoryError) or "out of memory" in str(error).lower():
        return "the device ran out of memory; try a shorter run"
    return first_line(error)
