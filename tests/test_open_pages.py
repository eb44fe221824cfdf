"""What each open page takes of the server: the page itself, its configuration, and a stream until it is closed."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import gradio as gr
import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from surelock.ui import gradio_patches, shares
from surelock.ui.gate import Refused
from surelock.ui.gradio_patches import FewAtOnce
from surelock.ui.heartbeats import Heartbeats
from surelock.ui.kept_answers import KeptAnswers
from surelock.ui.readers import Link, Readers
from surelock.ui.session import Sessions
from tests.browser.server import App
from tests.loops import finished


class Pages:
    """Stands for Gradio. Each answer tells its number and all that it may depend on."""

    def __init__(self) -> None:
        self.made, self.now, self.most, self.status = 0, 0, 0, 200

    async def answer(self, request: Request) -> PlainTextResponse:
        self.made, self.now = self.made + 1, self.now + 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.01)
        self.now -= 1
        said = f"{self.made} {request.url} {request.headers.get('x-forwarded-host')}"
        return PlainTextResponse(said, self.status)

    def app(self) -> Starlette:
        routes = [Route(f"/{path}", self.answer) for path in ("", "config", "other")]
        return Starlette(routes=routes, middleware=[Middleware(KeptAnswers)])

    def client(self) -> TestClient:
        return TestClient(self.app(), base_url="http://localhost")


@pytest.fixture
def pages() -> Pages:
    return Pages()


def test_the_page_is_made_once_whatever_its_query(pages: Pages) -> None:
    with pages.client() as http:
        told = [http.get(f"/{query}").text for query in ("", "?lesson=work&page=3", "?deep_link=x", "")]
        assert told == ["1 http://localhost/ None"] * 4
        assert http.get("/config").text == http.get("/config?page=x").text == "2 http://localhost/config None"
        assert http.head("/").headers == http.get("/").headers and http.head("/config?x").status_code == 200
        assert pages.made == 2
        assert [http.get("/other").text[0] for _ in range(2)] == ["3", "4"]


def test_an_answer_goes_to_no_other_address(pages: Pages) -> None:
    """What a request says of the server's address stands in the page: nobody gets what another one said."""
    asks: tuple[tuple[str, dict[str, str]], ...] = (
        ("http://localhost/", {}),
        ("http://127.0.0.1/", {}),
        ("https://localhost/", {}),
        ("http://localhost/", {"x-forwarded-host": "evil.example"}),
        ("http://localhost/", {"x-forwarded-proto": "https"}),
        ("http://localhost/", {"x-gradio-server": "http://evil.example"}),
    )
    with pages.client() as http:
        first = [http.get(url, headers=headers).text for url, headers in asks]
        assert len(set(first)) == pages.made == len(asks)
        assert first == [http.get(url, headers=headers).text for url, headers in asks]


def test_many_who_come_at_once_wait_for_one_and_other_addresses_for_their_turn(pages: Pages) -> None:
    async def come() -> list[str]:
        transport = httpx.ASGITransport(pages.app())
        async with httpx.AsyncClient(transport=transport) as http:
            asks = [http.get(f"http://{host}/") for host in ("a", "b", "c") for _ in range(20)]
            return [answer.text for answer in await asyncio.gather(*asks)]

    assert len(set(finished(come()))) == pages.made == 3
    assert pages.most == 1


def test_calls_of_the_pages_functions_take_turns_and_nothing_else_does(
    pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gradio_patches, "AT_ONCE", 2)

    async def most(path: str) -> int:
        pages.most = 0
        app = FewAtOnce(Starlette(routes=[Route("/{path:path}", pages.answer, methods=["POST"])]))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as http:
            answers = await asyncio.gather(*[http.post(f"http://a/gradio_api/{path}") for _ in range(9)])
        assert {answer.status_code for answer in answers} == {200}
        return pages.most

    assert [finished(most(path)) for path in ("run/predict", "run/predict/", "queue/join")] == [2, 2, 9]


def test_the_served_page_is_the_same_for_all_and_has_what_gradio_puts_in(app: App) -> None:
    first, again = (httpx.get(f"{app.url}/{query}") for query in ("", "?prompt=Hi&page=2"))
    assert first.text == again.text and {**first.headers, "date": ""} == {**again.headers, "date": ""}
    assert app.url in first.text and "window.gradio_config" in first.text
    assert "nosniff" in first.headers["x-content-type-options"]
    other = httpx.get(app.url.replace("127.0.0.1", "localhost")).text
    assert app.url not in other and app.url.replace("127.0.0.1", "localhost") in other


class Heart:
    """The heartbeats of a server on its own, and the sessions that they left."""

    def __init__(self) -> None:
        self.left: list[str] = []
        self.states = {name: SimpleNamespace(is_closed=False) for name in ("mine", "other")}
        self.events = {
            name: SimpleNamespace(run_time=0.0, closed=False, signal=asyncio.Event()) for name in ("e1", "e2")
        }
        ids = {"mine": {"e1", "lost"}, "other": {"e2"}}
        queue = SimpleNamespace(pending_event_ids_session=ids, event_ids_to_events=self.events)
        self.readers = Readers()
        self.beats = Heartbeats(SimpleNamespace(_queue=queue), self.readers, self.leave)  # type: ignore[arg-type]

    def leave(self, session: str) -> None:
        assert threading.current_thread() is not threading.main_thread()
        self.left.append(session)

    def open(self, session: str = "mine") -> Beat:
        return Beat(self, session)


class Beat:
    """A page's stream, until it is closed or the server cancels it; and what was sent."""

    def __init__(self, heart: Heart, session: str) -> None:
        self.sent: list[dict[str, Any]] = []
        self.gone = asyncio.Event()
        app = SimpleNamespace(state_holder=SimpleNamespace(session_data=heart.states))
        scope = {"app": app, "path_params": {"session": session}}
        self.task = asyncio.ensure_future(heart.beats(scope, self.receive, self.send))

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("BEAT", 0.02), ("LOOK", 0.05), ("DROP", 0.3)):
        monkeypatch.setattr(f"surelock.ui.heartbeats.{name}_SECONDS", seconds)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("how", ["the page closes", "the server cancels"])
def test_a_closed_page_rests_soon_and_is_left_later(how: str) -> None:
    async def go(heart: Heart) -> None:
        beat = heart.open()
        await asyncio.sleep(0.1)
        start, *beats = beat.sent
        assert start["status"] == 200 and (b"content-type", b"text/event-stream") in start["headers"]
        assert len(beats) > 2 and all(each["more_body"] and each["body"] == b"data: ALIVE\n\n" for each in beats)
        beat.gone.set() if how == "the page closes" else beat.task.cancel()
        await asyncio.sleep(0.15)
        assert heart.events["e1"].closed and heart.events["e1"].signal.is_set() and not heart.events["e2"].closed
        assert not heart.left and not heart.states["mine"].is_closed, "it may come back"
        await asyncio.sleep(0.4)
        assert heart.left == ["mine"] and heart.states["mine"].is_closed and not heart.states["other"].is_closed
        assert not heart.beats._closing and not heart.beats._open

    finished(go(Heart()))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("stays", ["another heartbeat", "one that comes back", "a run's stream"])
def test_a_page_of_which_one_stream_is_open_is_not_left(stays: str) -> None:
    """Until that one ends, too."""

    async def go(heart: Heart) -> None:
        first = heart.open()
        await asyncio.sleep(0.02)
        second = heart.open() if stays == "another heartbeat" else None
        end = heart.readers.open("mine", Link()) if stays == "a run's stream" else None
        first.gone.set()
        if stays == "one that comes back":
            await asyncio.sleep(0.2)
            second = heart.open()
        await asyncio.sleep(0.6)
        assert heart.left == []
        if second is not None:
            second.gone.set()
        if end is not None:
            assert not heart.events["e1"].closed
            end()
        await asyncio.sleep(0.6)
        assert heart.left == ["mine"]

    finished(go(Heart()))


def test_streams_leave_connections_for_pages_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 40 connections 30 may be streams, 20 of them one client's."""
    monkeypatch.setattr(shares, "room", lambda: 40)
    with gr.Blocks() as page:
        gr.Button().click(lambda: None, api_name="start")
    own = shares.Shares(page, 8, Readers(), Sessions(lambda *_: iter(())), {})

    def come(client: str, times: int) -> list[Any]:
        scope = {"method": "GET", "path": "/gradio_api/heartbeat/a", "client": (client, 5), "headers": []}
        return [own.admit(scope, None) for _ in range(times)]

    ended = come("1.1.1.1", 20)
    with pytest.raises(Refused, match="from one address") as refused:
        come("1.1.1.1", 1)
    assert refused.value.status == 429
    come("2.2.2.2", 10)
    with pytest.raises(Refused, match="Too many streams are open") as refused:
        come("3.3.3.3", 1)
    assert refused.value.status == 503
    ended[0].close()
    come("3.3.3.3", 1)
