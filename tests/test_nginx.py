"""What nginx holds off: connections that send or read slowly, and floods. The page behind it serves on."""

import socket
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from httpx_sse import connect_sse

from tests.browser.server import App
from tests.browser.visitor import Visitor
from tests.nginx import NGINX, front
from tests.waiting import HANGS

LEFT = 45.0  # seconds: without a limit of its own nginx lets what does not end its request stay for sixty
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        NGINX is None, reason="no nginx on this machine: on Debian, apt-get install nginx-light"
    ),
]
POST = (
    "POST /surelock/runs HTTP/1.1\r\nHost: localhost\r\n"
    "Content-Type: application/json\r\nContent-Length: 900\r\n\r\n"
)


@pytest.fixture
def behind(app: App, tmp_path: Path) -> Iterator[App]:
    limits = dict.fromkeys(("client_header_timeout", "client_body_timeout", "send_timeout"), "2s")
    limits |= {"limit_req": "zone=requests burst=100 nodelay", "limit_conn": "connections 170"}
    with front(app, tmp_path, **limits) as served:
        yield served


def linked(app: App, stack: ExitStack) -> socket.socket:
    """A connection of another client than the visitors."""
    link = stack.enter_context(socket.socket())
    link.bind(("127.0.0.2", 0))
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    link.connect((str(urlsplit(app.url).hostname), urlsplit(app.url).port))
    link.settimeout(LEFT)
    return link


def events(app: App, steps: int) -> Iterator[str]:
    """What comes of a run of so many steps."""
    visitor = Visitor(app.url)
    form = visitor.form() | {"gen_length": steps, "steps": steps, "block_length": 16}
    visitor.close()
    with httpx.Client(base_url=app.url, timeout=HANGS) as http:
        run = http.post("/surelock/runs", json=form).json()["id"]
        with connect_sse(http, "GET", f"/surelock/runs/{run}/events") as stream:
            yield from (each.event for each in stream.iter_sse())


def runs(app: App) -> None:
    assert list(events(app, 16))[-1] == "end"


def test_a_run_is_streamed_through_it_as_it_is_computed(behind: App) -> None:
    begun = time.monotonic()
    came = [time.monotonic() - begun for event in events(behind, 128) if event == "records"]
    assert len(came) == 128 and came[0] < came[-1] / 2, "the first step does not wait for the last"


@pytest.mark.parametrize("sent", ["GET / HTTP/1.1\r\nHost: localhost\r\n", "", f"{POST}{{"])
def test_what_does_not_end_its_request_is_cut_off(behind: App, sent: str) -> None:
    with ExitStack() as stack:
        links = [linked(behind, stack) for _ in range(150)]
        for link in links:
            link.sendall(sent.encode())
        runs(behind)
        for link in links:
            with suppress(ConnectionResetError):
                assert not link.recv(1000).startswith(b"HTTP/1.1 2")


def test_what_does_not_read_holds_nothing_up(behind: App) -> None:
    with ExitStack() as stack:
        for _ in range(100):
            link = linked(behind, stack)
            link.sendall(b"GET /surelock/plotly.min.js HTTP/1.1\r\nHost: localhost\r\n\r\n")
        runs(behind)


def test_of_a_flood_so_many_are_served_and_the_others_are_refused_at_once(behind: App) -> None:
    transport = httpx.HTTPTransport(local_address="127.0.0.2")
    with (
        httpx.Client(base_url=behind.url, transport=transport, timeout=HANGS) as http,
        ThreadPoolExecutor(8) as pool,
    ):
        statuses = Counter(
            pool.map(lambda _: http.get("/runs/stories.json").status_code, range(400))
        )
    assert set(statuses) == {404, 429} and statuses[404] >= 100, statuses
    runs(behind)
    with ExitStack() as stack:
        links = [linked(behind, stack) for _ in range(200)]
        for link in links:
            link.sendall(b"GET /surelock/models/stories/state HTTP/1.1\r\nHost: localhost\r\n")
        runs(behind)
