"""What a command line begins with: its standard streams, and a parser that suggests the nearest known word."""

import argparse
import os
import re
import sys
from io import TextIOWrapper
from typing import Any, NoReturn

from surelock.current_folder import leave_current_folder
from surelock.environment import check_environment, is_utf8
from surelock.errors import nearest


def open_streams() -> None:
    """Open every missing standard stream on the null device, and let the others write UTF-8, as files do.

    Libraries ask a stream whether it is a terminal. A process is started without them by `>&-`, by pythonw and as a
    service. A locale or PYTHONIOENCODING may name an encoding that has no letter of a text.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # as long as the process lives
        elif mode == "w" and isinstance(stream, TextIOWrapper) and not is_utf8(stream.encoding):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def start(*readers: str) -> None:
    """Begin a command: its streams, its module path, its environment. readers: further ones, see `check_environment`.

    Raises ValueError for a variable that is wrong.
    """
    open_streams()
    leave_current_folder()
    check_environment("start", *readers)


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors end with what was probably meant. An unknown flag is its own parser's error."""

    def parse_known_args(self, *args: Any, **kwargs: Any) -> Any:
        arguments, rest = super().parse_known_args(*args, **kwargs)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return arguments, rest

    def error(self, message: str) -> NoReturn:
        if unknown := re.search(r"unrecognized arguments:.*?(--[\w-]+)", message):
            flags = [flag for action in self._actions for flag in action.option_strings]
            message += nearest(unknown[1], flags)
        elif wrong := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message):
            message += nearest(wrong[1], [word.strip("'\" ") for word in wrong[2].split(",")])
        self.exit(2, f"{self.prog}: error: {message}\n")
