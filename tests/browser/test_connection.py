"""A connection that is reset and a server that is started anew: the tab keeps its runs and says what became of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.actions import run_to_end, visit, wait_for_run
from tests.browser.line import Line
from tests.browser.server import free_port, serve, wait_for_model


@pytest.fixture
def line() -> Iterator[Line]:
    made = Line(free_port())
    yield made
    made.close()


def interrupted(page: Page, runs: int) -> None:
    """The page has come back with that many runs; of the one that was live it says that it has ended."""
    told = "Interrupted by leaving the page or losing the connection"
    expect(page.locator(".sl-run-label")).to_contain_text(told, timeout=60_000)
    page.wait_for_function("!surelock.stage.trace.live && !surelock.live.run")
    assert page.evaluate("surelock.stage.trace.count") >= 5
    page.click("role=tab[name='Runs']")
    expect(page.locator(".sl-runs tbody")).to_have_count(runs)


def test_what_the_tab_has_outlives_connection_and_server(page: Page, line: Line) -> None:
    url = f"http://127.0.0.1:{line.port}"
    long = {"gen_length": 300, "steps": 300}
    with serve(port=line.to) as app:
        wait_for_model(app)
        visit(page, url)
        run_to_end(page)
        visit(page, url, **long)
        page.click("#sl-run")
        wait_for_run(page, 5)
        line.cut()
        interrupted(page, 3)  # with the recorded one
        page.click("#sl-run")
        wait_for_run(page, 5)
        app.process.kill()
        app.process.wait()
        line.cut()
        expect(page.locator(".toast-body")).to_contain_text("Connection to the server was lost")
    with serve(port=line.to) as app:
        interrupted(page, 4)
        wait_for_model(app)
        visit(page, url)
        run_to_end(page)
