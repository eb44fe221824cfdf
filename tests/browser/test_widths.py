"""Nothing is cut, overflows or jumps from 800 to 1440 px, with the sidebar open and closed, with four lanes."""

import json

from playwright.sync_api import Page

from tests.browser.actions import arrive, imported, recorded, seek, settled, steady, until
from tests.browser.server import App

WIDTHS = (800, 960, 1024, 1280, 1440)
OUT = """() => [...document.querySelectorAll(".sl-stage *")]
  .filter((e) => e.checkVisibility() && getComputedStyle(e).display !== "inline")
  .filter((e) => !e.matches("select, input, .sl-swatch, .sl-hidden, .sl-narrator-room"))
  .filter((e) => !e.closest("svg, .sl-tabs, .sl-plot-box, .sl-tip, .sl-keys"))
  .filter((e) => e.scrollWidth > e.clientWidth + 1 || e.getBoundingClientRect().right > innerWidth + 1)
  .map((e) => [e.className, e.textContent.slice(0, 40), e.scrollWidth, e.clientWidth])"""
SLOW = """document.querySelectorAll(".sl-lane-clock span:first-child").forEach((clock) => {
  clock.textContent = "first: 12.34 s"; // as a small machine's clock reads
})"""
#: The height of the player, where the way back to the live step is hidden or not.
PLAYER = """(hidden) => {
  document.querySelector(".sl-live").hidden = hidden;
  return document.querySelector(".sl-timeline").clientHeight;
}"""
TOPS = """[".sl-grids", ".sl-timeline", ".sl-lower"].map((selector) =>
  Math.round(document.querySelector(selector).getBoundingClientRect().top + scrollY))"""


def test_nothing_is_cut_or_jumps(page: Page, app: App) -> None:
    arrive(page, app.url)
    page.wait_for_selector(".sidebar.open")
    imported(page, recorded("rules"))
    assert page.evaluate("surelock.stage.trace.lanes.length") == 4
    last = page.evaluate("surelock.stage.trace.count") - 1
    for sidebar in ("open", "closed"):
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            steady(page, TOPS)
            tops = set()
            for step in (0, last // 4, last // 2, last):
                seek(page, step)
                found = page.evaluate(OUT)
                assert found == [], (width, sidebar, step)
                tops.add(json.dumps(page.evaluate(TOPS)))
            assert len(tops) == 1, (width, sidebar, tops)
            heights = [page.evaluate(PLAYER, hidden) for hidden in (False, True)]
            assert heights[0] == heights[1], (width, sidebar, heights)
        if sidebar == "open":
            page.set_viewport_size({"width": 1440, "height": 900})
            page.evaluate("scrollTo(0, 0)")
            page.click(".sidebar .toggle-button")
    page.set_viewport_size({"width": 1024, "height": 768})
    page.keyboard.press("f")
    until(page, "document.body.classList.contains('sl-present')")
    settled(page)
    for step in (0, last // 2, last):
        seek(page, step)
        page.evaluate(SLOW)
        cut = [each for each in page.evaluate(OUT) if "sl-gauge-name" not in each[0]]
        assert cut == [], ("presenter", step)
        rooms = page.evaluate(
            "[...document.querySelectorAll('.sl-window')].map((view) => view.clientHeight)"
        )
        assert min(rooms) >= 52, "two rows of cells"
