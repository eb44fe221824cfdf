"""Measure what a browser does: ``python -m tests.browser.measure page | here | engines`` prints one JSON line last.

page: the page against its budgets. The decoders' own cost is that of the same two runs by ``surelock.decode`` alone,
asked for what the page shows (KL and five likely tokens); "bare" runs leave the likely tokens out.
here: decoding in the page's worker, one thread. Each decoder runs alone, in turn with the others; the medians of their
steps' seconds count. Before that come the first steps of a first and of a second visit, after it the page's frames.
engines: the same decoders by one thread, by two, which a browser gives to a cross-origin isolated page alone, and by
WebGPU, where the browser has it.
"""

from __future__ import annotations

import argparse
import base64
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlencode

import numpy as np
from playwright.sync_api import Browser, Page, sync_playwright

import surelock
from surelock import Decoder, DecodeSettings, Everything, LockRule
from surelock.decoding.presets import PRESETS
from surelock.model.machine import processor
from surelock.trace.lanes import Lane
from tests.browser.actions import wait_for_run
from tests.browser.server import FLAGS, ROOT, App, Quiet, chromium_path, files_of, launch, serve, wait_for_model
from tests.browser.visitor import Visitor

HERE = Path(__file__).parent


# --- The page against its budgets -------------------------------------------------------------------------------------

PROMPT = "Once upon a time, there was a little girl named Lily. She loved to"  # 16 tokens of the embedded model
LENGTH = 240


def plain(asked: dict[str, Any]) -> None:
    """The same two runs without the page, in lockstep: wall and processor seconds."""
    lm = surelock.load("stories")
    decoders = [surelock.Decoder.from_plain(plain) for plain in asked["decoders"]]
    observation: dict[str, Any] = {"observe": True, "top_k": asked["top_k"]}
    short = {"gen_length": 16, "steps": 16, "block_length": None}
    for changes in (short, {}):  # the first warms up
        now = [replace(each, settings=replace(each.settings, **changes)) for each in decoders]
        begun, used = time.perf_counter(), time.process_time()
        for _ in zip(*(surelock.decode(lm, [PROMPT], **each.keywords(), **observation) for each in now), strict=True):
            pass
    print(json.dumps({"wall": time.perf_counter() - begun, "cpu": time.process_time() - used}))


def measure_plain(header: dict[str, Any], top_k: int) -> dict[str, float]:
    """header: of the run to repeat, so that its very settings are compared."""
    names = ("compute", "unmask", "settings", "events")
    decoders = [{name: lane[name] for name in names} for lane in header["lanes"]]
    asked = json.dumps({"decoders": decoders, "top_k": top_k})
    command = [sys.executable, "-m", "tests.browser.measure", "page", "--plain", asked]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1])


def measure_stream(app: App) -> tuple[dict[str, float], dict[str, Any]]:
    """A run at N = 256 by a visitor without a browser: processor time and bytes per step; and its header."""
    visitor = Visitor(app.url)
    before, begun, used = visitor.bytes, time.perf_counter(), app.cpu_seconds()
    header: dict[str, Any] = {}
    spent = {"wall": 0.0, "cpu": 0.0, "bytes": 0.0, "lost": 0.0}
    for message in visitor.run(Prompt=PROMPT, Generated_length=LENGTH, Steps=LENGTH, Block_length=30):
        if "open" in message:
            header = message["open"]["header"]
            spent["lost"] = LENGTH * len(header["lanes"])
        if message.get("records"):  # up to the last step: what is measured after it is told apart
            spent["lost"] -= len(message["records"])
            spent["wall"], spent["cpu"] = time.perf_counter() - begun, app.cpu_seconds() - used
            spent["bytes"] = (visitor.bytes - before) / LENGTH
    spent["after"] = time.perf_counter() - begun - spent["wall"]
    visitor.close()
    assert header["length"] == LENGTH + 16
    return spent, header


def measure_page(page: Page, app: App, header: dict[str, Any]) -> dict[str, float]:
    """In the browser: load to movement, Run to first step, a whole run at N = 256 with the page drawing it.

    header: of the run that the others timed; this must be the same.
    """
    page.add_init_script(path=HERE / "clock.js")
    lanes = header["lanes"]
    racing = [{name: lane[name] for name in ("name", "compute", "unmask")} for lane in lanes]
    asked = {"prompt": PROMPT, "lanes": json.dumps(racing), **lanes[0]["settings"]}
    page.goto(f"{app.url}/?{urlencode({name: value for name, value in asked.items() if value is not None})}")
    page.wait_for_function(
        "seen.moves && seen.load && document.querySelector('#sl-gen-length input[type=number]')?.value == 240"
    )
    page.wait_for_timeout(3000)
    moves = page.evaluate("(seen.moves - seen.load) / 1000")
    page.click(".sl-action-run")
    wait_for_run(page)
    page.wait_for_function(
        "surelock.stage.root.dataset.state === 'idle' && !surelock.stage.trace.race.live", timeout=300_000, polling=250
    )
    shown = page.evaluate("surelock.stage.trace.header.lanes")
    assert shown == lanes, f"{shown} is another run"
    return {
        "moves": moves,
        "first_step": page.evaluate("(seen.step - seen.run) / 1000"),
        "wall": page.evaluate("(seen.end - seen.run) / 1000"),
        "lost": LENGTH - page.evaluate("surelock.stage.trace.count"),
    }


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
        "version": 3,
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


def page(repeats: int) -> dict[str, float]:
    """Everything, once; of the runs the fastest counts."""
    with serve("--max-length", "512") as app:
        started = app.started_in
        wait_for_model(app)
        list(Visitor(app.url).run(Prompt=PROMPT, Generated_length=16, Steps=16, Block_length=16))  # warm
        runs, header = [], {}
        for _ in range(repeats):
            streamed, header = measure_stream(app)
            runs.append((measure_plain(header, 0), measure_plain(header, 5), streamed))
        bare, alone, stream = ({key: min(run[i][key] for run in runs) for key in runs[0][i]} for i in range(3))
        with sync_playwright() as playwright:
            browser = launch(playwright)
            tab = browser.new_page(viewport={"width": 1440, "height": 1000})
            shown = measure_page(tab, app, header)
            scrubbed = measure_scrubbing(tab, 1024, 2) | measure_scrubbing(tab, 512, 4)
            browser.close()
    return {
        "serves_after_s": started,
        "moves_after_load_s": shown["moves"],
        "first_step_after_run_s": shown["first_step"],
        "positions": LENGTH + 16,
        "steps": LENGTH,
        "own_wall_s": alone["wall"],
        "own_cpu_s": alone["cpu"],
        "bare_wall_s": bare["wall"],
        "bare_cpu_s": bare["cpu"],
        "server_cpu_ms_per_step_beyond_own": 1000 * (stream["cpu"] - alone["cpu"]) / LENGTH,
        "server_cpu_ms_per_step_beyond_bare": 1000 * (stream["cpu"] - bare["cpu"]) / LENGTH,
        "bytes_per_step": stream["bytes"],
        "steps_lost": stream["lost"] + shown["lost"],
        "after_the_last_step_s": stream["after"],
        "added_time_server_only": stream["wall"] / alone["wall"] - 1,
        "added_time_with_browser": shown["wall"] / alone["wall"] - 1,
        "added_time_with_browser_over_bare": shown["wall"] / bare["wall"] - 1,
        **scrubbed,
    }


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
    parser.add_argument("what", choices=("page", "here", "engines"))
    parser.add_argument("--repeats", type=int, help="runs of each (default: 2 of the page, 5 here, 3 by each engine)")
    parser.add_argument("--out", type=Path, help="append the JSON line to this file")
    parser.add_argument("--plain", type=json.loads, help=argparse.SUPPRESS)  # the page's two runs, in a process apart
    given = parser.parse_args()
    if given.plain is not None:
        return plain(given.plain)
    usual = {"page": (page, 2), "here": (here, 5), "engines": (engines, 3)}
    measure, repeats = usual[given.what]
    line = json.dumps(measure(given.repeats or repeats))
    if given.out:
        with given.out.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
    print(line)


if __name__ == "__main__":
    main()
