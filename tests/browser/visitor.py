"""A visitor without a browser: speaks Gradio's queue protocol the way the page does. Cheap enough to have twenty."""

from __future__ import annotations

import json
import re
import secrets
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx


class Visitor:
    """One session. ``run`` yields the stream's messages; ``close`` does what closing the tab does."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.session = secrets.token_hex(6)
        self.http = httpx.Client(timeout=300.0)
        self.bytes = 0
        config = self.http.get(f"{self.url}/config").json()
        self._parts = {part["id"]: part for part in config["components"]}
        self._events = config["dependencies"]
        self._heart = threading.Thread(target=self._beat, daemon=True)
        self._alive = True
        self._heart_stream: httpx.Response | None = None
        self._heart.start()

    def _beat(self) -> None:
        """The heartbeat stream: when it ends, the server knows that the tab is closed."""
        try:
            with httpx.Client(timeout=None).stream(
                "GET", f"{self.url}/gradio_api/heartbeat/{self.session}"
            ) as response:
                self._heart_stream = response
                for _ in response.iter_bytes():
                    if not self._alive:
                        return
        except httpx.HTTPError:
            return

    def part(self, element: str) -> int:
        """The number of the component with that elem_id."""
        return next(key for key, part in self._parts.items() if part["props"].get("elem_id") == element)

    def number(self, function: str) -> int:
        """Of a function that the queue offers."""
        return next(event["id"] for event in self._events if event["api_name"] == function)

    def form(self, **changes: Any) -> dict[str, Any]:
        """What pressing Run hands over: the form's values as the page starts with them, with others for some fields (by
        label, spaces as underscores).
        """
        press = next(event for event in self._events if "live.press" in (event.get("js") or ""))
        names = json.loads(re.search(r"\[.*?\]", press["js"])[0])  # type: ignore[index]
        parts = [self._parts[part]["props"] for part in press["inputs"]]
        labels = [str(part.get("label") or part.get("elem_id")).replace(" ", "_") for part in parts]
        values = dict(zip(labels, (part.get("value") for part in parts), strict=True)) | changes
        assert set(changes) <= set(labels)
        asked = dict(zip(names, values.values(), strict=True))
        return asked | {"lanes": json.loads(asked["lanes"])["lanes"]}

    def run(self, **changes: Any) -> Iterator[dict[str, Any]]:
        """Press Run, with other values for some fields, and follow the stream to its end."""
        yield from self.ask("start", self.form(**changes))

    def ask(self, function: str, *given: Any) -> Iterator[dict[str, Any]]:
        """Queue a function and yield the messages it streams. Raises RuntimeError if it fails."""
        yield from self.follow(self.join(function, *given))

    def join(self, function: str, *given: Any) -> str:
        """Queue a function; its event's id."""
        body = {"data": list(given), "fn_index": self.number(function), "session_hash": self.session}
        joined = self.http.post(f"{self.url}/gradio_api/queue/join", json=body)
        joined.raise_for_status()
        return str(joined.json()["event_id"])

    def cancel(self, event: str) -> None:
        """Take back what was queued, as the page does."""
        body = {"event_id": event, "session_hash": self.session, "fn_index": -1}
        self.http.post(f"{self.url}/gradio_api/cancel", json=body).raise_for_status()

    def follow(self, event: str) -> Iterator[dict[str, Any]]:
        """The messages that an event streams. Raises RuntimeError if it fails."""
        with self.http.stream(
            "GET", f"{self.url}/gradio_api/queue/data", params={"session_hash": self.session}
        ) as stream:
            for line in stream.iter_lines():
                self.bytes += len(line) + 2
                message = json.loads(line[5:]) if line.startswith("data:") else {}
                if message.get("event_id") != event:
                    continue
                if message["msg"] == "process_generating":
                    value = message["output"]["data"][0]  # first whole, then another text in its place
                    yield from json.loads(value[0][2] if isinstance(value, list) else value)
                elif message["msg"] == "process_completed":
                    if not message["success"]:
                        raise RuntimeError(str(message["output"]))
                    return

    def call(self, function: str, *arguments: Any, raw: Any = None) -> Any:
        """A server function of the stage, called as the page's JavaScript does."""
        body = {
            "data": list(arguments) if raw is None else raw,
            "component_id": self.part("sl-stage-host"),
            "fn_name": function,
            "session_hash": self.session,
        }
        answer = self.http.post(f"{self.url}/gradio_api/component_server", json=body)
        return answer.json() if answer.status_code == 200 else None

    def close(self) -> None:
        """Close the tab."""
        self._alive = False
        if self._heart_stream is not None:
            self._heart_stream.close()
        self.http.close()


@contextmanager
def held(url: str) -> Iterator[Callable[[], None]]:
    """A visitor whose run has the device until the block ends, or until what is given is called."""
    visitor = Visitor(url)
    stream = visitor.run(Generated_length=480, Steps=480, Block_length=480)
    run = next(stream)["run"]
    with ThreadPoolExecutor(1) as pool:
        rest = pool.submit(list, stream)

        def leave() -> None:
            visitor.call("stop", run)
            rest.result(60)

        try:
            yield leave
        finally:
            leave()
    visitor.close()
