"""The page under random presses in Chromium: whatever was pressed, what it draws and says is of the step that it is at.

Node walks the phases of runs (tests/js/page.test.js, touches.test.js). Here keys, clicks and wheels meet canvases and
layout. No server computes: recorded runs are imported, or sent as by one.
"""

from random import Random

import pytest

from tests.browser.actions import (
    CENTRE,
    SIMULATED,
    arrive,
    compare,
    imported,
    recorded,
    settled,
)
from tests.browser.measure import big_trace
from tests.browser.test_numbers import check, reading

WIDTHS = (800, 960, 1024, 1280, 1440)
KEYS = ["ArrowRight", "ArrowLeft", "Home", "End", "n", "p", "s", "Space", "Escape"]
SHOWN = "surelock.stage.trace"
#: Let every grid keep what it is given to draw.
KEEPS = """() => {
  const grid = Object.getPrototypeOf(surelock.stage.sides[0].grid), { draw } = grid;
  grid.draw = function (view) {
    this.view = view;
    draw.call(this, view);
  };
}"""
#: The lanes whose pixels change when the grid is painted anew.
PAINTED = """() => {
  const { stage } = surelock;
  const pixels = ({ grid, canvas }) => grid.pen.getImageData(0, 0, canvas.width, canvas.height).data.join();
  const before = stage.sides.map(pixels);
  for (const side of stage.sides) side.grid.looks = null;
  stage.redraw();
  return stage.sides.filter((side, i) => pixels(side) !== before[i]).map(({ lane }) => lane.id);
}"""
#: What the drawer speaks of, the cell that was asked for, and whether its curve is whole in the window.
DRAWER = """() => {
  const { drawer } = surelock.stage;
  if (!drawer?.isOpen) return null;
  const { top, bottom } = document.querySelector(".sl-cell-curve").getBoundingClientRect();
  return [document.querySelector(".sl-inspector-title").textContent, drawer.cell, top < bottom];
}"""
#: The page's view, and what the address says of it when that is written.
TOLD = """() => {
  surelock.addressing.write();
  const said = new URLSearchParams(location.search), { step, pins, byClock, colour } = surelock.stage.view;
  const { last } = surelock.stage.timeline;
  return [
    [step === last ? null : String(step + 1), pins.join() || null, byClock ? null : "steps", colour],
    [said.get("step"), said.get("pins"), said.get("race"), said.get("colour") ?? "state"],
  ];
}"""


def drawn(page, lane):
    """The states that a grid was painted with: of cells as small as these their pixels tell less."""
    view = f"surelock.stage.sides[{lane}].grid.view"
    return page.evaluate(
        f"[...({view}.states ?? {view}.lane.row({view}.step))].map((state) => state % 4)"
    )


def key(page, rng):
    page.keyboard.press(rng.choice(KEYS))


def scrub(page, rng):
    page.fill(".sl-scrubber", str(rng.randint(0, page.evaluate("surelock.stage.timeline.last"))))


def press(page, rng):
    """A cell of any lane, and its menu or the drawer."""
    lanes, cells = page.evaluate(f"[{SHOWN}.lanes.length, {SHOWN}.n]")
    lane = rng.randrange(lanes)
    cell = rng.randrange(cells)
    page.evaluate("surelock.stage.grids.scrollIntoView()")
    page.mouse.click(*page.evaluate(CENTRE, [lane, cell]))
    page.keyboard.press("Escape")
    if rng.random() < 0.5:
        compare(page, lane, cell)


def colour(page, rng):
    name = rng.choice(["state", "confidence", "kl", "age"])
    page.evaluate(f"surelock.stage.colouring.choose('{name}')")


def wheel(page, rng):
    page.mouse.move(*page.evaluate(CENTRE, [0, 0]))
    page.mouse.wheel(0, rng.choice([-400, 60, 400]))


def widen(page, rng):
    page.set_viewport_size({"width": rng.choice(WIDTHS), "height": rng.choice([720, 900])})


def sidebar(page, rng):
    page.evaluate("document.querySelector('.sidebar .toggle-button').click()")


def send(page, rng):
    """A run of which some steps come, and perhaps its end."""
    count = rng.randint(1, 127)
    page.evaluate(f"begin('run-{rng.random()}', {count})")
    if rng.random() < 0.7:
        page.evaluate("send({ run: latest().id, seq: 2, end: 'stopped', problem: null })")


def other(page, rng):
    imported(page, rng.choice([recorded("rules"), recorded("too-early"), big_trace(200)]))


def kept(page, rng):
    page.evaluate("surelock.stage.reveal(surelock.page.now.recorded)")


MOVES = [
    key,
    key,
    key,
    scrub,
    scrub,
    press,
    press,
    colour,
    wheel,
    widen,
    sidebar,
    send,
    other,
    kept,
]


def agrees(page, place):
    """Hold all that the page shows against its trace, with what tells only here."""
    page.evaluate("surelock.stage.timeline.pause()")
    settled(page)
    page.evaluate("surelock.stage.redraw()")  # also what is out of sight
    settled(page)
    assert page.evaluate(PAINTED) == [], place
    told = page.evaluate(DRAWER)
    assert told is None or (told[0].startswith(f"Position {told[1]}") and told[2]), (place, told)
    if page.evaluate(f"{SHOWN}.race.live || surelock.stage.colouring.name !== 'state'"):
        return
    document = page.evaluate(f"{SHOWN}.toDocument()")
    if "changed" not in document["records"][-1]:
        return  # a made-up run, whose errors nobody measured
    lanes = {each["id"]: reading(document, each["id"]) for each in document["header"]["lanes"]}
    check(page, document, lanes, page.evaluate("surelock.stage.timeline.byClock"), drawn)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_pressed_the_page_shows_the_step_that_it_is_at(page, app, seed):
    arrive(page, app.url)
    page.evaluate(SIMULATED)
    page.evaluate(KEEPS)
    rng = Random(seed)
    made = []
    for _ in range(40):
        move = rng.choice(MOVES)
        made.append(move.__name__)
        move(page, rng)
        agrees(page, made)
    page.evaluate("surelock.stage.reveal(surelock.page.now.recorded)")
    scrub(page, rng)
    told, said = page.evaluate(TOLD)
    assert told == said
