"""One served page and one Chromium for the whole suite; skipped with a reason where there is no Chromium."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.browser.server import App, chromium_path, launch, serve, wait_for_model

os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def app() -> Iterator[App]:
    with serve("--max-length", "512") as served:
        wait_for_model(served)
        yield served


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if chromium_path() is None:
        pytest.skip("no Chromium on this machine: on Debian, apt-get install chromium")
    with sync_playwright() as playwright:
        opened = launch(playwright)
        yield opened
        opened.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context(viewport={"width": 1440, "height": 1000}, reduced_motion="reduce", accept_downloads=True)
    made.set_default_timeout(30_000)
    yield made
    made.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A page that fails its test when a script fails or another host is asked for anything."""
    opened = context.new_page()
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(f"script error: {error}"))
    opened.on("dialog", lambda dialog: (problems.append(f"a dialog opened: {dialog.message}"), dialog.dismiss()))
    opened.on(
        "request",
        lambda request: (
            problems.append(f"asked another host: {request.url}")
            if not request.url.startswith(("http://127.0.0.1", "data:", "blob:", "file:"))
            else None
        ),
    )
    yield opened
    assert problems == []
