"""A visitor without a browser: speaks Gradio's queue protocol the way the page does. Cheap enough to have twenty."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterator
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

    def event(self, element: str, name: str) -> dict[str, Any]:
        """The event ``name`` of the component with that elem_id."""
        ids = [key for key, part in self._parts.items() if part["props"].get("elem_id") == element]
        return next(
            event
            for event in self._events
            if any(target in ids and kind == name for target, kind in event["targets"]) and not event.get("js")
        )

    def defaults(self, event: dict[str, Any]) -> list[Any]:
        """The values that the page starts with, for an event's inputs."""
        return [self._parts[part]["props"].get("value") for part in event["inputs"]]

    def fields(self, event: dict[str, Any]) -> list[str]:
        """The labels of an event's inputs."""
        return [
            str(self._parts[part]["props"].get("label") or self._parts[part]["props"].get("elem_id"))
            for part in event["inputs"]
        ]

    def run(self, **changes: Any) -> Iterator[dict[str, Any]]:
        """Press Run, with other values for some fields (by label, spaces as underscores), and follow the stream to its
        end.
        """
        event = self.event("sl-run", "click")
        names = [name.replace(" ", "_") for name in self.fields(event)]
        values = self.defaults(event)
        for name, value in changes.items():
            values[names.index(name)] = value
        yield from self.follow(event, values)

    def follow(self, event: dict[str, Any], values: list[Any], data: Any = None) -> Iterator[dict[str, Any]]:
        """Queue an event and yield the messages it streams. Raises RuntimeError if the event fails."""
        body = {
            "data": values,
            "event_data": data,
            "fn_index": event["id"],
            "trigger_id": event["targets"][0][0],
            "session_hash": self.session,
        }
        joined = self.http.post(f"{self.url}/gradio_api/queue/join", json=body)
        joined.raise_for_status()
        number = joined.json()["event_id"]
        seen: list[Any] = []
        with self.http.stream(
            "GET", f"{self.url}/gradio_api/queue/data", params={"session_hash": self.session}
        ) as stream:
            for line in stream.iter_lines():
                self.bytes += len(line) + 2
                message = json.loads(line[5:]) if line.startswith("data:") else {}
                if message.get("event_id") != number:
                    continue
                if message["msg"] == "process_generating":
                    yield from self._unpack(message["output"], seen)
                elif message["msg"] == "process_completed":
                    if not message["success"]:
                        raise RuntimeError(str(message["output"]))
                    return

    @staticmethod
    def _unpack(output: dict[str, Any], seen: list[Any]) -> Iterator[dict[str, Any]]:
        """The first answer comes whole, later ones as differences; ours always replace the whole text."""
        value = output["data"][0]
        text = value[0][2] if isinstance(value, list) else value
        if text != seen:
            yield from json.loads(text)

    def call(self, function: str, *arguments: Any, raw: Any = None) -> Any:
        """A server function of the stage, called as the page's JavaScript does."""
        stage = next(key for key, part in self._parts.items() if part["props"].get("elem_id") == "sl-stage-host")
        body = {
            "data": list(arguments) if raw is None else raw,
            "component_id": stage,
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
