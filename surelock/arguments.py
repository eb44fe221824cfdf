"""The start of a command line program: standard streams, environment, and a parser that suggests similar words."""

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
    """Open missing standard streams on the null device, and let the other streams write UTF-8, as files do.

    Libraries ask a stream whether it is a terminal, so a missing stream would raise an error. A process has no standard
    streams after `>&-`, under pythonw, and as a service. Without UTF-8, a locale or PYTHONIOENCODING may name an
    encoding that lacks letters of a text.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # open until the process ends
        elif mode == "w" and isinstance(stream, TextIOWrapper) and not is_utf8(stream.encoding):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def start(*readers: str) -> None:
    """Prepare a command: open streams, leave the current folder out of the module path, check the environment.

    readers: arguments of `check_environment` in addition to "start".

    Raises ValueError for a wrong variable.
    """
    open_streams()
    leave_current_folder()
    check_environment("start", *readers)


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors suggest a similar word. A subparser reports its unknown flags itself."""

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
