"""The server's door: what it takes, from whom, how much, and what a client may have of the queue."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr
import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from surelock.ui import gate
from surelock.ui.fair import Inboxes
from surelock.ui.gate import Gate, client_of, is_local, own_names
from tests.browser.server import App, serve, wait_for_model
from tests.browser.visitor import Visitor
from tests.soak.abuse import raw_get

CLOSED = (
    "gradio_api/process_recording", "gradio_api/dev/reload", "gradio_api/deep_link", "gradio_api/openapi.json",
    "gradio_api/custom_component/x/client/component/index.js", "gradio_api/runs", "gradio_api/vibe-code",
    "gradio_api/stream/a/b/1/playlist.m3u8", "gradio_api/proxy=https://example.org", "gradio_api/file=app.py",
    "gradio_api/upload_progress", "gradio_api/token", "login_check", "monitoring", "docs",
    "gradio_api/run/decode", "gradio_api/api/decode", "gradio_api/run/start", "gradio_api/call/start",
)  # fmt: skip


async def _echo(request: Request) -> JSONResponse:
    return JSONResponse({"got": len(await request.body())})


@pytest.fixture
def small() -> TestClient:
    """The gate before an application that has every route."""
    routes = [Route("/{path:path}", _echo, methods=["GET", "POST", "PUT"])]
    return TestClient(Starlette(routes=routes, middleware=[Middleware(Gate)]), base_url="http://localhost")


def refused(answer: httpx.Response, status: int) -> str:
    assert answer.status_code == status, answer.text[:200]
    said = answer.json()["detail"]
    assert said.endswith(".") and "\n" not in said
    return said


@pytest.mark.parametrize("path", CLOSED)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_only_what_the_page_needs_is_there(small: TestClient, path: str, method: str) -> None:
    refused(small.request(method, f"/{path}", json={}), 404)


def test_what_the_page_needs_is_taken_whole_and_with_headers(small: TestClient) -> None:
    body = {"data": ["x" * 10_000], "fn_index": 3, "session_hash": "a"}
    answer = small.post("/gradio_api/queue/join", json=body)
    assert answer.json() == {"got": len(answer.request.content)}
    for path in (
        "",
        "config",
        "surelock/js/live.js",
        "gradio_api/info",
        "gradio_api/app_id",
        "gradio_api/heartbeat/ab1",
    ):
        assert small.get(f"/{path}").status_code == 200
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "same-origin"
    assert "frame-ancestors" not in answer.headers["content-security-policy"], "slides on a disk may embed it, too"
    refused(small.put("/", json={}), 404)


@pytest.mark.parametrize("host", ["evil.example", "hf.space.evil.example", "localhost.evil", "", "[::1", "a b"])
def test_a_foreign_name_is_no_name_of_this_server(small: TestClient, host: str) -> None:
    assert "--allow-host" in refused(small.get("/", headers={"host": host}), 421)


@pytest.mark.parametrize("host", ["localhost:7860", "127.0.0.1:1", "[::1]:7860", "192.168.1.7", "me-page.hf.space"])
def test_its_own_names_are(small: TestClient, host: str) -> None:
    assert small.get("/", headers={"host": host}).status_code == 200


def test_names_can_be_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gate.ALLOW_VARIABLE, "lab.example, other.example")
    assert {"lab.example", "other.example", "mine.example"} <= own_names(["Mine.example"])
    app = Starlette(routes=[Route("/", _echo)], middleware=[Middleware(Gate, allow_hosts=["*.class.example"])])
    client = TestClient(app)
    assert client.get("/", headers={"host": "a.class.example"}).status_code == 200
    assert client.get("/", headers={"host": "class.example.org"}).status_code == 421


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://6.6.6.6", "https://x.hf.space", "x"])
def test_other_sites_may_not_call_a_local_server(small: TestClient, origin: str) -> None:
    refused(small.post("/gradio_api/queue/join", json={}, headers={"origin": origin}), 403)
    public = small.post("/gradio_api/queue/join", json={}, headers={"origin": origin, "host": "me.hf.space"})
    assert public.status_code == 200
    own = small.post("/gradio_api/queue/join", json={}, headers={"origin": "http://localhost:5"})
    assert own.status_code == 200
    assert is_local("10.0.0.1") and is_local("lab.local") and not is_local("me.hf.space")


def test_bodies_are_bounded_told_or_streamed(small: TestClient) -> None:
    def parts() -> Iterator[bytes]:
        yield b'{"data": "'
        for _ in range(40):
            yield b"x" * 2**16
        yield b'"}'

    kind = {"content-type": "application/json"}
    assert "at most" in refused(small.post("/gradio_api/queue/join", content=parts(), headers=kind), 413)
    refused(small.post("/gradio_api/queue/join", content=b'"' + b"x" * 2**21 + b'"', headers=kind), 413)
    refused(small.post("/gradio_api/queue/join", content=b"1", headers={**kind, "content-length": "-5"}), 413)


@pytest.mark.parametrize("content", [b'{"a": [1,', b"", b"\xff\xfe\x00", b"[" * 100_000])
def test_bodies_are_json(small: TestClient, content: bytes) -> None:
    kind = {"content-type": "application/json"}
    refused(small.post("/gradio_api/component_server", content=content, headers=kind), 400)
    refused(small.post("/gradio_api/component_server", content=content, headers={"content-type": "text/plain"}), 415)


def test_no_input_names_a_file(small: TestClient) -> None:
    file = {"path": "https://example.org/a", "url": "https://example.org/a", "meta": {"_type": "gradio.FileData"}}
    for data in (file, [[{"a": file}]]):
        refused(small.post("/gradio_api/queue/join", json={"data": [data]}), 400)
    escaped = json.dumps({"data": [file]}).replace("FileData", "\\u0046ileData")
    kind = {"content-type": "application/json"}
    refused(small.post("/gradio_api/queue/join", content=escaped, headers=kind), 400)
    text = small.post("/gradio_api/queue/join", json={"data": ['{"_type": "gradio.FileData"}']})
    assert text.status_code == 200


def test_a_client_is_an_address_that_it_cannot_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    scope: dict[str, Any] = {
        "client": ("10.2.3.4", 5),
        "headers": [(b"x-forwarded-for", b"1.1.1.1, 8.8.8.8, 10.9.9.9")],
    }
    assert client_of(scope) == "10.2.3.4"
    monkeypatch.setenv("SPACE_ID", "me/page")
    assert client_of(scope) == "8.8.8.8"
    assert client_of({"client": None, "headers": []}) == "unknown"


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    log = tmp_path_factory.mktemp("log") / "server.log"
    with serve("--max-length", "256", "--queue-size", "16", log=log) as served:
        wait_for_model(served)
        served.log = log  # type: ignore[attr-defined]
        yield served


def honest(url: str, ends: list[str]) -> None:
    visitor = Visitor(url)
    try:
        ends.append(str(list(visitor.run(Generated_length=16, Steps=16, Block_length=16))[-1].get("end")))
    except (httpx.HTTPError, RuntimeError) as error:
        ends.append(repr(error))
    finally:
        visitor.close()


def test_scripts_do_not_hold_up_the_page(app: App) -> None:
    """120 unread calls of /decode and 60 direct posts beside four visitors: each visitor's run ends, and what the page
    asks beside the queue is answered within a second.
    """
    calls: list[int] = []

    def flood(path: str, body: dict[str, Any], times: int) -> None:
        with httpx.Client(timeout=60) as http:
            calls.extend(http.post(f"{app.url}/gradio_api/{path}", json=body).status_code for _ in range(times))

    call = ("call/v2/decode", {"prompt": "A fox", "gen_length": 128}, 10)
    direct = ("run/decode", {"data": ["A fox"]}, 15)
    threads = [threading.Thread(target=flood, args=call) for _ in range(12)]
    threads += [threading.Thread(target=flood, args=direct) for _ in range(4)]
    ends: list[str] = []
    visits = [threading.Thread(target=honest, args=(app.url, ends)) for _ in range(4)]
    for thread in threads + visits:
        thread.start()
    asker, slowest = Visitor(app.url), 0.0
    while any(thread.is_alive() for thread in visits):
        begun = time.monotonic()
        assert asker.call("state", "x") is None and not asker.call("pause", "x")
        slowest = max(slowest, time.monotonic() - begun)
        time.sleep(0.1)
    asker.close()
    for thread in threads:
        thread.join(60)
    assert ends == ["finished"] * 4
    assert slowest < 2.0, slowest  # two calls
    assert set(calls) <= {200, 404, 503} and calls.count(404) == 60
    assert calls.count(503) > 100, "one client's scripts fill the queue"


def test_unknown_events_are_refused_in_a_line(app: App) -> None:
    before = app.log.stat().st_size  # type: ignore[attr-defined]
    for path in ("call/decode/abc", "call/v2/decode/abc", "queue/data?session_hash=abc", "queue/data"):
        status, text = raw_get(app.url, f"gradio_api/{path}")
        assert status == 404 and json.loads(text[text.index("{") : text.rindex("}") + 1])["detail"].endswith(".")
    assert app.log.stat().st_size == before  # type: ignore[attr-defined]


def test_the_queue_cannot_be_gone_round(app: App) -> None:
    visitor = Visitor(app.url)
    for event, name in (("sl-run", "click"), ("sl-stage-host", "tick")):
        number = visitor.event(event, name)["id"]
        body = {"data": [], "fn_index": number, "session_hash": "x", "event_data": {"run": "x", "after": -1}}
        answer = httpx.post(f"{app.url}/gradio_api/run/predict", json=body)
        assert answer.status_code == 404 and "queue" in answer.json()["detail"]
    visitor.close()


def test_the_queues_share_is_not_told_by_a_number_that_is_none(app: App) -> None:
    for number in ("45", [], None, 4.5, True):
        body = {"data": [], "fn_index": number, "session_hash": "x"}
        answer = httpx.post(f"{app.url}/gradio_api/queue/join", json=body)
        assert answer.status_code == 400 and answer.json()["detail"].startswith("fn_index must be"), number


def test_who_waits_or_runs_keeps_their_messages() -> None:
    used = {"first", "third"}
    inboxes = Inboxes(3, lambda: used)
    for session in ("first", "second", "third", "fourth", "fifth"):
        inboxes[session] = session
    assert list(inboxes) == ["first", "third", "fifth"]
    inboxes["first"] = "again"
    used.add("fifth")
    inboxes["sixth"] = "sixth"
    assert list(inboxes) == ["first", "third", "fifth", "sixth"], "rather one too many"


def test_a_run_that_nobody_reads_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    from surelock.ui import fair

    monkeypatch.setattr(fair, "UNREAD_SECONDS", 0.05)
    readers = fair.Readers()

    def slow() -> Iterator[int]:
        for number in range(20):
            time.sleep(0.01)
            yield number

    assert len(list(readers.while_read(slow(), "a"))) < 20
    assert len(list(readers.while_read(slow(), None))) == 20
    readers.open["a"] += 1
    assert len(list(readers.while_read(slow(), "a"))) == 20


def test_what_is_taken_back_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    from surelock.ui import fair

    monkeypatch.setattr(fair, "MOST_TAKEN_BACK", 2)
    with gr.Blocks() as page:
        asks = fair.Asks(page)
    named = {name: asks.while_wanted(iter(range(3)), {"ask": name}) for name in "abc"}
    unnamed = [asks.while_wanted(iter(range(3)), data) for data in (None, {}, {"ask": 5})]
    assert next(named["a"]) == next(named["b"]) == 0
    for name in ("a", "c"):
        asks.take_back(name)
    assert list(named["a"]) == [] == list(named["c"]) and list(named["b"]) == [1, 2]
    assert [list(each) for each in unnamed] == [[0, 1, 2]] * 3
    asks.take_back("d")
    assert "a" not in asks._taken_back, "the oldest is forgotten"


def test_it_stops_at_once(tmp_path: Path) -> None:
    """Ctrl-C with an active run."""
    import signal

    with serve("--max-length", "256", log=tmp_path / "log") as served:
        wait_for_model(served)
        visitor = Visitor(served.url)
        stream = visitor.run(Generated_length=200, Steps=200, Block_length=200)
        next(stream)
        begun = time.monotonic()
        served.process.send_signal(signal.SIGINT)
        served.process.wait(10)
        assert time.monotonic() - begun < 2.0
    assert "Traceback" not in (tmp_path / "log").read_text()
