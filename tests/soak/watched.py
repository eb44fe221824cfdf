"""A part of the attack and what it does to others: an honest run, whoever asks the page, memory, the log."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.browser.server import ROOT, App
from tests.browser.visitor import Visitor

KEEP_MB = 300
LOG_A_SECOND, LOG_ONCE = 1e6 / 600, 20_000  # bytes: so many a second, and so many for the first of each kind
PAGE_SECONDS = 1.0
SMALL = {"Generated_length": 16, "Steps": 16, "Block_length": 16}
Part = Callable[[App, Path], dict[str, Any]]


def watched(app: App, log: Path, part: Part) -> dict[str, Any]:
    """What a part did; ``ok``: nothing to others, and what it says itself."""
    before, written, begun = app.memory(), log.stat().st_size, time.monotonic()
    used, ends = app.cpu_seconds(), []
    with most_memory(app) as memory, _asking(app) as slowest:
        visit = threading.Timer(1.0, lambda: ends.append(_visit(app)))
        visit.start()
        found = part(app, log)
        visit.join()
    seconds = time.monotonic() - begun
    report = {
        "run": ends[0],
        "memory_mb": round((memory[0] - before) / 1e6),
        "kept_mb": round((app.memory() - before) / 1e6),
        "page_seconds": slowest,
        "log_bytes": log.stat().st_size - written,
        "seconds": round(seconds, 1),
        "server_cpu_seconds": round(app.cpu_seconds() - used, 1),
    }
    ok = (
        found.pop("ok", True)
        and report["run"] == "finished"
        and report["memory_mb"] <= KEEP_MB
        and max(slowest.values()) <= PAGE_SECONDS
        and report["log_bytes"] <= LOG_ONCE + LOG_A_SECOND * seconds
    )
    return {"ok": ok, **found, **report}


@contextmanager
def most_memory(app: App) -> Iterator[list[int]]:
    """The most bytes that the server held meanwhile, as the one element of a list."""
    most, over = [app.memory()], threading.Event()

    def watch() -> None:
        while not over.wait(0.1) and app.process.poll() is None:
            most[0] = max(most[0], app.memory())

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield most
    finally:
        over.set()
        watcher.join()


@contextmanager
def _asking(app: App) -> Iterator[dict[str, float]]:
    """The slowest answer of each kind in seconds, once it has ended: see `tests.soak.asker`."""
    slowest: dict[str, float] = {}
    command = [sys.executable, "-m", "tests.soak.asker", app.url]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as asker:
        assert asker.stdout is not None
        asker.stdout.readline()
        yield slowest
        said, _ = asker.communicate(timeout=60)
    slowest |= json.loads(said)


def _visit(app: App) -> str:
    try:
        visitor = Visitor(app.url)
        try:
            return str(list(visitor.run(**SMALL))[-1].get("end"))
        finally:
            visitor.close()
    except (httpx.HTTPError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"[:80]
