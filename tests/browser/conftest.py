"""One Chromium for the whole suite; skipped with a reason where there is no Chromium."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.browser.server import FLAGS, chromium_path
from tests.waiting import HANGS

OPEN_FORM = """window.opensForm = innerWidth > 768;
const openForm = () => window.surelock?.page.now.arrived
  ? document.querySelector(".sidebar:not(.open) .toggle-button")?.click() : setTimeout(openForm, 20);
if (opensForm) addEventListener("DOMContentLoaded", openForm);
addEventListener("DOMContentLoaded", () => {
  const still = document.createElement("style");
  still.textContent = ".sidebar, .sidebar ~ * { transition: none !important; }";
  document.head?.append(still);
});"""  # most tests use it
# Gradio's sign of loading asks for frame after frame to count its seconds, for good once it has gone (6.31):
# sixty frames a second in which nothing is drawn, a tenth of a core.
RESTS = r"""{
  const ask = window.requestAnimationFrame.bind(window);
  const counts = /^\(\) ?=> ?\{.{1,20}\(performance\.now\(\) ?-/s;
  window.requestAnimationFrame = (draw) => counts.test(draw) ? 0 : ask(draw);
}"""
# All pages share a process and a thread that paints: starting them anew is a twelfth of what a short test costs.
SHARED = ["--renderer-process-limit=1", "--disable-site-isolation-trials", "--num-raster-threads=1"]
#: What a visitor does first. The rest takes long, and Node's tests hold most of it, too.
SHORT = {"test_form", "test_landing", "test_page", "test_phone", "test_race", "test_touch"}
MODULES = Path(__file__).resolve().parents[2] / "assets" / "js"


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.path.stem not in SHORT:
        item.add_marker(pytest.mark.long)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A page on a busy machine may be late: its test has a second chance, and the summary names it."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.fixture(scope="session")
def profile(tmp_path_factory):
    """A profile on the disk: there Chromium keeps the scripts that it has compiled, a third of what opening costs."""
    # the same without windows: half of the processor time
    chromium = chromium_path("chromium-headless-shell")
    if chromium is None:
        pytest.skip(
            "no Chromium on this machine: on Debian, apt-get install chromium-headless-shell"
        )
    expect.set_options(timeout=HANGS * 1000)
    # It ends with this process. Its stop may take for good, as long as a process that was forked meanwhile lives.
    playwright = sync_playwright().start()
    opened = playwright.chromium.launch_persistent_context(
        tmp_path_factory.mktemp("profile"),
        executable_path=chromium,
        args=[*FLAGS, *SHARED],
        viewport={"width": 1440, "height": 1000},
        reduced_motion="reduce",
        accept_downloads=True,
    )
    opened.set_default_timeout(HANGS * 1000)
    opened.add_init_script(OPEN_FORM)
    opened.add_init_script(RESTS)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def browser(profile):
    assert profile.browser is not None
    return profile.browser


@pytest.fixture
def context(profile):
    """The profile, of which a test leaves nothing behind but what is compiled."""
    yield profile
    profile.set_offline(False)
    first, *others = profile.pages  # the window that Chromium opens with
    session = profile.new_cdp_session(first)
    for origin in {
        urlsplit(page.url)._replace(path="", query="", fragment="").geturl() for page in others
    }:
        session.send("Storage.clearDataForOrigin", {"origin": origin, "storageTypes": "all"})
    session.detach()
    for page in others:
        page.close()


@pytest.fixture
def page(context):
    """A page that fails its test when a script fails or another host is asked for anything."""
    opened = context.new_page()
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(f"script error: {error}"))
    opened.on(
        "dialog",
        lambda dialog: (problems.append(f"a dialog opened: {dialog.message}"), dialog.dismiss()),
    )
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


@pytest.fixture
def window(browser):
    """Make a page in a window of its own profile; a narrow one is a phone's. more: options of a context."""
    contexts = []

    def made(width=1280, height=800, **more):
        touch = width < 500
        size = {"width": width, "height": height}
        options = {
            "viewport": size,
            "reduced_motion": "reduce",
            "has_touch": touch,
            "is_mobile": touch,
        }
        context = browser.new_context(**(options | more))
        context.set_default_timeout(HANGS * 1000)
        contexts.append(context)
        return context.new_page()

    yield made
    for context in contexts:
        context.close()


@pytest.fixture
def modules(page):
    """The page's modules by themselves, too, which are served as one script."""
    page.route(
        "**/surelock/js/**",
        lambda route: route.fulfill(path=MODULES / route.request.url.rpartition("/js/")[2]),
    )
