"""A pytest plugin that keeps V8's coverage of each page that a browser test opens, in the form of NODE_V8_COVERAGE."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, CDPSession, Error, Page

_OPENED: list[CDPSession] = []
_NUMBERS = count()
_new_page = BrowserContext.new_page


def _measured(context: BrowserContext) -> Page:
    page = _new_page(context)
    session = context.new_cdp_session(page)
    session.send("Profiler.enable")
    session.send("Profiler.startPreciseCoverage", {"callCount": True, "detailed": True})
    _OPENED.append(session)
    return page


BrowserContext.new_page = _measured  # type: ignore[method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[object]:
    """After the test and before its pages close; a page that the test has closed tells nothing."""
    try:
        return (yield)
    finally:
        for session in list(_OPENED):
            try:
                taken = session.send("Profiler.takePreciseCoverage")
            except Error:
                _OPENED.remove(session)
                continue
            file = Path(os.environ["MUTANTS_DATA"]) / f"coverage-{os.getpid()}-{next(_NUMBERS)}.json"
            file.write_text(json.dumps(taken))
