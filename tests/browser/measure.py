"""Measure the page against its budgets: ``python -m tests.browser.measure`` prints one JSON line last.

The decoders' own cost is that of the same two runs by ``surelock.decode`` alone, asked for what the page shows (KL and
five likely tokens). "bare" runs leave the likely tokens out.
"""

from __future__ import annotations

import argparse
import base64
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
from playwright.sync_api import Page, sync_playwright

from surelock import Decoder, LockRule
from surelock.trace.contestants import Contestant
from tests.browser.actions import wait_for_run
from tests.browser.server import ROOT, App, launch, serve, wait_for_model
from tests.browser.visitor import Visitor

HERE = Path(__file__).parent
PROMPT = "Once upon a time, there was a little girl named Lily. She loved to"  # 16 tokens of the embedded model
LENGTH = 240


def plain(asked: dict[str, Any]) -> None:
    """The same two runs without the page, in lockstep: wall and processor seconds."""
    import surelock

    lm = surelock.load("stories")
    decoders = [surelock.Decoder.from_plain(plain) for plain in asked["decoders"]]
    observation: dict[str, Any] = {"observe": True, "top_k": asked["top_k"]}
    for length in (16, LENGTH):  # the first warms up
        now = [replace(each, settings=replace(each.settings, gen_length=length, steps=length)) for each in decoders]
        begun, used = time.perf_counter(), time.process_time()
        for _ in zip(*(surelock.decode(lm, [PROMPT], **each.keywords(), **observation) for each in now), strict=True):
            pass
    print(json.dumps({"wall": time.perf_counter() - begun, "cpu": time.process_time() - used}))


def measure_plain(header: dict[str, Any], top_k: int) -> dict[str, float]:
    """header: of the run to repeat, so that its very settings are compared."""
    names = ("compute", "unmask", "settings", "events")
    decoders = [{name: contestant[name] for name in names} for contestant in header["contestants"]]
    asked = json.dumps({"decoders": decoders, "top_k": top_k})
    command = [sys.executable, "-m", "tests.browser.measure", "--plain", asked]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1])


def measure_stream(app: App) -> tuple[dict[str, float], dict[str, Any]]:
    """A run at N = 256 by a visitor without a browser: processor time and bytes per step; and its header."""
    visitor = Visitor(app.url)
    before, begun, used = visitor.bytes, time.perf_counter(), app.cpu_seconds()
    suits = json.loads((ROOT / "assets/stories/generation_config.json").read_text("utf-8"))
    fields = {label: suits[label.lower()] for label in ("Temperature", "Block_length")}
    fields |= {"Prompt": PROMPT, "Generated_length": LENGTH, "Steps": LENGTH, "Remasking_policy": suits["remasking"]}
    seen = list(visitor.run(**fields))
    wall, cpu = time.perf_counter() - begun, app.cpu_seconds() - used
    visitor.close()
    header = seen[0]["open"]["header"]
    assert header["length"] == LENGTH + 16
    lost = LENGTH + 2 - len(seen)
    return {"wall": wall, "cpu": cpu, "bytes": (visitor.bytes - before) / LENGTH, "lost": lost}, header


def measure_page(page: Page, app: App, header: dict[str, Any]) -> dict[str, float]:
    """In the browser: load to movement, Run to first step, a whole run at N = 256 with the page drawing it.

    header: of the run that the others timed; this must be the same.
    """
    page.add_init_script(path=HERE / "clock.js")
    asked = {"prompt": PROMPT, **header["settings"], **header["lock"]}
    page.goto(f"{app.url}/?{urlencode({name: value for name, value in asked.items() if value is not None})}")
    page.wait_for_function(
        "seen.moves && seen.load && document.querySelector('#sl-gen-length input[type=number]')?.value == 240"
    )
    page.wait_for_timeout(3000)
    moves = page.evaluate("(seen.moves - seen.load) / 1000")
    page.click("#sl-run")
    wait_for_run(page)
    page.wait_for_function(
        "surelock.stage.root.dataset.state === 'idle' && !surelock.stage.trace.live", timeout=300_000, polling=250
    )
    shown = page.evaluate("surelock.stage.trace.header")
    assert (shown["settings"], shown["lock"]) == (header["settings"], header["lock"]), f"{shown} is another run"
    return {
        "moves": moves,
        "first_step": page.evaluate("(seen.step - seen.run) / 1000"),
        "wall": page.evaluate("(seen.end - seen.run) / 1000"),
        "lost": LENGTH - page.evaluate("surelock.stage.trace.count") + page.evaluate("surelock.live.lost ?? 0"),
    }


def big_trace(n: int = 1024) -> dict[str, Any]:
    """A made-up run of n positions and as many steps, everything the page has to draw."""
    rng, prompt = np.random.default_rng(0), 16
    records: list[dict[str, Any]] = []
    for own in ("everything", "locks"):
        active = np.ones(n, dtype=bool)
        for step in range(n - prompt):
            rows = np.flatnonzero(active)
            edges = np.flatnonzero(np.diff(np.concatenate(([0], active.astype(np.int8), [0]))))
            edges[1::2] -= edges[::2]
            kl, confidence = rng.integers(20, 240, (2, len(rows)), dtype=np.uint8)
            lock = [step + prompt - 8] if own == "locks" and step >= 8 and step % 5 else []
            records.append(
                {
                    "contestant": own,
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
        "contestants": [
            Contestant(id="everything", name="Every position", decoder=Decoder()).to_plain(),
            Contestant(id="locks", name="SureLock", decoder=Decoder(compute=LockRule())).to_plain(),
        ],
    }
    return {
        "format": "surelock-trace",
        "version": 2,
        "header": header,
        "pieces": {str(i): f" word{i}" for i in range(7, 60)},
        "records": records,
    }


SCRUB = (HERE / "scrub.js").read_text("utf-8")


def measure_scrubbing(page: Page) -> dict[str, float]:
    """Scrub a trace of 1024 positions as fast as frames come. A second redraw per frame is timed apart: the page must
    be that much within its frame.
    """
    page.click("role=tab[name='Export']")
    page.set_input_files(
        "#sl-import", {"name": "big.json", "mimeType": "application/json", "buffer": json.dumps(big_trace()).encode()}
    )
    page.wait_for_function("surelock.stage.trace.n === 1024", timeout=60_000)
    page.wait_for_timeout(3000)
    return page.evaluate(SCRUB)


def main() -> None:
    """Everything, once; the last line is JSON."""
    parser = argparse.ArgumentParser(description="Measure the page against its budgets.")
    parser.add_argument("--plain", type=json.loads, metavar="JSON", help="only the two runs without the page")
    parser.add_argument(
        "--repeat", type=int, default=2, help="the fastest of this many runs counts (default: %(default)s)"
    )
    given = parser.parse_args()
    if given.plain is not None:
        return plain(given.plain)
    with serve("--max-length", "512") as app:
        started = app.started_in
        wait_for_model(app)
        list(Visitor(app.url).run(Prompt=PROMPT, Generated_length=16, Steps=16, Block_length=16))  # warm
        runs = []
        for _ in range(given.repeat):
            streamed, header = measure_stream(app)
            runs.append((measure_plain(header, 0), measure_plain(header, 5), streamed))
        bare, alone, stream = ({key: min(run[i][key] for run in runs) for key in runs[0][i]} for i in range(3))
        with sync_playwright() as playwright:
            browser = launch(playwright)
            page = browser.new_page(viewport={"width": 1440, "height": 1000})
            shown = measure_page(page, app, header)
            scrubbed = measure_scrubbing(page)
            browser.close()
    result = {
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
        "added_time_server_only": stream["wall"] / alone["wall"] - 1,
        "added_time_with_browser": shown["wall"] / alone["wall"] - 1,
        "added_time_with_browser_over_bare": shown["wall"] / bare["wall"] - 1,
        "scrub_fps_1024": scrubbed["fps"],
        "scrub_frame_p95_ms_1024": scrubbed["p95"],
        "scrub_draw_ms_1024": scrubbed["draw"],
        "scrub_requests": scrubbed["requests"],
    }
    print(json.dumps({key: round(value, 4) for key, value in result.items()}))


if __name__ == "__main__":
    main()
