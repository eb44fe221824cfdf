"""What the browser tests do on the page."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

SIZES = {"1280": (1280, 800), "1440": (1440, 900), "1920": (1920, 1080), "phone": (390, 844)}
SHORT = {"gen_length": 24, "steps": 24}
PAIR = [
    {"name": "Every word", "compute": {"kind": "everything"}, "unmask": {"kind": "entropy"}},
    {"name": "SureLock", "compute": {"kind": "lock", "epsilon": 0.05, "percentile": 60}, "unmask": {"kind": "entropy"}},
]


def visit(page: Page, url: str, **settings: Any) -> None:
    """Open the page with these settings and a pair that locks soon, lanes shown step by step, and wait until the
    recorded run moves and the settings have arrived.
    """
    wanted = {"race": "steps", "contestants": json.dumps(PAIR)} | SHORT | settings
    page.goto(f"{url}/?{urlencode(wanted)}")
    page.wait_for_function("window.surelock?.stage.trace && Number(surelock.stage.root.dataset.step) >= 1")
    page.wait_for_function(
        "(length) => document.querySelector('#sl-gen-length input[type=number]')?.value == length",
        arg=str(wanted["gen_length"]),
    )
    page.evaluate("innerWidth > 768 && document.querySelector('.sidebar:not(.open) .toggle-button')?.click()")
    until(page, "document.querySelector('.sidebar.open') ? document.querySelector('.sl-lane') : true")


def run_to_end(page: Page) -> None:
    """Press Run and wait for the end of the run that this starts."""
    before = page.evaluate("surelock.live.run?.id ?? null")
    page.click("#sl-run")
    until(page, f"(surelock.live.run?.id ?? null) !== {json.dumps(before)}", 90)
    wait_for_run(page)
    until(page, "surelock.stage.root.dataset.state === 'idle' && !surelock.stage.trace.live", 90)


def wait_for_run(page: Page, steps: int = 1) -> None:
    """Until the page's own run has that many steps."""
    shown = "surelock.live.run && surelock.stage.trace === surelock.live.run.trace"
    try:
        until(page, f"{shown} && surelock.stage.trace.count >= {steps}", 90)
    except AssertionError as error:
        raise AssertionError(f"no run of {steps} steps; the page says {status(page)!r}") from error


def seek(page: Page, step: int) -> None:
    page.evaluate("(step) => surelock.stage.timeline.seek(step)", step)
    shows(page, step)


def shows(page: Page, step: int) -> None:
    """Until the page has drawn that step."""
    until(page, f"Number(surelock.stage.root.dataset.step) === {step}")


def until(page: Page, condition: str, seconds: float = 30) -> None:
    """Until an expression is true; unlike wait_for_function it does so in a page that forbids eval, too."""
    end = time.monotonic() + seconds
    while not page.evaluate(f"() => Boolean({condition})"):
        assert time.monotonic() < end, condition
        page.wait_for_timeout(40)


def shown(page: Page) -> int:
    return int(page.evaluate("Number(surelock.stage.root.dataset.step)"))


def status(page: Page) -> str:
    return page.inner_text(".sl-status")


def serious(page: Page, within: str | None = None) -> list[Any]:
    """What axe finds in the page, or within an element, that is serious or critical."""
    found = Axe().run(page, context=within).response["violations"]
    return [
        (rule["id"], [node["html"][:160] for node in rule["nodes"]])
        for rule in found
        if rule["impact"] in ("serious", "critical")
    ]


SIMULATED = Path(__file__).with_name("simulated.js").read_text("utf-8")  # no server that computes
DRAWN_STATES = Path(__file__).with_name("drawn_states.js").read_text("utf-8")


def drawn_states(page: Page, lane: int) -> list[int]:
    """The state of every cell as a lane's canvas shows it, by its pixels: 0 masked, 1 active, 2 locked, 3 resting."""
    return page.evaluate(DRAWN_STATES, lane)


def draws(page: Page, lane: int, states: list[int], seconds: float = 1) -> None:
    """A lane's canvas shows these states, at once or as soon as the page has a moment: it stands still."""
    end = time.monotonic() + seconds
    while (drawn := drawn_states(page, lane)) != states:
        assert time.monotonic() < end, f"lane {lane} at step {shown(page)}: {drawn} instead of {states}"
        page.wait_for_timeout(40)


def steady(page: Page, place: str) -> Any:
    """Where something is, as soon as it is there for two frames; place: an expression."""
    return page.evaluate(
        f"""async () => {{
          const frame = () => new Promise((then) => requestAnimationFrame(() => requestAnimationFrame(then)));
          for (let at = {place}, before; ; before = at, await frame(), at = {place})
            if (String(at) === String(before)) return at;
        }}"""
    )
