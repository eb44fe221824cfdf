"""Coroutines in tests: each in a thread of its own, since in this one Playwright's loop may be running."""

import asyncio
import selectors
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")


class MovedClock(asyncio.SelectorEventLoop):
    """A loop that does not wait: where nothing can happen before a time, that time has come."""

    def __init__(self) -> None:
        self._moved = 0.0
        super().__init__(_Impatient(self))

    def time(self) -> float:
        return super().time() + self._moved

    def move(self, seconds: float) -> None:
        self._moved += seconds


class _Impatient(selectors.DefaultSelector):
    def __init__(self, clock: MovedClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if not ready and timeout:
            self._clock.move(timeout)
        return ready


def finished(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """What the coroutine returns or raises."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


def finished_by_a_moved_clock(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """The same, and no second of it is waited for. It starts no thread."""

    def run() -> Result:
        with asyncio.Runner(loop_factory=MovedClock) as runner:
            return runner.run(coroutine)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(run).result()
