"""Measure what a browser does: ``python -m tests.browser.measure scrub | here | engines`` prints one JSON line last.

scrub: large traces, scrubbed as fast as frames come.
here: decoding in the page's worker, one thread. Each decoder runs alone, in turn with the others; the medians of their
steps' seconds count. Before that come the first steps of a first and of a second visit, after it the page's frames.
engines: the same decoders by one thread, by two, which a browser gives to a cross-origin isolated page alone, and by
WebGPU, where the browser has it.
"""

from __future__ import annotations

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
from tests.browser.server import FLAGS, ROOT, App, Quiet, chromium_path, files_of, launch, serve

HERE = Path(__file__).parent


# --- Scrubbing --------------------------------------------------------------------------------------------------------


def big_trace(n: int = 1024, lanes: int = 2) -> dict[str, Any]:
    """A made-up run of n positions and as many steps, everything the page has to draw; all lanes but the first lock."""
    names = [f"lane-{i + 1}" for i in range(lanes)]
    settings = DecodeSettings(gen_length=n - 16)
    rng, prompt = np.random.default_rng(0), 16
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


SCRUB = (HERE / "scrub.js").read_text("utf-8")


def measure_scrubbing(page: Page, n: int, lanes: int) -> dict[str, float]:
    """Scrub a trace of n positions as fast as frames come. A second redraw per frame is timed apart: the page must
    be that much within its frame.
    """
    page.click("role=tab[name='Export']")
    trace = json.dumps(big_trace(n, lanes)).encode()
    page.set_input_files("#sl-import", {"name": "big.json", "mimeType": "application/json", "buffer": trace})
    page.wait_for_function(f"surelock.stage.trace.n === {n}", timeout=60_000)
    page.evaluate("surelock.stage.root.scrollIntoView()")  # the import has left the grids out of sight
    page.wait_for_timeout(3000)
    scrubbed = page.evaluate(SCRUB)
    named = {"fps": "fps", "p95": "frame_p95_ms", "draw": "draw_ms", "requests": "requests"}
    size = f"{n}" if lanes == 2 else f"{n}_{lanes}_lanes"
    return {f"scrub_{told}_{size}": scrubbed[key] for key, told in named.items()}


def scrub(repeats: int) -> dict[str, float]:
    """Two lanes of 1,024 positions and four of 512, each the last of so many times."""
    found: dict[str, float] = {}
    with serve() as app, sync_playwright() as playwright:
        browser = launch(playwright)
        tab = browser.new_page(viewport={"width": 1440, "height": 1000})
        tab.goto(app.url)
        tab.wait_for_function("window.surelock?.stage.trace")
        for _ in range(repeats):
            found |= measure_scrubbing(tab, 1024, 2) | measure_scrubbing(tab, 512, 4)
        browser.close()
    return found


# --- Decoding in the page ---------------------------------------------------------------------------------------------

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
    lines = [Path(f"/proc/{each['id']}/smaps_rollup").read_text() for each in told if each["type"] == "renderer"]
    private = [sum(int(line.split()[1]) for line in each.splitlines() if "Private" in line) for each in lines]
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
    medians = {preset: {name: median(run[name] for run in runs) for name in runs[0]} for preset, runs in found.items()}
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
            **stamp("browser", browser),
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


# --- Ways to compute --------------------------------------------------------------------------------------------------

ENGINES = {
    "one thread": {"module": "ort.wasm.bundle.min.mjs", "threads": 1, "provider": "wasm"},
    "two threads": {"module": "ort.wasm.bundle.min.mjs", "threads": 2, "provider": "wasm"},
    "WebGPU": {"module": "ort.webgpu.bundle.min.mjs", "threads": 1, "provider": "webgpu"},
}
DECODE = Path(__file__).with_name("engines.js").read_text("utf-8")
#: Typed rules are not measured: what runs them is left out.
ISOLATED = """<!doctype html><script type="importmap">{"imports": {"quickjs-emscripten-core":
"data:text/javascript,export const shouldInterruptAfterDeadline = null"}}</script>"""


class _Isolated(Quiet):
    """Serves the repository to a page that may have threads."""

    def do_GET(self) -> None:
        if self.path != "/":
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(ISOLATED.encode())

    def end_headers(self) -> None:
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()


def engines(repeats: int, tokens: int = 128) -> dict[str, Any]:
    """The seconds of each decoder by each way, or why there are none."""
    lm = surelock.load("stories", device="cpu")
    length = {"gen_length": tokens, "steps": tokens}
    decoders = {name: PRESETS[name].decoder(lm.generation, length) for name in DECODERS}
    lanes = [Lane(id=name, name=name, decoder=decoder).to_plain() for name, decoder in decoders.items()]
    asked = {"prompt": lm.encode(OPENING), "lanes": lanes, "repeats": repeats}
    found = {}
    with files_of(ROOT, _Isolated) as url, sync_playwright() as playwright:
        flags = [flag for flag in FLAGS if flag != "--disable-gpu"]
        browser = playwright.chromium.launch(
            executable_path=chromium_path(), args=[*flags, "--enable-unsafe-webgpu", "--enable-features=Vulkan"]
        )
        for name, engine in ENGINES.items():
            tab = browser.new_page()
            tab.set_default_timeout(0)
            tab.goto(url)
            assert tab.evaluate("crossOriginIsolated")
            seconds = tab.evaluate(DECODE, {**asked, **engine})
            found[name] = (
                seconds if isinstance(seconds, str) else dict(zip(DECODERS, map(median, seconds), strict=True))
            )
            tab.close()
        result = {**stamp("browser-engines", browser), "tokens": tokens, "seconds": found}
        browser.close()
    return result


def stamp(benchmark: str, browser: Browser) -> dict[str, str]:
    told = {"benchmark": benchmark, "browser": f"Chromium {browser.version}", "processor": processor()}
    return {**told, "measured": datetime.now(UTC).date().isoformat()}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what a browser does.")
    parser.add_argument("what", choices=("scrub", "here", "engines"))
    parser.add_argument("--repeats", type=int, help="runs of each (default: 1 of scrubbing, 5 here, 3 by each engine)")
    parser.add_argument("--out", type=Path, help="append the JSON line to this file")
    given = parser.parse_args()
    usual = {"scrub": (scrub, 1), "here": (here, 5), "engines": (engines, 3)}
    measure, repeats = usual[given.what]
    line = json.dumps(measure(given.repeats or repeats))
    if given.out:
        with given.out.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
    print(line)


if __name__ == "__main__":
    main()
