"""A visitor without a browser, by the routes of runs. Cheap enough to have thirty."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from httpx_sse import connect_sse


class Visit:
    """One tab. `form` is what pressing Run hands over, `read` the messages of a run."""

    def __init__(self, url: str, **headers: str) -> None:
        named = {"x-surelock-visitor": secrets.token_hex(8), **headers}
        self.http = httpx.Client(base_url=url, timeout=60.0, headers=named)
        self.bytes = 0

    def form(self, **changes: Any) -> dict[str, Any]:
        """The form's values as the page starts with them, with others for some fields, by name."""
        config = self.http.get("/config").json()
        parts = {part["id"]: part["props"] for part in config["components"]}
        press = next(event for event in config["dependencies"] if "live.press" in (event.get("js") or ""))
        names = json.loads(re.search(r"\[.*?\]", press["js"])[0])  # type: ignore[index]
        asked = dict(zip(names, (parts[part].get("value") for part in press["inputs"]), strict=True))
        assert set(changes) <= set(asked)
        asked["lanes"] = json.loads(asked["lanes"])["lanes"]
        return asked | changes

    def open(self, asked: Any = None, **changes: Any) -> str:
        """The id of a new run. Raises httpx.HTTPStatusError for a refusal."""
        answer = self.http.post("/surelock/runs", json=self.form(**changes) if asked is None else asked)
        answer.raise_for_status()
        return str(answer.json()["id"])

    def read(self, run: str, after: int | None = None, steps: int | None = None) -> Iterator[tuple[str, dict, str]]:
        """The kind, data and id of each event of a run."""
        headers = {} if after is None else {"last-event-id": str(after)}
        params = {} if steps is None else {"steps": steps}
        with connect_sse(self.http, "GET", f"/surelock/runs/{run}/events", headers=headers, params=params) as stream:
            if stream.response.is_error:
                stream.response.read()
            stream.response.raise_for_status()
            for each in stream.iter_sse():
                self.bytes += len(each.data)
                yield each.event, each.json(), each.id

    def run(self, **changes: Any) -> list[dict[str, Any]]:
        """The messages of a whole run."""
        return [data for kind, data, _ in self.read(self.open(**changes)) if kind != "place"]

    def stop(self, run: str) -> int:
        return self.http.post(f"/surelock/runs/{run}/stop").status_code


@contextmanager
def holding(url: str, length: int = 480) -> Iterator[tuple[Visit, str]]:
    """A visitor whose run has the device until the block ends."""
    visit = Visit(url)
    run = visit.open(gen_length=length, steps=length, block_length=length)
    events = visit.read(run)
    while next(events)[0] != "records":
        pass
    yield visit, run
    visit.stop(run)
    events.close()
    visit.http.close()
