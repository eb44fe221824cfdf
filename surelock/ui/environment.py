"""Flags from environment variables, for a Space without a command line: `--keep-mb` is SURELOCK_KEEP_MB."""

import argparse
import os
import re
from typing import Any

_YES, _NO = ("1", "true"), ("0", "false")


def read_environment(parser: argparse.ArgumentParser, flags: list[argparse.Action]) -> None:
    """Set the defaults of a parser's flags from their variables, and add the variables to its help.

    Items of a list are separated by spaces or commas; a flag without a value is 1 or true. A wrong value ends the
    process with a sentence that names the variable.
    """
    for action in flags:
        variable = f"SURELOCK{action.option_strings[-1].upper().replace('-', '_')[1:]}"
        action.help = f"{action.help} [{variable}]"
        if text := os.environ.get(variable, "").strip():
            try:
                parser.set_defaults(**{action.dest: _value(action, text)})
            except (ValueError, argparse.ArgumentTypeError) as error:
                parser.error(f"{variable} {error}, not {text[:60]!r}")


def _value(action: argparse.Action, text: str) -> Any:
    if action.nargs == 0:
        if text.lower() not in (*_YES, *_NO):
            raise ValueError("must be 1 or 0")
        return text.lower() in _YES
    return [_one(action, word) for word in re.split(r"[\s,]+", text) if word] if action.nargs else _one(action, text)


def _one(action: argparse.Action, word: str) -> Any:
    if action.choices is not None and word not in action.choices:
        raise ValueError(f"must be one of {', '.join(action.choices)}")
    if not callable(action.type):
        return word
    try:
        return action.type(word)
    except ValueError:
        raise ValueError("must be a whole number" if action.type is int else "must be a number") from None
