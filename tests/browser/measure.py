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

from surelock import Decoder, DecodeSettings, Everything, LockRule
from surelock.trace.lanes import Lane
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
    command = [sys.executable, "-m", "tests.browser.measure", "--plain", asked]
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
        "version": 2,
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


def beside(other: Path, rounds: int) -> dict[str, Any]:
    """This checkout's page and another's, measured in turn: the medians of both, and their ratio, by name."""
    command = [sys.executable, "-m", "tests.browser.measure", "--repeat", "1"]
    found: dict[str, list[dict[str, float]]] = {"here": [], "there": []}
    for turn in range(rounds):
        for side in sorted(found, reverse=turn % 2 == 1):
            where = ROOT if side == "here" else other
            told = subprocess.run(command, cwd=where, stdout=subprocess.PIPE, text=True, check=True).stdout
            found[side].append(json.loads(told.splitlines()[-1]))
    names = [name for name in found["here"][0] if name in found["there"][0]]
    medians = {
        side: {name: float(np.median([run[name] for run in runs])) for name in names} for side, runs in found.items()
    }
    ratios = {name: medians["here"][name] / medians["there"][name] for name in names if medians["there"][name]}
    return {**medians, "ratio": ratios, "only_here": {n: v for n, v in found["here"][-1].items() if n not in names}}


def main() -> None:
    """Everything, once; the last line is JSON."""
    parser = argparse.ArgumentParser(description="Measure the page against its budgets.")
    parser.add_argument("--plain", type=json.loads, metavar="JSON", help="only the two runs without the page")
    parser.add_argument(
        "--repeat", type=int, default=2, help="the fastest of this many runs counts (default: %(default)s)"
    )
    parser.add_argument("--beside", type=Path, metavar="DIR", help="measure the page of another checkout, too, in turn")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each, with --beside (default: %(default)s)")
    given = parser.parse_args()
    if given.plain is not None:
        return plain(given.plain)
    if given.beside is not None:
        return print(json.dumps(_rounded(beside(given.beside, given.rounds))))
    with serve("--max-length", "512") as app:
        started = app.started_in
        wait_for_model(app)
        list(Visitor(app.url).run(Prompt=PROMPT, Generated_length=16, Steps=16, Block_length=16))  # warm
        runs, header = [], {}
        for _ in range(given.repeat):
            streamed, header = measure_stream(app)
            runs.append((measure_plain(header, 0), measure_plain(header, 5), streamed))
        bare, alone, stream = ({key: min(run[i][key] for run in runs) for key in runs[0][i]} for i in range(3))
        with sync_playwright() as playwright:
            browser = launch(playwright)
            page = browser.new_page(viewport={"width": 1440, "height": 1000})
            shown = measure_page(page, app, header)
            scrubbed = measure_scrubbing(page, 1024, 2) | measure_scrubbing(page, 512, 4)
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
        "after_the_last_step_s": stream["after"],
        "added_time_server_only": stream["wall"] / alone["wall"] - 1,
        "added_time_with_browser": shown["wall"] / alone["wall"] - 1,
        "added_time_with_browser_over_bare": shown["wall"] / bare["wall"] - 1,
        **scrubbed,
    }
    print(json.dumps(_rounded(result)))


def _rounded(told: Any) -> Any:
    return {name: _rounded(value) for name, value in told.items()} if isinstance(told, dict) else round(told, 4)


if __name__ == "__main__":
    main()
