"""A visitor without a browser: uses the routes of runs the way the page does. Cheap enough to have thirty."""

import json
import re
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from httpx_sse import connect_sse

from tests.waiting import HANGS


class Visitor:
    """One tab.

    id: of its latest run. bytes: of all data that it has read.
    """

    def __init__(self, url: str, **headers: str) -> None:
        named = {"x-surelock-visitor": secrets.token_hex(8), **headers}
        self.http = httpx.Client(base_url=url, timeout=HANGS, headers=named)
        self.id = ""
        self.bytes = 0

    def form(self, **changes: Any) -> dict[str, Any]:
        """What pressing Run hands over: the form's values as the page starts with them, with others for some fields."""
        config = self.http.get("/config").json()
        parts = {part["id"]: part["props"] for part in config["components"]}
        press = next(
            event for event in config["dependencies"] if "live.press" in (event.get("js") or "")
        )
        names = json.loads(re.search(r"\[.*?\]", press["js"])[0])  # type: ignore[index]
        asked = dict(
            zip(names, (parts[part].get("value") for part in press["inputs"]), strict=True)
        )
        assert set(changes) <= set(asked)
        return asked | {"lanes": json.loads(asked["lanes"])["lanes"]} | changes

    def open(self, asked: Any = None, **changes: Any) -> str:
        """The id of a new run. Raises httpx.HTTPStatusError for a refusal."""
        answer = self.http.post(
            "/surelock/runs", json=self.form(**changes) if asked is None else asked
        )
        answer.raise_for_status()
        self.id = str(answer.json()["id"])
        return self.id

    def read(
        self, run: str, after: int | None = None, steps: int | None = None
    ) -> Iterator[tuple[str, dict, str]]:
        """The kind, data and number of each event of a run. Raises httpx.HTTPStatusError for a refusal."""
        headers = {} if after is None else {"last-event-id": str(after)}
        params = {} if steps is None else {"steps": steps}
        with connect_sse(
            self.http, "GET", f"/surelock/runs/{run}/events", headers=headers, params=params
        ) as stream:
            if stream.response.is_error:
                stream.response.read()
            stream.response.raise_for_status()
            for each in stream.iter_sse():
                self.bytes += len(each.data)
                if each.data:  # a ping is an event without data to this library
                    yield each.event, each.json(), each.id

    def run(self, **changes: Any) -> Iterator[dict[str, Any]]:
        """Press Run, with other values for some fields, and read the messages to the end."""
        yield from (data for kind, data, _ in self.read(self.open(**changes)) if kind != "place")

    def stop(self, run: str) -> int:
        return self.http.post(f"/surelock/runs/{run}/stop").status_code

    def trace(self, run: str) -> dict[str, Any]:
        return self.http.get(f"/surelock/runs/{run}/trace").json()

    def state(self, model: str) -> str:
        return self.http.get(f"/surelock/models/{model}/state").json()["state"]

    def close(self) -> None:
        """Close the tab."""
        if self.id:
            self.stop(self.id)
        self.http.close()


@contextmanager
def held(url: str) -> Iterator[Callable[[], None]]:
    """A visitor whose run has the device until the block ends, or until what is given is called."""
    visitor = Visitor(url)
    events = visitor.read(visitor.open(gen_length=480, steps=480, block_length=480))
    while next(events)[0] != "records":
        pass
    reading = threading.Thread(target=lambda: [None for _ in events])
    reading.start()

    def leave() -> None:
        with httpx.Client() as http:
            http.post(f"{url}/surelock/runs/{visitor.id}/stop")
        reading.join(HANGS)

    try:
        yield leave
    finally:
        leave()
        visitor.http.close()
