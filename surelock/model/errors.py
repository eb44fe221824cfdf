"""What a person is told of an error."""

from __future__ import annotations

_LONGEST = 200


def first_line(error: BaseException) -> str:
    """What an error says, without the rest of a long message; its kind where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:_LONGEST]
