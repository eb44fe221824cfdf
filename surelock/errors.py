"""Error messages in plain sentences."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

_LONGEST = 200
_LONGEST_VALUE = 60
_MOST_BITS = 53
_PATH = re.compile(r"(?:/[\w.@+-]+){2,}")


class CheckpointError(ValueError):
    """Raised for a checkpoint that is missing, damaged or not supported. The message names the file, key or tensor."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, cut to 200 characters; the name of its class if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:_LONGEST]


def panics() -> tuple[type[BaseException], ...]:
    """Return the classes of panics of Rust libraries.

    A library makes its class at its first panic, so call this in `except`.
    """
    return tuple(
        kind for kind in BaseException.__subclasses__() if kind.__name__ == "PanicException"
    )


def cut(text: Any, most: int = 3 * _LONGEST) -> str:
    """Return a text cut to `most` characters, with an ellipsis if something was cut."""
    text = str(text)
    return text if len(text) <= most else f"{text[:most]}…"


def shown(value: Any) -> str:
    """Return the repr of a value for a message, cut to 60 characters."""
    # Python raises an error instead of writing a very long number.
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return "a number beyond 2^53"
    try:
        return cut(repr(value), _LONGEST_VALUE)
    except RecursionError:
        return "something nested too deeply"


def nearest(name: Any, names: Iterable[str]) -> str:
    """Return ": did you mean 'stories'?" with the most similar known name, or "" if no name is similar."""
    close = get_close_matches(name, list(names), 1, 0.7) if isinstance(name, str) else []
    return f": did you mean {close[0]!r}?" if close else ""


def without_paths(error: BaseException) -> str:
    """Return `first_line` with every path cut to its last part, since paths of the server are not shown."""
    return _PATH.sub(lambda path: path[0].rsplit("/", 1)[1], first_line(error))


def reason_of(error: BaseException) -> str:
    """Return the reason of an error, as the end of a sentence."""
    if isinstance(error, MemoryError) or "out of memory" in str(error).lower():
        return "the device ran out of memory; try a shorter run"
    return first_line(error)
