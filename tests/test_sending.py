"""Nothing is sent under a lock, and every send has a time limit: a client that reads nothing holds up no other."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message

from surelock.ui.gate import UNREAD_SECONDS, Gate
from surelock.ui.run_routes import RunRoutes
from surelock.ui.serving import KeptAnswers
from tests.loops import finished, finished_by_a_moved_clock

SCOPE = {
    "type": "http",
    "method": "GET",
    "path": "/",
    "scheme": "http",
    "query_string": b"",
    "path_params": {"id": "a"},
}


class Client:
    """A client of an application. reads: whether it takes what is sent. parts: what it has taken."""

    def __init__(
        self, app: ASGIApp, reads: bool = True, address: str = "a", host: str = "localhost"
    ) -> None:
        self.app = app
        self.reads = reads
        self.scope = {**SCOPE, "client": (address, 1), "headers": [(b"host", host.encode())]}
        self.parts: list[Message] = []

    async def send(self, message: Message) -> None:
        if not self.reads and message["type"] == "http.response.body":
            await asyncio.Event().wait()
        self.parts.append(message)

    async def receive(self) -> Message:
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def asks(self, **more: Any) -> bytes:
        await self.app(self.scope | more, self.receive, self.send)
        return b"".join(part.get("body", b"") for part in self.parts)


async def beside(unread: Client, others: Callable[[], Awaitable[Any]]) -> Any:
    """What others get while a client reads nothing."""
    waits = asyncio.ensure_future(unread.asks())
    while not unread.parts:
        await asyncio.sleep(0)
    try:
        async with asyncio.timeout(10):
            return await others()
    finally:
        waits.cancel()


def test_what_is_kept_is_sent_beside_a_client_that_reads_nothing() -> None:
    async def page(request: Request) -> PlainTextResponse:
        return PlainTextResponse("the page")

    kept = KeptAnswers(Starlette(routes=[Route("/", page)]))

    async def visit() -> list[bytes]:
        await Client(kept).asks()
        return await beside(
            Client(kept, reads=False),
            lambda: asyncio.gather(*(Client(kept).asks() for _ in range(3))),
        )

    assert finished(visit()) == [b"the page"] * 3


def test_what_is_kept_does_not_wait_for_what_is_made() -> None:
    """A page under a name that nobody has asked for yet, and the configuration, which is still being made."""
    ends = asyncio.Event()

    async def page(request: Request) -> PlainTextResponse:
        return PlainTextResponse(f"of {request.url.hostname}")

    async def config(request: Request) -> PlainTextResponse:
        await ends.wait()
        return PlainTextResponse("made")

    kept = KeptAnswers(Starlette(routes=[Route("/", page), Route("/config", config)]))

    async def visit() -> list[bytes]:
        await Client(kept).asks()
        slow = [
            asyncio.ensure_future(Client(kept, host=f"{n}.hf.space").asks(path="/config"))
            for n in range(300)
        ]
        await asyncio.sleep(0)
        async with asyncio.timeout(10):
            there = [await Client(kept, host=host).asks() for host in ("localhost", "new.hf.space")]
        ends.set()
        return there + list({await each for each in slow})

    assert finished(visit()) == [b"of localhost", b"of new.hf.space", b"made"]


def test_an_export_that_is_not_read_blocks_none_of_its_address() -> None:
    runs: Any = SimpleNamespace(find=lambda _: run)
    recorder = SimpleNamespace(written=lambda steps: iter(["x" * 70_000] * 40))
    run = SimpleNamespace(race=SimpleNamespace(recorder=recorder), steps=None)
    run_routes = RunRoutes(Mock(), Mock(), Mock(), runs, 0)

    async def trace(scope: Any, receive: Any, send: Any) -> None:
        await (await run_routes.trace(Request(scope, receive)))(scope, receive, send)

    others = [Client(trace) for _ in range(3)]
    read = finished(
        beside(
            Client(trace, reads=False), lambda: asyncio.gather(*(other.asks() for other in others))
        )
    )
    assert [len(each) for each in read] == [40 * 70_000] * 3


@pytest.mark.parametrize("streams", [False, True])
def test_a_client_that_reads_nothing_is_let_go(streams: bool) -> None:
    """One that reads a piece now and then is not, however long it takes."""
    closed: list[str] = []

    async def endless() -> AsyncGenerator[bytes]:
        try:
            while True:
                yield b"x" * 100_000
        finally:
            closed.append("stream")

    async def answer(request: Request) -> Any:
        return StreamingResponse(endless()) if streams else PlainTextResponse("x" * 10_000_000)

    gate = Starlette(routes=[Route("/", answer)], middleware=[Middleware(Gate)])
    slow = Client(gate)
    taken = 0

    async def now_and_then(message: Message) -> None:
        nonlocal taken
        taken += 1
        await asyncio.sleep(0.9 * UNREAD_SECONDS if taken < 20 else 2 * UNREAD_SECONDS)

    slow.send = now_and_then  # type: ignore[method-assign]
    finished_by_a_moved_clock(slow.asks())
    assert taken == 20 and closed == ["stream"] * streams


def test_a_stream_that_has_nothing_to_send_for_long_goes_on() -> None:
    """The limit is on what a client takes, not on what an application computes."""

    async def quiet() -> AsyncGenerator[bytes]:
        for part in (b"a", b"b", b"c"):
            await asyncio.sleep(2 * UNREAD_SECONDS)
            yield part

    async def answer(request: Request) -> Any:
        return StreamingResponse(quiet())

    gate = Starlette(routes=[Route("/", answer)], middleware=[Middleware(Gate)])
    assert finished_by_a_moved_clock(Client(gate).asks()) == b"abc"
