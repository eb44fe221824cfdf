"""The page in a real browser, on the real app and the embedded model."""

import json
import time

from playwright.sync_api import Page, Route, expect

from surelock.trace.table import read_trace
from tests.browser.actions import (
    drawn_states,
    draws,
    exported,
    run_to_end,
    seek,
    serious,
    shows,
    steady,
    true_states,
    until,
    visit,
)
from tests.waiting import HANGS


def test_a_run_from_prompt_to_end_shows_what_the_trace_says(page, app, tmp_path):
    """In states, numbers, sentences and curves; its link leads back to it, and what the server dropped is exported."""
    prompt = "A cat & a <dog>"
    visit(page, app.url, prompt=prompt, seed=5)
    run_to_end(page)
    document = json.loads(exported(page, tmp_path).read_text("utf-8"))
    assert document["header"]["prompt"] == prompt and len(document["records"]) == 48
    trace = read_trace(document)
    assert trace.positions.token.notna().all()
    for step in (0, 9, 22):
        seek(page, step)
        for lane in (0, 1):
            draws(page, lane, true_states(document, lane, step))
    seek(page, 23)
    first, second = trace.lanes.lane
    flops = trace.steps.groupby("lane").flops.sum()
    assert (
        page.inner_text(".sl-gauge-value >> nth=0") == f"{100 * flops[second] / flops[first]:.0f} %"
    )
    less = round(100 * (1 - flops[second] / flops[first]))
    assert page.inner_text(".sl-verdict-work") == f"{less} % less work"
    page.locator(".sl-lower").scroll_into_view_if_needed()  # what nobody sees is not drawn

    page.evaluate(
        "surelock.stage.cells.pin(16); surelock.stage.cells.compare(surelock.stage.sides[1], 16)"
    )
    page.wait_for_function(
        "document.querySelector('.sl-plot')?.data?.some((line) => line.name.endsWith('(16)'))"
    )
    page.wait_for_function("document.querySelectorAll('.sl-top-name').length === 10")

    page.evaluate("for (const lane of surelock.stage.trace.lanes) lane.source.run = 'gone'")
    assert read_trace(exported(page, tmp_path)).positions.equals(trace.positions)
    assert "no longer kept where it was computed" in page.inner_text(".sl-share [role=status]")

    link = page.evaluate(
        "surelock.stage.parts.panels.use(({ share }) => share.source.link(surelock.stage.trace, {}))"
    )
    page.goto(link)
    page.wait_for_function(
        "document.querySelector('#sl-gen-length input[type=number]')?.value === '24'"
    )
    assert page.input_value("#sl-prompt textarea") == prompt
    assert page.input_value("#sl-steps input[type=number]") == "24"
    page.click("text=More settings")
    assert page.input_value("#sl-seed input") == "5"
    page.locator(".sl-lane-details summary").nth(1).click()
    assert page.inner_text(".sl-lane .sl-field-value >> nth=0") == "0.05"


def test_light_and_dark_are_drawn_and_without_a_serious_accessibility_violation(page, app):
    visit(page, app.url)
    run_to_end(page)
    page.keyboard.press("Home")
    shows(page, 0)
    for scheme, masked in (("light", None), ("dark", "#242b37")):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
        page.wait_for_function(
            f"document.body.classList.contains('dark') === {str(scheme == 'dark').lower()}"
        )
        if masked:
            page.wait_for_function(
                "(masked) => surelock.stage.colours.masked === masked", arg=masked
            )
        assert set(drawn_states(page, 0)) == {0, 1}
        # which fades
        steady(page, "getComputedStyle(document.querySelector('.sl-control-step')).color")
        assert serious(page) == [], scheme
    for tab in ("Analysis", "Runs", "Export", "About"):
        page.click(f"role=tab[name='{tab}']")
        assert serious(page, ".sl-tabs") == [], tab


def test_a_stylesheet_that_comes_after_the_stage_gives_it_its_colours(page, app):
    held: list[Route] = []
    page.route("**/scripts/stage.css", lambda route: held.append(route))
    page.goto(app.url, wait_until="commit")
    page.wait_for_function("window.surelock?.stage.trace")
    assert page.evaluate("surelock.stage.colours.masked") == ""
    for route in held:
        route.continue_()
    until(page, "surelock.stage.colours.masked === '#ebe9e3'")
    expect(page.locator("footer .divider")).to_be_hidden()


COUNTS = """{
  const ask = window.requestAnimationFrame.bind(window);
  window.asked = { by: [], ask };
  window.requestAnimationFrame = (draw) => {
    const frame = ask(draw); // 0: conftest.py drops it
    if (frame) asked.by.push(String(draw).slice(0, 200));
    return frame;
  };
}"""
#: What the page's scripts ask frames for while thirty are drawn for the test.
FRAMES = """async () => {
  asked.by = [];
  for (let i = 0; i < 30; i++) await new Promise((then) => asked.ask(then));
  return [...new Set(asked.by)];
}"""


def rests(page: Page) -> None:
    """Until no script asks for a frame any more."""
    end = time.monotonic() + HANGS
    while drawing := page.evaluate(FRAMES):
        assert time.monotonic() < end, drawing


def test_a_page_at_rest_asks_for_no_frame(page, app):
    """Once it has loaded, and once it has played: what asks for one after the other is asked for good."""
    page.add_init_script(COUNTS)
    visit(page, app.url)
    page.evaluate("surelock.stage.timeline.pause()")
    rests(page)
    seek(page, 120)
    page.evaluate("surelock.stage.timeline.play()")
    rests(page)  # it plays to the end
