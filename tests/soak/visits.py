"""Visitors who run, pause, stop, leave and misbehave, all at once."""

import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from tests.browser.server import App
from tests.browser.visitor import Visitor
from tests.soak.abuse import PARAMETERS, wrongly_refused

HOWS = ("watch", "pause", "stop", "leave", "misbehave")


def visit(app: App, how: str, rng: random.Random, runs: list[str]) -> str:
    """Open a tab, run, do that in the middle, close the tab: what was wrong. runs: ids, to which its own is added."""
    visitor = Visitor(app.url)
    seen = 0
    most = rng.randint(3, 10)
    prompt = f"The fox saw {rng.random()} birds"
    length = rng.choice((16, 32, 48))
    try:
        if how == "misbehave":
            wrong = rng.choice(
                [(name, value) for name, values in PARAMETERS.items() for value in values]
            )
            return wrongly_refused(visitor.http, app.url, *wrong)
        last: dict[str, Any] = {}
        runs.append(
            run := visitor.open(prompt=prompt, gen_length=length, steps=length, block_length=length)
        )
        for kind, last, number in visitor.read(run, steps=most if how == "pause" else None):
            if kind == "place":
                continue
            if number != str(seen) or (not seen and last["open"]["header"]["prompt"] != prompt):
                return f"another's run, or a message was lost: {str(last)[:200]}"
            seen += 1
            if seen == most and how == "leave":
                return ""
            if seen == most and how == "stop":
                visitor.stop(run)
        if how == "pause" and "end" not in last:
            *_, (_, last, _) = visitor.read(run, after=seen - 1)
        good = last.get("end") == "finished" or (how == "stop" and last.get("end") == "stopped")
        return "" if good else f"{how}: {str(last)[:200]}"
    except (httpx.HTTPError, RuntimeError, KeyError) as error:
        full = isinstance(error, httpx.HTTPStatusError) and "queue is full" in error.response.text
        return "" if full else f"{how}: {error!r}"
    finally:
        visitor.close()


def visits(app: App, visitors: int = 20, seconds: float = 30, seed: int = 0) -> dict[str, Any]:
    """That many visitors for so long, one visit after another. Then nothing is computed for anybody."""
    deadline = time.monotonic() + seconds
    runs = list[str]()
    counts = Counter[str]()
    problems = list[str]()

    def stay(number: int) -> None:
        rng = random.Random(f"{seed}/{number}")
        while time.monotonic() < deadline:
            counts[how := rng.choice(HOWS)] += 1
            problems.extend(filter(None, [visit(app, how, rng, runs)]))

    with ThreadPoolExecutor(visitors) as pool:
        list(pool.map(stay, range(visitors)))
    time.sleep(3)
    used = app.cpu_seconds()
    time.sleep(2)
    idle = app.cpu_seconds() - used
    return {
        "ok": not problems and idle < 0.5 and len(set(runs)) == len(runs),
        "idle_cpu_seconds": round(idle, 2),
        "problems": problems[:12],
        "begun": len(runs),
        **counts,
    }
