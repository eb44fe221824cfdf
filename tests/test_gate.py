"""The server's door: what it takes, from whom, how much, and what a client may have of the queue."""

import asyncio
import itertools
import json
import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import gradio as gr
import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient, WebSocketDenialResponse
from starlette.types import Message, Receive, Scope, Send

from surelock.places import ASSETS
from surelock.trace.replay import TEMPLATE
from surelock.ui import gate, launch, site
from surelock.ui.addresses import client_of, is_local
from surelock.ui.gate import Gate, own_names
from surelock.ui.models import EMBEDDED
from surelock.ui.serving import WORKER_POLICY, KeptAnswers
from tests.browser.server import App, free_port, serve, wait_for_model
from tests.browser.visitor import Visitor
from tests.loops import finished
from tests.waiting import HANGS

SECURITY = Path(__file__).resolve().parents[1] / "docs" / "security.md"

#: Requests, the status of the answer and a part of its sentence. A line: status, gate, methods, paths, then headers;
#: body and says. The gate takes agents, or has further names. Paths below gradio_api/ begin with a dot.
DECISIONS = r"""
404 |  | GET POST | .process_recording .dev/reload .deep_link .openapi.json .runs .vibe-code .heartbeat/x .token
404 |  | GET POST | .custom_component/x/client/component/index.js .stream/a/b/1/playlist.m3u8 .proxy=https://a.org
404 |  | GET POST | .file=app.py .upload_progress login_check monitoring docs pwa_icon pwa_icon/20000
404 |  | GET POST | .run/decode .api/decode .component_server .mcp .mcp/ .mcp/schema
404 |  | PUT DELETE |
200 |  | GET | config surelock/scripts/page.js .info .app_id surelock/runs/ab1/events
200 | agents | POST | .mcp/ .mcp
404 | agents | GET | .mcp/schema .mcp/sse
404 | agents | POST | .mcp/messages/
405 | agents | GET DELETE | .mcp/
421 | agents | POST | .mcp/ | host: evil.example
403 | agents | POST | .mcp/ | origin: https://evil.example
415 | agents | POST | .mcp/ | content-type: text/plain
415 |  | POST | .queue/join | content-type: text/plain
421 |  | GET | | host: evil.example | says: --allow-host
421 |  | GET | | host: hf.space.evil.example
421 |  | GET | | host: localhost.evil
421 |  | GET | | host: [::1
421 |  | GET | | host: a b
421 |  | GET | | host:
200 |  | GET | | host: localhost:7860
200 |  | GET | | host: 127.0.0.1:1
200 |  | GET | | host: [::1]:7860
200 |  | GET | | host: 192.168.1.7
200 |  | GET | | host: me-page.hf.space
200 | names | GET | | host: a.class.example
421 | names | GET | | host: class.example.org
421 | names | GET | | host: lab1
421 | names | GET | | host: grab
200 | any | GET | | host: any.example:1
421 | any | GET | | host: a"b
421 | any | GET | | host: a</script>
421 | any | GET | | host: a:80:80
421 | any | GET | | host: a:x
421 | any | GET | | host: a/b
421 | any | GET | | host: a@b
421 | any | GET | | host: [a]
421 | any | GET | | host: é
421 | any | GET | | x-forwarded-host: a"b
421 | any | GET | | x-forwarded-host: a:80:80
421 |  | GET | | x-forwarded-host: evil.example
421 |  | GET | | x-forwarded-host: localhost, evil.example
421 |  | GET | | x-forwarded-host: evil.example:80, localhost
421 |  | GET | | x-forwarded-host: <a>
421 |  | GET | | forwarded: for=1.2.3.4;host="evil.example";proto=https, for=1.1.1.1
421 |  | GET | | forwarded: for=1.2.3.4, for=1.1.1.1;Host=evil.example
421 |  | GET | | forwarded: for=1.2.3.4, for=1.1.1.1;Host=<a>
200 |  | GET | | x-forwarded-host: me.hf.space, localhost:1,
200 |  | GET | | forwarded: host=me.hf.space;by=_x
403 |  | POST | .queue/join | origin: https://evil.example
403 |  | POST | .queue/join | origin: null
403 |  | POST | .queue/join | origin: http://6.6.6.6
403 |  | POST | .queue/join | origin: https://x.hf.space
403 |  | POST | .queue/join | origin: x
403 |  | POST | .queue/join | origin: https://evil.example | host: 10.0.0.1
403 |  | POST | .queue/join | origin: https://evil.example | host: 127.0.0.1
200 |  | POST | .queue/join | origin: https://evil.example | host: me.hf.space
200 |  | POST | .queue/join | origin: http://localhost:5
200 |  | POST | .queue/join | body: {"data": ["\ud83d\ude00 \ud55c"]}
400 |  | POST | .queue/join | body: {"a": [1,
400 |  | POST | .queue/join | body:
413 |  | POST | .queue/join | content-length: -5
400 |  | POST | .queue/join | body: {"data": "\ud800"} | says: half a character
400 |  | POST | .queue/join | body: {"data": {"\udfff": 1}} | says: half a character
400 |  | POST | .queue/join | body: {"data": [["a \ude00\ud83d"]]} | says: half a character
400 |  | POST | .queue/join | body: {"run": {"lanes": [{"name": "\ud800"}]}} | says: half a character
400 |  | POST | .queue/join | body: {"data": [{"path": "https://a.org", "meta": {"_type": "gradio.FileData"}}]}
400 |  | POST | .queue/join | body: {"data": [[[{"a": {"meta": {"_type": "gradio.\u0046ileData"}}}]]]}
200 |  | POST | .queue/join | body: {"data": ["{\"_type\": \"gradio.FileData\"}"]}
200 |  | POST | .queue/join | body: {"session_hash": "1ab2cd3ef4"}
200 |  | POST | .queue/join | body: {"session_hash": "0f8fad5b-d9cb-469f-a165-70867728950e"}
200 |  | POST | .queue/join | body: {"session_hash": null}
"""
NAMED = "queue/join run/predict cancel reset call/decode call/v2/decode"
SESSIONS = ("", "x" * 65, "x" * 900_000, "a b", "\u00e9", "a/b", "a\n", 5, [], {}, True)
GATES: dict[str, dict[str, Any]] = {
    "": {},
    "agents": {"agents": True},
    "names": {"allow_hosts": ["*.class.example", "lab", "lab*"]},
    "any": {"allow_hosts": ["*"]},
}
KIND = {"content-type": "application/json"}


async def _echo(request: Request) -> JSONResponse:
    return JSONResponse({"got": len(await request.body())})


def gated(answers: Any = _echo, **options: Any) -> TestClient:
    """The gate before an application that has every route."""
    routes = [Route("/{path:path}", answers, methods=["GET", "POST", "PUT", "DELETE"])]
    made = Starlette(routes=routes, middleware=[Middleware(Gate, **options)])
    return TestClient(made, base_url="http://localhost")


@pytest.fixture
def small() -> TestClient:
    return gated()


def refused(answer: httpx.Response, status: int) -> str:
    assert answer.status_code == status, answer.text[:200]
    said = answer.json()["detail"]
    assert said.endswith(".") and "\n" not in said
    return said


@pytest.mark.parametrize("line", DECISIONS.strip().splitlines())
def test_a_request_is_taken_or_refused(line: str) -> None:
    """Refused in one sentence. A body is sent with and without escapes."""
    status, gate, methods, paths, *rest = (cell.strip() for cell in line.split(" |"))
    fields = dict(each.split(":", 1) for each in rest)
    body = fields.pop("body", "{}").strip()
    says = fields.pop("says", "").strip()
    bodies = {body.encode()}
    with suppress(ValueError):
        bodies.add(
            json.dumps(json.loads(body), ensure_ascii=False).encode("utf-8", "surrogatepass")
        )
    headers = KIND | {name: text.strip().encode("latin-1") for name, text in fields.items()}
    client = gated(**GATES[gate])
    for method, path, content in itertools.product(methods.split(), paths.split() or [""], bodies):
        place = f"/{path.replace('.', 'gradio_api/', 1) if path[:1] == '.' else path}"
        content = content if method == "POST" else b""
        answer = client.request(method, place, content=content, headers=headers)
        if status == "200":
            assert answer.json() == {"got": len(content)}, line
        else:
            assert says in refused(answer, int(status)), line


@pytest.mark.parametrize("path", NAMED.split())
def test_a_session_goes_by_a_short_plain_name(small: TestClient, path: str) -> None:
    for session in SESSIONS:
        body = {"data": [], "fn_index": 8, "event_id": "x", "session_hash": session}
        assert "session_hash" in refused(small.post(f"/gradio_api/{path}", json=body), 400)


def test_what_the_page_needs_is_taken_whole_and_with_headers(small: TestClient) -> None:
    body = {"data": ["x" * 10_000], "fn_index": 3, "session_hash": "a"}
    answer = small.post("/gradio_api/queue/join", json=body)
    assert answer.json() == {"got": len(answer.request.content)}
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "same-origin"
    (replay,) = re.findall(
        r'http-equiv="Content-Security-Policy" content="(.+?)"', TEMPLATE.read_text("utf-8")
    )
    share = (ASSETS / "js" / "export" / "share.js").read_text("utf-8")
    allowed = re.findall(r'^const (?:SCRIPTS|DECODES) = "(.+)";$', share, re.MULTILINE)
    policies = {
        "page": answer.headers["content-security-policy"],
        "worker": WORKER_POLICY,
        "site": site.POLICY,
        "one file": site.FILE_POLICY.format("…"),
        "replay": replay,
        "decoding replay": replay.replace(*allowed),
    }
    rows = re.findall(
        r"^\| ([a-z, ]+) \| `(.+?)` \| (`.+?) \| .+ \|$", SECURITY.read_text("utf-8"), re.MULTILINE
    )
    for of, policy in policies.items():
        assert (
            "; ".join(
                f"{name} {allows.replace('`', '')}"
                for own, name, allows in rows
                if of in own.split(", ")
            )
            == policy
        )
    assert sum(own.count(",") + 1 for own, *_ in rows) == sum(
        policy.count(";") + 1 for policy in policies.values()
    )
    assert "frame-ancestors" not in answer.headers["content-security-policy"], (
        "slides on a disk may embed it, too"
    )


def test_a_container_finds_itself_healthy(app: App) -> None:
    (path,) = re.findall(
        r"http://127\.0\.0\.1:7860(/\S+?)'", (ASSETS.parent / "Dockerfile").read_text("utf-8")
    )
    assert httpx.get(f"{app.url}{path}").status_code == 200


def test_a_socket_is_refused_with_the_policy(small: TestClient) -> None:
    for host, status in (("localhost", 404), ("evil.example", 421)):
        with (
            pytest.raises(WebSocketDenialResponse) as refusal,
            small.websocket_connect("/", headers={"host": host}),
        ):
            pass
        refused(refusal.value, status)
        assert "content-security-policy" in refusal.value.headers


def test_before_it_nothing_answers(app: App) -> None:
    """Gradio's own middleware answers a browser's question for another site's request, and all failures."""
    asked = {"origin": "https://other.example", "access-control-request-method": "POST"}
    public = {"host": "me.hf.space"}
    call = f"{app.url}/gradio_api/call/v2/decode"
    good = httpx.options(call, headers=asked | public)
    assert (good.status_code, good.headers["access-control-allow-origin"]) == (200, asked["origin"])
    bad = [
        (421, httpx.options(call, headers=asked | {"host": "evil.example"})),
        (403, httpx.options(call, headers=asked)),
        (404, httpx.options(f"{app.url}/gradio_api/upload_progress", headers=asked | public)),
        (404, httpx.options(call)),
        (
            400,
            httpx.post(
                call,
                json={"prompt": "a", "nonsense": 1},
                headers={"origin": asked["origin"]} | public,
            ),
        ),
    ]
    for status, answer in bad:
        refused(answer, status)
    assert {
        each.headers["content-security-policy"] for each in (good, *(answer for _, answer in bad))
    } != {""}
    assert bad[-1][1].headers["access-control-allow-origin"] == asked["origin"], (
        "its script may read why"
    )


def test_bodies_are_bounded_and_say_their_length(small: TestClient) -> None:
    # without a length, in pieces of any size
    for method, path in (("POST", "/gradio_api/queue/join"), ("GET", "/")):
        answer = small.request(method, path, content=iter([b"{", b"}"]), headers=KIND)
        assert "length" in refused(answer, 411) and answer.headers["connection"] == "close"
    refused(
        small.post("/gradio_api/queue/join", content=b'"' + b"x" * 2**21 + b'"', headers=KIND), 413
    )


def test_bodies_hold_so_many_values_and_so_much_at_once(
    small: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = list(range(8192))
    assert (
        small.post("/gradio_api/queue/join", json={"data": [{"prompt_tokens": tokens}]}).status_code
        == 200
    )
    assert (
        small.post("/gradio_api/queue/join", json=[0] * (gate.MOST_VALUES - 1)).status_code == 200
    )
    for data in (
        [0] * gate.MOST_VALUES,
        [[]] * 200_000,
        {str(number): [] for number in range(50_000)},
    ):
        assert "values" in refused(small.post("/gradio_api/queue/join", json=data), 413)
    for bound in ("MOST_BODIES_OF_ONE", "MOST_BODIES"):
        with monkeypatch.context() as patch:
            patch.setattr(gate, bound, 10_000)
            for _ in range(3):
                assert small.post("/gradio_api/queue/join", json="x" * 9998).status_code == 200
                assert "at once" in refused(
                    small.post("/gradio_api/queue/join", json="x" * 9999), 503
                )


def test_a_body_counts_until_it_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many that wait for their turn would fill the memory otherwise."""
    monkeypatch.setattr(gate, "MOST_BODIES_OF_ONE", 25_000)

    async def ask() -> list[int]:
        turn = asyncio.Event()

        async def wait(request: Request) -> JSONResponse:
            await turn.wait()
            return await _echo(request)

        app = Starlette(
            routes=[Route("/{path:path}", wait, methods=["POST"])], middleware=[Middleware(Gate)]
        )
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://localhost"
        ) as http:
            asks = [
                asyncio.ensure_future(http.post("/gradio_api/run/predict", json="x" * 9998))
                for _ in range(5)
            ]
            async with asyncio.timeout(HANGS):
                while sum(each.done() for each in asks) < 3:
                    await asyncio.sleep(0)
            waiting = [each for each in asks if not each.done()]
            odd = [
                await http.post("/gradio_api/run/predict", content=b"[", headers=KIND)
                for _ in range(3000)
            ]
            turn.set()
            statuses = [(await each).status_code for each in asks]
            again = (await http.post("/gradio_api/run/predict", json="x" * 24_998)).status_code
        assert len(waiting) == statuses.count(200) == 2 and {each.status_code for each in odd} == {
            400
        }
        return [*sorted(statuses), again]

    assert finished(ask()) == [200, 200, 503, 503, 503, 200]


def test_a_file_is_sent_whole_and_packed_once_whatever_a_request_says() -> None:
    async def sent(request: Request) -> JSONResponse:
        return JSONResponse(dict(request.headers))

    ranges = "bytes=" + ",".join(f"{2 * number}-{2 * number}" for number in range(4000))
    for encoding, kept in {"br": None, "gzip, br;q=0.5": "gzip"}.items():
        headers = {"range": ranges, "x-a": "b", "accept-encoding": encoding}
        arrived = gated(sent).get("/assets/a.js", headers=headers).json()
        assert "range" not in arrived and arrived["x-a"] == "b"
        assert arrived.get("accept-encoding") == kept


#: The lines of x-forwarded-for before a Space, and the client.
CLIENTS = """
1.1.1.1, 8.8.8.8, 10.9.9.9 -> 8.8.8.8
9.9.9.9 | 8.8.8.8 -> 8.8.8.8
9.9.9.9, 1.1.1.1 | 8.8.8.8, 10.0.0.1 | 10.0.0.2 -> 8.8.8.8
9.9.9.9, 8.8.8.8:5678 -> 8.8.8.8
9.9.9.9, [2606:4700::1]:443 -> 2606:4700::/64
9.9.9.9, [2606:4700::1] -> 2606:4700::/64
2606:4700:0:0:ffff::9 -> 2606:4700::/64
::ffff:8.8.8.8 -> 8.8.8.8
9.9.9.9, x:5, 1:2:3, [ | unknown -> 9.9.9.9
"""


def test_a_client_is_the_last_public_address_which_it_cannot_choose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for case in CLIENTS.strip().splitlines():
        lines, client = case.split(" -> ")
        headers = [(b"x-forwarded-for", line.encode()) for line in lines.split(" | ")]
        scope: dict[str, Any] = {"client": ("10.2.3.4", 5), "headers": headers}
        monkeypatch.delenv("SPACE_ID", raising=False)
        assert client_of(scope) == "10.2.3.4"
        monkeypatch.setenv("SPACE_ID", "me/page")
        assert client_of(scope) == client, case
    assert client_of({"client": None, "headers": []}) == "unknown"


def test_names_of_the_environment_and_of_flags_are_its_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SURELOCK_ALLOW_HOST", "lab.example, other.example")
    given = launch.parser().parse_args([])
    assert {"lab.example", "other.example"} <= own_names(given.allow_host)
    assert "mine.example" in own_names(["Mine.example"])
    assert is_local("10.0.0.1") and is_local("lab.local") and not is_local("me.hf.space")


def test_a_call_that_gradio_cannot_read_is_refused_before_it(app: App) -> None:
    """Gradio would print a traceback, with all data: for another number, a function of the browser's, odd data."""
    before = app.log.stat().st_size
    functions = httpx.get(f"{app.url}/config").json()["dependencies"]
    browsers = [each["id"] for each in functions if not each["backend_fn"]]
    for path in ("run/predict", "queue/join"):
        for number in ("45", [], None, 4.5, True, 999, -1, *browsers):
            body = {"data": [], "fn_index": number, "session_hash": "x"}
            answer = httpx.post(f"{app.url}/gradio_api/{path}", json=body)
            assert answer.status_code == 400 and answer.json()["detail"].startswith(
                "fn_index must be"
            ), number
        for data in (None, "x", {}, [1] * 99):
            known = next(
                each["id"]
                for each in functions
                if each["backend_fn"] and each["queue"] == ("join" in path)
            )
            answer = httpx.post(
                f"{app.url}/gradio_api/{path}", json=body | {"fn_index": known, "data": data}
            )
            assert answer.status_code == 400 and answer.json()["detail"].startswith(
                "data must be a list of"
            ), data
    assert app.log.stat().st_size == before


def test_one_client_has_so_many_requests_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "MOST_REQUESTS", 2)
    statuses: list[int] = []

    async def visit() -> None:
        go = asyncio.Event()

        async def waits(scope: Scope, receive: Receive, send: Send) -> None:
            await go.wait()
            await JSONResponse({})(scope, receive, send)

        async def ask(client: str) -> None:
            async def send(message: Message) -> None:
                statuses.append(message["status"]) if "status" in message else None

            scope = {
                "type": "http",
                "method": "GET",
                "path": "/",
                "headers": [(b"host", b"localhost")],
            }
            await served({**scope, "client": (client, 1)}, Mock(), send)

        served = Gate(waits)
        asks = [asyncio.ensure_future(ask(client)) for client in "aaab"]
        async with asyncio.timeout(HANGS):
            while not statuses:
                await asyncio.sleep(0)
        assert statuses == [429]
        go.set()
        await asyncio.gather(*asks, ask("a"))

    finished(visit())
    assert statuses == [429, 200, 200, 200, 200]


def test_the_page_is_made_once_whatever_its_query_and_the_name_of_the_server() -> None:
    made: list[str] = []

    async def page(request: Request) -> JSONResponse:
        made.append(request.url.path)
        return JSONResponse([len(made), str(request.url)], 200 if request.url.path == "/" else 500)

    routes = [Route("/{path:path}", page)]
    client = TestClient(
        Starlette(routes=routes, middleware=[Middleware(KeptAnswers)]), base_url="http://a"
    )
    assert [client.get(path).json() for path in ("/", "/?page=x", "/?prompt=y")] == [
        [1, "http://a/"]
    ] * 3
    assert client.head("/").headers["content-length"] == str(
        len(client.get("/").content)
    ) and made == ["/"]
    assert [client.get("/config").json()[0] for _ in range(2)] == [2, 3], "a failure is not kept"
    for number in range(300):
        for header in ("host", "x-forwarded-host", "x-gradio-server"):
            client.get("/", headers={header: f"{number}.hf.space:{number}"})
        client.get("/", headers={"x-forwarded-proto": f"http{number}"})
    assert len(made) == 3
    assert client.get("/", headers={"host": "B:7"}).json() == [1, "http://b:7/"]


@pytest.mark.parametrize("path", ["/", "/config"])
@pytest.mark.parametrize("root", ["", "/below", "https://proxy.example/below"])
def test_what_is_kept_is_what_gradio_makes_under_each_name(path: str, root: str) -> None:
    with gr.Blocks(analytics_enabled=False) as page:
        gr.Textbox("a")
    how: dict[str, Any] = {
        "prevent_thread_lock": True,
        "quiet": True,
        "ssr_mode": False,
        "server_port": free_port(),
    }
    page.launch(root_path=root, **how)
    made = page.app
    kept = KeptAnswers(made)
    lines: list[dict[str, str]] = json.loads(
        """[{}, {"host": "10.1.2.3:7860"}, {"host": "[::1]:7860"}, {"x-forwarded-host": "me.hf.space, other"},
        {"x-forwarded-host": ", other"}, {"x-forwarded-proto": "https"}, {"x-forwarded-proto": "nonsense"},
        {"x-forwarded-proto": "https, http", "x-forwarded-host": "me.hf.space:8443"}]"""
    )
    for base, headers in itertools.product(
        ("http://localhost:7860", "https://page.example"), lines
    ):
        one, other = (
            TestClient(each, base_url=base).get(path, headers=headers) for each in (made, kept)
        )
        assert one.text == other.text, headers
        assert one.headers == other.headers, headers
    page.close()


@pytest.mark.parametrize(
    "how", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)]
)
def test_it_stops_at_once_and_leaves_nothing(
    how: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C, or a container's end, with an active run and one that waits."""
    (place := tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    # where it is set, ONNX Runtime's telemetry is silent of itself
    monkeypatch.delenv("CI", raising=False)
    with serve("--max-length", "256", log=tmp_path / "log") as served:
        wait_for_model(served)
        visitor = Visitor(served.url)
        stream = visitor.run(gen_length=200, steps=200, block_length=200)
        next(stream)
        httpx.post(
            f"{served.url}/gradio_api/call/v2/decode", json={"prompt": "A fox", "gen_length": 32}
        )
        children = Path(
            f"/proc/{served.process.pid}/task/{served.process.pid}/children"
        ).read_text()
        begun = time.monotonic()
        os.kill(served.process.pid, how)
        assert served.process.wait(HANGS) == 0
        assert time.monotonic() - begun < served.start_seconds, "it takes longer than to start"
    assert "Traceback" not in (tmp_path / "log").read_text()
    assert children == "" and not [each for each in place.rglob("*") if each.is_file()]


def test_what_a_browser_decodes_with_is_served_and_kept(app: App) -> None:
    """The files that are named, no others; for good where the address has their hash, else asked for again."""
    folder = f"{app.url}/surelock/{EMBEDDED}"
    told = json.loads((ASSETS / EMBEDDED / "browser.json").read_text("utf-8"))
    for name in told["files"]:
        answer = httpx.get(f"{folder}/{name}", params={"sha256": told["files"][name]["sha256"]})
        assert answer.content == (ASSETS / EMBEDDED / name).read_bytes()
        assert "immutable" in answer.headers["cache-control"]
    described = httpx.get(f"{folder}/browser.json")
    assert described.json() == told and described.headers["cache-control"] == "no-cache"
    again = httpx.get(
        f"{folder}/browser.json", headers={"if-none-match": described.headers["etag"]}
    )
    assert again.status_code == 304
    assert {
        httpx.get(f"{folder}/{name}").status_code for name in ("config.json", "README.md", "")
    } == {404}
    assert (
        httpx.get(f"{app.url}/surelock/scripts/worker.js").headers["content-security-policy"]
        == WORKER_POLICY
    )


def test_where_runs_are_computed_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def first(
        *words: str, decode_in: str = "both", labels: str = EMBEDDED, gpu: bool = False
    ) -> list[str]:
        monkeypatch.setattr(launch, "_has_gpu", lambda: gpu)
        given = launch.parser().parse_args([*words])
        return launch.sources(decode_in, [labels], launch.is_public(given))

    monkeypatch.delenv("SPACE_HOST", raising=False)
    assert first() == first("--host", "127.0.0.1") == ["server", "browser"], "one's own machine"
    assert first("--host", "0.0.0.0") == first("--share") == ["browser", "server"]
    assert first("--host", "0.0.0.0", gpu=True) == ["server", "browser"]
    assert first("--share", labels="another") == ["server"]
    assert [first("--share", decode_in=each) for each in ("browser", "server")] == [
        ["browser"],
        ["server"],
    ]
    monkeypatch.setenv("SPACE_HOST", "me-page.hf.space")
    assert first() == ["browser", "server"]
