"""The standard streams of a process that was started without them: `>&-`, pythonw, a service."""

import os
import sys


def open_streams() -> None:
    """Open each missing standard stream on the null device. Libraries ask a stream whether it is a terminal."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # as long as the process lives
