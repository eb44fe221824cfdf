"""``python -m tests.soak --lesson``: a class presses Run. What one run costs the server, and what a class of followers
costs it beside their pages and the steps that they are sent, which a class that comes when the run is over costs too.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.browser.server import App, serve, wait_for_model
from tests.browser.visitor import Visitor
from tests.soak.tally import Tally

MOST_TIMES = 1.3  # of one run's processor time
PROMPTS = (
    "The sun came up and",
    "A fox saw a hen. It",
    "Mia had a red kite. She",
    "The rain fell on",
    "Tom was sad. He",
)
LENGTH = {"Generated_length": 64, "Steps": 64, "Block_length": 64}


def follow(visitor: Visitor, run: dict[str, Any], tally: Tally, most: int | None = None) -> None:
    """Press Run and follow it to its end, or, as some do, press Stop or close the tab after so many messages."""
    numbers: list[int] = []
    ended = ""
    for message in visitor.run(**LENGTH | run):
        if "refused" in message:
            return tally.problem("a good run was refused", message["refused"])
        if "open" in message:
            tally.saw_run(message["run"])
        if message["seq"] == 1:
            tally.told.add(str([record["seconds"] for record in message["records"]]))
        numbers.append(message["seq"])
        ended = message.get("end", "")
        if most is not None and len(numbers) == most:
            if most % 2:
                return visitor.close()
            visitor.call("stop", message["run"])
    if numbers != list(range(len(numbers))):
        tally.problem("a message was lost", str(numbers))
    if ended != ("finished" if most is None else "stopped"):
        tally.problem("a run did not end as it should", f"{ended} after {len(numbers)}")
    tally.count(ended)


def crowd(app: App, runs: Sequence[dict[str, Any]], tally: Tally, leaving: Iterable[int] = ()) -> tuple[float, list]:
    """Open a page for each, press Run in all of them; the server's processor seconds, pages among them."""
    used, mosts = app.cpu_seconds(), [*leaving, *[None] * len(runs)]
    with ThreadPoolExecutor(len(runs)) as pool:
        visitors = list(pool.map(lambda _: Visitor(app.url), runs))
        pressed = threading.Barrier(len(runs))

        def press(visitor: Visitor, run: dict[str, Any], most: int | None) -> None:
            pressed.wait()
            follow(visitor, run, tally, most)

        list(pool.map(press, visitors, runs, mosts))
    return app.cpu_seconds() - used, visitors


def lesson(visitors: int, log: Path) -> dict[str, Any]:
    """One visitor alone, a class with one prompt, a class with five, each at one time and again when it is over."""
    told: dict[str, Any] = {}
    begun = time.monotonic()
    total = Tally()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads that wait for each other take time, too
    with serve("--max-length", "256", log=log) as app:
        wait_for_model(app)
        for warm in range(2):
            crowd(app, [{"Seed": 90 + warm}] * visitors, Tally())
        alone = [crowd(app, [{"Seed": 80 + number}], total)[0] for number in range(3)]
        told["one_run_cpu_s"] = round(sorted(alone)[1], 2)
        classes = {"one_prompt": [{"Seed": 1}], "five_prompts": [{"Prompt": each} for each in PROMPTS]}
        for name, asked in classes.items():
            runs = [asked[number % len(asked)] for number in range(visitors)]
            live, replayed, first = Tally(), Tally(), len(asked)
            leaving = [number + 3 for number in range(visitors // 5)]
            cpu, here = crowd(app, runs, live, leaving)
            beside, too = crowd(app, runs, replayed)
            for visitor in (*here, *too):
                visitor.close()
            times = (cpu - beside) / (first * told["one_run_cpu_s"])
            told[name] = {
                "computed": len(live.told | replayed.told),
                "cpu_s": round(cpu, 2),
                "pages_and_steps_cpu_s": round(beside, 2),
                "times_one_run": round(times, 2),
                "finished": [live.counts["finished"], replayed.counts["finished"]],
                "stopped": live.counts["stopped"],
            }
            total.problems += live.problems + replayed.problems
            total.examples += live.examples + replayed.examples
            if len(live.told | replayed.told) != first or times > MOST_TIMES:
                total.problem("more than one run was computed", f"{name}: {told[name]}")
    return {
        "ok": not total.problems,
        "visitors": visitors,
        "seconds": round(time.monotonic() - begun, 1),
        **told,
        "problems": dict(total.problems),
        "examples": total.examples,
        "server_tracebacks": log.read_text("utf-8", "replace").count("Traceback (most recent call last)"),
    }
