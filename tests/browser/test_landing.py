"""The first screen: the whole race, and little beside it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.actions import SIZES, settled, until
from tests.browser.server import App

FORBIDDEN = {"row", "rows", "commit", "unmask", "reference", "resting", "nats", "posterior", "percentile", "likeliest"}
SEEN = Path(__file__).with_name("first_screen.js").read_text("utf-8")


def landed(browser: Browser, app: App, size: tuple[int, int], **more: Any) -> Page:
    phone = {"has_touch": True, "is_mobile": True} if size[0] < 500 else {}
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, **phone, **more)
    page = context.new_page()
    page.goto(app.url)
    until(page, "window.surelock?.stage.trace && surelock.stage.sides.every(({ grid }) => grid.fits.size > 5)")
    return page


@pytest.mark.parametrize("size", SIZES)
def test_the_first_screen_shows_the_race_and_little_beside_it(browser: Browser, app: App, size: str) -> None:
    page = landed(browser, app, SIZES[size], reduced_motion="reduce")  # at its end: every word, the longest sentence
    until(page, "document.querySelector('.sl-narrator').textContent.includes('did')")
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
    page.context.close()


def test_run_is_a_few_tab_stops_away_and_the_settings_a_press(browser: Browser, app: App) -> None:
    page = landed(browser, app, SIZES["1280"], reduced_motion="reduce")
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
    page.context.close()


def test_what_share_said_is_a_link_and_goes_with_the_run(browser: Browser, app: App) -> None:
    page = landed(browser, app, SIZES["1280"], reduced_motion="reduce")
    page.click(".sl-quick summary")
    page.click(".sl-quick >> text=Link")
    link = page.locator(".sl-quick [role=status] a")
    expect(link).to_have_attribute("href", re.compile(r"\?model=stories&prompt="))
    expect(link).to_have_text("the link to this run")
    page.evaluate("surelock.stage.refer(surelock.stage.trace.lanes[1])")
    assert link.count() == 1, "it is the same run"
    page.evaluate("surelock.stage.show(surelock.stage.trace.withLanes(surelock.stage.trace.lanes))")
    expect(page.locator(".sl-quick [role=status]")).to_have_text("")
    page.context.close()
