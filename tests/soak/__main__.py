"""``python -m tests.soak``: start the page, send it visitors, report. One JSON line comes last; status 1 if any failed.

Memory is the server's resident bytes, at the start after a first wave of the same visits (which fills caches and
thread stacks once), at the end after the last tab has closed.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import httpx

from tests.browser.server import App, serve, wait_for_model
from tests.browser.visitor import Visitor
from tests.soak.attack import PARTS, attack
from tests.soak.browsers import browsers
from tests.soak.lesson import lesson
from tests.soak.tally import Tally
from tests.soak.visits import Visit

MOST_VISITORS, MOST_SECONDS = 200, 3600
DRAIN_SECONDS = 180.0  # after the last visit began: the queue must have been served
FREE_SECONDS = 45.0  # after the last tab closed: every run must have been freed
MOST_GROWTH = 0.05
SAMPLES = 20


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.soak", description="Visitors and abuse, bounded, on loopback.")
    made.add_argument(
        "--visitors", type=int, default=50, help=f"at once, at most {MOST_VISITORS} (default: %(default)s)"
    )
    made.add_argument("--seconds", type=float, default=300, help=f"at most {MOST_SECONDS} (default: %(default)s)")
    made.add_argument("--seed", type=int, default=0, help="of what the visitors do (default: %(default)s)")
    made.add_argument(
        "--attack",
        nargs="*",
        choices=tuple(PARTS),
        metavar="PART",
        help=f"instead: what took the server down once, all of it again or these parts: {', '.join(PARTS)}",
    )
    made.add_argument("--lesson", action="store_true", help="instead: a class presses Run, what that costs the server")
    made.add_argument("--browsers", action="store_true", help="instead: the same class in pages of a real browser")
    made.add_argument("--log", type=Path, help="keep what the server prints in this file")
    return made


def crowd(url: str, visitors: int, seconds: float, seed: int, tally: Tally) -> int:
    """That many visitors for so long, one visit after another; returns how many were still stuck after the drain."""
    deadline = time.monotonic() + seconds

    def stay(number: int) -> None:
        rng = random.Random(f"{seed}/{number}")
        time.sleep(rng.uniform(0, min(2.0, seconds / 4)))
        while time.monotonic() < deadline:
            try:
                Visit(url, rng, tally, deadline).act()
            except (httpx.HTTPError, OSError, RuntimeError, KeyError, ValueError) as error:
                tally.problem(f"a visit broke: {type(error).__name__}", str(error))
            time.sleep(rng.uniform(0, 0.5))

    threads = [threading.Thread(target=stay, args=(number,), daemon=True) for number in range(visitors)]
    for thread in threads:
        thread.start()
    until = deadline + DRAIN_SECONDS
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return sum(thread.is_alive() for thread in threads)


def wait_until_freed(app: App, runs: set[str]) -> int:
    """Wait for the server to forget every run; returns how many it still keeps."""
    left, until, visitor = set(runs), time.monotonic() + FREE_SECONDS, Visitor(app.url)
    while left and time.monotonic() < until:
        left = {run for run in left if visitor.call("top", run, 0, 0) is not None}
        time.sleep(1)
    visitor.close()
    return len(left)


def resources(app: App) -> dict[str, int]:
    process = Path(f"/proc/{app.process.pid}")
    threads = next(line for line in (process / "status").read_text().splitlines() if line.startswith("Threads"))
    return {"memory": app.memory(), "threads": int(threads.split()[1]), "files": len(list((process / "fd").iterdir()))}


def watch_memory(app: App, every: float, samples: list[float]) -> None:
    """Append the server's memory in megabytes to ``samples`` from a thread of its own, until SAMPLES are there."""

    def watch() -> None:
        while len(samples) < SAMPLES and app.process.poll() is None:
            samples.append(round(app.memory() / 1e6, 1))
            time.sleep(every)

    threading.Thread(target=watch, daemon=True).start()


def works(app: App) -> bool:
    """Whether an ordinary run still goes through."""
    visitor = Visitor(app.url)
    messages = list(visitor.run(Prompt="The sun came up and", Generated_length=8, Steps=8, Block_length=8))
    visitor.close()
    return messages[-1].get("end") == "finished"


def soak(visitors: int, seconds: float, seed: int, log: Path) -> dict[str, Any]:
    """The whole soak: serve, a first wave, the soak, the report."""
    with serve("--max-length", "256", log=log) as app:
        wait_for_model(app)
        first = Tally()
        crowd(app.url, visitors, max(5.0, seconds / 5), seed + 1, first)
        wait_until_freed(app, first.runs)
        before, tally, samples = resources(app), Tally(), []
        begun, used = time.monotonic(), app.cpu_seconds()
        watch_memory(app, seconds / SAMPLES, samples)
        stuck = crowd(app.url, visitors, seconds, seed, tally)
        wall, cpu = time.monotonic() - begun, app.cpu_seconds() - used
        kept = wait_until_freed(app, tally.runs)
        after, alive = resources(app), app.process.poll() is None and works(app)
    growth = after["memory"] / before["memory"] - 1
    return {
        "ok": not tally.problems and not stuck and not kept and alive and growth <= MOST_GROWTH,
        "visitors": visitors,
        "seconds": round(wall, 1),
        "server_cpu_seconds": round(cpu, 1),
        "alive_at_the_end": alive,
        "visitors_stuck": stuck,
        "runs_kept": kept,
        "runs": len(tally.runs),
        "memory_start_mb": round(before["memory"] / 1e6, 1),
        "memory_end_mb": round(after["memory"] / 1e6, 1),
        "memory_growth": round(growth, 4),
        "memory_mb": samples,
        "threads": [before["threads"], after["threads"]],
        "open_files": [before["files"], after["files"]],
        "server_tracebacks": log.read_text("utf-8", "replace").count("Traceback (most recent call last)"),
        **tally.summary(),
    }


def main(argv: list[str] | None = None) -> int:
    given = parser().parse_args(argv)
    if not (1 <= given.visitors <= MOST_VISITORS and 1 <= given.seconds <= MOST_SECONDS):
        parser().error(f"at most {MOST_VISITORS} visitors and {MOST_SECONDS} seconds")
    with tempfile.TemporaryDirectory() as folder:
        log = given.log or Path(folder) / "server.log"
        if given.attack is not None:
            report = attack(given.attack, log)
        elif given.lesson:
            report = lesson(given.visitors, log)
        elif given.browsers:
            report = browsers(given.visitors, log)
        else:
            report = soak(given.visitors, given.seconds, given.seed, log)
    for example in report.get("examples", ()):
        print(example, file=sys.stderr)
    print(json.dumps(report))
    return 0 if report["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
