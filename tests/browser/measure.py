"""Measure decoding in the page's worker: ``python -m tests.browser.measure`` prints one JSON line.

Each decoder runs alone, in turn with the others; the medians of their steps' seconds count. Before that come the first
steps of a first and of a second visit, after it the page's frames.
"""

import argparse
import base64
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from playwright.sync_api import Browser, Page, sync_playwright

import surelock
from surelock import Decoder, DecodeSettings, Everything, LockRule
from surelock.decoding.presets import PRESETS
from surelock.model.machine import processor
from surelock.trace.format import VERSION
from surelock.trace.lanes import Lane
from tests.browser.server import App, launch, serve


def big_trace(n: int = 1024, lanes: int = 2) -> dict[str, Any]:
    """A made-up run of n positions and as many steps, everything the page has to draw; all lanes but the first lock."""
    names = [f"lane-{i + 1}" for i in range(lanes)]
    settings = DecodeSettings(gen_length=n - 16)
    rng = np.random.default_rng(0)
    prompt = 16
    records: list[dict[str, Any]] = []
    for own in names:
        active = np.ones(n, dtype=bool)
        for step in range(n - prompt):
            rows = np.flatnonzero(active)
            edges = np.flatnonzero(np.diff(np.concatenate(([0], active.astype(np.int8), [0]))))
            edges[1::2] -= edges[::2]
            kl, confidence = rng.integers(20, 240, (2, len(rows)), dtype=np.uint8)
            lock = [step + prompt - 8] if own != names[0] and step >= 8 and step % 5 else []
            records.append(
                {
                    "lane": own,
                    "step": step,
                    "unmasked": [[prompt + step, 7 + step % 50]],
                    "locked": lock,
                    "computed": edges.tolist(),
                    "kl": base64.b64encode(kl).decode(),
                    "confidence": base64.b64encode(confidence).decode(),
                    "seconds": 0.1,
                    "flops": float(len(rows)),
                    "baseline_flops": float(n),
                }
            )
            active[lock] = False
    header = {
        "model": {"name": "made up"},
        "prompt": None,
        "prompt_tokens": list(range(7, 7 + prompt)),
        "mask_id": 1,
        "eos_id": 0,
        "length": n,
        "steps": n - prompt,
        "lanes": [
            Lane(id=own, name=own, decoder=Decoder(settings=settings, compute=rule)).to_plain()
            for own, rule in zip(names, [Everything()] + [LockRule()] * lanes, strict=False)
        ],
    }
    return {
        "format": "surelock-trace",
        "version": VERSION,
        "header": header,
        "pieces": {str(i): f" word{i}" for i in range(7, 60)},
        "records": records,
    }


DECODERS = ("everything", "surelock", "budget")
OPENING = "Once upon a time, there was a little girl named Lily. She"
WARM_UP = 32  # tokens, a block of the page's
ALONE = Path(__file__).with_name("alone.js").read_text("utf-8")
FRAMES = """(ms) => new Promise((then) => {
  const times = [];
  const look = (now) => {
    times.push(now);
    if (now - times[0] < ms) requestAnimationFrame(look);
    else then(times.slice(1).map((time, i) => time - times[i]));
  };
  requestAnimationFrame(look);
})"""


def visits(browser: Browser, app: App) -> Iterator[Page]:
    """Pages of one visitor, each settled."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    while True:
        page = context.new_page()
        page.goto(app.url)
        page.wait_for_function("window.surelock?.stage.trace && surelock.page.now.presets.length")
        page.wait_for_timeout(5000)
        yield page
        page.close()


def first_step(page: Page) -> float:
    """Seconds from the click to the first step on show."""
    begun = time.perf_counter()
    page.click(".sl-action-run")
    page.wait_for_function("surelock.live.run?.trace.count > 0", polling=10)
    return time.perf_counter() - begun


def tab_bytes(browser: Browser) -> int:
    """What the largest of the browser's tabs has for itself alone."""
    told = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    lines = [
        Path(f"/proc/{each['id']}/smaps_rollup").read_text()
        for each in told
        if each["type"] == "renderer"
    ]
    private = [
        sum(int(line.split()[1]) for line in each.splitlines() if "Private" in line)
        for each in lines
    ]
    return 1024 * max(private)


def frames(page: Page) -> dict[str, float]:
    """Of the page while it decodes and draws."""
    page.click(".sl-action-run")
    page.wait_for_function("surelock.live.run?.trace.count > 5 && !surelock.live.run.over")
    found = sorted(page.evaluate(FRAMES, 3000))
    return {"per_second": 1000 * len(found) / sum(found), "p95_ms": found[int(0.95 * len(found))]}


def alone(page: Page, gen_length: int, repeats: int) -> dict[str, dict[str, Any]]:
    """Of each decoder the medians, and beside the one that computes every position the ratio of times, and the
    efficiency: the speed-up times the ratio of FLOPs.
    """
    found: dict[str, list[dict[str, float]]] = {preset: [] for preset in DECODERS}
    generation = surelock.load("stories", device="cpu").generation  # the form begins with it
    for turn in range(repeats + 1):
        length = gen_length if turn else WARM_UP
        shared = PRESETS["everything"].decoder(generation, {"gen_length": length, "steps": length})
        for preset in DECODERS[:: 1 if turn % 2 else -1]:
            told = page.evaluate(ALONE, [preset, shared.to_plain()["settings"], OPENING])
            if turn:
                found[preset].append(told)
    medians = {
        preset: {name: median(run[name] for run in runs) for name in runs[0]}
        for preset, runs in found.items()
    }
    base = medians["everything"]["seconds"]
    for told in medians.values():
        told["time_ratio"] = told["seconds"] / base
        told["efficiency"] = told["flops"] / told["baseline_flops"] / told["time_ratio"]
    return medians


def here(repeats: int, lengths: tuple[int, ...] = (128, 256)) -> dict[str, Any]:
    """Each decoder alone at these lengths, first steps, memory and frames."""
    with serve("--decode-in", "browser") as app, sync_playwright() as playwright:
        browser = launch(playwright)
        pages = visits(browser, app)
        before = first_step(next(pages)), first_step(tab := next(pages))
        tab.wait_for_function("surelock.live.run.over", timeout=120_000)
        result: dict[str, Any] = {
            **{
                "benchmark": "browser",
                "browser": f"Chromium {browser.version}",
                "processor": processor(),
            },
            "measured": datetime.now(UTC).date().isoformat(),
            "first_step_s": {"first_visit": before[0], "second_visit": before[1]},
            "alone": {},
            "tab_mb": {},
        }
        for length in map(str, lengths):
            result["alone"][length] = alone(tab, int(length), repeats)
            result["tab_mb"][length] = tab_bytes(browser) / 1e6
        result["frames"] = frames(tab)
        browser.close()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what a browser does.")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each")
    print(json.dumps(here(parser.parse_args().repeats)))


if __name__ == "__main__":
    main()
