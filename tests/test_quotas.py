"""What one client may take of a server: exports in turn, a shared replay page, no log for odd data, no unread run."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any
from weakref import WeakValueDictionary

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from surelock.ui import (
    launch,
    readers,
)
from surelock.ui.layout import build
from surelock.ui.limits import within
from surelock.ui.models import Models
from surelock.ui.serving import Export, routes
from tests.loops import finished


class Slow:
    """Makes documents, and counts how many at once, and in which threads."""

    def __init__(self) -> None:
        self.now, self.most, self.threads = 0, 0, set[int]()

    def document(self, **_: Any) -> dict[str, Any]:
        self.now += 1
        self.most = max(self.most, self.now)
        self.threads.add(threading.get_ident())
        threading.Event().wait(0.02)
        self.now -= 1
        return {"text": "x" * 200_000}


def test_exports_are_made_in_a_thread_and_one_at_a_time_for_each_client() -> None:
    recorder, turns = Slow(), WeakValueDictionary[str, asyncio.Lock]()

    async def ask(client: str, leaves: bool = False) -> bytes:
        parts: list[bytes] = []

        async def receive() -> dict[str, Any]:
            if not leaves:
                await asyncio.Event().wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            assert not parts or message["type"] == "http.response.body"
            parts.append(message.get("body", b""))
            await asyncio.sleep(0)

        await Export(recorder, None, turns)({"type": "http", "client": (client, 1), "headers": []}, receive, send)  # type: ignore[arg-type]
        return b"".join(parts)

    async def both(*clients: str) -> list[bytes]:
        return await asyncio.gather(*(ask(client) for client in clients))

    answers = finished(both(*"a" * 5))
    assert recorder.most == 1 and {json.loads(answer)["text"] == "x" * 200_000 for answer in answers} == {True}
    assert threading.get_ident() not in recorder.threads
    finished(both(*"ab"))
    assert recorder.most == 2, "another client need not wait"
    assert finished(ask("a", leaves=True)) == b"", "who has left is not computed for"


def test_the_replay_page_is_a_file_that_all_share() -> None:
    client = TestClient(Starlette(routes=routes()))
    packed = client.get("/surelock/replay.txt")
    assert "__SURELOCK_TRACE__" in packed.text and packed.headers["content-type"].startswith("text/plain")
    tag = packed.headers["etag"]
    for asked, status in ((tag, 304), (f"W/{tag}", 304), ('"0"', 200), ('"~"', 200)):
        assert client.get("/surelock/replay.txt", headers={"if-none-match": asked}).status_code == status, asked
    assert client.get("/surelock/replay.txt", headers={"accept-encoding": "identity"}).text == packed.text


def test_a_request_has_its_key_before_anything_of_it_is_read() -> None:
    """The server's loop finds out who asks for the same; the tokens of a long prompt are counted elsewhere."""
    _, _, shares, _ = build(Models(["stories"]), most=256, queue_size=4)  # the model is not loaded
    (key,) = shares._keys.values()
    form = {"model": "stories", "prompt": "A fox", "lanes": [{"name": "Own"}], "seed": 1}
    assert key([form]) == key([dict(reversed(form.items()))]) is not None
    others = [form | change for change in ({"prompt": "A box"}, {"seed": 2}, {"lanes": []}, {"chat": True})]
    assert len({key([form]), *(key([each]) for each in others)}) == 5
    assert [key(values) for values in ([], ["x"], [None], [form, form])] == [None] * 4


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what was taken")
def test_a_stream_that_is_opened_and_not_read_has_no_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "UNREAD_SECONDS", 0.3)
    kept = readers.Readers()
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        sender, _ = server.accept()
        sender.setblocking(False)

    def steps() -> Iterator[int]:
        for number in range(100):
            with contextlib.suppress(BlockingIOError):
                sender.send(b"x" * 100_000)
            time.sleep(0.01)
            yield number

    done = kept.open("a", readers.Link(sender))
    assert len(list(within(steps(), 60.0, kept.watched("a")))) < 100
    assert len(list(within(steps(), 60.0, kept.watched("of whom no stream is open")))) < 100
    reading = threading.Thread(target=lambda: [None for _ in iter(lambda: client.recv(1000), b"")])
    reading.start()  # slowly, but without end
    assert len(list(within(steps(), 60.0, kept.watched("a")))) == 100
    sender.close()
    client.close()
    reading.join()
    done()
    assert not kept._links


def test_every_flag_is_read_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(variable: str, value: str, *words: str) -> str:
        with monkeypatch.context() as patch, pytest.raises(SystemExit):
            patch.setenv(variable, value)
            launch.main([*words])
        return capsys.readouterr().err

    flags = [action for action in launch.parser()._actions if action.dest != "help"]
    for variable, value in {"KEEP_MB": "300.5", "MODEL": "a, b\tc", "MCP": "true", "SHARE": "0", "PORT": " "}.items():
        monkeypatch.setenv(f"SURELOCK_{variable}", value)
    given = launch.parser().parse_args([])
    assert (given.keep_mb, given.model, given.mcp, given.share, given.port) == (
        300.5,
        ["a", "b", "c"],
        True,
        False,
        None,
    )
    assert launch.parser().parse_args(["--keep-mb", "7"]).keep_mb == 7
    told = launch.parser().format_help()
    assert all(f"[SURELOCK_{each.dest.upper()}]" in " ".join(told.split()) for each in flags)
    assert "SURELOCK_QUEUE_SIZE must be a whole number, not 'many'" in refused("SURELOCK_QUEUE_SIZE", "many")
    assert "SURELOCK_SHARE must be 1 or 0, not 'maybe'" in refused("SURELOCK_SHARE", "maybe")
    assert "SURELOCK_DEVICE_MAP must be one of auto, not 'x'" in refused("SURELOCK_DEVICE_MAP", "x")
    assert "SURELOCK_MAX_LENGTH must be at least 32" in refused("SURELOCK_MAX_LENGTH", "3")
    assert "SURELOCK_KEEP_MB must be a number above 0" in refused("SURELOCK_KEEP_MB", "-1")
    assert " --max-length must be at least 32" in refused("SURELOCK_MAX_LENGTH", "64", "--max-length", "3")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--max-length 31", "--max-length must"),
        ("--max-length 32 --queue-size 0", "--queue-size must be at least 1"),
        ("--queue-size 1 --port -1", "--port must be from 0 to 65535"),
        ("--port 65536", "--port must"),
        ("--keep-mb nan", "--keep-mb must be a number above 0, not nan"),
        ("--port 0 --keep-mb 0", "--keep-mb must be a number above 0, not 0"),
        ("--port 65535 --run-seconds inf", "--run-seconds must be a number above 0, not inf"),
    ],
)
def test_a_flag_has_its_bounds(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The flag before the one that is refused is taken."""
    with pytest.raises(SystemExit):
        launch.main(words.split())
    assert said in capsys.readouterr().err
