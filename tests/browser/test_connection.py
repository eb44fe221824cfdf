"""A connection that is reset and a server that is started anew: the tab keeps its runs and says what became of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.actions import run_to_end, visit
from tests.browser.line import Line
from tests.browser.server import free_port, serve, wait_for_model


@pytest.fixture
def line() -> Iterator[Line]:
    made = Line(free_port())
    yield made
    made.close()


def begin(page: Page) -> None:
    """Press Run, and wait until the run that this starts has some steps."""
    page.click("#sl-run")
    page.wait_for_function(
        "surelock.page.now.phase === 'running' && surelock.live.run.trace.count >= 5", timeout=60_000
    )


def interrupted(page: Page, runs: int) -> None:
    """The page tells that the run on its way was cut off, and has that many runs."""
    told = "The connection to the server was lost. What was computed is kept."
    expect(page.locator(".sl-status")).to_have_text(told, timeout=60_000)
    assert page.evaluate("[surelock.stage.trace.race.live, surelock.page.now.phase]") == [False, "idle"]
    assert page.evaluate("surelock.stage.trace.count") >= 5
    assert page.evaluate("surelock.stage.runs.entries.length") == runs
    assert page.evaluate("surelock.stage.runs.entries.at(-1).source") == "interrupted"


@pytest.mark.long
def test_what_the_tab_has_outlives_connection_and_server(page: Page, line: Line) -> None:
    url = f"http://127.0.0.1:{line.port}"
    with serve(port=line.to) as app:
        wait_for_model(app)
        visit(page, url, gen_length=300, steps=300)
        begin(page)
        line.cut()
        interrupted(page, 2)  # with the recorded one
        begin(page)
        app.process.kill()
        app.process.wait()
        line.cut()
        interrupted(page, 3)
        page.click("#sl-run")
        expect(page.locator(".sl-status")).to_have_text("The connection to the server was lost.")
    with serve(port=line.to) as app:
        wait_for_model(app)
        begin(page)
        page.click(".sl-control-stop")
        expect(page.locator(".sl-status")).to_contain_text("Stopped after step")
        page.reload()
        page.wait_for_function("window.surelock?.stage.runs.entries.length === 4")
        visit(page, url)
        run_to_end(page)
