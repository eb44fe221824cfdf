"""Parts of the page that come when they are needed."""

import pytest
from playwright.sync_api import Browser, Page, expect

from surelock.ui.serving import first_parts
from tests.browser.actions import arrive, until
from tests.browser.server import App

MISSING = "The connection was lost, so a part of this page is missing. Press again once it is back"
PRESSES = {
    "touching": "canvas.sl-grid >> nth=1",
    "view": ".sl-lessons-button",
    "panels": "#sl-tab-Runs",
}


def test_showing_and_playing_the_race_fetches_its_own_scripts_alone(
    browser: Browser, app: App
) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.rpartition("/")[2]))
    arrive(page, app.url)
    page.locator(".sl-scrubber").fill("60")
    until(page, "surelock.stage.curves")
    parts = {name for name in asked if name.startswith("part-")}
    assert set(first_parts()) <= parts
    late = {"curves", "panels"}  # what stands beneath comes once the race rests
    assert {name.split("-")[1] for name in parts} <= {"chunk", *late}
    context.close()


@pytest.mark.parametrize("part", PRESSES)
def test_a_press_on_a_part_that_does_not_come_is_told(page: Page, app: App, part: str) -> None:
    page.route(f"**/part-{part}-*.js", lambda route: route.abort())
    arrive(page, f"{app.url}/?race=steps")
    page.click(PRESSES[part])
    expect(page.locator(".sl-status")).to_contain_text(MISSING)


def test_a_run_of_this_browser_says_that_its_part_did_not_come(page: Page, app: App) -> None:
    page.route("**/part-browser_source-*.js", lambda route: route.abort())
    arrive(page, app.url)
    page.select_option(".sl-action-where", "browser")
    page.click(".sl-action-run")
    expect(page.locator(".sl-status")).to_contain_text(MISSING)
