"""The log of the server: at most one line a second of a kind, and no text of a caller.

A message may hold a prompt, the name of a tool or a value that a caller sent. So a message of another library is
written as its format string and its line of code, and an error as its type and its traceback.
"""

import linecache
import logging
import os
import re
import time
import traceback
from collections import OrderedDict, deque
from dataclasses import dataclass
from pathlib import Path

SECONDS = 1.0  # between two lines of a kind
TRACE_SECONDS = 600.0  # between two tracebacks of a kind; other errors take one line
MOST_LINES = 5  # a second, of all kinds
LONGEST = 300  # characters
LONGEST_TRACE = 4000
MOST_ERRORS = 4  # in a chain of causes
MOST_KINDS = 200  # that are remembered; the one seen longest ago makes room
OWN = ("surelock", "uvicorn.error")  # loggers whose messages hold no text of a caller
ADVICE = "pip install"  # in uvicorn's advice on connections that the page does not use
_CONTROL = re.compile(r"[^\x20-\x7e\xa0-\uffff]|[\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class Calm(logging.Filter):
    """Passes one record per kind and second, shortened, with the number of records that were left out."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: OrderedDict[tuple[str, ...], _Kind] = OrderedDict()
        # the times of the last lines
        self._lines: deque[float] = deque([-SECONDS] * MOST_LINES, maxlen=MOST_LINES)

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        text = _text(record)
        error = record.exc_info[1] if record.exc_info else None
        if ADVICE in text:
            return False
        message = str(record.msg) if record.args and record.msg != "%s" else text
        name = (record.name, re.sub(r"\d+", "", message)[:LONGEST], *_origin(error))
        kind = self._seen.pop(name, None) or _Kind()
        self._seen[name] = kind
        if len(self._seen) > MOST_KINDS:
            self._seen.popitem(last=False)
        if now - kind.line < SECONDS or now - self._lines[0] < SECONDS:
            kind.left_out += 1
            return False
        self._lines.append(now)
        traced = now - kind.trace >= TRACE_SECONDS
        _rewrite(record, text, error, traced, kind.left_out)
        kind.line = now
        kind.left_out = 0
        if traced:
            kind.trace = now
        return True


@dataclass
class _Kind:
    """The times of the last line and the last traceback of a kind, and the number of lines left out since."""

    line: float = -SECONDS
    trace: float = -TRACE_SECONDS
    left_out: int = 0


def calm() -> None:
    """Add the filter to every logger of the process, and to later ones."""
    logging.captureWarnings(True)
    only = Calm()

    class Logger(logging.getLoggerClass()):
        def __init__(self, name: str, level: int = logging.NOTSET) -> None:
            super().__init__(name, level)
            self.addFilter(only)

    logging.setLoggerClass(Logger)
    for logger in (logging.getLogger(), *logging.Logger.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger):
            logger.addFilter(only)


def _text(record: logging.LogRecord) -> str:
    """The text of a record without the words of a caller."""
    if record.name in OWN:
        text = record.getMessage()
    elif record.name == "py.warnings":
        text = record.getMessage().partition("Warning: ")[0] + "Warning"  # file, line and category
    else:
        unfilled = record.msg if record.args else _statement(record.pathname, record.lineno)
        text = f"{str(unfilled).strip()} ({Path(record.pathname).name}, line {record.lineno})"
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text.strip())[:LONGEST]


def _statement(file: str, number: int) -> str:
    """The line of code that logs, with the next one if the call begins there."""
    line = linecache.getline(file, number).strip()
    return line + linecache.getline(file, number + 1).strip() if line.endswith("(") else line


def _origin(error: BaseException | None) -> tuple[str, ...]:
    if error is None:
        return ()
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return type(error).__name__, place


def _rewrite(
    record: logging.LogRecord, text: str, error: BaseException | None, traced: bool, left_out: int
) -> None:
    """Let a record say `text`, and its error as a traceback (`traced`) or by its type."""
    if error is not None and traced:
        record.exc_text = _trace(error)
        if len(record.exc_text) > LONGEST_TRACE:
            half = LONGEST_TRACE // 2
            record.exc_text = f"{record.exc_text[:half]} [...] {record.exc_text[-half:]}"
    elif error is not None:
        record.exc_info = None
        text = f"{text.rstrip('.')}: {_reason(error)}"[:LONGEST]
    record.msg = f"{text} ({left_out} more like it)" if left_out else text
    record.args = ()


def _trace(error: BaseException | None) -> str:
    """The traceback of an error, behind those of the errors that caused it."""
    parts: list[str] = []
    while error is not None and len(parts) < MOST_ERRORS:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        frames = "".join(traceback.format_tb(error.__traceback__))
        parts.insert(0, f"Traceback (most recent call last):\n{frames}{_reason(error)}")
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "\n\nThen:\n\n".join(parts)


def _reason(error: BaseException) -> str:
    """The type of an error and, of an OSError, the system's reason. Its message may quote a caller."""
    number = error.errno if isinstance(error, OSError) else None
    return (
        type(error).__name__ if number is None else f"{type(error).__name__}: {os.strerror(number)}"
    )
