"""The page in a real browser, on the real app and the embedded model."""

from __future__ import annotations

import json
import random
import sys
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from surelock.trace.frames import read_trace
from tests.browser.actions import (
    PAIR,
    drawn_states,
    draws,
    run_to_end,
    seek,
    serious,
    shown,
    shows,
    status,
    until,
    visit,
    wait_for_run,
)
from tests.browser.server import App, serve

STATES = {0: "masked", 1: "active", 2: "locked"}
CURVES_ARE_DRAWN = "surelock.stage.curves?.plots.every(({ plot }) => plot._fullLayout)"


def exported(page: Page, tmp_path: Path, tab: str = "Export", button: str = "Trace (JSON)") -> Path:
    page.click(f"role=tab[name='{tab}']")
    with page.expect_download() as waiting:
        page.click(f"button:has-text('{button}')")
    path = tmp_path / waiting.value.suggested_filename
    waiting.value.save_as(path)
    return path


def true_states(document: dict[str, Any], lane: int, step: int) -> list[int]:
    """The states of a lane after a step, worked out from the records alone."""
    header = document["header"]
    own = header["lanes"][lane]["id"]
    masked = [False] * len(header["prompt_tokens"]) + [True] * (header["length"] - len(header["prompt_tokens"]))
    locked, computed = [False] * header["length"], [True] * header["length"]
    for record in document["records"]:
        if record["lane"] != own or record["step"] > step:
            continue
        for position in record.get("masked", ()):
            masked[position] = True
        for position, _ in (*record.get("written", ()), *record["unmasked"]):
            masked[position] = False
        for position in record.get("unlocked", ()):
            locked[position] = False
        for position in record["locked"]:
            locked[position] = True
        runs = record["computed"]
        rows = {p for start, length in zip(runs[::2], runs[1::2], strict=True) for p in range(start, start + length)}
        computed = [position in rows for position in range(header["length"])]
    return [
        0 if hidden else 2 if still else 1 if ran else 3
        for hidden, still, ran in zip(masked, locked, computed, strict=True)
    ]


def test_the_recorded_run_moves_before_anything_is_pressed(page: Page, app: App) -> None:
    page.emulate_media(reduced_motion="no-preference")
    page.goto(app.url)
    page.wait_for_function("Number(document.querySelector('.sl-stage')?.dataset.step) >= 3")
    assert "recorded" in page.inner_text(".sl-run-label")


def test_a_run_from_prompt_to_end_shows_what_the_trace_says(page: Page, app: App, tmp_path: Path) -> None:
    visit(page, app.url, prompt="The little dog ran to the")
    run_to_end(page)
    document = json.loads(exported(page, tmp_path).read_text("utf-8"))
    assert document["header"]["prompt"] == "The little dog ran to the" and len(document["records"]) == 48
    trace = read_trace(document)
    assert trace.positions.token.notna().all()
    for step in random.Random(0).sample(range(24), 10):
        seek(page, step)
        for lane in (0, 1):
            draws(page, lane, true_states(document, lane, step))
    seek(page, 23)
    first, second = trace.lanes.lane
    flops = trace.steps.groupby("lane").flops.sum()
    assert page.inner_text(".sl-gauge-value >> nth=0") == f"{100 * flops[second] / flops[first]:.0f} %"
    records = [record for record in document["records"] if record["lane"] == second]
    changed = sum(len(record["changed"]) for record in records)
    nats = sum(nats for record in records for nats in record["commit_error"]) / 24
    damage = page.inner_text(".sl-gauge >> nth=3")
    assert page.inner_text(".sl-gauge-value >> nth=3") == str(changed)
    assert "of 24, commit error" in damage and " text" in damage
    assert float(damage.split("commit error ")[1].split()[0]) == pytest.approx(nats, rel=0.1)
    told = page.inner_text(".sl-narrator")
    assert told.startswith("“SureLock") and " % of the work" in told
    assert page.inner_text(".sl-changed").split()[2:] == [str(changed), "of", "24"]
    page.locator(".sl-lower").scroll_into_view_if_needed()  # what nobody sees is not drawn
    expect(page.locator(".modebar-btn").first).to_be_attached(timeout=30_000)
    assert page.locator(".modebar-btn[data-title^='Share']").count() == 0, "it would upload to somebody's cloud"


def test_pause_step_resume_and_stop(page: Page, app: App) -> None:
    visit(page, app.url, gen_length=160, steps=160)
    page.click("#sl-run")
    wait_for_run(page, 4)
    page.click("text=Pause")
    page.wait_for_function("surelock.stage.root.dataset.state === 'paused'")
    page.wait_for_timeout(700)
    count = page.evaluate("surelock.stage.trace.count")
    page.wait_for_timeout(700)
    assert page.evaluate("surelock.stage.trace.count") == count
    page.click(".sl-control-step")
    page.wait_for_function("(n) => surelock.stage.trace.count === n", arg=count + 1)
    seek(page, 2)
    page.click(".sl-control-step")  # not at the end: only the cursor moves
    shows(page, 3)
    assert page.evaluate("surelock.stage.trace.count") == count + 1
    page.click("text=Resume")
    wait_for_run(page, count + 5)
    page.click(".sl-control-stop")
    page.wait_for_function("surelock.stage.root.dataset.state === 'idle'")
    assert "Stopped after step" in status(page)
    last = page.evaluate("surelock.stage.trace.count")
    page.wait_for_timeout(600)
    assert page.evaluate("surelock.stage.trace.count") == last < 160


def test_run_again_replaces_the_run(page: Page, app: App) -> None:
    visit(page, app.url, gen_length=160, steps=160)
    page.click("#sl-run")
    wait_for_run(page, 3)
    first = page.evaluate("surelock.live.run.id")
    page.click("#sl-run")
    page.wait_for_function("(id) => surelock.live.run.id !== id && surelock.live.run.trace.count > 2", arg=first)
    page.click(".sl-control-stop")
    page.wait_for_function("surelock.stage.root.dataset.state === 'idle'")


@pytest.mark.parametrize("size", [(1440, 900), (1024, 768), (390, 844)])
def test_timeline_and_drawer_stay_in_sight(page: Page, app: App, size: tuple[int, int]) -> None:
    """Gradio's container hides what overflows: nothing would stick inside it."""
    page.set_viewport_size({"width": size[0], "height": size[1]})
    visit(page, app.url)
    page.evaluate("surelock.stage.timeline.pause()")

    def inside(selector: str) -> bool:
        box = page.locator(selector).bounding_box()
        return box is not None and box["y"] >= 0 and box["y"] + box["height"] <= size[1]

    page.evaluate("scrollTo(0, 0)")
    until(page, "scrollY === 0")
    assert inside(".sl-timeline"), "at the top of the page it sticks to the bottom of the window"
    if size[0] > 1000:
        page.evaluate("surelock.stage.press(surelock.stage.sides[1], 20)")
        page.wait_for_timeout(300)
        assert inside(".sl-drawer")


def test_the_fork_leads_to_where_the_texts_part(page: Page, app: App, tmp_path: Path) -> None:
    visit(page, app.url)
    page.evaluate("surelock.stage.timeline.seek(Infinity)")
    fork = page.locator(".sl-text .sl-fork")
    expect(fork).to_have_count(1)
    texts = [text.strip() for text in page.locator(".sl-text").all_inner_texts()]
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(*map(str.split, texts), strict=False)))
    assert texts[1].split()[shared].startswith(fork.inner_text().strip(",.")) and shared > 5
    fork.click()
    step, cell = page.evaluate("[surelock.stage.timeline.step, surelock.page.now.hover]")
    lanes = "surelock.stage.trace.lanes.map((lane) => lane"
    tokens = page.evaluate(f"{lanes}.token({cell}, {step}))")
    assert len(set(tokens)) == 2 and min(tokens) >= 0
    assert max(page.evaluate(f"{lanes}.unmaskStep({cell}, {step}))")) == step
    expect(page.locator(".sl-drawer")).to_contain_text(f"Position {cell}")


def test_space_pauses_and_resumes_the_run_wherever_the_focus_is(page: Page, app: App) -> None:
    """Also on Run, where it was after the click: there it started another run."""
    visit(page, app.url, gen_length=128, steps=128)
    page.click("#sl-run")
    page.wait_for_function("surelock.stage.root.dataset.state === 'running' && surelock.stage.timeline.step > 2")
    first = page.evaluate("surelock.live.run.id")
    play = page.locator(".sl-play")
    expect(play).to_have_attribute("aria-label", "Pause")
    page.focus("#sl-run")
    page.keyboard.press(" ")
    page.wait_for_function("surelock.stage.root.dataset.state === 'paused'")
    expect(play).to_have_attribute("aria-label", "Play")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press(" ")
    page.wait_for_function("surelock.stage.root.dataset.state === 'running'")
    play.click()
    page.wait_for_function("surelock.stage.root.dataset.state === 'paused'")
    assert page.evaluate("surelock.live.run.id") == first
    play.click()
    page.wait_for_function("surelock.stage.root.dataset.state === 'idle'", timeout=120_000)
    expect(play).to_have_attribute("aria-label", "Play")
    page.keyboard.press("Shift")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press(" ")
    expect(play).to_have_attribute("aria-label", "Pause")
    assert page.evaluate("surelock.live.run.id") == first


@pytest.mark.long
def test_an_idle_page_draws_nothing(page: Page, app: App) -> None:
    """Not even Gradio's loading screen, which would ask for every frame long after it is gone."""
    page.add_init_script(
        "const frame = requestAnimationFrame; window.frames_asked = 0;"
        "window.requestAnimationFrame = (callback) => { window.frames_asked++; return frame(callback); };"
    )
    visit(page, app.url)
    page.evaluate("surelock.stage.timeline.pause()")
    page.wait_for_timeout(8000)  # the loading screen's picture swings out
    asked = page.evaluate("window.frames_asked")
    page.wait_for_timeout(2000)
    assert page.evaluate("window.frames_asked") - asked <= 10


@pytest.mark.parametrize("scrolls", [True, pytest.param(False, marks=pytest.mark.long)])
def test_what_draws_the_curves_comes_when_somebody_scrolls_or_after_a_while(
    page: Page, app: App, scrolls: bool
) -> None:
    visit(page, app.url)
    page.wait_for_timeout(1500)
    assert not page.evaluate("Boolean(window.Plotly)"), "the first seconds have better to do"
    if scrolls:
        page.mouse.move(700, 500)
        page.mouse.wheel(0, 40)
        page.wait_for_function("window.Plotly", timeout=5000)
    else:
        page.wait_for_function("window.Plotly", timeout=20_000)
        assert page.evaluate("scrollY") == 0


def test_scrubbing_asks_the_server_for_nothing(page: Page, app: App) -> None:
    visit(page, app.url)
    page.evaluate("surelock.stage.lower.scrollIntoView()")
    page.wait_for_function(CURVES_ARE_DRAWN)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    scrubber = page.locator(".sl-scrubber")
    for step in (80, 3, 60, 0, 100, 41):
        scrubber.fill(str(step))
        page.wait_for_function("(step) => Number(surelock.stage.root.dataset.step) === step", arg=step)
    assert asked == []


def test_the_cursor_of_every_curve_stands_at_the_step(page: Page, app: App) -> None:
    visit(page, app.url)
    page.evaluate("surelock.stage.lower.scrollIntoView()")
    page.wait_for_function(CURVES_ARE_DRAWN)
    page.wait_for_timeout(1500)
    at_first = shown(page)  # the curves came when this was drawn already
    for step in (at_first, 11, 90):
        if step != at_first:
            seek(page, step)
        off = page.evaluate(
            """(step) => surelock.stage.curves.plots.map(({ plot, cursor }) => {
              const { xaxis, _size: size } = plot._fullLayout, at = cursor.getBoundingClientRect();
              const box = plot.getBoundingClientRect();
              return [at.left + 1 - (box.left + size.l + xaxis.d2p(step + 1)), at.top - (box.top + size.t)];
            }).flat()""",
            step,
        )
        assert max(map(abs, off)) < 2, off


def test_what_is_drawn_does_not_depend_on_what_was_drawn_before(page: Page, app: App) -> None:
    """The grids paint only the cells that changed; painting all of them anew must change no pixel."""
    visit(page, app.url)
    page.click("#sl-run")
    wait_for_run(page, 20)
    different = page.evaluate(
        """() => {
          const { stage, page } = surelock, found = [];
          const pixels = ({ grid }) => grid.pen.getImageData(0, 0, grid.canvas.width, grid.canvas.height).data.join();
          stage.timeline.pause();
          const visits = [[3, -1], [4, 18], [5, 19, 18], [19, 19], [2, 0, 20], [11, 25, 18], [12, 25], [0, -1]];
          for (const [step, hover, pin] of visits) {
            page.set({ hover });
            if (pin !== undefined) stage.pin(pin);
            stage.timeline.seek(step);
            stage.redraw();
            const before = stage.sides.map(pixels);
            for (const side of stage.sides) side.grid.looks = null;
            stage.redraw();
            stage.sides.map(pixels).forEach((now, i) => { if (now !== before[i]) found.push([step, i]); });
          }
          return found;
        }"""
    )
    assert different == []


def test_pins_join_the_plot_and_likely_tokens_are_shown(page: Page, app: App) -> None:
    visit(page, app.url)
    run_to_end(page)
    canvas = page.locator("canvas.sl-grid").nth(1)
    x, y, w, h = page.evaluate("surelock.stage.sides[1].grid.rect(16)")
    canvas.click(position={"x": x + w / 2, "y": y + h / 2})
    assert page.evaluate("[...surelock.page.now.pins.keys()]") == [16]
    page.locator(".sl-lower").scroll_into_view_if_needed()  # what nobody sees is not drawn
    page.wait_for_function("document.querySelector('.sl-plot')?.data?.some((line) => line.name.endsWith('(16)'))")
    expect(page.locator(".sl-inspector-title")).to_contain_text("Position 16")
    page.wait_for_function("document.querySelectorAll('.sl-top-name').length === 10")
    x, y, w, h = page.evaluate("surelock.stage.sides[1].grid.rect(16)")  # beside the drawer cells are narrower
    canvas.click(position={"x": x + w / 2, "y": y + h / 2})
    assert page.evaluate("surelock.page.now.pins.size") == 0


def test_invalid_settings_are_corrected_or_explained_beside_the_field(page: Page, app: App) -> None:
    visit(page, app.url, gen_length=64, steps=48)
    page.fill("#sl-gen-length input[type=number]", "32")
    page.press("#sl-gen-length input[type=number]", "Tab")
    expect(page.locator("#sl-steps")).to_contain_text("Lowered from 48")
    assert page.input_value("#sl-steps input[type=number]") == "32"
    page.click("text=More settings")
    page.fill("#sl-seed input", "-4")
    page.press("#sl-seed input", "Tab")
    expect(page.locator("#sl-seed")).to_contain_text("must be a whole number")
    expect(page.locator("#sl-run")).to_be_disabled()
    page.fill("#sl-seed input", "4")
    page.press("#sl-seed input", "Tab")
    expect(page.locator("#sl-run")).to_be_enabled()


@pytest.mark.parametrize(("prompt", "said"), [("   ", "Prompt is empty"), ("word " * 1500, "at most")])
def test_prompts_that_cannot_run_are_explained(page: Page, app: App, prompt: str, said: str) -> None:
    visit(page, app.url)
    page.fill("#sl-prompt textarea", prompt)
    page.click("#sl-run")
    page.wait_for_function("(said) => document.querySelector('.sl-status').textContent.includes(said)", arg=said)
    run_again = "Mia had a kite. She"
    page.fill("#sl-prompt textarea", run_again)
    run_to_end(page)


def test_damaged_traces_are_refused_and_good_ones_open(page: Page, app: App, tmp_path: Path) -> None:
    visit(page, app.url)
    run_to_end(page)
    good = exported(page, tmp_path)
    document = json.loads(good.read_text("utf-8"))
    broken = {
        "not json": "{",
        "not a trace": "{}",
        "newer": json.dumps(document | {"version": 9}),
        "cut": json.dumps(document | {"records": document["records"][1:]}),
        "empty": json.dumps(document | {"records": []}),
        "null": "null",
        "number": json.dumps(document | {"records": [7]}),
    }
    huge = json.loads(json.dumps(document))
    huge["header"]["length"] = 10**12
    outside = json.loads(json.dumps(document))
    outside["records"][3]["locked"] = [10**6]
    for name, text in {**broken, "huge": json.dumps(huge), "outside": json.dumps(outside)}.items():
        page.set_input_files(
            "#sl-import", {"name": f"{name}.json", "mimeType": "application/json", "buffer": text.encode()}
        )
        page.wait_for_function("/trace/i.test(document.querySelector('.sl-share [role=status]').textContent)")
        assert page.evaluate("surelock.stage.trace === surelock.live.run.trace"), name
        page.evaluate("document.querySelector('.sl-share [role=status]').textContent = ''")
    page.set_input_files("#sl-import", good)
    page.wait_for_function("surelock.stage.trace !== surelock.live.run.trace")
    assert page.inner_text(".sl-run-label").startswith("Imported run")
    seek(page, 11)
    draws(page, 1, true_states(document, 1, 11))


def test_a_run_that_the_server_dropped_is_exported_as_it_was_streamed(page: Page, app: App, tmp_path: Path) -> None:
    visit(page, app.url)
    run_to_end(page)
    exact = read_trace(exported(page, tmp_path)).positions
    page.evaluate("for (const lane of surelock.stage.trace.lanes) lane.source.run = 'gone'")
    rough = read_trace(exported(page, tmp_path)).positions
    assert rough.equals(exact)
    assert "no longer kept where it was computed" in page.inner_text(".sl-share [role=status]")


def test_steps_as_csv(page: Page, app: App, tmp_path: Path) -> None:
    import pandas

    visit(page, app.url)
    run_to_end(page)
    trace = read_trace(exported(page, tmp_path))
    table = pandas.read_csv(exported(page, tmp_path, button="Steps (CSV)"))
    assert len(table) == 2 * 24 * trace.header["length"]
    assert table.computed.sum() == trace.steps.computed.sum()


def test_the_replay_plays_from_disk_with_the_network_off(page: Page, app: App, tmp_path: Path) -> None:
    visit(page, app.url)
    run_to_end(page)
    document = json.loads(exported(page, tmp_path).read_text("utf-8"))
    replay = exported(page, tmp_path, button="Replay (HTML)")
    assert page.context.browser is not None
    offline = page.context.browser.new_context(offline=True, reduced_motion="reduce")
    alone = offline.new_page()
    errors: list[str] = []
    alone.on("pageerror", lambda error: errors.append(str(error)))
    alone.on("request", lambda request: errors.append(request.url) if request.url.startswith("http") else None)
    alone.goto(replay.as_uri())
    until(alone, "Number(document.querySelector('.sl-stage').dataset.step) >= 2")
    seek(alone, 17)
    for lane in (0, 1):
        draws(alone, lane, true_states(document, lane, 17))
    alone.locator(".sl-plot").first.scroll_into_view_if_needed()  # what nobody sees is not drawn
    until(alone, "document.querySelector('.sl-plot')?.data?.length >= 4")
    x, y, w, h = alone.evaluate("surelock.stage.sides[1].grid.rect(12)")
    alone.locator("canvas.sl-grid").nth(1).click(position={"x": x + w / 2, "y": y + h / 2})
    until(alone, "document.querySelectorAll('.sl-top-name').length === 10")
    assert errors == []
    offline.close()


def test_a_link_restores_prompt_and_settings(page: Page, app: App) -> None:
    lanes = [PAIR[0], {"name": "Locks", "compute": {"kind": "lock", "epsilon": 0.01}}]
    visit(page, app.url, prompt="A cat & a <dog>", gen_length=48, steps=24, seed=5, contestants=json.dumps(lanes))
    run_to_end(page)
    link = page.evaluate("surelock.stage.parts.panels.use(({ share }) => share.source.link(surelock.stage.trace, {}))")
    page.goto(link)
    page.wait_for_function("document.querySelector('#sl-gen-length input[type=number]')?.value === '48'")
    assert page.input_value("#sl-prompt textarea") == "A cat & a <dog>"
    assert page.input_value("#sl-steps input[type=number]") == "24"
    expect(page.locator(".sl-lane")).to_have_count(2)
    page.locator(".sl-lane-details summary").nth(1).click()
    assert page.inner_text(".sl-lane .sl-field-value >> nth=0") == "0.01"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_serious_accessibility_violation(page: Page, app: App, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
    visit(page, app.url)
    run_to_end(page)
    page.wait_for_timeout(1500)
    for tab in ("Analysis", "Runs", "Export", "About"):
        page.click(f"role=tab[name='{tab}']")
        assert serious(page) == [], tab


def test_dark_mode_redraws_the_grids(page: Page, app: App) -> None:
    visit(page, app.url)
    page.keyboard.press("Home")
    light = page.evaluate("getComputedStyle(document.querySelector('.sl-side')).backgroundColor")
    page.emulate_media(color_scheme="dark")
    page.wait_for_function("document.body.classList.contains('dark')")
    page.wait_for_function(
        "(light) => getComputedStyle(document.querySelector('.sl-side')).backgroundColor !== light", arg=light
    )
    page.wait_for_timeout(200)
    assert set(drawn_states(page, 0)) == {0, 1}
    assert page.evaluate("surelock.stage.colours.masked") == "#222b3b"


def test_a_stylesheet_that_comes_after_the_stage_gives_it_its_colours(page: Page, app: App) -> None:
    held: list[Route] = []
    page.route("**/scripts/stage.css", lambda route: held.append(route))
    page.goto(app.url, wait_until="commit")
    page.wait_for_function("window.surelock?.stage.trace")
    assert page.evaluate("surelock.stage.colours.masked") == ""
    for route in held:
        route.continue_()
    until(page, "surelock.stage.colours.masked === '#e9ecf1'")
    expect(page.locator("footer .divider")).to_be_hidden()


def test_phone_width_needs_no_sideways_scrolling(page: Page, app: App) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    visit(page, app.url)
    run = page.locator("#sl-run")
    if not run.is_visible() or run.bounding_box()["x"] < 0:  # type: ignore[index]
        page.click(".sl-action-prompt")
    page.wait_for_timeout(500)
    run_to_end(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    outside = (
        "e => !e.closest('.sl-table-box, .sl-tablist, .sl-hidden, .sl-side, .sl-quick, svg')"
        " && e.getBoundingClientRect().right > 391"
    )
    assert page.evaluate(f"[...document.querySelectorAll('.sl-stage *')].filter({outside}).length") == 0
    assert page.locator(".sl-grid").first.bounding_box()["width"] > 300  # type: ignore[index]


SLOW = """
import time
from surelock.model import loading
from surelock.ui import launch

loading.load = lambda *_, **__: time.sleep(600)
launch.main()
"""


def test_run_while_the_model_still_loads_says_so(page: Page) -> None:
    with serve(command=(sys.executable, "-c", SLOW)) as app:
        page.goto(app.url)
        page.wait_for_function("window.surelock?.stage.trace && Number(surelock.stage.root.dataset.step) >= 1")
        page.click("#sl-run")
        page.wait_for_function("document.querySelector('.sl-status').textContent.includes('is still loading')")
        assert page.evaluate("surelock.stage.trace.count") > 0, "the recorded run stays"
        assert page.get_attribute(".sl-stage", "data-state") == "idle"


def test_keyboard_only(page: Page, app: App) -> None:
    visit(page, app.url)
    page.keyboard.press("Home")
    shows(page, 0)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    shows(page, 2)
    page.keyboard.press("ArrowLeft")
    shows(page, 1)
    page.keyboard.press("End")
    shows(page, page.evaluate("surelock.stage.trace.count") - 1)
    page.keyboard.press("Home")
    page.keyboard.press("Space")
    page.wait_for_function("Number(surelock.stage.root.dataset.step) >= 2")
    page.keyboard.press("Space")
    page.focus("#sl-run")
    page.keyboard.press("Enter")
    wait_for_run(page)
    page.wait_for_function("surelock.stage.root.dataset.state === 'idle' && !surelock.stage.trace.live", timeout=90_000)
    page.locator("canvas.sl-grid").nth(0).focus()
    page.keyboard.press("Tab")
    for _ in range(6):
        if page.evaluate("document.activeElement === document.querySelectorAll('canvas.sl-grid')[1]"):
            break
        page.keyboard.press("Tab")
    before = shown(page)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.evaluate("surelock.page.now.pins.size") == 1 and shown(page) == before
    expect(page.locator(".sl-inspector-title")).to_contain_text("Position")


def test_the_summary_speaks_of_the_step(page: Page, app: App) -> None:
    visit(page, app.url)
    run_to_end(page)
    assert page.text_content(".sl-stage > .sl-hidden").startswith("Step 24 of 24")
    seek(page, 12)
    page.wait_for_function("document.querySelector('.sl-stage > .sl-hidden').textContent.startsWith('Step 13 of 24')")
    label = page.locator("canvas.sl-grid").nth(1).get_attribute("aria-label") or ""
    assert "masked" in label and "locked" in label
