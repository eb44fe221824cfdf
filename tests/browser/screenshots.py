"""Make the README's pictures: ``python -m tests.browser.screenshots [folder]`` (default: assets/pictures)."""

import json
import sys
import tempfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

import surelock
from surelock.decoding.decoder import Decoder
from surelock.decoding.presets import PRESETS
from surelock.decoding.settings import DecodeSettings
from surelock.record import record_run
from surelock.trace.lanes import beside_every_position
from tests.browser.actions import SIZES, recorded, replayed, seek, until, wait_for_run
from tests.browser.server import ROOT, launch, serve, wait_for_model

BLANKS = "Tom found a __ in the garden. He was very ___ and ran to show it to his mom."
WIDE = {"width": 1440, "height": 1000}
TALL = {"width": 1440, "height": 1500}


def settle(page: Page) -> None:
    """Until the curves are drawn, if they are in sight, and nothing flashes."""
    page.wait_for_function(
        "(lower => !lower.checkVisibility() || lower.getBoundingClientRect().top > innerHeight"
        " || lower.querySelector('.sl-plot')?.data?.length >= 4)(document.querySelector('.sl-lower'))"
    )
    page.wait_for_timeout(1200)


def inspect(page: Page, cell: int) -> None:
    """Open the drawer on a cell of the second lane."""
    page.evaluate("(cell) => surelock.stage.cells.compare(surelock.stage.sides[1], cell)", cell)
    page.wait_for_timeout(1500)


def looks() -> Iterator[tuple[str, str, int, dict[str, Any]]]:
    """The served page in the middle of its race: a picture's name, the query, the step, and a window's options."""
    for name, (width, height) in SIZES.items():
        small = (
            {"has_touch": True, "is_mobile": True, "device_scale_factor": 2} if width < 500 else {}
        )
        size = small | {"viewport": {"width": width, "height": height}, "reduced_motion": "reduce"}
        yield f"first-{name}", "", 60, size | {"color_scheme": "light"}
        yield f"first-{name}-dark", "", 60, size | {"color_scheme": "dark"}
    yield "presenter-1024", "?present", 84, {"viewport": {"width": 1024, "height": 768}}
    # a projector at 150 % zoom
    zoomed = {"viewport": {"width": 1280, "height": 720}, "device_scale_factor": 1.5}
    yield "presenter-1920", "?present", 84, zoomed
    yield (
        "forced-colours",
        "",
        84,
        {"viewport": WIDE, "forced_colors": "active", "color_scheme": "dark"},
    )


def still(browser: Browser, url: str, folder: Path) -> None:
    for name, query, step, options in looks():
        page = browser.new_page(**options)
        page.goto(f"{url}/{query}")
        page.wait_for_function("window.surelock?.stage.trace")
        seek(page, step)
        settle(page)
        page.screenshot(path=folder / f"{name}.png")
        page.close()


def live(page: Page, url: str, folder: Path) -> None:
    """A run of one's own: its verdict, its fork, a cell in the drawer."""
    page.goto(url)
    page.wait_for_function("window.surelock?.stage.trace")
    # the browser loads and draws on the cores that the decoders are timed on
    page.wait_for_timeout(4000)
    page.click(".sl-action-run")
    wait_for_run(page)
    page.wait_for_function("surelock.stage.root.dataset.state === 'idle'", timeout=300_000)
    page.evaluate("surelock.stage.timeline.seek(Infinity)")
    settle(page)
    page.screenshot(path=folder / "verdict.png")
    seek(page, 40)
    inspect(page, 40)
    page.screenshot(path=folder / "drawer.png")


def four(page: Page, url: str, folder: Path) -> None:
    """Four decoders beside each other, two thirds of the way."""
    names = ("everything", "surelock", "dual-cache", "klass")
    plain = {name: PRESETS[name].decoder({}).to_plain() for name in names}
    lanes = [
        {"name": PRESETS[name].name} | {key: plain[name][key] for key in ("compute", "unmask")}
        for name in names
    ]
    page.goto(f"{url}/?{urlencode({'lanes': json.dumps(lanes)})}")
    page.wait_for_timeout(3000)
    page.click(".sl-action-run")
    page.wait_for_function(
        "surelock.live.run && surelock.stage.root.dataset.state === 'idle'", timeout=300_000
    )
    seek(page, 42)
    settle(page)
    page.screenshot(path=folder / "four.png")


def replay(page: Page, folder: Path) -> None:
    """The recorded run as a file opened from disk."""
    with tempfile.TemporaryDirectory() as place:
        replayed(page, Path(place), recorded())
        until(page, "Number(document.querySelector('.sl-stage').dataset.step) >= 2")
        seek(page, 60)
        inspect(page, 30)
        page.wait_for_timeout(1500)
        page.screenshot(path=folder / "replay.png")


def blanks() -> dict[str, Any]:
    """A sentence with blanks, filled by two decoders."""
    lanes = beside_every_position("SureLock", Decoder(settings=DecodeSettings(gen_length=0)))
    return record_run(surelock.load("stories"), BLANKS, lanes)


def loop(browser: Browser, folder: Path) -> None:
    """Blanks that are filled, then the race from its first step to its verdict, which stays for a while: the README's
    moving picture.
    """
    page = browser.new_page(viewport={"width": 960, "height": 560}, reduced_motion="reduce")
    frames = []  # milliseconds
    duration = []
    for document, every, shown, stays in ((blanks(), 1, 700, 2500), (recorded(), 4, 120, 4000)):
        with tempfile.TemporaryDirectory() as place:
            replayed(page, Path(place), document, "?embed")
            last = page.evaluate("surelock.stage.trace.race.last")
            for step in [*range(0, last, every), last]:
                seek(page, step)
                page.wait_for_timeout(80)
                frames.append(Image.open(BytesIO(page.screenshot())).convert("RGB"))
                duration.append(stays if step == last else shown)
    page.close()
    first, *others = frames
    first.save(
        folder / "race.webp",
        save_all=True,
        append_images=others,
        duration=duration,
        loop=0,
        quality=45,
        method=6,
    )


def main() -> None:
    """All pictures, from the real app on the embedded model."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "assets" / "pictures"
    folder.mkdir(parents=True, exist_ok=True)
    with serve() as app, sync_playwright() as playwright:
        wait_for_model(app)
        browser = launch(playwright)
        still(browser, app.url, folder)
        live(browser.new_page(viewport=WIDE), app.url, folder)
        four(browser.new_page(viewport=TALL), app.url, folder)
        replay(browser.new_page(viewport=WIDE), folder)
        loop(browser, folder)
        browser.close()
    for path in sorted(folder.iterdir()):
        print(path.name, path.stat().st_size)


if __name__ == "__main__":
    main()
