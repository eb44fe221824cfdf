"""The log of the server: at most one line a second of each kind."""

from __future__ import annotations

import logging
import re
import time
import traceback
from collections import OrderedDict, deque
from dataclasses import dataclass

SECONDS = 1.0  # between two lines of a kind
TRACE_SECONDS = 600.0  # between two tracebacks of a kind; others are told in a line
MOST_LINES = 5  # a second, of all kinds
LONGEST, LONGEST_TRACE = 300, 4000  # characters
MOST_KINDS = 200  # that are told apart; the one that was seen longest ago makes room
LOGGERS = ("uvicorn.error", "asyncio", "py.warnings", "surelock")


class Calm(logging.Filter):
    """Passes one record of each kind a second, shortened, with the number of records that were left out."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: OrderedDict[tuple[str, ...], _Kind] = OrderedDict()
        self._lines: deque[float] = deque([-SECONDS] * MOST_LINES, maxlen=MOST_LINES)  # the times of the last ones

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is written."""
        now, name = time.monotonic(), _kind(record)
        kind = self._seen.pop(name, None) or _Kind()
        self._seen[name] = kind
        if len(self._seen) > MOST_KINDS:
            self._seen.popitem(last=False)
        if now - kind.line < SECONDS or now - self._lines[0] < SECONDS:
            kind.left_out += 1
            return False
        self._lines.append(now)
        whole = now - kind.trace >= TRACE_SECONDS
        _shorten(record, whole, kind.left_out)
        kind.line, kind.trace, kind.left_out = now, now if whole else kind.trace, 0
        return True


@dataclass
class _Kind:
    """The times of the last line and the last traceback of a kind, and the number of lines left out since."""

    line: float = -SECONDS
    trace: float = -TRACE_SECONDS
    left_out: int = 0


def calm() -> None:
    """Add the filter to all loggers of the server."""
    logging.captureWarnings(True)
    only = Calm()
    for name in LOGGERS:
        logging.getLogger(name).addFilter(only)


def _kind(record: logging.LogRecord) -> tuple[str, ...]:
    """The kind of a record: its text without numbers, and of an error its type and source line."""
    said = record.getMessage() if record.msg == "%s" else str(record.msg)
    return record.name, re.sub(r"\d+", "", said.partition("\n")[0][:100]), *_origin(record)


def _origin(record: logging.LogRecord) -> tuple[str, ...]:
    if not record.exc_info or record.exc_info[0] is None:
        return ()
    frames = traceback.extract_tb(record.exc_info[2])
    return (record.exc_info[0].__name__, f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "")


def _shorten(record: logging.LogRecord, whole: bool, left_out: int) -> None:
    said = record.getMessage().strip()[:LONGEST]
    if record.exc_info and record.exc_info[0]:
        if whole:
            lines = "".join(traceback.format_exception(*record.exc_info))
            half = LONGEST_TRACE // 2
            record.exc_text = lines if len(lines) <= LONGEST_TRACE else f"{lines[:half]} [...] {lines[-half:]}"
        else:
            last = traceback.format_exception_only(*record.exc_info[:2])[-1]
            said, record.exc_info = f"{said}: {last.strip()}"[:LONGEST], None
    record.msg, record.args = (f"{said} ({left_out} more like it)" if left_out else said), ()
