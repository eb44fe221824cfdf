"""A connection that is cut and a server that is started anew: a run goes on by itself, or the tab keeps what it has."""

import pytest
from playwright.sync_api import Page, expect

from surelock.ui.run_routes import GONE
from tests.browser.actions import run_to_end, until, visit, wait_for_run
from tests.browser.line import Line
from tests.browser.server import free_port, serve, wait_for_model

GOES_ON = "The connection to the server was lost: the run goes on by itself when it is back."
STEPS = "surelock.stage.trace.lanes.map(({ steps }) => steps.map(({ unmasked }) => [...unmasked]))"


@pytest.fixture
def line(app):
    made = Line(int(app.url.rpartition(":")[2]))
    yield made
    made.close()


def begin(page: Page) -> None:
    """Press Run, and wait until the run that this starts has some steps."""
    before = page.evaluate("surelock.live.run?.id ?? null")
    page.click("#sl-run")
    until(page, f"(surelock.live.run?.id ?? null) !== {before!r}".replace("None", "null"))
    wait_for_run(page, 5)


def test_a_run_goes_on_by_itself_after_three_seconds_without_a_network(page, line):
    visit(page, f"http://127.0.0.1:{line.port}", gen_length=96, steps=96)
    begin(page)
    line.cut(3.0)
    expect(page.locator(".sl-status")).to_have_text(GOES_ON)
    until(page, "surelock.stage.root.dataset.state === 'idle'")
    assert (
        page.inner_text(".sl-status") == ""
        and page.evaluate("surelock.stage.runs.entries.at(-1).source") == "live"
    )
    whole = page.evaluate(STEPS)
    run_to_end(page)
    assert page.evaluate(STEPS) == whole and len(whole[0]) == 96


def test_what_the_tab_has_outlives_the_server(page):
    line = Line(free_port())
    url = f"http://127.0.0.1:{line.port}"
    status = page.locator(".sl-status")
    with serve(port=line.to) as app:
        wait_for_model(app)
        visit(page, url, gen_length=300, steps=300)
        begin(page)
        app.process.kill()
        app.process.wait()
        line.cut()
        expect(status).to_have_text(GOES_ON)
    with serve(port=line.to) as app:
        expect(status).to_have_text(f"{GONE} What was computed is kept.")
        assert page.evaluate(
            "[surelock.page.now.phase, surelock.stage.runs.entries.at(-1).source]"
        ) == [
            "idle",
            "interrupted",
        ]
        wait_for_model(app)
        begin(page)
        page.reload()
        # one is recorded
        until(page, "window.surelock?.stage.runs.entries.length === 3 && surelock.page.now.arrived")
        app.process.kill()
        app.process.wait()
        line.cut()
        page.click(".sl-action-run")
        expect(status).to_have_text("The connection to the server was lost.")
    with serve(port=line.to) as app:
        wait_for_model(app)
        visit(page, url)
        run_to_end(page)
    line.close()
