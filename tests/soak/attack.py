"""What took the server down once, all of it again: bounded, on loopback, beside an honest visitor and somebody who asks
the page.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.browser.server import App, serve, wait_for_model
from tests.browser.visitor import Visitor
from tests.soak.attack_doors import DOORS, FILES
from tests.soak.attack_inputs import INPUTS
from tests.soak.watched import KEEP_MB, SMALL, Part, most_memory, watched

CALLS, DIRECT, HONEST, SESSIONS = 300, 60, 10, 200
BIG = b'{"data": "' + b"x" * 20_000_000 + b'"}'
FREED_SECONDS = 5.0  # what was dropped goes back to the system within so many
TOLD = "The server has dropped this run, to make room for newer ones; press Run to make it again."
LIMITED = ("sh", "-c", f'ulimit -n {FILES}; exec "$0" "$@"', sys.executable, "app.py")
JSON = {"content-type": "application/json"}
LARGE = {"Generated_length": 224, "Steps": 224, "Block_length": 224}


def attack(names: Sequence[str], log: Path) -> dict[str, Any]:
    """Serve, carry out the parts of these names (none: all), report. ok: each is, and memory stayed in the budget."""
    with serve("--max-length", "256", "--keep-mb", str(KEEP_MB), log=log, command=LIMITED) as app:
        wait_for_model(app)
        ended = _honest_visit(app, **LARGE | {"Steps": 28})  # fills caches and thread stacks once
        assert ended == "finished", f"the server does not work before it is attacked: {ended}"
        time.sleep(FREED_SECONDS)
        os.nice(10)  # the server and who asks come first: what is measured is the server's time
        before, begun, parts = app.memory(), time.monotonic(), {}
        with most_memory(app) as memory:
            for name in names or PARTS:
                parts[name] = watched(app, log, PARTS[name])
                print(name, parts[name], file=sys.stderr, flush=True)
                time.sleep(FREED_SECONDS)
        after, alive = app.memory(), app.process.poll() is None
    told = {"start": before, "most": memory[0], "end": after}
    return {
        "ok": alive and all(each["ok"] for each in parts.values()) and memory[0] - before <= KEEP_MB * 1e6,
        "not_ok": [name for name, each in parts.items() if not each["ok"]],
        "parts": parts,
        "log_bytes": log.stat().st_size,
        "memory_mb": {name: round(each / 1e6) for name, each in told.items()},
        "budget_mb": KEEP_MB,
        "seconds": round(time.monotonic() - begun, 1),
        "server_tracebacks": log.read_text("utf-8", "replace").count("Traceback (most recent call last)"),
    }


def _honest_visit(app: App, **changes: Any) -> str:
    """A run that is paused after some steps and resumed to its end: how it ended."""
    visitor = Visitor(app.url)
    try:
        messages = []
        for message in visitor.run(**SMALL | changes):
            messages.append(message)
            if len(messages) == 4:
                visitor.call("pause", message["run"])
        last = messages[-1]
        rest = list(visitor.ask("follow", last["run"], last["seq"], None))
        return str((rest or messages)[-1].get("end"))
    except (httpx.HTTPError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"[:80]
    finally:
        visitor.close()


def many_hashes(app: App, log: Path) -> dict[str, Any]:
    """Long runs under names that the caller makes up, each paused after its first steps and never left. Then all of
    them are asked for: those that went must be the oldest, and each has to be told why.
    """
    statuses: Counter[int] = Counter()
    visitor, runs = Visitor(app.url), []
    for number in range(SESSIONS):
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
        "ok": len(runs) > len(gone) and kept == sorted(kept) and told == {TOLD},  # the oldest went first
        "runs": len(runs),
        "dropped": len(gone),
        "told": sorted(map(str, told)),
        "statuses_of_direct_starts": dict(statuses),
    }


def big_bodies(app: App, log: Path) -> dict[str, Any]:
    """Twenty megabytes each."""
    statuses: Counter[int] = Counter()
    for _ in range(10):
        try:
            statuses[httpx.post(f"{app.url}/gradio_api/queue/join", content=BIG, headers=JSON).status_code] += 1
        except httpx.TransportError:  # refused while it was still being sent
            statuses[0] += 1
    return {"ok": set(statuses) <= {413, 0}, "statuses": dict(statuses)}


def flood(app: App, log: Path) -> dict[str, Any]:
    """Unread calls of /decode and direct posts, all at once, beside honest visitors, who are all served."""
    ends: list[str] = []
    visits = [threading.Thread(target=lambda: ends.append(_honest_visit(app))) for _ in range(HONEST)]
    for thread in visits:
        thread.start()
    statuses = Counter(asyncio.run(_flood(app)))
    for thread in visits:
        thread.join()
    return {"ok": ends == ["finished"] * HONEST, "runs": dict(Counter(ends)), "statuses": dict(statuses)}


async def _flood(app: App) -> list[int]:
    call, direct = {"prompt": "A fox", "gen_length": 128}, {"data": ["A fox"]}
    async with httpx.AsyncClient(timeout=300, limits=httpx.Limits(max_connections=None)) as http:
        posts = [http.post(f"{app.url}/gradio_api/call/v2/decode", json=call) for _ in range(CALLS)]
        posts += [http.post(f"{app.url}/gradio_api/run/decode", json=direct) for _ in range(DIRECT)]
        answers = await asyncio.gather(*posts, return_exceptions=True)
        return [answer.status_code if isinstance(answer, httpx.Response) else 0 for answer in answers]


def unknown_events(app: App, log: Path) -> dict[str, Any]:
    """A hundred made-up ids write nothing into the log."""
    before = log.stat().st_size
    for _ in range(100):
        httpx.get(f"{app.url}/gradio_api/call/decode/{secrets.token_hex(8)}")
    written = log.stat().st_size - before
    return {"ok": not written, "written": written}


def _door(attack: Callable[[App], str]) -> Part:
    return lambda app, log: {"came": attack(app)}


PARTS: dict[str, Part] = {each.__name__: each for each in (many_hashes, big_bodies, flood, unknown_events, *INPUTS)}
PARTS |= {each.__name__: _door(each) for each in DOORS}
