"""What took the server down once, all of it again: bounded, on loopback, beside honest visitors."""

from __future__ import annotations

import asyncio
import secrets
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.browser.server import App, serve, wait_for_model
from tests.browser.visitor import Visitor
from tests.soak import attack_doors
from tests.soak.attack_inputs import attack_inputs

KEEP_MB = 300
CALLS, DIRECT, HONEST = 300, 60, 10
BIG = b'{"data": "' + b"x" * 20_000_000 + b'"}'
ANSWERED, MOST_SECONDS = ("pause", "stop"), 1.0  # what the page asks beside the queue, and for how long it may wait
FREED_SECONDS = 5.0  # what was dropped goes back to the system within so many
TOLD = "The server has dropped this run, to make room for newer ones; press Run to make it again."
LIMITED = ("sh", "-c", f'ulimit -n {attack_doors.FILES}; exec "$0" "$@"', sys.executable, "app.py")
JSON = {"content-type": "application/json"}
SMALL = {"Generated_length": 32, "Steps": 32, "Block_length": 32}
LARGE = {"Generated_length": 224, "Steps": 224, "Block_length": 224}


def attack(visitors: int, log: Path) -> dict[str, Any]:
    """Serve, attack (with that many made-up sessions), report.

    ok: honest runs ended, the page answered in time, memory stayed within the budget and the oldest runs went first.
    """
    with serve("--max-length", "256", "--keep-mb", str(KEEP_MB), log=log, command=LIMITED) as app:
        wait_for_model(app)
        ended = _honest_visit(app, _waits(), **LARGE | {"Steps": 28})  # fills caches and thread stacks once
        assert ended == "finished", f"the server does not work before it is attacked: {ended}"
        time.sleep(FREED_SECONDS)
        before, seconds = app.memory(), {}
        with most_memory(app) as memory:
            with _timed(seconds, "hashes"):
                hashes = _many_hashes(app, visitors)
            with _timed(seconds, "bodies"):
                bodies = _big_bodies(app)
            with _timed(seconds, "crowd"):
                calls, ends, slowest = _crowded(app)
            unknown = _unknown_events(app, log)
            inputs = attack_inputs(app, log)
            time.sleep(FREED_SECONDS)
        with _timed(seconds, "doors"):
            doors = attack_doors.attacks(app, log, KEEP_MB)
        after, alive = app.memory(), app.process.poll() is None
    within = {name: (each - before) / 1e6 <= KEEP_MB for name, each in (("most", memory[0]), ("end", after))}
    return {
        "ok": alive
        and ends == ["finished"] * HONEST
        and max(slowest[name] for name in ANSWERED) < MOST_SECONDS
        and all(within.values())
        and hashes["oldest_went_first"]
        and set(bodies) <= {413, 0}
        and not unknown
        and inputs["ok"]
        and all(each["ok"] for each in doors.values()),
        "inputs": inputs,
        "honest_runs": dict(Counter(ends)),
        "slowest_seconds": {name: round(each, 3) for name, each in slowest.items()},
        "statuses_of_calls": dict(calls),
        "chosen_hashes": hashes,
        "statuses_of_big_bodies": dict(bodies),
        "log_bytes_of_unknown_events": unknown,
        "doors": doors,
        "log_bytes": log.stat().st_size,
        "memory_mb": {
            name: round(each / 1e6) for name, each in (("start", before), ("most", memory[0]), ("end", after))
        },
        "budget_mb": KEEP_MB,
        "seconds": seconds,
        "server_tracebacks": log.read_text("utf-8", "replace").count("Traceback (most recent call last)"),
    }


@contextmanager
def _timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    begun = time.monotonic()
    yield
    seconds[name] = round(time.monotonic() - begun, 1)


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


def _honest_visit(app: App, waits: dict[str, list[float]], **changes: Any) -> str:
    """A run that is paused after some steps and resumed to its end: how it ended. ``waits`` gets the seconds until the
    pause was answered, and until the run rested.
    """
    visitor = Visitor(app.url)
    try:
        messages, asked = [], 0.0
        for message in visitor.run(**SMALL | changes):
            messages.append(message)
            if len(messages) == 4:
                asked = time.monotonic()
                visitor.call("pause", message["run"])
                waits["pause"].append(time.monotonic() - asked)
        waits["until a run rests"].append(time.monotonic() - asked)
        last = messages[-1]
        rest = list(visitor.ask("follow", last["run"], last["seq"], None))
        return str((rest or messages)[-1].get("end"))
    except (httpx.HTTPError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"[:80]
    finally:
        visitor.close()


def _many_hashes(app: App, times: int) -> dict[str, Any]:
    """Long runs under names that the caller makes up, each paused after its first steps and never left. Then all of
    them are asked for: those that went must be the oldest, and each has to be told why.
    """
    statuses: Counter[int] = Counter()
    visitor, runs = Visitor(app.url), []
    for number in range(times):
        visitor.session = secrets.token_hex(6)
        body = {"data": ["A fox"], "session_hash": visitor.session}
        statuses[visitor.http.post(f"{app.url}/gradio_api/run/start", json=body).status_code] += 1
        for message in visitor.run(**LARGE | {"Seed": number}):  # of equal ones one is computed for all
            if "open" in message:
                runs.append(message["run"])
                visitor.call("pause", message["run"])
    kept = [visitor.call("state", run) is not None for run in runs]
    gone = [run for run, here in zip(runs, kept, strict=True) if not here]
    told = {next(visitor.ask("follow", run, 0, None)).get("refused") for run in gone}
    visitor.close()
    return {
        "runs": len(runs),
        "dropped": len(gone),
        "oldest_went_first": len(runs) > len(gone) and kept == sorted(kept) and told == {TOLD},
        "told": sorted(map(str, told)),
        "statuses_of_direct_starts": dict(statuses),
    }


def _big_bodies(app: App) -> Counter[int]:
    statuses: Counter[int] = Counter()
    for _ in range(10):
        try:
            statuses[httpx.post(f"{app.url}/gradio_api/queue/join", content=BIG, headers=JSON).status_code] += 1
        except httpx.TransportError:  # refused while it was still being sent
            statuses[0] += 1
    return statuses


def _crowded(app: App) -> tuple[Counter[int], list[str], dict[str, float]]:
    """Unread calls of /decode and direct posts, all at once, beside honest visitors: the statuses of the calls, how the
    visitors' runs ended, and how many seconds at most the page waited.
    """
    ends: list[str] = []
    statuses: list[int] = []
    waits = _waits()
    visits = [threading.Thread(target=lambda: ends.append(_honest_visit(app, waits))) for _ in range(HONEST)]
    flood = threading.Thread(target=lambda: statuses.extend(asyncio.run(_flood(app))))
    for thread in (flood, *visits):
        thread.start()
    asker = Visitor(app.url)
    while any(thread.is_alive() for thread in visits):
        for function in ANSWERED:
            begun = time.monotonic()
            asker.call(function, "x")
            waits[function].append(time.monotonic() - begun)
        time.sleep(0.2)
    asker.close()
    flood.join()
    return Counter(statuses), ends, {name: max(seconds, default=0.0) for name, seconds in waits.items()}


def _waits() -> dict[str, list[float]]:
    return {name: [] for name in (*ANSWERED, "until a run rests")}


async def _flood(app: App) -> list[int]:
    call, direct = {"prompt": "A fox", "gen_length": 128}, {"data": ["A fox"]}
    async with httpx.AsyncClient(timeout=300, limits=httpx.Limits(max_connections=None)) as http:
        posts = [http.post(f"{app.url}/gradio_api/call/v2/decode", json=call) for _ in range(CALLS)]
        posts += [http.post(f"{app.url}/gradio_api/run/decode", json=direct) for _ in range(DIRECT)]
        answers = await asyncio.gather(*posts, return_exceptions=True)
        return [answer.status_code if isinstance(answer, httpx.Response) else 0 for answer in answers]


def _unknown_events(app: App, log: Path) -> int:
    """How much a hundred made-up ids write into the log."""
    before = log.stat().st_size
    for _ in range(100):
        httpx.get(f"{app.url}/gradio_api/call/decode/{secrets.token_hex(8)}")
    return log.stat().st_size - before
