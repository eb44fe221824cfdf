"""``python -m tests.soak --browsers``: a class presses Run in pages of a real browser, all behind one address. What one
run costs the server, and what the class costs it, the steps that each page is sent among it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlencode

from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.actions import until
from tests.browser.server import App, launch, serve, wait_for_model
from tests.soak.lesson import MOST_TIMES, PROMPTS
from tests.soak.tally import Tally

READY = "window.surelock?.stage.trace && surelock.page.now.arrived && surelock.page.now.presets.length"
PRESS = "() => { window.before = surelock.live.run; document.querySelector('.sl-action-run').click(); }"
OVER = "surelock.live.run && surelock.live.run !== window.before && surelock.live.run.over"
#: Whether it is whole, and the times of its first step, which no other computation has.
TOLD = """() => {
  const { trace } = surelock.live.run;
  return [trace.complete, trace.lanes.map(({ steps }) => steps[0]?.seconds).join(), surelock.stage.trace === trace];
}"""
LEAVE_AT = 10  # steps
SECONDS = 240


def opened(browser: Browser, url: str, asked: Sequence[dict[str, Any]]) -> list[Page]:
    """A page for each, with a profile of its own."""
    pages = []
    for settings in asked:
        page = browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce").new_page()
        page.goto(f"{url}/?{urlencode(settings)}")
        until(page, READY, 60)
        pages.append(page)
    return pages


def class_of(app: App, pages: list[Page], tally: Tally, leaving: int = 0) -> float:
    """Press Run in all; of the first ones half press Stop in the middle, half close their tab. Server CPU seconds."""
    used = app.cpu_seconds()
    for page in pages:
        page.evaluate(PRESS)
    for number, page in enumerate(pages[:leaving]):
        until(page, f"surelock.live.run !== window.before && surelock.live.run.trace.count >= {LEAVE_AT}", SECONDS)
        if number % 2:
            page.context.close()
        else:
            page.evaluate("surelock.live.stop()")
        tally.count("left")
    for page in pages[leaving:]:
        until(page, OVER, SECONDS)
        whole, times, shown = page.evaluate(TOLD)
        tally.told.add(times)
        tally.count("saw its end", whole and shown)
    return app.cpu_seconds() - used


def browsers(visitors: int, log: Path) -> dict[str, Any]:
    """One page alone, a class with one prompt, a class with five."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads that wait for each other take time, too
    begun, told, problems = time.monotonic(), {}, Tally()
    with serve("--max-length", "256", log=log) as app, sync_playwright() as playwright:
        wait_for_model(app)
        browser = launch(playwright)
        alone = []
        for seed in (90, 81, 82, 83):  # the first one warms up
            (page,) = opened(browser, app.url, [{"seed": seed}])
            alone.append(class_of(app, [page], Tally()))
            page.context.close()
        one = median(alone[1:])
        told["one_run_cpu_s"] = round(one, 2)
        for name, asked in {"one_prompt": [{}], "five_prompts": [{"prompt": each} for each in PROMPTS]}.items():
            leaving = visitors // 7
            pages = opened(browser, app.url, [asked[number % len(asked)] for number in range(visitors + leaving)])
            live = Tally()
            cpu = class_of(app, pages, live, leaving)
            for page in pages[leaving:]:
                page.context.close()
            times = cpu / (len(asked) * one)
            told[name] = {
                "computed": len(live.told),
                "cpu_s": round(cpu, 2),
                "times_one_run": round(times, 2),
                "saw_its_end": live.counts["saw its end"],
                "left": live.counts["left"],
            }
            if len(live.told) != len(asked) or times > MOST_TIMES or live.counts["saw its end"] != visitors:
                problems.problem("a class cost more than its runs", f"{name}: {told[name]}")
        browser.close()
    return {
        "ok": not problems.problems,
        "browsers": visitors,
        "seconds": round(time.monotonic() - begun, 1),
        **told,
        "examples": problems.examples,
        "server_tracebacks": log.read_text("utf-8", "replace").count("Traceback (most recent call last)"),
    }
