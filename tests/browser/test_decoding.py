"""A run that the browser computes: the messages of a server's, and the tokens of the Python engine's."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

import surelock
from surelock.decoding.decoder import Decoder
from surelock.decoding.described import describe
from surelock.places import ASSETS
from surelock.trace.lanes import Lane
from tests.browser.actions import settled
from tests.browser.server import Quiet, files_of

PROMPT = "Once upon a time there was a little"
LOST = "The decoder could not be fetched: "
START = """async ([lanes, prompt, prompt_tokens, model, described]) => {
  const told = { id: "sl-settings", type: "application/json", textContent: described };
  document.body.append(Object.assign(document.createElement("script"), told));
  const { decoderOf } = await import("/js/run/browser_source.js");
  window.heard = [];
  if (window.model !== model) {
    window.model = model;
    window.source = await decoderOf(model);
  }
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


class Files(Quiet):
    """Keeps what it was asked for, and spoils some. Its modules have beside them what the scripts have."""

    def do_GET(self) -> None:
        self.path = re.sub("^/js/(?=scripts/|stories/|nowhere/)", "/", self.path)
        name = self.path.partition("?")[0].rpartition("/")[2]
        if name not in SPOILED:
            return super().do_GET()
        content = Path(self.translate_path(self.path)).read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(SPOILED[name](content))

    def log_message(self, *_: Any) -> None:
        ASKED.append(self.path)


@pytest.fixture(scope="module")
def files():
    with files_of(ASSETS, Files) as url:
        yield url


@pytest.fixture
def page(context, files):
    SPOILED.clear()
    page = context.new_page()
    page.goto(f"{files}/lessons/schema.json")
    return page


def lanes() -> list[Lane]:
    settings = surelock.DecodeSettings(gen_length=24, temperature=0.5, seed=2)
    rules = {
        "everything": surelock.Everything(),
        "lock": surelock.LockRule(),
        "budget": surelock.BudgetRule(),
    }
    return [
        Lane(id=own, name=own, decoder=Decoder(settings=settings, compute=rule))
        for own, rule in rules.items()
    ]


def start(
    page: Page, model: str = "stories", tokens: list[int] | None = None, **changes: Any
) -> None:
    plain = [lane.to_plain() | changes for lane in lanes()]
    tokens = tokens or surelock.load("stories", device="cpu").encode(PROMPT)
    page.evaluate(START, [plain, PROMPT, tokens, model, json.dumps(describe())])


def heard_last(page: Page) -> Any:
    page.evaluate("window.over")
    return page.evaluate("window.heard.at(-1)")


GOES_ON_AND_RESTS = """async () => {
  const { run, heard } = window;
  const before = heard.length;
  run.resume();
  while (heard.length < before + 2) await new Promise((then) => setTimeout(then));
  await run.pause();
  return heard.length;
}"""


def test_a_run_pauses_steps_and_stops(page):
    start(page)
    page.wait_for_function("window.heard.some((m) => m.records)")
    page.evaluate("window.run.pause()")
    count = page.evaluate("window.heard.length")
    settled(page)
    assert page.evaluate("window.heard.length") == count, "it rests"
    page.evaluate("window.run.step()")
    page.wait_for_function(f"window.heard.length > {count}")
    settled(page)
    assert page.evaluate("window.heard.length") == count + 1
    count = page.evaluate(GOES_ON_AND_RESTS)
    page.wait_for_timeout(300)  # many steps' time
    assert page.evaluate("window.heard.length") == count, "it rests a second time"
    page.evaluate("window.run.stop()")
    assert page.evaluate("window.heard.at(-1).end") == "stopped"


def test_a_branch_that_no_decoder_can_run_is_refused_and_the_next_one_runs(page):
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


def test_what_does_not_come_is_one_sentence(page):
    start(page, "nowhere")
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


def test_a_browser_that_keeps_nothing_decodes_and_says_so(page):
    spoiled = "self.CacheStorage.prototype.open = () => Promise.reject(new DOMException('no', 'SecurityError'));"
    script = (ASSETS / "scripts" / "worker.js").read_text("utf-8")
    page.route(
        "**/worker.js",
        lambda route: route.fulfill(body=spoiled + script, content_type="text/javascript"),
    )
    start(page)
    assert heard_last(page)["end"] == "finished"
    (note,) = [message["note"] for message in page.evaluate("window.heard") if "note" in message]
    assert (
        note
        == "This browser keeps no files of this page: the next visit fetches the decoder again."
    )
