"""`surelock site`: the page without a server, under a path of a file server and as one file from a disk."""

import json
from pathlib import Path
from urllib.parse import unquote_plus, urlencode, urlsplit

import pytest
from playwright.sync_api import Page, expect

from surelock.__main__ import main
from surelock.places import ASSETS
from surelock.trace.table import read_trace
from tests.browser.actions import PAIR, arrive, exported, seek, serious, touch, until
from tests.browser.hands import Mouse
from tests.browser.server import files_of
from tests.browser.test_lessons import LESSONS_THERE, SHORT, SHORTER, opened, play

COMMITS = """(trace) => trace.lanes.map(({ steps }) => steps.map(({ unmasked, locked }) =>
  [[...unmasked].sort(), [...locked].sort()]))"""
MASK_AGAIN = """() => {
  const { lanes } = recording;
  const written = lanes[1].decoder.events ?? [];
  const events = [...written, { step: 3, kind: "mask", position: lanes[1].steps[1].unmasked[0] }];
  surelock.starting.branchOff(lanes[1], { events }, 3, "Masked again", lanes.length < 4 ? null : lanes.at(-1));
}"""
BRANCH = "surelock.live.run.trace.lanes.findIndex(({ name }) => name === 'Masked again')"
QUERY = "gen_length=16&steps=16&block_length=16&race=steps"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The address of the site under /a/b/."""
    root = tmp_path_factory.mktemp("served")
    main(["site", str(root / "a" / "b")])
    with files_of(root) as url:
        yield f"{url}/a/b/"


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("file") / "surelock.html"
    main(["site", "--one-file", str(path)])
    assert path.stat().st_size < 30e6
    return path


def run(page: Page) -> None:
    before = page.evaluate("surelock.live.run?.id ?? null")
    page.click(".sl-action-run")
    until(
        page, f"(surelock.live.run?.id ?? null) !== {json.dumps(before)} && surelock.live.run.over"
    )


def touched(page: Page) -> int:
    """Another word in the second lane of the run on show. Returns the number of lanes."""
    seek(page, 6)
    cell = page.evaluate("surelock.stage.trace.lanes[1].steps[6].unmasked[0]")
    touch(page, 1, cell, "dog")
    assert page.inner_text(".sl-touches").startswith("“dog”")
    return 2


def all_that_it_can(page: Page, url: str, downloads: Path) -> None:
    """A run, a touched word, an export, and a lesson to its end."""
    arrive(page, f"{url}?{QUERY}")
    assert serious(page) == []
    run(page)
    lanes = touched(page)
    frames = read_trace(exported(page, downloads))
    assert (
        frames.lanes.engine.str.startswith("onnxruntime-web").all() and len(frames.lanes) == lanes
    )
    lesson = LESSONS_THERE[0]
    opened(page, url, lesson["name"])
    page.evaluate(SHORTER, SHORT)
    play(page, Mouse(page), lesson, right=True, own=True)


def test_one_file_from_a_disk_with_the_network_off(page, file, tmp_path):
    page.context.set_offline(True)
    all_that_it_can(page, file.as_uri(), tmp_path)


def test_a_replay_with_the_decoder_inside_is_touched_from_a_disk(page, folder, tmp_path):
    arrive(page, f"{folder}?{QUERY}")
    run(page)
    replay = exported(page, tmp_path, "Replay that decodes (HTML)")
    assert replay.stat().st_size < 30e6
    page.context.set_offline(True)
    arrive(page, replay.as_uri())
    lanes = touched(page)
    trace = "surelock.stage.trace"
    assert page.evaluate(f"{trace}.lanes.at(-1).count") == 16 and lanes == page.evaluate(
        f"{trace}.lanes.length"
    )
    assert page.evaluate(f"{trace}.lanes.at(-1).steps.at(-1).damage !== undefined")


LATE = """() => {
  const { browser } = surelock.source, measured = browser.measured.bind(browser);
  browser.measured = (text) => text === "late" ? new Promise((then) => { window.answer = then; }) : measured(text);
}"""


def test_a_link_fills_the_form_and_what_it_cannot_hold_is_said(page, folder):
    page.goto(f"{folder}?gen_length=24&steps=24&block_length=8&prompt=Жили-были&model=other")
    until(page, "window.surelock?.stage.trace")
    assert page.input_value("#sl-prompt textarea") == "Жили-были"
    assert page.get_attribute("#sl-gen-length input", "aria-valuetext") == "24"
    assert page.input_value("#sl-block-length select") == "8"
    run(page)
    assert page.evaluate("surelock.live.run.trace.lanes[0].decoder.settings.block_length") == 8
    assert page.evaluate("surelock.live.run.trace.count") == 24
    page.click(".sl-action-prompt")
    note = page.locator(".sl-prompt-box .sl-writes")
    expect(page.locator(".sl-prompt-box textarea")).to_have_value("Жили-были")
    expect(note).to_contain_text("expect nonsense.")
    page.evaluate(LATE)
    page.fill(".sl-prompt-box textarea", "late")
    until(page, "window.answer")
    page.fill(".sl-prompt-box textarea", "dog ___ " * 505)
    too_long = "2022 tokens; at most 1024 fit here, 16 of them for the answer."
    expect(note).to_contain_text(too_long)
    page.evaluate("answer({ foreign: false, tooLong: '' })")
    expect(note).to_contain_text(too_long)


OWN = {"name": "Mine", "compute": {"kind": "own"}, "unmask": {"kind": "entropy"}}
HALF = "function rows({ active, step }) {\n  return active.filter((p) => p % 2 === step % 2);\n}\n"
LET = "role=button[name='Let it run']"


def test_a_typed_rule_comes_with_a_link_and_runs_after_it_was_shown(page, folder, tmp_path):
    """Its text stands in the fragment, which no server sees; typed here, it runs at once."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    query = urlencode({"lanes": json.dumps([PAIR[0], OWN])})
    page.goto(f"{folder}?{QUERY}&{query}#{urlencode({'rules': json.dumps([HALF])})}")
    assert page.inner_text(".sl-letting pre").strip() == HALF.strip()
    assert serious(page, ".sl-letting") == []
    page.click("role=button[name='Do not run it']")
    expect(page.get_by_role("alert")).to_contain_text("The rule was not let run.")
    page.click(".sl-action-run")
    page.click(LET)
    until(page, "surelock.live.run?.over")
    shares = (
        "((trace) => trace.lanes.map((lane) => trace.totals(lane, trace.race.last).flopsShare))"
    )
    every, own = page.evaluate(f"{shares}(surelock.live.run.trace)")
    assert every == 1 and 0.4 < own < 0.7
    assert "active" in unquote_plus(urlsplit(page.url).fragment), "the address goes on to hold it"
    assert all("active" not in unquote_plus(url) for url in asked)
    frames = read_trace(exported(page, tmp_path))
    assert frames.lanes.compute.tolist() == ["everything", "own"]

    arrive(page, f"{folder}?{QUERY}&{query}")
    page.evaluate("document.querySelector('.sidebar:not(.open) .toggle-button')?.click()")
    page.locator(".sl-lane-details").last.evaluate("(node) => { node.open = true; }")
    run(page)
    assert page.locator(".sl-letting").count() == 0, "the page's own example"


@pytest.mark.parametrize("recording", ("blanks", "rules", "too-early"))
def test_a_recording_is_computed_again_as_it_is_and_a_branch_goes_on_from_it(
    page: Page, folder: str, recording: str
) -> None:
    """Its lanes were computed by the engine of CPUs. A branch computes its parent again up to its step."""
    arrive(page, f"{folder}?race=steps")
    page.click("role=tab[name='Export']")
    page.set_input_files("#sl-import", ASSETS / "runs" / f"{recording}.json")
    until(page, "surelock.stage.trace !== surelock.page.now.recorded")
    recorded = page.evaluate(f"({COMMITS})(surelock.stage.trace)")
    page.evaluate("window.recording = surelock.stage.trace")
    page.evaluate(MASK_AGAIN)
    until(page, "surelock.live.run?.over")
    branch = page.evaluate(f"({COMMITS})(surelock.live.run.trace)[{BRANCH}]")
    assert (
        len(branch) == len(recorded[1]) and branch[:3] == recorded[1][:3] and branch != recorded[1]
    )
    page.evaluate(
        "surelock.starting.raceLike(recording, recording.lanes.map(({ decoder }) => decoder))"
    )
    until(page, "surelock.live.run?.over && !surelock.live.run.branching")
    assert page.evaluate(f"({COMMITS})(surelock.live.run.trace)") == recorded
