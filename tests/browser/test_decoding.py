"""A run that the browser computes: the messages of a server's, and the tokens of the Python engine's."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page

import surelock
from surelock.decoding.choices import Decoder
from surelock.places import ASSETS
from surelock.trace.frames import read_trace
from surelock.trace.lanes import Lane
from surelock.trace.record import record_run

PROMPT = "Once upon a time there was a little"
START = """async ([lanes, prompt, part]) => {
  const { BrowserSource } = await import("/js/run/browser_source.js");
  const url = (path) => new URL(path, location.href).href;
  window.heard = [];
  window.source = new BrowserSource({
    worker: url("/scripts/worker.js"),
    where: { model: url(part.model), runtime: url("/scripts/ort.wasm.gz"), runtimeBytes: part.bytes },
  });
  const request = { model: "stories", prompt, lanes };
  window.over = new Promise((then) => {
    window.run = window.source.start(request, (messages) => {
      window.heard.push(...messages);
      if (messages.some(({ end, refused, lost }) => end || refused || lost)) then();
    });
  });
}"""


ASKED: list[str] = []


class Files(SimpleHTTPRequestHandler):
    """Keeps what it was asked for."""

    def log_message(self, *_: Any) -> None:
        ASKED.append(self.path)


@pytest.fixture(scope="module")
def files() -> Iterator[str]:
    """A plain file server: nothing else computes."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=str(ASSETS))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def page(context: BrowserContext, files: str) -> Page:
    page = context.new_page()
    page.goto(f"{files}/lessons/schema.json")
    return page


def lanes() -> list[Lane]:
    settings = surelock.DecodeSettings(gen_length=24, temperature=0.5, seed=2)
    rules = {"everything": surelock.Everything(), "lock": surelock.LockRule(), "budget": surelock.BudgetRule()}
    return [Lane(id=own, name=own, decoder=Decoder(settings=settings, compute=rule)) for own, rule in rules.items()]


def start(page: Page, model: str = "/stories/") -> None:
    part = {"model": model, "bytes": (ASSETS / "scripts" / "ort.wasm.gz").stat().st_size}
    page.evaluate(START, [[lane.to_plain() for lane in lanes()], PROMPT, part])


def test_a_run_in_the_browser_is_the_one_in_python(page: Page, stories: Any) -> None:
    ASKED.clear()
    start(page)
    page.evaluate("window.over")
    heard = page.evaluate("window.heard")
    loading = [message["loading"] for message in heard if "loading" in message]
    assert loading[-1]["got"] == loading[-1]["all"] > 10e6
    own = [message for message in heard if "loading" not in message]
    assert "open" in own[0] and own[-1]["end"] == "finished"
    assert [message["seq"] for message in own] == list(range(len(own)))

    document = page.evaluate(f"window.source.document('{own[0]['run']}')")
    ours, theirs = record_run(stories, PROMPT, lanes()), json.loads(json.dumps(document))
    assert len(ours["records"]) == len(theirs["records"])
    for mine, other in zip(ours["records"], theirs["records"], strict=True):
        for name in ("lane", "step", "unmasked", "locked", "computed", "flops", "baseline_flops"):
            assert mine[name] == other[name], (name, mine["lane"], mine["step"])
    assert read_trace(theirs).lanes.engine.str.startswith("onnxruntime-web").all()
    own = {path for path in ASKED if path.startswith(("/js/", "/scripts/", "/stories/"))}
    assert "/stories/tokenizer.json" in own and {*ASKED} <= own | {"/favicon.ico"}


def test_a_run_pauses_steps_and_stops(page: Page) -> None:
    start(page)
    page.wait_for_function("window.heard.some((m) => m.records)", timeout=60_000)
    page.evaluate("window.run.pause()")
    count = page.evaluate("window.heard.length")
    page.wait_for_timeout(300)
    assert page.evaluate("window.heard.length") == count, "it rests"
    page.evaluate("window.run.step()")
    page.wait_for_function(f"window.heard.length > {count}")
    page.wait_for_timeout(300)
    assert page.evaluate("window.heard.length") == count + 1
    page.evaluate("window.run.resume()")
    page.wait_for_function(f"window.heard.length > {count + 2}")
    page.evaluate("window.run.stop()")
    assert page.evaluate("window.heard.at(-1).end") == "stopped"


def test_what_does_not_come_is_one_sentence(page: Page) -> None:
    start(page, "/nowhere/")
    page.evaluate("window.over")
    last = page.evaluate("window.heard.at(-1)")
    assert last == {"refused": "The decoder could not be fetched: browser.json did not come."}
