"""The race by the clock, its chapters, and what the address and the tab keep of it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.actions import SHORT, run_to_end, seek, shows, status, until, visit, wait_for_run
from tests.browser.server import ROOT, App

RECORDED = json.loads((ROOT / "assets" / "runs" / "stories.json").read_text("utf-8"))


def clocks() -> list[list[float]]:
    """Of each lane of the recorded run, when each of its steps was over, in seconds of its own."""
    found = []
    for lane in RECORDED["header"]["lanes"]:
        total, times = 0.0, []
        for record in RECORDED["records"]:
            if record["lane"] == lane["id"]:
                total += record["seconds"]
                times.append(total)
        found.append(times)
    return found


def arrive(page: Page, url: str, query: str = "") -> None:
    page.goto(f"{url}/{query}")
    page.wait_for_function("window.surelock?.stage.trace && Number(surelock.stage.root.dataset.step) >= 0")


def reload(page: Page) -> None:
    page.reload()
    page.wait_for_function("window.surelock?.stage.trace && Number(surelock.stage.root.dataset.step) >= 0")


def address(page: Page) -> dict[str, list[str]]:
    page.wait_for_timeout(900)  # it is written a moment later
    return parse_qs(urlsplit(page.url).query)


def test_lanes_run_by_their_own_clocks_and_one_wins(page: Page, app: App) -> None:
    arrive(page, app.url)
    slow, quick = clocks()
    assert slow[-1] > quick[-1]
    for step in (10, 90, 110):
        seek(page, step)
        done = sum(time <= slow[step] for time in quick)
        first, second = page.locator(".sl-lane-clock").all_inner_texts()
        assert first.endswith(f"step {step + 1} of 128")
        if done < 128:
            assert second.endswith(f"step {done} of 128")
        else:
            assert second.startswith("first: ") and second.endswith("128 steps")
            assert "has finished" in page.inner_text(".sl-narrator") and "still works" in page.inner_text(
                ".sl-narrator"
            )
        cells = page.evaluate(
            "surelock.stage.sides.map(({labels}) => [...labels.tokens].filter((id) => id < 0).length)"
        )
        assert cells == [127 - step, 128 - done]
    second_clock = page.locator(".sl-lane-clock").nth(1)
    page.keyboard.press("s")
    expect(second_clock).to_contain_text("step 111 of 128")
    page.select_option(".sl-race", "clock")
    expect(second_clock).to_contain_text("first: ")


def test_a_live_run_is_a_race_too(page: Page, app: App) -> None:
    visit(page, app.url, race="clock", gen_length=64, steps=64)
    page.emulate_media(reduced_motion="no-preference")
    page.click("#sl-run")
    wait_for_run(page, 12)
    told = page.evaluate(
        """() => { const {trace, timeline} = surelock.stage;
                   return [timeline.step, trace.front, trace.lanes.map((lane) => lane.seconds)]; }"""
    )
    assert told[0] <= told[1] < 63
    page.wait_for_function("!surelock.stage.trace.live && surelock.stage.timeline.atEnd", timeout=90_000)
    assert "of the work" in page.inner_text(".sl-narrator")


def test_a_run_that_nobody_touched_comes_back_at_its_end(page: Page, app: App) -> None:
    visit(page, app.url, race="clock", gen_length=12, steps=12)
    page.emulate_media(reduced_motion="no-preference")
    run_to_end(page)
    assert "step" not in address(page)  # though it was still running out when the run was over
    reload(page)
    until(page, "surelock.stage.timeline.atEnd")
    assert "of the work" in page.inner_text(".sl-narrator")


def test_chapters_are_marked_and_n_and_p_go_to_them(page: Page, app: App) -> None:
    arrive(page, app.url)
    marks = page.locator(".sl-chapter").evaluate_all("(marks) => marks.map(({title}) => title.split(':')[0])")
    assert marks[0] == "First lock" and marks[-1] == "End" and set(marks) >= {"Fork", "Half locked", "Slowest to lock"}
    steps = page.evaluate("surelock.stage.chapters.map(({step}) => step)")
    assert steps == sorted(steps)
    page.focus("#sl-run")  # wherever the focus is
    page.keyboard.press("Home")
    for step in sorted({each for each in steps if each > 0}):
        page.keyboard.press("n")
        shows(page, step)
    page.keyboard.press("p")
    shows(page, sorted(set(steps))[-2])
    fork = next(each for each in page.evaluate("surelock.stage.chapters") if each["name"] == "Fork")
    seek(page, fork["step"])
    assert "the texts part here" in page.inner_text(".sl-narrator")
    page.locator(".sl-chapter").first.click()
    shows(page, steps[0])


def test_rasters_stand_under_the_grids_with_one_cursor(page: Page, app: App) -> None:
    arrive(page, app.url)
    seek(page, 100)
    assert page.locator(".sl-side .sl-raster").count() == 2
    until(page, "document.querySelectorAll('.sl-raster')[0].width === 128")
    page.wait_for_timeout(800)
    boxes = [each.bounding_box() for each in page.locator(".sl-raster-cursor").all()]
    sides = [each.bounding_box() for each in page.locator(".sl-raster-box").all()]
    assert all(boxes) and all(sides)
    shares = [(box["x"] - side["x"]) / side["width"] for box, side in zip(boxes, sides, strict=True) if box and side]
    assert abs(shares[0] - shares[1]) < 0.01 and abs(shares[0] - 100.5 / 128) < 0.02
    saved = """(lane) => { const canvas = document.querySelectorAll('.sl-raster')[lane];
        const pixels = canvas.getContext('2d').getImageData(canvas.width - 1, 0, 1, 1).data; return pixels[3]; }"""
    assert [page.evaluate(saved, lane) for lane in (0, 1)] == [255, 0], "after its end a lane's columns are empty"
    page.locator(".sl-raster").first.click(position={"x": 5, "y": 20})
    page.wait_for_function("Number(surelock.stage.root.dataset.step) < 5")
    drawn = """() => { const { stage } = surelock; stage.show(stage.trace);
        return stage.sides.every(({ raster }) => raster.columns); }"""
    assert page.evaluate(drawn) and page.evaluate(drawn), "at once, however soon one run follows another"


def test_the_address_holds_step_pins_and_race_and_a_reload_brings_them_back(page: Page, app: App) -> None:
    arrive(page, app.url)
    assert urlsplit(page.url).query == ""
    seek(page, 40)
    page.evaluate("surelock.stage.pin(30)")
    page.keyboard.press("s")
    page.evaluate("surelock.stage.colourBy = 'kl'")
    assert address(page) == {"step": ["41"], "pins": ["30"], "race": ["steps"], "colour": ["kl"]}
    reload(page)
    shows(page, 40)
    assert page.evaluate("surelock.stage.view") == {"step": 40, "pins": [30], "byClock": False, "colour": "kl"}
    page.goto(f"{app.url}/gradio_api/info")
    page.go_back()
    page.wait_for_function("window.surelock?.stage.trace")
    shows(page, 40)


def test_a_reload_brings_back_the_runs_of_this_tab_and_the_form(page: Page, app: App) -> None:
    visit(page, app.url, prompt="The little dog ran to the")
    run_to_end(page)
    seek(page, 9)
    page.evaluate("surelock.stage.pin(12)")
    there = address(page)
    assert there["prompt"] == ["The little dog ran to the"] and there["step"] == ["10"] and there["pins"] == ["12"]
    tokens = page.evaluate("[...surelock.stage.sides[1].labels.tokens]")
    reload(page)
    shows(page, 9)
    assert page.evaluate("[...surelock.stage.sides[1].labels.tokens]") == tokens
    assert "As you left it" in page.inner_text(".sl-run-label") and status(page) == ""
    assert page.evaluate("surelock.stage.runs.entries.map(({source}) => source)") == ["recorded", "live"]
    until(page, "document.querySelector('#sl-prompt textarea').value === 'The little dog ran to the'")
    until(page, "document.querySelector('#sl-gen-length input[type=number]').value === '24'")
    page.click("#sl-prompt textarea")
    page.keyboard.press("End")
    page.keyboard.type(" old")
    until(page, "new URLSearchParams(location.search).get('prompt').endsWith(' old')")
    for more in ("", " 龍" * 3000):  # the second is too long for an address
        page.click("#sl-prompt textarea")
        page.keyboard.press("ControlOrMeta+End")
        page.keyboard.insert_text(more)
        page.wait_for_timeout(500)
        for _ in range(2):
            reload(page)
            until(page, f"document.querySelector('#sl-prompt textarea')?.value.endsWith(' old{more}')")
            seek(page, 5)  # the cursor moves, and the form still holds what was typed
            page.wait_for_timeout(500)


def test_leaving_in_the_middle_of_a_run_loses_nothing_that_was_computed(page: Page, app: App) -> None:
    visit(page, app.url, gen_length=480, steps=480)  # far from its end when the page is left
    page.click("#sl-run")
    wait_for_run(page, 10)
    with page.expect_navigation():
        page.evaluate("surelock.live.run.trace.live ? location.reload() : null")
    page.wait_for_function("window.surelock?.stage.trace?.count >= 10")
    assert "Interrupted" in page.inner_text(".sl-run-label") and "press Run to compute all of it" in status(page)


def test_a_shared_link_says_what_it_asks_for_and_run_shows_it_as_it_was_shared(page: Page, app: App) -> None:
    query = "&".join(f"{name}={value}" for name, value in SHORT.items())
    arrive(page, app.url, f"?{query}&prompt=The+cat&step=7&pins=5,900&race=steps")
    assert "press Run" in status(page) and "recorded" in page.inner_text(".sl-run-label")
    page.wait_for_function("document.querySelector('#sl-prompt textarea').value === 'The cat'")
    page.click("#sl-run")
    page.wait_for_function("surelock.live.run && surelock.stage.root.dataset.state === 'idle'", timeout=90_000)
    shows(page, 23)
    assert page.evaluate("surelock.stage.view") == {"step": 23, "pins": [5], "byClock": False, "colour": "state"}
    lacks = "This run lacks what the link asks for: some of its pinned positions."
    assert status(page) == f"The link points at step 7. {lacks}"
    assert "step" not in address(page) and "of the work" in page.inner_text(".sl-narrator")


def test_damaged_views_open_the_page_and_are_told_in_a_sentence(page: Page, app: App) -> None:
    arrive(page, app.url, "?step=999&pins=3,nine&race=foo")
    assert status(page) == (
        "The link is damaged at pins and race; the rest of it holds. "
        "This run lacks what the link asks for: its step 999 (this run has 128)."
    )
    assert page.evaluate("surelock.stage.view") == {"step": 127, "pins": [3], "byClock": True, "colour": "state"}


def test_storage_that_is_full_or_forbidden_is_told_once(page: Page, app: App) -> None:
    refuse = "{get() { throw new DOMException('no', 'SecurityError'); }}"
    page.add_init_script(f"Object.defineProperty(window, 'sessionStorage', {refuse});")
    visit(page, app.url, prompt="The cat", gen_length=16, steps=16)
    run_to_end(page)
    assert status(page) == "This browser keeps no runs for a reload: export what you want to keep."


def test_an_exported_trace_keeps_step_and_pins(page: Page, app: App, tmp_path: Path) -> None:
    arrive(page, app.url)
    seek(page, 20)
    page.evaluate("surelock.stage.pin(33)")
    page.click("role=tab[name='Export']")
    with page.expect_download() as waiting:
        page.click("button:has-text('Trace (JSON)')")
    path = tmp_path / "trace.json"
    waiting.value.save_as(path)
    assert json.loads(path.read_text("utf-8"))["view"] == {"step": 20, "pins": [33], "by_clock": True}
    seek(page, 3)
    page.evaluate("surelock.stage.pin(33)")
    page.set_input_files("#sl-import", path)
    shows(page, 20)
    assert page.evaluate("surelock.stage.view.pins") == [33]


TEN_SECONDS = """
window.firsts = {};
const first = (name, is) => { if (!(name in firsts) && is) firsts[name] = performance.now(); };
setInterval(() => {
  const step = Number(document.querySelector('.sl-stage')?.dataset.step ?? -1);
  const told = document.querySelector('.sl-narrator')?.textContent ?? '';
  first('mounted', document.querySelector('.block'));
  first('moves', step >= 0);
  first('speaks', told !== '');
  first('winner', [...document.querySelectorAll('.sl-lane-clock')].some(({textContent}) => /^first/.test(textContent)));
  first('verdict', / of the work/.test(told));
}, 10);
"""


def first_seconds(page: Page, url: str, awaited: str) -> dict[str, float]:
    """When what TEN_SECONDS looks for was first seen, in seconds from the load event."""
    page.emulate_media(reduced_motion="no-preference")
    page.add_init_script(TEN_SECONDS)
    page.goto(url, wait_until="load")
    page.wait_for_function(f"'{awaited}' in firsts", timeout=60_000)
    loaded = page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
    return {name: (time - loaded) / 1000 for name, time in page.evaluate("firsts").items()}


@pytest.mark.long
def test_the_first_ten_seconds(app: App, browser: Browser) -> None:
    """Something moves within a second of the load event, the narrator speaks within 2, the recorded race has a winner
    and a verdict within 20, its three stops among them. Whatever else the machine does only adds to that: the best of
    several visitors counts.
    Where Gradio alone takes most of the second until its components are there, it moves in three quarters as long
    again.
    """
    limits = {"moves": 1, "speaks": 2, "winner": 20, "verdict": 20}
    best = dict.fromkeys(("mounted", *limits), math.inf)
    for awaited in ("verdict", "moves", "moves", "moves", "moves", "verdict", "verdict"):
        if best[awaited] < limits[awaited]:
            continue
        context = browser.new_context(viewport={"width": 1440, "height": 1000})
        found = first_seconds(context.new_page(), app.url, awaited)
        context.close()
        best = {name: min(time, found.get(name, math.inf)) for name, time in best.items()}
        limits["moves"] = max(1, 1.75 * best["mounted"])
        if awaited == "verdict":
            assert found["moves"] <= found["winner"] < found["verdict"]
    assert all(best[name] < limit for name, limit in limits.items()), best
