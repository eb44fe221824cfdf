"""What one client may take of a server: exports in turn, a shared replay page, no log for odd data, no unread run."""

import asyncio
import json
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from starlette.requests import Request

from surelock.ui import launch
from surelock.ui.run_routes import RunRoutes
from tests.loops import finished


class Slow:
    """Makes the parts of a trace, and counts how many at once, and in which threads."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 0
        self.threads = set[int]()

    def written(self, steps: int | None) -> Iterator[str]:
        for part in ('{"text": "', *["x" * 70_000] * 3, '"}'):
            self.now += 1
            self.most = max(self.most, self.now)
            self.threads.add(threading.get_ident())
            threading.Event().wait(0.02)
            self.now -= 1
            yield part


def test_exports_are_made_in_a_thread_and_one_at_a_time_for_each_client() -> None:
    recorder = Slow()
    unused = Mock()
    runs: Any = SimpleNamespace(
        find=lambda _: SimpleNamespace(race=SimpleNamespace(recorder=recorder), steps=None)
    )
    run_routes = RunRoutes(unused, unused, unused, runs, 0)

    async def ask(client: str, leaves: bool = False) -> bytes:
        parts: list[bytes] = []

        async def receive() -> dict[str, Any]:
            while not (leaves and len(parts) > 1):
                await asyncio.sleep(0.001)
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            assert not parts or message["type"] == "http.response.body"
            parts.append(message.get("body", b""))
            await asyncio.sleep(0.01 * leaves)

        scope = {"type": "http", "client": (client, 1), "headers": [], "path_params": {"id": "a"}}
        await (await run_routes.trace(Request(scope, receive)))(scope, receive, send)
        return b"".join(parts)

    async def both(*clients: str) -> list[bytes]:
        return await asyncio.gather(*(ask(client) for client in clients))

    answers = finished(both(*"a" * 5))
    assert recorder.most == 1 and {
        json.loads(answer)["text"] == "x" * 210_000 for answer in answers
    } == {True}
    assert threading.get_ident() not in recorder.threads
    finished(both(*"ab"))
    assert recorder.most == 2, "another client need not wait"
    assert len(finished(ask("a", leaves=True))) < 210_000, "who has left is not computed for"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--max-length 31", "--max-length must be from 32 to 8192"),
        ("--max-length 8193", "--max-length must be from 32 to 8192"),
        ("--max-length 32 --queue-size 0", "--queue-size must be at least 1"),
        ("--queue-size 1 --port -1", "--port must be from 1 to 65535"),
        ("--max-length 8192 --port 1 --keep-mb 0", "--keep-mb must be a number above 0, not 0"),
        ("--port 65535 --run-seconds inf", "--run-seconds must be a number above 0, not inf"),
    ],
)
def test_a_flag_has_its_bounds(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The flag before the one that is refused is taken."""
    with pytest.raises(SystemExit):
        launch.main(words.split())
    assert said in capsys.readouterr().err
