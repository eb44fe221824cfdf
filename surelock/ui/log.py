"""The log of the server: at most one record a second of a kind (see `Calm`), and never a text that a caller sent.

A message may contain a prompt, the name of a tool or another value that a caller sent. So for another library's message
the log writes its format string, or the source line that logs it if there are no arguments, with file and line number.
For an error the log writes the type and, at most every TRACE_SECONDS per kind, the traceback.
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

SECONDS = 1.0  # the time between two lines of one kind
#: The time between two tracebacks of one kind; in between, an error takes one line.
TRACE_SECONDS = 600.0
MOST_LINES = 5  # the most lines a second, of all kinds together
LONGEST = 300  # the most characters of a line
LONGEST_TRACE = 4000  # the most characters of a traceback
MOST_ERRORS = 4  # the most errors of a chain of causes that are written
MOST_KINDS = 200  # the most kinds that are remembered; the kind seen longest ago is forgotten first
OWN = ("surelock", "uvicorn.error")  # loggers whose messages never contain a caller's text
#: Messages of uvicorn with these words are dropped: it advises to install web sockets, which the page does not use.
ADVICE = "pip install"
_CONTROL = re.compile(r"[^\x20-\x7e\xa0-\uffff]|[\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class Calm(logging.Filter):
    """A filter that passes at most one record a second of a kind, and MOST_LINES of all kinds.

    Records are of one kind if they agree in logger, in format string (or text) without digits, and in type and place of
    the error. The filter shortens a record and adds the number of records of its kind that were left out before.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seen: OrderedDict[tuple[str, ...], _Kind] = OrderedDict()
        # the monotonic times of the last MOST_LINES lines
        self._lines: deque[float] = deque([-SECONDS] * MOST_LINES, maxlen=MOST_LINES)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is written. Rewrite its text and its error."""
        now = time.monotonic()
        text = _text(record)
        error = record.exc_info[1] if record.exc_info else None
        if record.name == "uvicorn.error" and ADVICE in text:
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
    """What the filter remembers of one kind of message."""

    line: float = -SECONDS  # monotonic seconds of the last line
    trace: float = -TRACE_SECONDS  # monotonic seconds of the last traceback
    left_out: int = 0  # lines that were left out since the last line


def calm() -> None:
    """Add the filter to every logger of the process, and to every logger that is created later."""
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
    """Return the text of a record without anything that a caller sent."""
    if record.name in OWN:
        text = record.getMessage()
    elif record.name == "py.warnings":
        text = record.getMessage().partition("Warning: ")[0] + "Warning"  # file, line and category
    else:
        unfilled = record.msg if record.args else _statement(record.pathname, record.lineno)
        text = f"{str(unfilled).strip()} ({Path(record.pathname).name}, line {record.lineno})"
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text.strip())[:LONGEST]


def _statement(file: str, number: int) -> str:
    """Return the line of code that logs. If the line ends with an opening bracket, the next line is added."""
    line = linecache.getline(file, number).strip()
    return line + linecache.getline(file, number + 1).strip() if line.endswith("(") else line


def _origin(error: BaseException | None) -> tuple[str, ...]:
    """Return the type of an error and where the error was raised, as file:line; () for None."""
    if error is None:
        return ()
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return type(error).__name__, place


def _rewrite(
    record: logging.LogRecord, text: str, error: BaseException | None, traced: bool, left_out: int
) -> None:
    """Replace the text of a record by `text`, and write its error as a traceback (if `traced`) or as its type.

    left_out: the number of records of this kind that were left out before.
    """
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
    """Return the traceback of an error. The tracebacks of its causes come first."""
    parts: list[str] = []
    while error is not None and len(parts) < MOST_ERRORS:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        frames = "".join(traceback.format_tb(error.__traceback__))
        parts.insert(0, f"Traceback (most recent call last):\n{frames}{_reason(error)}")
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "\n\nThen:\n\n".join(parts)


def _reason(error: BaseException) -> str:
    """Return the type of an error, and the system's reason for an OSError.

    The message is left out: it may quote a caller.
    """
    name = type(error).__name__
    number = error.errno if isinstance(error, OSError) else None
    return name if number is None else f"{name}: {os.strerror(number)}"
