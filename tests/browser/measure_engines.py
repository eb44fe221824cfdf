"""Measure the ways to compute in a browser: ``python -m tests.browser.measure_engines`` prints one JSON line last.

The page's worker has one thread. Beside it come two threads, which a browser gives to a cross-origin isolated page
alone, and WebGPU, where the browser has it. Each decodes at the page's settings; the medians of its runs count.
"""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from playwright.sync_api import sync_playwright

import surelock
from surelock.decoding.presets import PRESETS
from surelock.model.machine import processor
from surelock.trace.lanes import Lane
from tests.browser.measure_here import DECODERS, PROMPT
from tests.browser.server import FLAGS, ROOT, Quiet, chromium_path, files_of

ENGINES = {
    "one thread": {"module": "ort.wasm.bundle.min.mjs", "threads": 1, "provider": "wasm"},
    "two threads": {"module": "ort.wasm.bundle.min.mjs", "threads": 2, "provider": "wasm"},
    "WebGPU": {"module": "ort.webgpu.bundle.min.mjs", "threads": 1, "provider": "webgpu"},
}
DECODE = Path(__file__).with_name("engines.js").read_text("utf-8")
#: Typed rules are not measured: what runs them is left out.
PAGE = """<!doctype html><script type="importmap">{"imports": {"quickjs-emscripten-core":
"data:text/javascript,export const shouldInterruptAfterDeadline = null"}}</script>"""


class _Isolated(Quiet):
    """Serves the repository to a page that may have threads."""

    def do_GET(self) -> None:
        if self.path != "/":
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(PAGE.encode())

    def end_headers(self) -> None:
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure one thread, two threads and WebGPU in Chromium.")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each decoder (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=128, help="of a run (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="append the JSON line to this file")
    given = parser.parse_args()
    lm = surelock.load("stories", device="cpu")
    length = {"gen_length": given.tokens, "steps": given.tokens}
    decoders = {name: PRESETS[name].decoder(lm.generation, length) for name in DECODERS}
    lanes = [Lane(id=name, name=name, decoder=decoder).to_plain() for name, decoder in decoders.items()]
    asked = {"prompt": lm.encode(PROMPT), "lanes": lanes, "repeats": given.repeats}
    found = {}
    with files_of(ROOT, _Isolated) as url, sync_playwright() as playwright:
        flags = [flag for flag in FLAGS if flag != "--disable-gpu"]
        browser = playwright.chromium.launch(
            executable_path=chromium_path(), args=[*flags, "--enable-unsafe-webgpu", "--enable-features=Vulkan"]
        )
        for name, engine in ENGINES.items():
            page = browser.new_page()
            page.set_default_timeout(0)
            page.goto(url)
            assert page.evaluate("crossOriginIsolated")
            seconds = page.evaluate(DECODE, {**asked, **engine})
            found[name] = (
                seconds if isinstance(seconds, str) else dict(zip(DECODERS, map(median, seconds), strict=True))
            )
            page.close()
        result = {
            "benchmark": "browser-engines",
            "browser": f"Chromium {browser.version}",
            "processor": processor(),
            "measured": datetime.now(UTC).date().isoformat(),
            "tokens": given.tokens,
            "seconds": found,
        }
        browser.close()
    line = json.dumps(result)
    if given.out:
        with given.out.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
    print(line)


if __name__ == "__main__":
    main()
