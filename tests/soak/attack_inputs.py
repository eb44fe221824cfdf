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

ODD = (None, {}, [], "x" * 10**5, 10**30, True, 1, "stories", {"a": [None]})
HUGE = {"prompt": "A fox", "compute": "delayed_cache", "refresh": 10**30}
JSON = {"content-type": "application/json"}
UNREAD, EXPORTS = 100, 30
MOST_MB, MOST_SECONDS, IDLE = 100.0, 1.0, 0.1  # of memory held; of others' waits; of a processor when nobody is there
COMPUTED_SECONDS = 25.0  # for nobody, at most: ten, and as long as it takes to fill what the sockets hold


def attack_inputs(app: App, log: Path) -> dict[str, Any]:
    """ok: no line in the log, no memory, no processor for it, and others are answered in time."""
    found = {
        "log_bytes_of_odd_data": _odd_data(app, log),
        "huge_setting": _decode(app, HUGE)[-200:],
        "mb_of_unread_replays": round(_unread(app, ["surelock/replay.txt", "surelock/plotly.min.js"]), 1),
        **_exports(app),
        "seconds_computed_for_nobody": _for_nobody(app),
    }
    found["ok"] = (
        not found["log_bytes_of_odd_data"]
        and "refresh must be" in found["huge_setting"]
        and max(found["mb_of_unread_replays"], found["mb_of_exports"]) < MOST_MB
        and found["slowest_seconds_beside_exports"] < MOST_SECONDS
        and found["seconds_computed_for_nobody"] < COMPUTED_SECONDS
    )
    return found


def _odd_data(app: App, log: Path) -> int:
    before = log.stat().st_size
    with httpx.Client(timeout=60) as http:
        for known in http.get(f"{app.url}/config").json()["dependencies"]:
            for value in ODD:
                body = {"data": [value] * len(known["inputs"]), "fn_index": known["id"], "session_hash": "odd"}
                http.post(f"{app.url}/gradio_api/run/predict", content=json.dumps(body), headers=JSON)
    return log.stat().st_size - before


def _decode(app: App, wanted: dict[str, Any]) -> str:
    asked = httpx.post(f"{app.url}/gradio_api/call/v2/decode", json=wanted, timeout=60)
    if asked.status_code != 200:
        return asked.text
    return httpx.get(f"{app.url}/gradio_api/call/decode/{asked.json()['event_id']}", timeout=60).text


def _unread(app: App, paths: list[str]) -> float:
    """Megabytes that the server holds for requests whose answers are not read."""
    for path in paths:
        httpx.get(f"{app.url}/{path}", timeout=60)  # made once
    before = app.memory()
    with ExitStack() as stack:
        for number in range(UNREAD):
            _ask(app, paths[number % len(paths)], stack, "Accept-Encoding: gzip\r\n")
        time.sleep(3)
        return (app.memory() - before) / 1e6


def _ask(app: App, path: str, stack: ExitStack, more: str = "") -> None:
    """Open a request, and read nothing of its answer."""
    place, link = urlsplit(app.url), stack.enter_context(socket.socket())
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    link.connect((str(place.hostname), place.port or 80))
    link.sendall(f"GET /{path} HTTP/1.1\r\nHost: {place.netloc}\r\n{more}\r\n".encode())


def _exports(app: App) -> dict[str, Any]:
    """Many exports of a large run at once: what they hold, and how long a request beside them waits."""
    visitor, run = Visitor(app.url), ""
    for message in visitor.run(Generated_length=224, Steps=112, Block_length=224):
        run = message["run"]
    before, most, slowest, kept = app.memory(), 0, 0.0, Counter[bool]()
    part = visitor.part("sl-stage-host")
    body = {"data": [run], "component_id": part, "fn_name": "export", "session_hash": visitor.session}

    def ask() -> None:
        answer = httpx.post(f"{app.url}/gradio_api/component_server", json=body, timeout=300)
        kept[answer.status_code == 200 and answer.content != b"null"] += 1

    threads = [threading.Thread(target=ask) for _ in range(EXPORTS)]
    for thread in threads:
        thread.start()
    with httpx.Client(timeout=60) as http:
        while any(thread.is_alive() for thread in threads):
            begun = time.monotonic()
            http.get(f"{app.url}/gradio_api/app_id")
            slowest, most = max(slowest, time.monotonic() - begun), max(most, app.memory())
            time.sleep(0.05)
    visitor.close()
    held = round((most - before) / 1e6, 1)
    return {"exports": kept[True], "mb_of_exports": held, "slowest_seconds_beside_exports": round(slowest, 2)}


def _for_nobody(app: App) -> float:
    """Seconds until the server rests whose only caller opened a stream of /decode, and reads nothing."""
    with ExitStack() as stack:
        asked = httpx.post(f"{app.url}/gradio_api/call/v2/decode", json={"prompt": "A fox", "gen_length": 224})
        _ask(app, f"gradio_api/call/decode/{asked.json()['event_id']}", stack)
        begun = time.monotonic()
        while time.monotonic() - begun < 4 * COMPUTED_SECONDS:
            used = app.cpu_seconds()
            time.sleep(1)
            if app.cpu_seconds() - used < IDLE:
                break
        return round(time.monotonic() - begun, 1)
