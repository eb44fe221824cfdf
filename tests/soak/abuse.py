"""Requests that must be refused, and what refusing well is: an answer, a reason in it, and nothing given away.

It stands in inputs.json, in which {"times": [x, n]} is x n times, {"power": [x, n]} a number, {"names": n} so many.
"""

from __future__ import annotations

import json
import random
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

JSON = {"content-type": "application/json"}


def grown(value: Any) -> Any:
    """A value of inputs.json at its full length."""
    match value:
        case {"times": [part, number]}:
            return part * number
        case {"power": [base, exponent]}:
            return base**exponent
        case {"names": int(number)}:
            return {f"name{each}": each for each in range(number)}
        case list():
            return [grown(each) for each in value]
        case dict():
            return {name: grown(each) for name, each in value.items()}
    return value


INPUTS = json.loads(Path(__file__).with_name("inputs.json").read_text("utf-8"))
GIVEN_AWAY, FILES, ROUTES, BODIES = (grown(INPUTS[name]) for name in ("given_away", "files", "routes", "bodies"))
PARAMETERS: dict[str, list[Any]] = grown(INPUTS["parameters"])
NOTHING = ("null", "false", '"This page does not offer that model."')  # what a stranger's run comes to


def raw_get(url: str, path: str) -> tuple[int, str]:
    """GET a path exactly as written: clients tidy up dots. Returns the status and the body."""
    place = urlsplit(url)
    with socket.create_connection((str(place.hostname), place.port or 80), timeout=30) as link:
        link.sendall(f"GET /{path} HTTP/1.1\r\nHost: {place.netloc}\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: link.recv(65536), b"")).decode("utf-8", "replace")
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]) if head else 0, body


def problem_of(status: int, text: str, name: str) -> str:
    """What is wrong with a refusal, "" if nothing is."""
    good = status >= 400 and len(text) > 4 and text != "Internal Server Error"
    return "" if good and not any(part in text for part in GIVEN_AWAY) else f"{name}: {status} {text[:200]}"


def ask_with(http: httpx.Client, url: str, parameter: str, wrong: Any) -> str:
    """What is wrong with how /decode refuses a value: by the request itself or by the stream, in a sentence."""
    body = {"prompt": "A fox", "gen_length": 8} | {parameter: wrong}
    name = f"decode {parameter}={str(body[parameter])[:40]}"
    asked = http.post(f"{url}/gradio_api/call/v2/decode", content=json.dumps(body), headers=JSON)
    if asked.status_code != 200:
        return problem_of(asked.status_code, asked.text[:2000], name)
    text = http.get(f"{url}/gradio_api/call/decode/{asked.json()['event_id']}").text
    _, error, said = text.partition("event: error")
    bad = any(part in said for part in (*GIVEN_AWAY, "unhashable", "overflow", "Union["))
    return f"{name}: {text[-200:]}" if bad or not error or '"error"' not in said else ""


def misbehave(http: httpx.Client, url: str, rng: random.Random, stage: int) -> str:
    """One bad request of some kind; what is wrong with its answer. stage: the number of the stage's component."""
    kind = rng.choice(("file", "body", "join", "setting", "component_server"))
    if kind == "file":
        path = rng.choice(ROUTES) + rng.choice(FILES)
        return problem_of(*raw_get(url, path), f"GET {path[:60]}")
    if kind == "setting":
        parameter = rng.choice(list(PARAMETERS))
        return ask_with(http, url, parameter, rng.choice(PARAMETERS[parameter]))
    endpoint, content = rng.choice(INPUTS["endpoints"]), rng.choice(BODIES)
    if kind != "body":
        endpoint = "queue/join" if kind == "join" else kind
        number = rng.choice((999, -1, 10**15, "x", None)) if kind == "join" else stage
        asked = {"data": rng.choice(INPUTS["arguments"]), "fn_name": rng.choice(INPUTS["functions"])}
        content = json.dumps({"session_hash": "soak", "component_id": number, "fn_index": number} | asked)
    answer = http.post(f"{url}/gradio_api/{endpoint}", content=content.encode("latin-1"), headers=JSON)
    if kind == "component_server" and answer.status_code == 200:
        return "" if answer.text in NOTHING or '"problem"' in answer.text else f"{content}: {answer.text[:200]}"
    return problem_of(answer.status_code, answer.text, f"POST {endpoint} {content[:60]!r}")
