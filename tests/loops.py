"""Coroutines in tests: each in a thread of its own, since in this one Playwright's loop may be running."""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

Result = TypeVar("Result")


def finished(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """What the coroutine returns or raises."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


_MAKING = threading.Lock()


@cache
def _server_loop() -> asyncio.AbstractEventLoop:
    """One loop for all that is followed, as a server has one."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop


def drawn(items: AsyncGenerator[Result]) -> Iterator[Result]:
    """The same items, each when it is asked for."""

    async def following() -> Result | None:
        return await anext(items, None)

    with _MAKING:
        loop = _server_loop()
    try:
        while (item := asyncio.run_coroutine_threadsafe(following(), loop).result()) is not None:
            yield item
    finally:
        asyncio.run_coroutine_threadsafe(items.aclose(), loop).result()


def messages(batches: AsyncGenerator[str] | Iterable[str]) -> list[dict[str, Any]]:
    """The messages of a run's batches."""
    given = drawn(batches) if isinstance(batches, AsyncGenerator) else batches
    return [message for batch in given for message in json.loads(batch)]
