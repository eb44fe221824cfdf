"""A run that the browser computes: the messages of a server's, and the tokens of the Python engine's."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import BrowserContext, Page
from test_web_engine import whole_runs

import surelock
from surelock.decoding.choices import Decoder
from surelock.decoding.described import describe
from surelock.places import ASSETS
from surelock.trace.frames import read_trace
from surelock.trace.lanes import MOST, Lane
from surelock.trace.record import record_run

PROMPT = "Once upon a time there was a little"
LOST = "The decoder could not be fetched: "
START = """async ([lanes, prompt, prompt_tokens, model, described]) => {
  const told = { id: "sl-settings", type: "application/json", textContent: described };
  document.body.append(Object.assign(document.createElement("script"), told));
  const { BrowserSource } = await import("/js/run/browser_source.js");
  const url = (path) => new URL(path, location.href).href;
  window.heard = [];
  window.source = new BrowserSource({
    worker: url("/scripts/worker.js"),
    where: async () => ({ model: url(model), runtime: url("/scripts/ort.wasm.gz"),
      interpreter: url("/scripts/quickjs.wasm.gz") }),
  });
  const request = { model: "stories", prompt, prompt_tokens, lanes };
  window.over = new Promise((then) => {
    window.run = window.source.start(request, (messages) => {
      window.heard.push(...messages);
      if (messages.some(({ end, refused, lost }) => end || refused || lost)) then();
    });
  });
}"""


ASKED: list[str] = []
SPOILED: dict[str, Any] = {}  # what becomes of a file's bytes, by its name


class Files(SimpleHTTPRequestHandler):
    """Keeps what it was asked for, and spoils some."""

    def do_GET(self) -> None:
        name = self.path.partition("?")[0].rpartition("/")[2]
        if name not in SPOILED:
            return super().do_GET()
        content = Path(self.translate_path(self.path)).read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(SPOILED[name](content))

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")  # what the page itself keeps is seen then
        super().end_headers()

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
    SPOILED.clear()
    page = context.new_page()
    page.goto(f"{files}/lessons/schema.json")
    return page


def lanes() -> list[Lane]:
    settings = surelock.DecodeSettings(gen_length=24, temperature=0.5, seed=2)
    rules = {"everything": surelock.Everything(), "lock": surelock.LockRule(), "budget": surelock.BudgetRule()}
    return [Lane(id=own, name=own, decoder=Decoder(settings=settings, compute=rule)) for own, rule in rules.items()]


def start(page: Page, model: str = "/stories/", tokens: list[int] | None = None, **changes: Any) -> None:
    plain = [lane.to_plain() | changes for lane in lanes()]
    tokens = tokens or surelock.load("stories", device="cpu").encode(PROMPT)
    page.evaluate(START, [plain, PROMPT, tokens, model, json.dumps(describe())])


def heard_last(page: Page) -> Any:
    page.evaluate("window.over")
    return page.evaluate("window.heard.at(-1)")


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
    paths = {path.partition("?")[0] for path in ASKED}
    own = {path for path in paths if path.startswith(("/js/", "/scripts/", "/stories/"))}
    assert "/stories/tokenizer.json" in own and paths <= own | {"/favicon.ico"}
    assert all("sha256=" in path for path in ASKED if path.startswith("/stories/model"))


DECODED = """async ([lanes, prompt, prompt_tokens]) => {
  let [run, id, count] = [null, null, 0];
  const wanted = lanes.length * lanes[0].settings.gen_length;
  await new Promise((then, failed) => {
    run = window.source.start({ model: "stories", prompt, prompt_tokens, lanes }, (messages) => {
      for (const { open, run: own, records = [], errors, end, refused, lost, problem } of messages) {
        if (open) id = own;
        if (refused ?? lost ?? problem) failed(new Error(refused ?? lost ?? problem));
        count += records.length;
        if (count === wanted || errors || end) then(); // before its commit errors
      }
    });
  });
  const { records } = await window.source.document(id);
  await run.stop();
  window.source.drop(id);
  return records;
}"""


def parts_in(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> int | None:
    """The first step in which two lanes decide otherwise; up to it all that was read is equal up to rounding."""
    for mine, other in zip_longest(ours, theirs):
        if mine is None or other is None:
            return (mine or other)["step"]
        for name in ("computed", "unmasked", "locked", "masked", "written", "unlocked"):
            if mine.get(name) != other.get(name):
                return mine["step"]
        for name in ("kl", "confidence"):
            told = [np.array(each[name], float) for each in (mine, other)]  # null is infinite: NaN in both
            np.testing.assert_allclose(told[1], told[0], rtol=1e-2, atol=2e-5, err_msg=f"{name}, step {mine['step']}")
    return None


@pytest.mark.parametrize("seeds", [(5,), pytest.param(range(18), marks=[pytest.mark.long, pytest.mark.timeout(3000)])])
def test_whole_runs_differ_in_ties_alone(page: Page, stories: Any, seeds: Sequence[int]) -> None:
    """As in Node (tests/test_web_engine.py): of 306 runs at most one in fifty parts from Python's."""
    prompt = "The dog and the cat went to the"
    tokens = stories.encode(prompt)
    start(page)
    assert heard_last(page)["end"] == "finished"
    count, parted = 0, []
    for seed in seeds:
        every = whole_runs(tokens, seed)
        chosen = every if len(seeds) > 1 else every[::6]
        field = [Lane(id=f"{i}", name=f"{i}", decoder=decoder) for i, decoder in enumerate(chosen)]
        for first in range(0, len(field), MOST):
            race = field[first : first + MOST]
            theirs = page.evaluate(DECODED, [[lane.to_plain() for lane in race], prompt, tokens])
            ours = json.loads(json.dumps(record_run(stories, prompt, race)))["records"]
            for lane in race:
                own, other = ([each for each in records if each["lane"] == lane.id] for records in (ours, theirs))
                assert len(own) > 1
                step = parts_in(own, other)
                parted += [] if step is None else [(seed, chosen[int(lane.id)], step)]
            count += len(race)
    assert len(parted) <= 0.02 * count, f"{len(parted)} of {count}: {parted}"
    print(f"{len(parted)} of {count} runs part: {parted}")


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


def test_a_branch_that_no_decoder_can_run_is_refused_and_the_next_one_runs(page: Page) -> None:
    """A trace from elsewhere holds whatever somebody wrote into it."""
    for tokens in ([5, 10**7], [5, -1], [1.5]):
        start(page, tokens=tokens)
        assert heard_last(page) == {"refused": "Its tokens are not those of the model stories."}
    start(page, events=[{"step": 1, "kind": "write", "position": 5, "token": 10**6}])
    assert heard_last(page) == {"refused": "Its tokens are not those of the model stories."}
    start(page, settings={"gen_length": 24, "steps": 10**9})
    assert "must be at most" in heard_last(page)["refused"]
    start(page)
    assert heard_last(page)["end"] == "finished"


def test_what_does_not_come_is_one_sentence(page: Page) -> None:
    start(page, "/nowhere/")
    assert heard_last(page) == {"lost": f"{LOST}browser.json did not come."}
    weights = "model-00001-of-00002.safetensors"
    SPOILED[weights] = lambda content: content[: len(content) * 6 // 10]
    start(page)
    assert heard_last(page) == {"lost": f"{LOST}{weights} came in part."}
    SPOILED[weights] = lambda content: content[:5000] + bytes([content[5000] ^ 1]) + content[5001:]
    start(page)
    assert heard_last(page) == {"lost": f"{LOST}{weights} is not what the page was made with."}
    SPOILED.clear()
    ASKED.clear()
    start(page)
    assert heard_last(page)["end"] == "finished"
    fetched = [path.partition("?")[0] for path in ASKED if "sha256=" in path]
    assert fetched == [f"/stories/{weights}"], "the others were kept"


@pytest.mark.parametrize(
    ("spoiled", "said"),
    [
        ("delete window.WebAssembly", "it has no WebAssembly."),
        ("delete window.Worker", "it has no Worker."),
        ("window.Worker = class { constructor() { throw new DOMException('No workers here.'); } }", "No workers here."),
    ],
)
def test_a_browser_that_cannot_is_told_in_a_sentence(page: Page, spoiled: str, said: str) -> None:
    page.evaluate(f"() => {{ {spoiled}; }}")
    start(page)
    assert heard_last(page) == {"lost": f"This browser cannot decode: {said}"}


@pytest.mark.parametrize(
    "spoiled",
    [
        "self.CacheStorage.prototype.open = () => Promise.reject(new DOMException('no', 'SecurityError'));",
        "self.Cache.prototype.put = () => Promise.reject(new DOMException('no', 'QuotaExceededError'));",
    ],
)
def test_a_browser_that_keeps_nothing_decodes_and_says_so(page: Page, spoiled: str) -> None:
    script = (ASSETS / "scripts" / "worker.js").read_text("utf-8")
    page.route("**/worker.js", lambda route: route.fulfill(body=spoiled + script, content_type="text/javascript"))
    start(page)
    assert heard_last(page)["end"] == "finished"
    (note,) = [message["note"] for message in page.evaluate("window.heard") if "note" in message]
    assert note == "This browser keeps no files of this page: the next visit fetches the decoder again."
