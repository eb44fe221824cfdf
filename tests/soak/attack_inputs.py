"""Odd data, unread answers and callers who leave: what each of them takes of a served page."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.browser.server import App
from tests.browser.visitor import Visitor
from tests.soak.watched import most_memory

ODD = (None, {}, [], "x" * 10**5, 10**30, True, 1, "stories", {"a": [None]})
HUGE = {"prompt": "A fox", "compute": "delayed_cache", "refresh": 10**30}
JSON = {"content-type": "application/json"}
UNREAD, EXPORTS = 100, 30
MOST_MB = 100.0  # of memory held
COMPUTED_SECONDS = 25.0  # for nobody, at most: ten, and as long as it takes to fill what the sockets hold


def odd_data(app: App, log: Path) -> dict[str, Any]:
    """Values of the wrong kind for each function write nothing into the log."""
    before = log.stat().st_size
    with httpx.Client(timeout=60) as http:
        for known in http.get(f"{app.url}/config").json()["dependencies"]:
            for value in ODD:
                body = {"data": [value] * len(known["inputs"]), "fn_index": known["id"], "session_hash": "odd"}
                http.post(f"{app.url}/gradio_api/run/predict", content=json.dumps(body), headers=JSON)
    written = log.stat().st_size - before
    return {"ok": not written, "written": written}


def huge_setting(app: App, log: Path) -> dict[str, Any]:
    said = _decode(app, HUGE)[-200:]
    return {"ok": "refresh must be" in said, "said": said}


def _decode(app: App, wanted: dict[str, Any]) -> str:
    asked = httpx.post(f"{app.url}/gradio_api/call/v2/decode", json=wanted, timeout=60)
    if asked.status_code != 200:
        return asked.text
    return httpx.get(f"{app.url}/gradio_api/call/decode/{asked.json()['event_id']}", timeout=60).text


def unread_files(app: App, log: Path) -> dict[str, Any]:
    """Large files that are asked for and not read: the server holds one text for all."""
    paths = ["surelock/replay.txt", "surelock/plotly.min.js"]
    for path in paths:
        httpx.get(f"{app.url}/{path}", timeout=60)  # made once
    before = app.memory()
    with ExitStack() as stack:
        for number in range(UNREAD):
            _ask(app, paths[number % len(paths)], stack, "Accept-Encoding: gzip\r\n")
        time.sleep(3)
        held = round((app.memory() - before) / 1e6, 1)
    return {"ok": held < MOST_MB, "mb": held}


def _ask(app: App, path: str, stack: ExitStack, more: str = "") -> None:
    """Open a request, and read nothing of its answer."""
    place, link = urlsplit(app.url), stack.enter_context(socket.socket())
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    link.connect((str(place.hostname), place.port or 80))
    link.sendall(f"GET /{path} HTTP/1.1\r\nHost: {place.netloc}\r\n{more}\r\n".encode())


def exports(app: App, log: Path) -> dict[str, Any]:
    """Many exports of a large run at once."""
    visitor, run = Visitor(app.url), ""
    for message in visitor.run(Generated_length=224, Steps=112, Block_length=224):
        run = message["run"]
    before, kept = app.memory(), Counter[bool]()
    part = visitor.part("sl-stage-host")
    body = {"data": [run], "component_id": part, "fn_name": "export", "session_hash": visitor.session}

    def ask() -> None:
        answer = httpx.post(f"{app.url}/gradio_api/component_server", json=body, timeout=300)
        kept[answer.status_code == 200 and answer.content != b"null"] += 1

    threads = [threading.Thread(target=ask) for _ in range(EXPORTS)]
    with most_memory(app) as most:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    visitor.close()
    held = round((most[0] - before) / 1e6, 1)
    return {"ok": kept[True] == EXPORTS and held < MOST_MB, "exports": kept[True], "mb": held}


def for_nobody(app: App, log: Path) -> dict[str, Any]:
    """A stream of /decode that is opened and not read holds the device for some seconds, and no longer."""
    with ExitStack() as stack:
        asked = httpx.post(f"{app.url}/gradio_api/call/v2/decode", json={"prompt": "A fox", "gen_length": 224})
        _ask(app, f"gradio_api/call/decode/{asked.json()['event_id']}", stack)
        time.sleep(1)
        visitor, begun = Visitor(app.url), time.monotonic()
        next(visitor.run(Generated_length=8, Steps=8, Block_length=8))
        waited = round(time.monotonic() - begun, 1)
        visitor.close()
    return {"ok": waited < COMPUTED_SECONDS, "waited": waited}


INPUTS = (odd_data, huge_setting, unread_files, exports, for_nobody)
