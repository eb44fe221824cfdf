"""Attacks on what lies before the page: connections, names of sessions, the queue, the log. Each is bounded."""

from __future__ import annotations

import json
import resource
import secrets
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import cycle
from urllib.parse import urlsplit

import httpx

from tests.browser.server import App
from tests.browser.visitor import Visitor
from tests.soak.watched import SMALL

FILES = 1024  # of the attacked server: what most systems give
HALF_OPEN, BROWSERS, UNREAD = 1060, 60, 100
HOLD_SECONDS = 12.0
LONG = "x" * 900_000
TEXTS = ("surelock/plotly.min.js", "surelock/replay.txt", "surelock/scripts/page.js", "surelock/runs/stories.json")
PATHS = (
    "/",
    "/config",
    "/surelock/scripts/page.js",
    "/surelock/scripts/page.css",
    "/gradio_api/app_id",
    "/gradio_api/heartbeat/a",
)


def nameless(app: App) -> str:
    """A call, and resumptions by sessions without a name behind it: the queue died of them."""
    http = httpx.Client(base_url=f"{app.url}/gradio_api", timeout=60)
    http.post("/call/v2/decode", json={"prompt": "A fox", "gen_length": 64})
    follow = _number(app, "follow")
    return _statuses(_join(http, follow, "") for _ in range(2))


def long_names(app: App) -> str:
    """A megabyte of name, another each time."""
    http = httpx.Client(base_url=f"{app.url}/gradio_api", timeout=60)
    call = {"data": ["x"], "component_id": 1, "fn_name": "state"}
    follow = _number(app, "follow")

    def each() -> Iterator[int]:
        for number in range(30):
            yield _join(http, follow, f"{LONG}{number}")
            yield http.post("/component_server", json=call | {"session_hash": f"{LONG}{number}"}).status_code

    return _statuses(each())


def many_names(app: App) -> str:
    """Short names, another each time, each with the largest values that a field takes."""
    http = httpx.Client(base_url=f"{app.url}/gradio_api", timeout=60)
    follow, seed = _number(app, "follow"), _number(app, "check_seed")

    def each() -> Iterator[int]:
        for _ in range(60):
            yield _join(http, follow, secrets.token_hex(6))
            body = {"data": [LONG], "fn_index": seed, "session_hash": secrets.token_hex(6)}
            yield http.post("/run/predict", json=body).status_code

    return _statuses(each())


def half_open(app: App) -> str:
    """Connections that say half a request, and nothing more."""
    return _held(app, [b"GET / HTTP/1.1\r\nHost: localhost\r\n"] * HALF_OPEN)


def crowd(app: App) -> str:
    """No attack: browsers behind one address, six connections each. All are served."""
    asks = [f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() for path in PATHS] * BROWSERS
    answered = _held(app, asks, 5.0)
    assert answered == f"{len(asks)} answered 200", answered
    return answered


def slow_bodies(app: App) -> str:
    """Bodies of a megabyte of which the last byte is missing."""
    head = "POST /gradio_api/queue/join HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return _held(app, [f"{head}Content-Length: {len(LONG) + 1}\r\n\r\n{LONG}".encode()] * UNREAD)


def unread(app: App) -> str:
    """Long answers that are asked for and not read."""
    ask = b"GET /surelock/plotly.min.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
    return _held(app, [ask] * UNREAD, HOLD_SECONDS, read=False)


def nonsense(app: App) -> str:
    """What is written into the log: requests that are none, and events that fail."""
    http = httpx.Client(base_url=f"{app.url}/gradio_api", timeout=60)
    for _ in range(3):
        _held(app, [b"nonsense\r\n\r\n"] * 100, 0.2)
    body = {"data": [None] * 7, "session_hash": "soak"}
    return _statuses(
        http.post("/run/predict", json=body | {"fn_index": number}).status_code
        for number in range(20)
        for _ in range(5)
    )


def in_pieces(app: App) -> str:
    """Bodies without a length, in pieces of one byte: reading a megabyte of them took six seconds of the server."""
    head = "POST /gradio_api/queue/join HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    body = f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + b"1\r\nx\r\n" * 100_000
    return _held(app, [body] * (UNREAD // 2), 1.0)


def many_kinds(app: App) -> str:
    """Rules of as many kinds as a body holds, and settings of as many names."""
    http = httpx.Client(base_url=f"{app.url}/gradio_api", timeout=60)
    names = {f"name{number}": number for number in range(30_000)}
    wrong = ("+".join(["lock"] * 180_000), "+" * 900_000, names, ["lock"] * 30_000, LONG)

    def each() -> Iterator[int]:
        for setting in ("compute", "unmask", "epsilon", "events", "model", "prompt"):
            for value in wrong:
                asked = http.post("/call/v2/decode", json={"prompt": "A fox", "gen_length": 8} | {setting: value})
                yield asked.status_code
                if asked.status_code == 200:
                    http.get(f"/call/decode/{asked.json()['event_id']}")

    return _statuses(each())


def half_characters(app: App) -> str:
    """Texts that cannot be sent back: the stream broke off, with a traceback in the log."""
    http = httpx.Client(base_url=f"{app.url}/gradio_api", timeout=60)
    start = _number(app, "start")
    bodies = [{"data": [{"prompt_tokens": [1], "lanes": [], "prompt": "\ud800"}]}, {"data": [{"\ud800": 1}]}]
    headers = {"content-type": "application/json"}

    def each() -> Iterator[int]:
        for body in bodies * 20:
            content = json.dumps(body | {"fn_index": start, "session_hash": secrets.token_hex(6)})
            yield http.post("/queue/join", content=content, headers=headers).status_code

    return _statuses(each())


def long_prompts(app: App) -> str:
    """Prompts of the greatest length, from many at once: each has to be read to know whether another asks for it."""
    visitor = Visitor(app.url)
    form, number = visitor.form(), visitor.number("start")
    visitor.close()

    def ask(letter: str) -> int:
        body = {"data": [form | {"prompt": f"{letter} " * 10_000}], "fn_index": number}
        url = f"{app.url}/gradio_api/queue/join"
        return httpx.post(url, json=body | {"session_hash": secrets.token_hex(6)}, timeout=60).status_code

    with ThreadPoolExecutor(20) as pool:
        return _statuses(pool.map(ask, "abcdefghij" * 15))


def unread_followers(app: App) -> str:
    """Many who ask for the same run, finished or not, and do not read it."""
    visitor = Visitor(app.url)
    asked = {"Generated_length": 224, "Steps": 112, "Block_length": 224}
    list(visitor.run(**asked))
    http, number = httpx.Client(base_url=f"{app.url}/gradio_api", timeout=60), visitor.number("start")
    forms = (visitor.form(**asked), visitor.form(**asked | {"Seed": 99}))
    names = [secrets.token_hex(6) for _ in range(UNREAD)]

    def each() -> Iterator[int]:
        for name, form in zip(names, forms * UNREAD, strict=False):
            body = {"data": [form], "fn_index": number, "session_hash": name}
            yield http.post("/queue/join", json=body).status_code

    joined = _statuses(each())
    streams = [f"GET /gradio_api/queue/data?session_hash={name} HTTP/1.1\r\nHost: localhost\r\n\r\n" for name in names]
    _held(app, [stream.encode() for stream in streams[::2]], HOLD_SECONDS, read=False)
    visitor.close()
    return joined


def encodings(app: App) -> str:
    """Large files for whoever takes brotli alone, or asks for them in fifteen hundred parts."""
    parts = "bytes=" + ",".join(f"{2 * number}-{2 * number}" for number in range(1500))
    asks = [({"accept-encoding": "br"}, "br"), ({"accept-encoding": "gzip", "range": parts}, "parts")]
    with ThreadPoolExecutor(20) as pool:
        wanted = [(path, headers) for path in TEXTS for headers, _ in asks] * 20
        urls = [(f"{app.url}/{path}", headers) for path, headers in wanted]
        return _statuses(pool.map(lambda ask: httpx.get(ask[0], headers=ask[1], timeout=60).status_code, urls))


def busy(app: App) -> str:
    """Fifty who ask without rest for what is made anew each time."""
    load = {"data": [], "fn_index": _number(app, "arrive"), "session_hash": "busy"}
    asks = [("HEAD", "/?x", None), ("GET", "/config?x", None), ("GET", "/gradio_api/info", None)]
    asks += [("POST", "/gradio_api/run/predict", load)] * 3
    until = time.monotonic() + HOLD_SECONDS

    def ask(number: int) -> list[int]:
        statuses, ways = [], cycle(asks[number % len(asks) :] + asks)
        with httpx.Client(base_url=app.url, timeout=60) as http:
            while time.monotonic() < until:
                method, path, body = next(ways)
                statuses.append(http.request(method, path, json=body).status_code)
        return statuses

    with ThreadPoolExecutor(50) as pool:
        return _statuses(status for each in pool.map(ask, range(50)) for status in each)


def made_up_followers(app: App) -> str:
    """The same finished run for six hundred sessions, each of which is kept for ten minutes."""
    visitor = Visitor(app.url)
    list(visitor.run(**SMALL))
    body = {"data": [visitor.form(**SMALL)], "fn_index": visitor.number("start")}
    visitor.close()

    def ask(number: int) -> int:
        with httpx.Client(base_url=f"{app.url}/gradio_api", timeout=60) as http:
            return http.post("/queue/join", json=body | {"session_hash": f"made-up-{number}"}).status_code

    with ThreadPoolExecutor(20) as pool:
        return _statuses(pool.map(ask, range(600)))


DOORS = (nameless, long_names, many_names, half_open, crowd, slow_bodies, unread, nonsense)
DOORS += (in_pieces, many_kinds, half_characters, long_prompts, unread_followers)
DOORS += (encodings, busy, made_up_followers)


def _number(app: App, name: str) -> int:
    """Of one of the page's functions."""
    events = httpx.get(f"{app.url}/config", timeout=60).json()["dependencies"]
    return next(event["id"] for event in events if event["api_name"] == name)


def _join(http: httpx.Client, number: int, session: str) -> int:
    body = {"data": [], "fn_index": number, "session_hash": session}
    return http.post("/queue/join", json=body).status_code


def _statuses(each: Iterator[int]) -> str:
    found = list(each)
    return ", ".join(f"{found.count(status)} answered {status}" for status in sorted(set(found)))


def _held(app: App, said: list[bytes], seconds: float = HOLD_SECONDS, read: bool = True) -> str:
    """Open so many connections at once, say that, hold them for so long: how the answers begin that came."""
    place = urlsplit(app.url)
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(20_000, files), files))
    links = []
    for text in said:
        link = socket.create_connection((str(place.hostname), place.port or 80), timeout=60)
        links.append(link)
        try:
            link.sendall(text)
        except OSError:  # it was given up by then
            continue
    time.sleep(seconds)
    statuses = []
    for link in links:
        link.setblocking(False)
        with suppress(OSError, IndexError):  # nothing came, or the end
            statuses += [int(link.recv(64).split()[1])] if read else []
        link.close()
    return _statuses(iter(statuses))
