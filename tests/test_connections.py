"""Connections that say half a request or do not read, floods of them, and what the server writes of it."""

from __future__ import annotations

import asyncio
import io
import logging
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import uvicorn
from gradio import http_server

from surelock.ui import connections, gradio_patches, log
from surelock.ui.connections import MOST, Connection, Crowd, person, room
from surelock.ui.log import Calm
from tests.loops import finished

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
STREAM = GET.replace(b"/ ", b"/stream ", 1)
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n"
Link = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Server:
    """An application behind such connections: says "good", at /stream more than is ever read."""

    def __init__(self, most: int = 9) -> None:
        self.crowd, self.ended, self.read = Crowd(most), 0, 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        while (message := await receive()).get("more_body"):
            self.read += len(message["body"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(1000 if scope["path"] == "/stream" else 0):
            await send({"type": "http.response.body", "body": b"x" * 2**16, "more_body": True})
        self.ended += 1
        await send({"type": "http.response.body", "body": b"good"})

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        http: Any = partial(Connection, crowd=self.crowd)
        server = uvicorn.Server(uvicorn.Config(self, port=0, http=http, log_config=None, lifespan="off"))
        task = asyncio.ensure_future(server._serve())
        while not server.started:
            await asyncio.sleep(0.01)
        self.address = server.servers[0].sockets[0].getsockname()
        yield
        server.should_exit = server.force_exit = True
        await task

    async def connect(self, *said: bytes) -> Link:
        """A connection, which says this, with pauses."""
        link = await asyncio.open_connection(*self.address)
        for text in said:
            link[1].write(text)
            await asyncio.sleep(0.05)
        return link


class Caller:
    """Stands for a connection."""

    def __init__(self, person: str | None) -> None:
        self.person = person


async def answer(link: Link, request: bytes = b"") -> bytes:
    """What comes until a whole answer is there, or the connection ends."""
    if request:
        link[1].write(request)
    try:
        return await asyncio.wait_for(link[0].readuntil(b"good\r\n0\r\n\r\n"), 5)
    except asyncio.IncompleteReadError as error:
        return error.partial


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEAD_SECONDS", "UNREAD_SECONDS"):
        monkeypatch.setattr(connections, name, 0.8)


@pytest.mark.usefixtures("quick")
def test_half_a_request_is_waited_for_some_seconds_however_it_drips() -> None:
    async def go(server: Server) -> None:
        async with server.running():
            drips = [bytes([byte]) for byte in GET[:-2]]
            silent, kept = await server.connect(GET[:9]), await server.connect()
            assert b"good" in await answer(kept, GET)
            dripping = await asyncio.wait_for(server.connect(*drips), 5)
            for link in (silent, kept):
                assert await answer(link) == b""
            assert dripping[0].exception() is not None or dripping[0].at_eof()
            assert not server.crowd._here and not server.crowd._waiting

    finished(go(Server()))


@pytest.mark.usefixtures("quick")
def test_who_is_slow_but_comes_is_served_again_and_again() -> None:
    async def go(server: Server) -> None:
        async with server.running():
            link = await server.connect(GET[:9], GET[9:])
            for _ in range(3):
                assert b"200 OK" in await answer(link)
                await asyncio.sleep(0.25)
                link[1].write(POST)
                await asyncio.sleep(0.1)
                link[1].write(b"body")

    finished(go(Server()))


def test_who_has_asked_already_does_not_wait_for_the_next_request() -> None:
    async def go(server: Server) -> None:
        async with server.running():
            link = await server.connect(GET + STREAM)
            assert b"200 OK" in await answer(link) and server.crowd._here and not server.crowd._waiting

    finished(go(Server()))


def test_a_head_without_end_is_refused_once_and_a_body_in_pieces_is_not_read(caplog: pytest.LogCaptureFixture) -> None:
    async def go(server: Server) -> None:
        async with server.running():
            await server.connect(GET[:-2] + b"a: " + b"b" * 2**18)
            head = POST.replace(b"Content-Length: 4", b"Transfer-Encoding: chunked")
            pieces = await server.connect(head + b"1\r\nx\r\n" * 2**16)
            await asyncio.sleep(0.2)
            assert server.read < connections.SLICE
            pieces[1].close()

    finished(go(Server()))
    assert caplog.messages == ["Invalid HTTP request received."]


@pytest.mark.usefixtures("quick")
def test_an_answer_that_nobody_reads_ends() -> None:
    async def go(server: Server) -> None:
        async with server.running():
            link = await server.connect(STREAM)
            read = await server.connect(STREAM)
            for _ in range(4):
                await asyncio.sleep(0.4)
                assert await read[0].read(2**22), "who reads, however slowly, is sent more"
            assert server.ended == 1
            del link

    finished(go(Server()))


def test_where_no_room_is_left_the_longest_silent_goes() -> None:
    async def go(server: Server) -> None:
        async with server.running():
            stream, first, second = await server.connect(STREAM), await server.connect(), await server.connect(GET[:9])
            assert b"200 OK" in await answer(await server.connect(), GET)
            assert await answer(first) == b"", "the one before took its place"
            assert b"200 OK" in await answer(second, GET[9:])
            streams = [await server.connect(STREAM) for _ in range(2)]
            assert (await answer(await server.connect())).startswith(b"HTTP/1.1 503")
            assert b"x" * 99 in await stream[0].read(2**16)
            streams[0][1].close()
            await asyncio.sleep(0.2)
            assert b"200 OK" in await answer(await server.connect(), GET)

    finished(go(Server(3)))


def test_an_address_is_a_person_where_no_proxy_speaks_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPACE_ID", raising=False)
    assert [person(each) for each in ("127.0.0.1", "::1", "::ffff:127.0.0.2")] == [None] * 3
    assert person("9.8.7.6") == person("::ffff:9.8.7.6") == "9.8.7.6"
    assert person("2001:db8::1") == person("2001:db8::ffff:1") != person("2001:db8:0:1::1")
    crowd = Crowd(MOST)
    class_: list[Any] = [Caller("9.8.7.6") for _ in range(60 * 6)]
    assert all(crowd.enter(each) for each in class_), "sixty browsers behind one address"
    others: list[Any] = [Caller("9.8.7.6") for _ in range(60)]
    assert sum(crowd.enter(each) for each in others) == 40
    elsewhere: list[Any] = [Caller("9.8.7.7"), Caller(None)]
    assert all(crowd.enter(each) for each in elsewhere)
    crowd.leave(class_.pop())
    assert [crowd.enter(each) for each in others[-2:]] == [True, False], "one has gone, one may come"
    for each in class_:
        crowd.leave(each)
    assert crowd.enter(others[-1])
    monkeypatch.setenv("SPACE_ID", "me/page")
    assert person("9.8.7.6") is None


@pytest.mark.skipif(sys.platform == "win32", reason="Windows counts no sockets")
def test_connections_stay_below_the_files_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    for files, most in ((1024, 512), (256, 128), (2**20, MOST), (resource.RLIM_INFINITY, MOST)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, files=files: (files, files))
        assert room() == most


@pytest.mark.parametrize(("most", "waiting"), [(2000, 100), (60, 12)])
def test_gradios_server_is_bounded(most: int, waiting: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "Server", http_server.Server)
    monkeypatch.setattr(gradio_patches, "room", lambda: most)
    gradio_patches.bound_connections()
    http_server.Server(config := uvicorn.Config(Server()))
    assert (config.backlog, config.ws, config.http.keywords["crowd"].most) == (waiting, "none", most)  # type: ignore


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
    for depth in (200, 1, 1):
        later()
        failed(logger, ValueError("y" * 10_000), depth)
    first, *others = caplog.records[-3:]
    assert re.fullmatch(r"Traceback(?s:.){1991} \[\.\.\.\] (?s:.){1990}ValueError", str(first.exc_text))
    assert [each.getMessage() for each in others] == ["A request failed: ValueError"] * 2
    for kind in "abcdefghij":
        logger.error(kind)
    assert len(caplog.records) == 4 + 3 + log.MOST_LINES - 1, "of all kinds, too"
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
        ("root", lambda logger: logger.warning(f"Not valid: {SAID}"), 'logger.warning(f"Not valid: {SAID}")'),
        ("mcp.server", lambda logger: logger.warning("Tool '%s' not listed", SAID), "Tool '%s' not listed (test_"),
        ("py.warnings", lambda logger: logger.warning("%s", f"/a/b.py:7: UserWarning: {SAID}"), "/a/b.py:7: UserW"),
        ("asyncio", lambda logger: failed(logger, ValueError(SAID)), "ValueError"),
        ("mcp.session", lambda logger: failed(logger, ExceptionGroup(SAID, [TypeError(SAID)])), "TypeError"),
        ("surelock", lambda logger: failed(logger, a_cause()), "KeyError\n\nThen:"),
        ("gradio", lambda logger: failed(logger, OSError(24, SAID, SAID)), "OSError: Too many open files"),
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
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr
    assert "a prompt" not in said.replace('logging.warning("a prompt")', "") and 3 <= said.count("\n") <= 5, said
