"""``python -m tests.soak.asker URL``: ask a served page again and again, each time by a new connection.

It is a process of its own, so that the time that it tells is the server's, not that of the threads that attack. It ends
with its standard input and prints the longest time in seconds of each request, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from itertools import cycle
from urllib.parse import urlsplit

EVERY, PATIENCE = 0.1, 30.0  # seconds: between two requests, and for one of them


def asked(place: str, method: str, path: str, body: bytes | None) -> bytes:
    link = HTTPConnection(place, timeout=PATIENCE)
    try:
        link.request(method, path, body, {"content-type": "application/json"} if body else {})
        answer = link.getresponse()
        said = answer.read()
        if answer.status != 200:
            raise HTTPException(f"{path} was answered {answer.status}")
        return said
    finally:
        link.close()


def main() -> None:
    place = urlsplit(sys.argv[1]).netloc
    with suppress(PermissionError):
        os.nice(-5)  # it measures: what it waits for is the server alone
    parts = json.loads(asked(place, "GET", "/config", None))["components"]
    stage = next(part["id"] for part in parts if part["props"].get("elem_id") == "sl-stage-host")
    pause = {"data": ["x"], "component_id": stage, "fn_name": "pause", "session_hash": "asker"}
    asks = {
        "page": ("GET", "/", None),
        "app_id": ("GET", "/gradio_api/app_id", None),
        "pause": ("POST", "/gradio_api/component_server", json.dumps(pause).encode()),
    }
    slowest, over = dict.fromkeys(asks, 0.0), threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    print(flush=True)  # it is asking from now on
    for name, ask in cycle(asks.items()):
        begun = time.monotonic()
        try:
            asked(place, *ask)
            took = time.monotonic() - begun
        except (OSError, HTTPException):
            took = PATIENCE
        slowest[name] = max(slowest[name], took)
        if over.wait(EVERY):
            break
    print(json.dumps({name: round(seconds, 3) for name, seconds in slowest.items()}))


if __name__ == "__main__":
    main()
