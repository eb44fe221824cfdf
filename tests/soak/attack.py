"""What took the server down once, all of it again: bounded, on loopback, beside honest visitors."""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from tests.browser.server import App, serve, wait_for_model
from tests.browser.visitor import Visitor

KEEP_MB = 300
CALLS, DIRECT, HONEST = 300, 60, 10
BIG = b'{"data": "' + b"x" * 20_000_000 + b'"}'
MOST_SECONDS = 1.0  # for what the page asks beside the queue
JSON = {"content-type": "application/json"}


def attack(visitors: int, log: Path) -> dict[str, Any]:
    """Serve, attack (with that many made-up sessions), report.

    ok: honest runs ended, the page answered in time, memory stayed within the budget.
    """
    with serve("--max-length", "256", "--keep-mb", str(KEEP_MB), log=log) as app:
        wait_for_model(app)
        _visit(app, [])
        before = app.memory()
        hashes, most_kept = _many_hashes(app, visitors)
        bodies = _big_bodies(app)
        calls, ends, slowest = _crowded(app)
        unknown = _unknown_events(app, log)
        time.sleep(5)  # what was dropped goes back to the system within seconds
        after, alive = app.memory(), app.process.poll() is None
    ok = ends == ["finished"] * HONEST and slowest < MOST_SECONDS and alive and not unknown
    return {
        "ok": ok and most_kept - before <= 1.1e6 * KEEP_MB and set(bodies) <= {413, 0},
        "honest_runs": dict(Counter(ends)),
        "slowest_answer_seconds": round(slowest, 3),
        "statuses_of_calls": dict(calls),
        "statuses_of_chosen_hashes": dict(hashes),
        "statuses_of_big_bodies": dict(bodies),
        "log_bytes_of_unknown_events": unknown,
        "memory_mb": {
            name: round(each / 1e6) for name, each in (("start", before), ("most", most_kept), ("end", after))
        },
        "budget_mb": KEEP_MB,
        "server_tracebacks": log.read_text("utf-8", "replace").count("Traceback (most recent call last)"),
    }


def _visit(app: App, ends: list[str]) -> None:
    visitor = Visitor(app.url)
    try:
        ends.append(str(list(visitor.run(Generated_length=32, Steps=32, Block_length=32))[-1].get("end")))
    except (httpx.HTTPError, RuntimeError) as error:
        ends.append(f"{type(error).__name__}: {error}"[:80])
    finally:
        visitor.close()


def _many_hashes(app: App, times: int) -> tuple[Counter[int], int]:
    """Runs under names that the caller makes up, each read for its first message only, so that it stays paused."""
    statuses: Counter[int] = Counter()
    most, visitor = app.memory(), Visitor(app.url)
    event = visitor.event("sl-run", "click")
    values = visitor.defaults(event)
    values[visitor.fields(event).index("Generated length")] = 128
    body = {"data": values, "fn_index": event["id"], "trigger_id": event["targets"][0][0]}
    for _ in range(times):
        own = secrets.token_hex(6)
        answer = visitor.http.post(f"{app.url}/gradio_api/run/start", json={"data": values, "session_hash": own})
        statuses[answer.status_code] += 1
        answer = visitor.http.post(f"{app.url}/gradio_api/queue/join", json={**body, "session_hash": own})
        statuses[answer.status_code] += 1
        if answer.status_code == 200:
            stream = f"{app.url}/gradio_api/queue/data?session_hash={own}"
            with visitor.http.stream("GET", stream) as lines:
                next((line for line in lines.iter_lines() if "process_generating" in line), None)
        most = max(most, app.memory())
    visitor.close()
    return statuses, most


def _big_bodies(app: App) -> Counter[int]:
    statuses: Counter[int] = Counter()
    for _ in range(10):
        try:
            statuses[httpx.post(f"{app.url}/gradio_api/queue/join", content=BIG, headers=JSON).status_code] += 1
        except httpx.TransportError:  # refused while it was still being sent
            statuses[0] += 1
    return statuses


def _crowded(app: App) -> tuple[Counter[int], list[str], float]:
    """Unread calls of /decode and direct posts beside honest visitors, and the slowest answer to the page meanwhile."""
    statuses: list[int] = []
    ends: list[str] = []

    def post(path: str, body: dict[str, Any], times: int) -> None:
        with httpx.Client(timeout=60) as http:
            for _ in range(times):
                statuses.append(http.post(f"{app.url}/gradio_api/{path}", json=body).status_code)

    call, direct = {"prompt": "A fox", "gen_length": 128}, {"data": ["A fox"]}
    threads = [threading.Thread(target=post, args=("call/v2/decode", call, CALLS // 20)) for _ in range(20)]
    threads += [threading.Thread(target=post, args=("run/decode", direct, DIRECT // 4)) for _ in range(4)]
    visits = [threading.Thread(target=_visit, args=(app, ends)) for _ in range(HONEST)]
    for thread in (*threads, *visits):
        thread.start()
    asker, slowest = Visitor(app.url), 0.0
    while any(thread.is_alive() for thread in visits):
        for function in ("pause", "stop"):
            begun = time.monotonic()
            asker.call(function, "x")
            slowest = max(slowest, time.monotonic() - begun)
        time.sleep(0.2)
    asker.close()
    for thread in threads:
        thread.join()
    return Counter(statuses), ends, slowest


def _unknown_events(app: App, log: Path) -> int:
    """How much a hundred made-up ids write into the log."""
    before = log.stat().st_size
    for _ in range(100):
        httpx.get(f"{app.url}/gradio_api/call/decode/{secrets.token_hex(8)}")
    return log.stat().st_size - before
