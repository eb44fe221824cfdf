"""The package `spaces` itself, before a scheduler of ours: who is charged, who waits, and what a refusal says.

Without a GPU it must not begin CUDA in its workers: torch is hidden while it is imported, and they compute on the CPU.
"""

import json
import os
import signal
import sys
import threading
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from tests.browser.server import App, serve, wait_for_model
from tests.browser.visitor import Visitor
from tests.test_older_gradio import install

pytestmark = pytest.mark.long
START = "import sys; sys.modules['torch'] = None; import spaces; del sys.modules['torch']; "
START += "sys.argv[0] = 'app.py'; import runpy; runpy.run_path('app.py', run_name='__main__')"
SHORT = {"gen_length": 16, "steps": 16, "block_length": 16}


class Scheduler(ThreadingHTTPServer):
    """That of ZeroGPU. calls: what came, in order. answer: to a request for a GPU: "now", "later", "none", "quota"."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.calls = list[tuple[str, dict[str, str]]]()
        self.answer = "now"

    @property
    def tokens(self) -> list[str | None]:
        return [query.get("token") for path, query in self.calls if path == "/schedule"]


class Answers(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        place = urlsplit(self.path)
        scheduler = self.server
        assert isinstance(scheduler, Scheduler)
        scheduler.calls.append((place.path, dict(parse_qsl(place.query))))
        gpu = {
            "idle": False,
            "nvidiaIndex": 0,
            "nvidiaUUID": "GPU-0",
            "allowToken": f"{len(scheduler.calls)}",
        }
        status = 200
        kind = "application/json"
        text = json.dumps(gpu)
        if place.path == "/schedule" and scheduler.answer == "quota":
            status = 429
            text = json.dumps({"left": 4, "wait": 12_000})
        elif place.path == "/schedule" and scheduler.answer != "now":
            kind = "text/event-stream"
            text = "event: failed\n\n"
            if scheduler.answer == "later":
                text = f"event: succeeded\ndata: {json.dumps(gpu)}\n\n"
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def scheduler() -> Iterator[Scheduler]:
    with Scheduler() as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


@pytest.fixture(scope="module")
def space(scheduler: Scheduler, tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    folder = tmp_path_factory.mktemp("space")
    install(folder, "spaces>=0.51,<1")
    (folder / "cgroup").write_text("0::/space\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        patch.setenv("SPACES_ZERO_GPU", "true")
        patch.setenv("SPACES_ZERO_DEVICE_API_URL", f"http://127.0.0.1:{scheduler.server_port}")
        patch.setenv("ZEROGPU_PROC_SELF_CGROUP_PATH", str(folder / "cgroup"))
        with serve(
            "--engine", "torch", command=(sys.executable, "-c", START), log=folder / "log"
        ) as app:
            wait_for_model(app)
            yield app
            for path, query in scheduler.calls:
                if path == "/allow":  # the platform ends workers, not their server
                    with suppress(ProcessLookupError):
                        os.kill(int(query["pid"]), signal.SIGKILL)


def visitor(space: App, name: str) -> Visitor:
    token = ".".join(
        ("a", urlsafe_b64encode(json.dumps({"user": name}).encode()).decode().rstrip("="), "c")
    )
    return Visitor(space.url, **{"x-ip-token": token, "x-gradio-user": "app"})


def test_two_visitors_at_once_are_each_charged_for_their_own_run(
    space: App, scheduler: Scheduler
) -> None:
    scheduler.calls.clear()
    pair = [visitor(space, name) for name in ("one", "other")]
    with ThreadPoolExecutor(2) as pool:
        ends = list(
            pool.map(lambda each: list(each.run(prompt="The same words", **SHORT))[-1], pair)
        )
    assert ends == [{"end": "finished", "problem": None}] * 2
    assert sorted(map(str, scheduler.tokens)) == sorted(
        each.http.headers["x-ip-token"] for each in pair
    )
    assert [path for path, _ in scheduler.calls] == ["/schedule", "/allow", "/release"] * 2


@pytest.mark.parametrize(
    ("answer", "end"),
    [
        ("later", "finished"),
        (
            "none",
            "no GPU was available after 60s; create a free account to get a higher priority in ZeroGPU queues.",
        ),
        (
            "quota",
            "you have exceeded your ZeroGPU quota (9s requested vs. 4s left); try again in 3:20:00.",
        ),
    ],
)
def test_who_waits_gets_a_gpu_or_a_refusal_in_one_sentence(
    space: App, scheduler: Scheduler, answer: str, end: str
) -> None:
    scheduler.answer = answer
    last: dict[str, Any] = list(visitor(space, answer).run(prompt=f"Answered {answer}", **SHORT))[
        -1
    ]
    assert (last["problem"] or last["end"]).removeprefix("The run stopped: ") == end


def test_a_script_is_refused_without_links(space: App, scheduler: Scheduler) -> None:
    scheduler.answer = "quota"
    http = visitor(space, "script").http
    del http.headers["x-gradio-user"]
    event = http.post(
        "/gradio_api/call/v2/decode", json={"prompt": "A fox", "gen_length": 16}
    ).json()["event_id"]
    text = http.get(f"/gradio_api/call/decode/{event}").text
    assert (
        "event: error" in text
        and "try again in 3:20:00; authenticate with a Hugging Face token" in text
    )
    assert "://" not in text
    assert Path(str(space.log)).read_text().count("Traceback") == 0
