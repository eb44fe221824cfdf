"""The drawer: a pin and its curve, ε and its locks, and the lane that ε makes, on one screen."""

from collections.abc import Iterable
from math import hypot
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.actions import SIMULATED, compare, seek, serious, steady, until

SHOWN = (1280, 800)
REACH = 400
CELLS = """([lane, cells]) => {
  const { canvas, grid } = surelock.stage.sides[lane], edge = canvas.getBoundingClientRect();
  return cells.map((cell) => {
    const [x, y, width, height] = grid.rect(cell);
    return { x: edge.x + x, y: edge.y + y, width, height };
  });
}"""
MORE = """() => {
  const { stage } = surelock, { trace } = stage, [, lane] = trace.lanes;
  const as = (id, name) => {
    const decoder = { ...lane.decoder, id, name };
    return Object.assign(Object.create(Object.getPrototypeOf(lane)), lane, { id, name, decoder });
  };
  const more = ["c", "d"].map((id) => as(id, `SureLock ${id}`));
  stage.show(trace.withLanes([...trace.lanes, ...more]), { step: 60 });
}"""


@pytest.fixture
def stage(page, app):
    """A laptop's window with the recorded run in its middle, the sidebar shut, and no server that computes."""
    page.set_viewport_size({"width": SHOWN[0], "height": SHOWN[1]})
    page.goto(f"{app.url}/?race=steps")
    until(
        page,
        "window.surelock?.page.now.recorded && surelock.stage.trace && surelock.stage.timeline.atEnd",
    )
    page.evaluate(SIMULATED)
    page.wait_for_selector(".sidebar.open")  # see conftest.py
    page.click(".sidebar .toggle-button")
    expect(page.locator(".sidebar.open")).to_have_count(0)
    seek(page, 60)
    rest(page)  # the sidebar gives its room back bit by bit
    page.evaluate("surelock.stage.grids.scrollIntoView()")
    rest(page)
    return page


def rest(page: Page) -> None:
    """Until the grids stand still."""
    steady(page, f"JSON.stringify(({CELLS})([1, [0, 40]]))")


def cells(page: Page, lane: int, numbers: Iterable[int]) -> list[Any]:
    """Where these cells of a lane are."""
    return page.evaluate(CELLS, [lane, list(numbers)])


def press(page: Page, lane: int, cell: int) -> None:
    """Press a cell where it is; the grids make room for what this opens."""
    (box,) = cells(page, lane, [cell])
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.click(".sl-touch >> text=compare")
    expect(page.locator(".sl-inspector-title")).to_contain_text(f"Position {cell}")
    rest(page)


def race_epsilon(page: Page) -> None:
    """Make another ε a lane."""
    until(page, "surelock.stage.drawer?.epsilon")
    page.evaluate("surelock.stage.drawer.epsilon.put(0.1)")
    page.click(".sl-epsilon-actions >> text=Race it")


def box(page: Page, selector: str) -> Any:
    """Where an element is: whole in the window."""
    found = page.locator(selector).last.bounding_box()
    assert found is not None, selector
    assert found["y"] >= 0 and found["y"] + found["height"] <= SHOWN[1], (selector, found)
    return found


def gap(one: Any, other: Any) -> float:
    """Pixels between the edges of two boxes."""
    apart = [
        max(0, b[at] - a[at] - a[size])
        for at, size in (("x", "width"), ("y", "height"))
        for a, b in ((one, other), (other, one))
    ]
    return hypot(max(apart[:2]), max(apart[2:]))


def test_a_pin_in_any_lane_is_beside_its_curve(stage):
    """The drawer stands right of the lane that was pressed; lanes of one row begin at one height."""
    stage.evaluate(MORE)
    for lane in range(4):
        for cell in (20, 110):
            press(stage, lane, cell)
            curve = box(stage, ".sl-cell-curve")
            assert gap(*cells(stage, lane, [cell]), curve) <= REACH, (lane, cell)
            stage.evaluate("surelock.page.set({ pins: new Map() })")
        curve = box(stage, ".sl-cell-curve")
        away = [
            gap(each, curve)
            for each in cells(stage, lane, range(stage.evaluate("surelock.stage.trace.n")))
        ]
        assert sum(each <= REACH for each in away) >= 0.95 * len(away), (lane, max(away))
        whole = stage.evaluate(
            "surelock.stage.sides.map(({ canvas }) => canvas.getBoundingClientRect().right)"
        )
        assert max(whole) <= SHOWN[0], "all grids stay in sight"
    edges = "surelock.stage.sides.map(({ canvas }) => canvas.getBoundingClientRect())"
    tops = stage.evaluate(f"{edges}.map(({{ top }}) => top)")
    assert len(set(tops)) == 2, tops
    stage.evaluate("scrollTo(0, 0)")
    rest(stage)
    tops = stage.evaluate(f"{edges}.map(({{ top }}) => top)")
    seek(stage, 127)
    expect(stage.locator(".sl-verdict")).to_contain_text("work")
    rest(stage)
    player = stage.evaluate("document.querySelector('.sl-dock').getBoundingClientRect().top")
    assert stage.evaluate(f"Math.max(...{edges}.map(({{ bottom }}) => bottom))") <= player, (
        "no grid is covered"
    )
    moved = [
        abs(a - b)
        for a, b in zip(stage.evaluate(f"{edges}.map(({{ top }}) => top)"), tops, strict=True)
    ]
    assert max(moved) <= 0.02 * SHOWN[1], "by the verdict"


def test_progress_is_told_where_it_was_asked_for(stage):
    """In a region that is there before its text: one that appears with it is not spoken."""
    compare(stage, 1, 40)
    for name in ("drawer-progress", "note"):
        region = stage.locator(f".sl-{name}")
        assert region.text_content() == ""
        assert region.evaluate("node => getComputedStyle(node).display") != "none"
    race_epsilon(stage)
    expect(stage.locator(".sl-side")).to_have_count(3)
    name = stage.locator(".sl-side h2").all_inner_texts()[2]
    assert name == "SureLock, ε 0.1"
    progress = stage.locator(".sl-drawer-progress")
    expect(progress).to_be_focused()
    stage.evaluate("""() => {
      const { trace, child } = surelock.live.branching;
      const header = { ...trace.header, lanes: [child.decoder] };
      const records = trace.lanes[0].records.map(({ top, ...each }) => ({ ...each, lane: child.id }));
      open("branch", { header, pieces: {} });
      window.send2 = (seq, from, end) => send({ run: "branch", seq, pieces: {}, records: records.slice(from, end) });
      send2(1, 0, 20);
    }""")
    expect(progress).to_have_text(f"“{name}”: step 20 of 128.")
    stage.evaluate("send2(2, 20); send({ run: 'branch', seq: 3, end: 'finished', problem: null })")
    expect(progress).to_have_text(
        f"“{name}” is finished after 128 steps, shown next to the others."
    )
    assert stage.text_content(".sl-status") == ""
    stage.keyboard.press("Escape")
    expect(stage.locator(".sl-drawer")).to_be_hidden()


def test_the_drawer_opens_and_shuts_by_keyboard_and_loses_nothing(stage):
    drawer = stage.locator(".sl-drawer")
    expect(drawer).to_be_hidden()
    wide = stage.evaluate("surelock.stage.sides[1].canvas.clientWidth")
    stage.locator("canvas.sl-grid").nth(1).focus()
    for key in ("ArrowDown", "ArrowRight", "Enter"):
        stage.keyboard.press(key)
    stage.click(".sl-touch >> text=compare")
    expect(drawer).to_be_visible()
    stage.locator("canvas.sl-grid").nth(1).focus()
    stage.keyboard.press("ArrowRight")
    cell = stage.evaluate("surelock.page.now.hover")
    expect(drawer).to_contain_text(f"Position {cell}")
    assert [cell - 1] == stage.evaluate("[...surelock.page.now.pins.keys()]"), (
        "it follows the arrows"
    )
    assert stage.evaluate("surelock.stage.sides[1].canvas.clientWidth") < wide
    for _ in range(8):
        stage.keyboard.press("Tab")
        if stage.evaluate("document.activeElement.closest('.sl-drawer')"):
            break
    stage.focus(".sl-epsilon")
    stage.keyboard.press("ArrowUp")
    value = stage.evaluate("surelock.stage.drawer.epsilon.value")
    assert serious(stage, ".sl-floor") == []
    stage.click(".sl-drawer >> text=Close")
    expect(drawer).to_be_hidden()
    assert stage.evaluate("document.activeElement === surelock.stage.sides[1].canvas")
    stage.keyboard.press("ArrowLeft")
    stage.keyboard.press("Enter")
    stage.click(".sl-touch >> text=compare")
    expect(drawer).to_contain_text(f"Position {cell - 1}")
    assert stage.evaluate("[surelock.page.now.pins.size, surelock.stage.drawer.epsilon.value]") == [
        1,
        value,
    ]
    stage.keyboard.press("Escape")
    expect(drawer).to_be_hidden()
    stage.wait_for_function(
        "(wide) => surelock.stage.sides[1].canvas.clientWidth === wide", arg=wide
    )
