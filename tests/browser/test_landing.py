"""The first screen: the whole race, and little beside it."""

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.actions import SIZES, settled, until
from tests.browser.server import App

FORBIDDEN = {
    "row",
    "rows",
    "commit",
    "unmask",
    "reference",
    "resting",
    "nats",
    "posterior",
    "percentile",
    "likeliest",
}
SEEN = Path(__file__).with_name("first_screen.js").read_text("utf-8")


def landed(window: Any, app: App, width: int, height: int) -> Page:
    page = window(width, height)
    page.goto(app.url)
    until(
        page,
        "window.surelock?.stage.trace && surelock.stage.sides.every(({ grid }) => grid.fits.size > 5)",
    )
    return page


@pytest.mark.parametrize("size", SIZES)
def test_the_first_screen_shows_the_race_and_little_beside_it(window, app, size):
    # at its end: every word, the longest sentence
    page = landed(window, app, *SIZES[size])
    until(
        page,
        "document.querySelector('.sl-verdict:not([hidden])')?.textContent.includes('less work')",
    )
    page.evaluate("surelock.stage.timeline.seek(60)")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
        until(page, f"document.body.classList.contains('dark') === {str(scheme == 'dark').lower()}")
        settled(page)
        seen = page.evaluate(SEEN)
        words = [word.lower() for word in seen.pop("words")]
        assert min(seen["grids"]) >= 0.9 and len(seen["grids"]) == 2, seen
        assert seen["missing"] == [] and seen["wide"] <= 0, seen
        assert seen["beneath"], "the curves come next"
        assert seen["focusable"] <= 20, seen
        assert len(words) <= 120, words
        assert not FORBIDDEN & set(words), FORBIDDEN & set(words)
        assert seen["smallest"] >= (9 if size == "phone" else 11) and seen["split"] <= 0.05, seen


def test_run_is_a_few_tab_stops_away_and_share_says_a_link(window, app):
    page = landed(window, app, *SIZES["1280"])
    stops = 0
    while not page.evaluate("document.activeElement.matches('.sl-action-run')"):
        page.keyboard.press("Tab")
        stops += 1
        assert stops <= 8
    page.click("text=Try your own words")
    until(page, "document.activeElement.closest('.sl-prompt-box')")
    page.keyboard.press("Escape")
    page.click("role=button[name='Lessons']")
    box = page.locator("dialog.sl-lessons").bounding_box()
    assert box and box["y"] >= 0 and box["y"] + box["height"] <= SIZES["1280"][1]
    page.keyboard.press("Escape")

    page.click(".sl-quick summary")
    page.click(".sl-quick >> text=Link")
    link = page.locator(".sl-quick [role=status] a")
    expect(link).to_have_attribute("href", re.compile(r"\?model=stories&prompt="))
    expect(link).to_have_text("the link to this run")
    page.evaluate("surelock.stage.refer(surelock.stage.trace.lanes[1])")
    assert link.count() == 1, "it is the same run"
    page.evaluate("surelock.stage.show(surelock.stage.trace.withLanes(surelock.stage.trace.lanes))")
    expect(page.locator(".sl-quick [role=status]")).to_have_text("")


def test_words_in_the_box_are_a_change_of_the_form_and_outlive_a_reload(window, app):
    page = landed(window, app, *SIZES["1280"])
    page.click("text=Try your own words")
    page.fill(".sl-prompt-box textarea", "A red hen sat")
    until(page, "new URLSearchParams(location.search).get('prompt') === 'A red hen sat'")
    page.reload()
    until(page, "document.querySelector('.sl-prompt-box textarea')?.value === 'A red hen sat'")


TOLD = """new MutationObserver(() => {
  const told = (window.told ??= []), text = document.querySelector(".sl-narrator")?.textContent;
  if (!text || told.at(-1)?.text === text) return;
  const { timeline, sides, trace } = surelock.stage;
  const masked = sides.every(({ lane, labels }) => labels.tokens?.every((token, p) => token < 0 === !trace.given[p]));
  told.push({ text, masked, step: timeline.step, since: performance.now() });
}).observe(document, { childList: true, characterData: true, subtree: true });"""


def test_the_first_play_tells_its_moments_in_order_each_long_enough(window, app):
    """On a clock that moves when the test moves it."""
    page = window(reduced_motion="no-preference")
    page.clock.install(time=0)
    page.clock.pause_at(1000)
    page.add_init_script(TOLD)
    page.goto(app.url)
    passed = 0
    while not page.evaluate(
        "window.surelock?.stage.timeline.atEnd && !document.querySelector('.sl-verdict').hidden"
    ):
        begun = page.evaluate("Boolean(window.told)")
        page.clock.run_for(100)  # until it plays, its files come in their own time
        passed += 100 * begun
        assert passed < 90_000
    told = page.evaluate("told")
    moments = page.evaluate("surelock.stage.moments.map(({ sentence }) => sentence())")
    assert [each["text"] for each in told if each["text"] in moments] == moments
    assert told[0]["step"] == -1 and told[0]["masked"], "the first stands on blanks"
    assert page.inner_text(".sl-narrator") == "", "at the end there is the verdict and nothing else"
    lives = [after["since"] - each["since"] for each, after in itertools.pairwise(told)]
    assert lives[0] >= 3000 and min(lives) >= 2500, lives
