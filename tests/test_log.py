"""The log: a line a second of each kind, and nothing that a caller said."""

import io
import logging
import re
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from surelock.ui import log
from surelock.ui.log import Calm


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Lets a second pass for the log."""
    now = [100.0]
    monkeypatch.setattr(log.time, "monotonic", lambda: now[0])

    def wait() -> None:
        now[0] += 1

    return wait


@pytest.fixture
def calm() -> Iterator[Calm]:
    """The filter, on the log of the package."""
    logging.getLogger("surelock").addFilter(made := Calm())
    yield made
    logging.getLogger("surelock").removeFilter(made)


def test_advice_to_install_is_dropped_from_uvicorn_alone(calm: Calm) -> None:
    advice = "No WebSocket library detected. Please use \"pip install 'uvicorn[standard]'\""
    names = ("uvicorn.error", "surelock")
    records = [logging.LogRecord(name, 30, "", 0, advice, (), None) for name in names]
    assert [calm.filter(record) for record in records] == [False, True]


def test_the_log_has_a_line_a_second_of_a_kind(
    later: Callable[[], None], calm: Calm, caplog: pytest.LogCaptureFixture
) -> None:
    logger = logging.getLogger("surelock")
    for number in range(500):
        logger.error("Too many open files: %d", number)
        logger.warning(f"Invalid {number} request")
        logger.error('"%s" is gone', chr(97 + number % 26))  # a text with places in it is one kind
    assert caplog.messages == ["Too many open files: 0", "Invalid 0 request", '"a" is gone']
    later()
    logger.error("Too many open files: %d", 7)
    assert caplog.messages[-1] == "Too many open files: 7 (499 more like it)"
    later()
    logger.error("Too many open files: %d", 8)
    assert caplog.messages[-1] == "Too many open files: 8", "none was left out since"
    for depth in (200, 1, 1):
        later()
        failed(logger, ValueError("y" * 10_000), depth)
    first, *others = caplog.records[-3:]
    assert re.fullmatch(
        r"Traceback(?s:.){1991} \[\.\.\.\] (?s:.){1990}ValueError", str(first.exc_text)
    )
    assert [each.getMessage() for each in others] == ["A request failed: ValueError"] * 2
    for kind in "abcdefghij":
        logger.error(kind)
    assert len(caplog.records) == 5 + 3 + log.MOST_LINES - 1, "of all kinds, too"
    for number in range(2000):
        calm.filter(logging.LogRecord("surelock", 40, "", 0, chr(1000 + number), (), None))
    assert len(calm._seen) == log.MOST_KINDS and list(calm._seen)[-1] == ("surelock", chr(2999))


def failed(logger: logging.Logger, error: BaseException, depth: int = 1) -> None:
    """Log an error that came through so many calls."""
    try:
        raised(error, depth)
    except type(error):
        logger.error("A request failed.", exc_info=True)


def raised(error: BaseException, depth: int) -> None:
    if not depth:
        raise error
    if depth % 2:  # a line that repeats would be told once
        raised(error, depth - 1)
    raised(error, depth - 1)


SAID = "a prompt\nWARNING: forged \x1b[31m\u2028"


def a_cause() -> BaseException:
    error = ValueError(SAID)
    error.__cause__ = KeyError(SAID)
    return error


@pytest.mark.parametrize(
    ("name", "write", "written"),
    [
        (
            "root",
            lambda logger: logger.warning(f"Not valid: {SAID}"),
            'logger.warning(f"Not valid: {SAID}")',
        ),
        (
            "mcp.server",
            lambda logger: logger.warning("Tool '%s' not listed", SAID),
            "Tool '%s' not listed (test_",
        ),
        (
            "py.warnings",
            lambda logger: logger.warning("%s", f"/a/b.py:7: UserWarning: {SAID}"),
            "/a/b.py:7: UserW",
        ),
        ("asyncio", lambda logger: failed(logger, ValueError(SAID)), "ValueError"),
        (
            "mcp.session",
            lambda logger: failed(logger, ExceptionGroup(SAID, [TypeError(SAID)])),
            "TypeError",
        ),
        ("surelock", lambda logger: failed(logger, a_cause()), "KeyError\n\nThen:"),
        (
            "gradio",
            lambda logger: failed(logger, OSError(24, SAID, SAID)),
            "OSError: Too many open files",
        ),
        ("uvicorn.error", lambda logger: logger.error("A\x1b[2J\u202eb\n"), r"A\x1b[2J\u202eb"),
    ],
)
def test_the_log_holds_no_text_of_a_caller_and_no_control_character(
    name: str, write: Callable[[logging.Logger], None], written: str, later: Callable[[], None]
) -> None:
    logger = logging.Logger(name)
    logger.addHandler(handler := logging.StreamHandler(stream := io.StringIO()))
    handler.addFilter(Calm())
    for _ in range(2):  # the second time without the lines of code
        later()
        write(logger)
    lines = stream.getvalue()
    assert written in lines and not re.search(r"a prompt|forged|[^\n\x20-\x7e]", lines), lines


def test_every_logger_is_calm_also_one_that_comes_later() -> None:
    code = """
import logging
from surelock.ui.log import calm
before = logging.getLogger("a library")
calm()
after = logging.getLogger("a.library.that.comes.later")
for _ in range(99):
    for logger in (before, after, logging.getLogger()):
        logger.warning("%s", "a prompt")
        logging.warning("a prompt")
"""
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stderr
    assert (
        "a prompt" not in said.replace('logging.warning("a prompt")', "")
        and 3 <= said.count("\n") <= 5
    ), said
