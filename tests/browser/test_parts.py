"""Parts of the page that come when they are needed."""

from playwright.sync_api import expect

from surelock.ui.serving import first_parts
from tests.browser.actions import arrive, until

MISSING = "The connection was lost, so a part of this page is missing. Press again once it is back"


def test_showing_and_playing_the_race_fetches_its_own_scripts_alone(window, app):
    page = window(reduced_motion="no-preference")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.rpartition("/")[2]))
    arrive(page, app.url)
    page.locator(".sl-scrubber").fill("60")
    until(page, "surelock.stage.curves")
    parts = {name for name in asked if name.startswith("part-")}
    assert set(first_parts()) <= parts
    late = {"curves", "panels"}  # what stands beneath comes once the race rests
    assert {name.split("-")[1] for name in parts} <= {"chunk", *late}


def test_a_press_on_a_part_that_does_not_come_is_told(page, app):
    """And a run of this browser whose part does not come."""
    for part in ("touching", "browser_source"):
        page.route(f"**/part-{part}-*.js", lambda route: route.abort())
    arrive(page, f"{app.url}/?race=steps")
    page.click("canvas.sl-grid >> nth=1")
    expect(page.locator(".sl-status")).to_contain_text(MISSING)
    page.evaluate("document.querySelector('.sl-status').textContent = ''")
    page.select_option(".sl-action-where", "browser")
    page.click(".sl-action-run")
    expect(page.locator(".sl-status")).to_contain_text(MISSING)
