"""What the browser tests do on the page."""

import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Frame, Page

from surelock.trace.replay import replay_html
from tests.browser.server import ROOT
from tests.waiting import HANGS

SIZES = {"1280": (1280, 800), "1440": (1440, 900), "1920": (1920, 1080), "phone": (390, 844)}
SHORT = {"gen_length": 24, "steps": 24}
PAIR = [
    {"name": "Every token", "compute": {"kind": "everything"}, "unmask": {"kind": "entropy"}},
    {
        "name": "SureLock",
        "compute": {"kind": "lock", "epsilon": 0.05, "percentile": 60},
        "unmask": {"kind": "entropy"},
    },
]


def visit(page: Page, url: str, **settings: Any) -> None:
    """Open the page with these settings in its form and a pair that locks soon, lanes shown step by step, and wait
    until the recorded run moves and the settings have arrived. It is as after a reload: a link is computed at once.
    """
    wanted = {"race": "steps", "lanes": json.dumps(PAIR)} | SHORT | settings
    query = urlencode(wanted)
    shown = json.dumps(json.dumps({"query": query}))
    page.add_init_script(f"try {{ sessionStorage['surelock:shown'] ??= {shown}; }} catch {{}}")
    page.goto(f"{url}/?{query}")
    page.wait_for_function(
        "window.surelock?.stage.trace && Number(surelock.stage.root.dataset.step) >= 1"
    )
    page.wait_for_function(
        "(length) => document.querySelector('#sl-gen-length input[type=number]')?.value == length",
        arg=str(wanted["gen_length"]),
    )
    page.evaluate(
        "innerWidth > 768 && document.querySelector('.sidebar:not(.open) .toggle-button')?.click()"
    )
    until(
        page, "document.querySelector('.sidebar.open') ? document.querySelector('.sl-lane') : true"
    )


def arrive(page: Page, address: str) -> None:
    """Open a page that has a stage, and wait until that shows something, and the form has come beside it."""
    page.goto(address)
    until(page, "window.surelock?.stage.trace && surelock.stage.root.dataset.step !== undefined")
    if page.evaluate("Boolean(window.opensForm && document.querySelector('.gradio-container'))"):
        until(page, "document.querySelector('.sidebar.open')")


def recorded(name: str = "stories") -> dict[str, Any]:
    """The document of a recorded run."""
    return json.loads((ROOT / "assets" / "runs" / f"{name}.json").read_text("utf-8"))


def replayed(page: Page, folder: Path, document: dict[str, Any], query: str = "") -> Path:
    """Open a document as a replay from the disk, and return its file."""
    path = folder / "replay.html"
    path.write_text(replay_html(document), encoding="utf-8")
    arrive(page, f"{path.as_uri()}{query}")
    return path


def exported(page: Page, folder: Path, button: str = "Trace (JSON)") -> Path:
    """The file that a button of Export gives."""
    page.click("role=tab[name='Export']")
    with page.expect_download() as waiting:
        page.click(f"button:has-text('{button}')")
    path = folder / waiting.value.suggested_filename
    waiting.value.save_as(path)
    return path


def imported(page: Page, document: dict[str, Any]) -> None:
    """Open a document as a trace, and wait until it is on show."""
    page.click("role=tab[name='Export']")
    page.evaluate("window.before = surelock.stage.trace")
    data = json.dumps(document).encode()
    page.set_input_files(
        "#sl-import", {"name": "trace.json", "mimeType": "application/json", "buffer": data}
    )
    until(
        page,
        "surelock.stage.trace !== before && surelock.stage.label.textContent.startsWith('Imported')",
    )


def run_to_end(page: Page) -> None:
    """Press Run and wait for the end of the run that this starts."""
    before = page.evaluate("surelock.live.run?.id ?? null")
    page.click("#sl-run")
    until(page, f"(surelock.live.run?.id ?? null) !== {json.dumps(before)}")
    wait_for_run(page)
    until(page, "surelock.stage.root.dataset.state === 'idle' && !surelock.stage.trace.race.live")


def wait_for_run(page: Page, steps: int = 1) -> None:
    """Until the page's own run has that many steps."""
    shown = "surelock.live.run && surelock.stage.trace === surelock.live.run.trace"
    try:
        until(page, f"{shown} && surelock.stage.trace.count >= {steps}")
    except AssertionError as error:
        raise AssertionError(f"no run of {steps} steps; the page says {status(page)!r}") from error


def seek(page: Page, step: int) -> None:
    page.evaluate("(step) => surelock.stage.timeline.seek(step)", step)
    shows(page, step)


def shows(page: Page, step: int) -> None:
    """Until the page has drawn that step."""
    until(page, f"Number(surelock.stage.root.dataset.step) === {step}")


def until(page: Page | Frame, condition: str) -> None:
    """Until an expression is true; unlike wait_for_function it does so in a page that forbids eval, too."""
    end = time.monotonic() + HANGS
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


def compare(page: Page, lane: int, cell: int) -> None:
    """Open the drawer on a cell of a lane, as its menu does."""
    page.evaluate(f"surelock.stage.cells.compare(surelock.stage.sides[{lane}], {cell})")


def touch(page: Page, lane: int, cell: int, word: str) -> None:
    """Write a word into a cell of a lane by its menu, and wait for the end of the run that this starts."""
    page.evaluate(f"surelock.stage.cells.press(surelock.stage.sides[{lane}], {cell})")
    page.click(".sl-touch >> text=another word")
    page.fill(".sl-touch-form input", word)
    page.press(".sl-touch-form input", "Enter")
    until(page, "surelock.page.now.touches && surelock.live.run?.trace === surelock.stage.trace")
    until(page, "surelock.live.run.over")


SIMULATED = Path(__file__).with_name("simulated.js").read_text("utf-8")  # no server that computes
DRAWN_STATES = Path(__file__).with_name("drawn_states.js").read_text("utf-8")


def drawn_states(page: Page, lane: int) -> list[int]:
    """The state of every cell as a lane's canvas shows it, by its pixels: 0 masked, 1 active, 2 locked, 3 resting."""
    return page.evaluate(DRAWN_STATES, lane)


def true_states(document: dict[str, Any], lane: int, step: int) -> list[int]:
    """The states of a lane after a step, worked out from the records alone. What locks in the step that computes it is
    active there.
    """
    header = document["header"]
    own = header["lanes"][lane]["id"]
    prompt = [token == header["mask_id"] for token in header["prompt_tokens"]]
    masked = prompt + [True] * (header["length"] - len(prompt))
    locked = [False] * header["length"]
    computed = [True] * header["length"]
    for record in document["records"]:
        if record["lane"] != own or record["step"] > step:
            continue
        for position in (*record.get("masked", ()), *record.get("taken_back", ())):
            masked[position] = True
        for position, _ in (*record.get("written", ()), *record["unmasked"]):
            masked[position] = False
        for position in record.get("unlocked", ()):
            locked[position] = False
        for position in record["locked"]:
            locked[position] = True
        runs = record["computed"]
        rows = {
            p
            for start, length in zip(runs[::2], runs[1::2], strict=True)
            for p in range(start, start + length)
        }
        computed = [position in rows for position in range(header["length"])]
    return [
        0 if hidden else 1 if ran else 2 if still else 3
        for hidden, still, ran in zip(masked, locked, computed, strict=True)
    ]


def draws(page: Page, lane: int, states: list[int]) -> None:
    """A lane's canvas comes to show these states, and then stands still."""
    end = time.monotonic() + HANGS
    while (drawn := drawn_states(page, lane)) != states:
        assert time.monotonic() < end, (
            f"lane {lane} at step {shown(page)}: {drawn} instead of {states}"
        )
        page.wait_for_timeout(40)


def settled(page: Page) -> None:
    """Until two frames have been drawn: what was to be drawn is."""
    page.evaluate(
        "() => new Promise((then) => requestAnimationFrame(() => requestAnimationFrame(then)))"
    )


CENTRE = """([lane, cell]) => {
  const { grid, canvas } = surelock.stage.sides[lane], [x, y, w, h] = grid.rect(cell);
  const box = canvas.getBoundingClientRect(), zoom = box.width / canvas.offsetWidth;
  return [box.left + (x + w / 2) * zoom, box.top + (y + h / 2) * zoom];
}"""


def tap(page: Page, place: str) -> None:
    """A finger's tap on what stands still there, of which the page hears a click."""
    page.evaluate(
        "() => { window.heard = 0; addEventListener('click', () => heard++, { capture: true, once: true }); }"
    )
    page.touchscreen.tap(*steady(page, place))
    until(page, "heard")
    settled(page)


def steady(page: Page, place: str) -> Any:
    """Where something is, as soon as it is there for two frames; place: an expression."""
    return page.evaluate(
        f"""async () => {{
          const frame = () => new Promise((then) => requestAnimationFrame(() => requestAnimationFrame(then)));
          for (let at = {place}, before; ; before = at, await frame(), at = {place})
            if (String(at) === String(before)) return at;
        }}"""
    )
