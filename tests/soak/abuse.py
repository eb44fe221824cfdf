"""Requests that must be refused, and what refusing well is: an answer, a reason in it, and nothing given away."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

JSON = {"content-type": "application/json"}
GIVEN_AWAY = ("root:x:", "def main(", "site-packages", "Traceback (most recent", "hf_", '"q_proj"')
FILES = (
    "/etc/passwd", "app.py", "../app.py", "..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e/etc/passwd", "%252e%252e%252fapp.py",
    "%2fetc%2fpasswd", "file:///etc/passwd", "/proc/self/environ", "C:\\windows\\win.ini", "..\\..\\app.py", "%00",
    "assets/stories/config.json", "http://127.0.0.1:1/", "a" * 3000,
)  # fmt: skip
ROUTES = (
    "gradio_api/file=", "file=", "surelock/", "surelock/js/", "surelock/css/", "surelock/runs/", "static/", "assets/",
)  # fmt: skip
BODIES = (
    b'{"data": [1,', b"", b"\xff\xfe\x00" * 20, b"[" * 50_000, b"null", b"[]", b"3", b'"x"', b"{}", b'{"data": "x"}',
)  # fmt: skip
ENDPOINTS = (
    "queue/join", "call/decode", "call/v2/decode", "run/decode", "call/start", "component_server", "reset", "cancel",
)  # fmt: skip
FILE = {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}
PARAMETERS: dict[str, tuple[Any, ...]] = {
    "prompt": ("\ud800", None, 5, [], {}, "", " \n", "x" * 30_000, FILE),
    "gen_length": ("many", "", [], {}, ["a"], FILE, -1, 10**12, 10**400, 1e308, 8.5, None, True),
    "steps": ("many", ["a"], -1, 99, 10**12, 1e308, 2.5),
    "epsilon": ("x", [], None, True),
    "percentile": ("x", -1, 101, 1e308, []),
    "visible_steps": (-1, "x", 0.5),
    "block_length": (7, -1, "x", 10**12),
    "temperature": (-1, "hot", []),
    "cfg_scale": (-1, "x", [], 1e308),
    "compute": ("lock+age", "select+block_cache", "best", "lock+select+select", "+", ["lock"], {"kind": "lock"}, 3),
    "unmask": ("replay", "<b>", {}, 3),
    "refresh": (0, 4, "x"),
    "events": (
        5,
        {},
        "lock",
        [7],
        [{}],
        [{"step": 1}],
        [{"step": 1, "kind": "erase", "position": 1}],
        [FILE],
        [{"step": 10**9, "kind": "lock", "position": 1}],
        [{"step": 1, "kind": "lock", "position": 10**9}],
        [{"step": 1, "kind": "mask", "position": 0}],
        [{"step": 1, "kind": "write", "position": 9, "token": 1}],
        [{"step": 1, "kind": "lock", "position": 0}, {"step": 1, "kind": "unlock", "position": 0}],
    ),
    "seed": (-1, 1.5, "x", None),
    "suppress_eos": ("yes", 2),
    "no_repeat_ngram_size": (-1, "x", 2.5, []),
    "model": ("/etc", "../stories", "GSAI-ML/LLaDA-8B-Instruct", "stories/", ".", ["a"], {}),
    "nonsense": (1,),
}
FUNCTIONS = ("pause", "stop", "top", "export", "model_state", "token", "nonsense", "__class__")
ARGUMENTS: tuple[Any, ...] = (
    [], [None], [3], [["a"]], [{}], {"a": 1}, "x", ["guess", 0, 0], ["../x"], ["x", 10**30, -1],
)  # fmt: skip


@dataclass
class Outcome:
    """What came of a bad request: a reason if it was refused well, else a problem."""

    name: str
    reason: str = ""
    problem: str = ""


def judge(name: str, answer: httpx.Response) -> Outcome:
    """A refusal is a status from 400 with words in it."""
    text = answer.text[:2000]
    if any(part in text for part in GIVEN_AWAY):
        return Outcome(name, problem=f"gave away: {text[:200]}")
    if answer.status_code < 400:
        return Outcome(name, problem=f"was not refused: {answer.status_code} {text[:200]}")
    if len(text) < 5 or text == "Internal Server Error":
        return Outcome(name, problem=f"was refused without a reason: {answer.status_code} {text!r}")
    return Outcome(name, reason=text)


def bad_file(http: httpx.Client, url: str, rng: random.Random) -> Outcome:
    """A file that must not be served, by one of the routes that serve files."""
    path = rng.choice(ROUTES) + rng.choice(FILES)
    name = f"GET {path[:60]}"
    status, text = raw_get(url, path)
    if any(part in text for part in GIVEN_AWAY):
        return Outcome(name, problem=f"gave away: {text[:200]}")
    good = status >= 400 and len(text) > 4 and "Internal Server Error" not in text
    return Outcome(name, reason=text) if good else Outcome(name, problem=f"answered {status} {text[:100]!r}")


def raw_get(url: str, path: str) -> tuple[int, str]:
    """GET a path exactly as written: clients tidy up dots. Returns the status and the body."""
    place = urlsplit(url)
    with socket.create_connection((str(place.hostname), place.port or 80), timeout=30) as link:
        link.sendall(f"GET /{path} HTTP/1.1\r\nHost: {place.netloc}\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: link.recv(65536), b"")).decode("utf-8", "replace")
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]) if head else 0, body


def bad_body(http: httpx.Client, url: str, rng: random.Random) -> Outcome:
    """A body that is no JSON, or not the JSON that is expected."""
    endpoint, body = rng.choice(ENDPOINTS), rng.choice(BODIES)
    answer = http.post(f"{url}/gradio_api/{endpoint}", content=body, headers=JSON)
    return judge(f"POST {endpoint} {body[:20]!r}", answer)


def bad_index(http: httpx.Client, url: str, rng: random.Random) -> Outcome:
    """A function or component that does not exist."""
    number = rng.choice((999, -1, 10**15, "x", None))
    if rng.random() < 0.5:
        body = {"data": [], "fn_index": number, "session_hash": "soak"}
        return judge(f"join {number}", http.post(f"{url}/gradio_api/queue/join", json=body))
    body = {"data": [], "component_id": number, "fn_name": "pause", "session_hash": "soak"}
    return judge(f"component {number}", http.post(f"{url}/gradio_api/component_server", json=body))


def bad_setting(http: httpx.Client, url: str, rng: random.Random) -> Outcome:
    """/decode with one wrong parameter."""
    parameter = rng.choice(list(PARAMETERS))
    return ask_with(http, url, parameter, rng.choice(PARAMETERS[parameter]))


def ask_with(http: httpx.Client, url: str, parameter: str, wrong: Any) -> Outcome:
    """/decode with this wrong value: refused by the request itself or by the stream, in a sentence."""
    body = {"prompt": "A fox", "gen_length": 8} | {parameter: wrong}
    name = f"decode {parameter}={str(body[parameter])[:40]}"
    asked = http.post(f"{url}/gradio_api/call/v2/decode", content=json.dumps(body), headers=JSON)
    if asked.status_code != 200:
        return judge(name, asked)
    text = http.get(f"{url}/gradio_api/call/decode/{asked.json()['event_id']}").text
    if "event: error" not in text:
        return Outcome(name, problem=f"was not refused: {text[-200:]}")
    said = text.split("event: error")[1]
    if any(part in said for part in (*GIVEN_AWAY, "unhashable", "overflow", "Union[")) or '"error"' not in said:
        return Outcome(name, problem=f"was refused in the wrong words: {said[:200]}")
    return Outcome(name, reason=said.strip())


def bad_call(http: httpx.Client, url: str, rng: random.Random, stage: int) -> Outcome:
    """A server function of the stage with arguments that mean nothing, or another visitor's run: answers nothing."""
    function, arguments = rng.choice(FUNCTIONS), rng.choice(ARGUMENTS)
    body = {"data": arguments, "component_id": stage, "fn_name": function, "session_hash": "soak"}
    answer = http.post(f"{url}/gradio_api/component_server", json=body)
    name = f"{function}({str(arguments)[:40]})"
    if answer.status_code == 200 and answer.json() in (None, False, "This page does not offer that model."):
        return Outcome(name, reason="nothing")
    if answer.status_code == 200 and isinstance(answer.json(), dict) and answer.json().keys() == {"problem"}:
        return Outcome(name, reason=answer.json()["problem"])
    return judge(name, answer)


def half_a_request(http: httpx.Client, url: str, rng: random.Random) -> Outcome:
    """A connection that is dropped in the middle of its request: nobody is left to be told why."""
    place = urlsplit(url)
    with socket.create_connection((str(place.hostname), place.port or 80), timeout=10) as link:
        link.sendall(b"POST /gradio_api/queue/join HTTP/1.1\r\nHost: x\r\nContent-Length: 999\r\n\r\n{")
    return Outcome("half a request", reason="dropped")


Abuse = Callable[[httpx.Client, str, random.Random], Outcome]
ABUSES: tuple[Abuse, ...] = (bad_file, bad_body, bad_index, bad_setting, half_a_request)
