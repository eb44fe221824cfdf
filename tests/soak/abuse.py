"""What is sent (inputs.json): {"times": [x, n]} is x n times, {"power": [x, n]} a number, {"names": n} n names."""

import json
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.browser.server import SECRET

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
FILES, ROUTES, PARAMETERS = (grown(INPUTS[name]) for name in ("files", "routes", "parameters"))
# nothing so short that it may stand in an unguessable id
GIVEN_AWAY = (*INPUTS["given_away"], SECRET)


def raw_get(url: str, path: str) -> tuple[int, str]:
    """GET a path exactly as written: clients tidy up dots. Returns the status and the body."""
    place = urlsplit(url)
    with socket.create_connection((str(place.hostname), place.port or 80), timeout=30) as link:
        link.sendall(
            f"GET /{path} HTTP/1.1\r\nHost: {place.netloc}\r\nConnection: close\r\n\r\n".encode()
        )
        answer = b"".join(iter(lambda: link.recv(65536), b"")).decode("utf-8", "replace")
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]) if head else 0, body


def wrongly_refused(http: httpx.Client, url: str, parameter: str, wrong: Any) -> str:
    """What is wrong with how /decode refuses a value: by the request itself or by the stream, in a sentence."""
    body = {"prompt": "A fox", "gen_length": 8} | {parameter: wrong}
    answer = http.post(f"{url}/gradio_api/call/v2/decode", content=json.dumps(body), headers=JSON)
    text = answer.text
    sentence = '"detail"'
    if answer.status_code == 200:
        answer = http.get(f"{url}/gradio_api/call/decode/{answer.json()['event_id']}")
        text = answer.text.partition("event: error")[2]
        sentence = '"error"'
    bad = any(
        part in text
        for part in (*GIVEN_AWAY, "Internal Server Error", "unhashable", "overflow", "Union[")
    )
    return (
        f"decode {parameter}={str(wrong)[:40]}: {answer.text[-200:]}"
        if bad or sentence not in text
        else ""
    )
