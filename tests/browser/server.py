"""Start ``python app.py`` for the browser suite, and find a Chromium."""

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, Playwright

from tests.waiting import HANGS

ROOT = Path(__file__).resolve().parents[2]
SECRET = "a-secret-of-the-environment"  # as a token on a Space
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
]


@dataclass
class App:
    """A served page: its address, its process, the file that it prints into, if any, and how long it took to start."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path | None
    start_seconds: float

    def cpu_seconds(self) -> float:
        """Processor time the server has used so far, all threads."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> int:
        """Resident bytes."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf(
            "SC_PAGE_SIZE"
        )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(url: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until a process that was started answers there."""
    begun = time.monotonic()
    while True:
        try:
            if httpx.get(url, timeout=HANGS).status_code == 200:
                return
        except httpx.TransportError as error:  # not listening yet, or just beginning to
            if process.poll() is not None or time.monotonic() - begun > HANGS:
                raise RuntimeError(f"{process.args} did not start") from error
            time.sleep(0.05)


@contextmanager
def serve(
    *arguments: str,
    log: Path | None = None,
    port: int = 0,
    command: Sequence[str] = (sys.executable, "app.py"),
    cwd: Path = ROOT,
    more: Mapping[str, str] | None = None,
) -> Iterator[App]:
    """Run app.py, or another command, with these arguments until the block ends; port 0: on any. more: environment."""
    port = port or free_port()
    output: Any = log.open("wb") if log else subprocess.DEVNULL
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "GRADIO_ANALYTICS_ENABLED": "False",
        "HF_TOKEN": SECRET,
    }
    environment |= {"GRADIO_SERVER_PORT": str(port), **(more or {})}
    begun = time.monotonic()
    process = subprocess.Popen(
        [*command, *arguments], cwd=cwd, env=environment, stdout=output, stderr=subprocess.STDOUT
    )
    url = f"http://127.0.0.1:{port}"
    try:
        answers(f"{url}/", process)
        yield App(url, process, log, time.monotonic() - begun)
    finally:
        process.terminate()
        process.wait(HANGS)


class Quiet(SimpleHTTPRequestHandler):
    """A plain file server. What it sent is asked for again, or a test would have what another one left."""

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def files_of(folder: Path, handler: type[SimpleHTTPRequestHandler] = Quiet) -> Iterator[str]:
    """Serve the files of a folder until the block ends: nothing else computes."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def wait_for_model(app: App) -> None:
    """Until the embedded model is loaded."""
    from tests.browser.visitor import Visitor

    visitor = Visitor(app.url)
    until = time.monotonic() + HANGS
    while visitor.state("stories") != "ready":
        if time.monotonic() > until:
            raise RuntimeError(f"the model did not load: {visitor.state('stories')}")
        time.sleep(0.2)
    visitor.close()


def chromium_path(*first: str) -> str | None:
    """One of these programs on the PATH, else Chromium under one of its names; None if there is none."""
    names = (*first, "chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")
    return next(filter(None, map(shutil.which, names)), None)


def launch(playwright: Playwright) -> Browser:
    return playwright.chromium.launch(executable_path=chromium_path(), args=FLAGS)
