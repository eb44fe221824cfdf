"""A parser of command lines that suggests the nearest flag, command or value for one that it does not know."""

import argparse
import re
from typing import Any, NoReturn

from surelock.errors import nearest


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors end with what was probably meant. An unknown flag is its own parser's error."""

    def parse_known_args(self, *args: Any, **kwargs: Any) -> Any:
        given, rest = super().parse_known_args(*args, **kwargs)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return given, rest

    def error(self, message: str) -> NoReturn:
        if unknown := re.search(r"unrecognized arguments:.*?(--[\w-]+)", message):
            flags = [flag for action in self._actions for flag in action.option_strings]
            message += nearest(unknown[1], flags)
        elif wrong := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message):
            message += nearest(wrong[1], [word.strip("'\" ") for word in wrong[2].split(",")])
        self.exit(2, f"{self.prog}: error: {message}\n")
