"""The curves say what they are; epsilon is moved by hand in the drawer; their tools are out of the way."""

from playwright.sync_api import Page, expect

from tests.browser.actions import arrive, seek, shown, shows, until
from tests.browser.server import App

ESTIMATE = "Estimate"


def drawn(page: Page, app: App) -> None:
    """The recorded run, at a step in its middle, with its curves drawn and in sight."""
    arrive(page, f"{app.url}/?race=steps")
    seek(page, 50)
    page.evaluate("surelock.stage.lower.scrollIntoView()")
    until(page, "document.querySelector('.sl-plot')?.data?.length >= 4")


def opened(page: Page) -> None:
    """The drawer, open on a word of SureLock's."""
    page.evaluate(
        "surelock.stage.grids.scrollIntoView(), surelock.stage.cells.compare(surelock.stage.sides[1], 40)"
    )
    expect(page.locator(".sl-epsilon")).to_be_visible()


def locked_shown(page: Page) -> int:
    """Locked cells of SureLock's grid as the page draws them."""
    return page.evaluate(
        "(({ drawer: { epsilon }, trace: { lanes: [, lane] } }) => [...(epsilon.states(lane, 50) ?? lane.row(50))]"
        ".filter((state) => state === 2).length)(surelock.stage)"
    )


def test_the_curves_say_what_they_are_and_their_cursors_stand_at_the_step(page, app):
    drawn(page, app)
    assert "A diamond is where" not in page.inner_text(".sl-figure >> nth=0")
    locks = "(p) => p > 16 && surelock.stage.trace.lanes[1].lockStep(p, 127) >= 0"
    page.evaluate(
        f"""() => {{ const {{ stage }} = surelock;
            for (const p of [16, [...Array(128).keys()].find({locks})]) stage.cells.compare(stage.sides[1], p); }}"""
    )
    until(
        page,
        "document.querySelector('.sl-plot')?.data?.filter(({ mode }) => mode === 'markers').length >= 2",
    )
    assert "A diamond is where" in page.inner_text(".sl-figure >> nth=0")
    word, lock = page.evaluate(
        "(([, lane], pieces) => [pieces.name(lane.token(16, 127)).trim(), lane.lockStep(16, 127)])"
        "(surelock.stage.trace.lanes, surelock.stage.trace.pieces)"
    )
    name = f"“{word}” (16)"
    lines = page.evaluate(
        "document.querySelector('.sl-plot').data"
        ".map(({ name, mode, x, hovertemplate }) => ({ name, mode, x: [...x], hovertemplate }))"
    )
    assert any(line["name"] == name and name in line["hovertemplate"] for line in lines)
    (mark,) = [line for line in lines if line["name"] == f"{name} locks"]
    assert mark["x"] == [lock + 1]
    assert page.locator(".sl-pin").first.inner_text().startswith(f"1: {name}")

    page.keyboard.press("Escape")
    page.evaluate("surelock.stage.lower.scrollIntoView()")
    until(page, "surelock.stage.curves.plots.every(({ plot }) => plot._fullLayout)")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for step in (60, 3, 100):  # the curves came when the first was drawn already
        if step != shown(page):
            page.fill(".sl-scrubber", str(step))
            shows(page, step)
        off = page.evaluate(
            """(step) => surelock.stage.curves.plots.map(({ plot, cursor }) => {
              const { xaxis, _size: size } = plot._fullLayout, at = cursor.getBoundingClientRect();
              const box = plot.getBoundingClientRect();
              return [at.left + 1 - (box.left + size.l + xaxis.d2p(step + 1)), at.top - (box.top + size.t)];
            }).flat()""",
            step,
        )
        assert max(map(abs, off)) < 2, off
    assert asked == []


def test_epsilon_by_hand_and_into_the_race(page, app):
    drawn(page, app)
    opened(page)
    was = locked_shown(page)
    handle = page.locator(".sl-epsilon")
    handle.focus()
    for _ in range(3):
        page.keyboard.press("ArrowUp")
    would = locked_shown(page)
    assert would > was
    told = f"ε 5e-3: “SureLock” would have locked {would} tokens before its step 51, not {was}."
    assert page.text_content(".sl-epsilon-row p") == told, "it says whose locks it counts"
    spoken = f"ε 5e-3, “SureLock”: {would} locked, not {was}, before its step 51"
    assert handle.get_attribute("aria-valuetext") == spoken
    expect(page.locator(".sl-side >> nth=1")).to_contain_text(ESTIMATE)
    expect(page.locator(".sl-side >> nth=0")).not_to_contain_text(ESTIMATE)
    assert page.evaluate("Number(surelock.stage.root.dataset.step)") == 50, (
        "the arrows move the handle alone"
    )
    page.keyboard.press("Escape")
    assert locked_shown(page) == was and not page.is_visible(".sl-estimate")
    box = page.locator(".sl-epsilon-grip").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 8, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + 8, box["y"] + box["height"] / 2 + 40, steps=4)
    page.mouse.up()
    assert locked_shown(page) < was and page.is_visible(".sl-estimate")
    texts = page.inner_text(".sl-stage") + page.text_content(".sl-plot >> nth=0")
    assert "ε = 5e-4" in texts and ".00e-" not in texts, "one way to write it, described.js's"
    epsilon = page.evaluate("surelock.stage.drawer.epsilon.value")
    assert epsilon < 5e-4
    page.click("button:has-text('Race it')")
    until(
        page, "surelock.stage.trace.lanes.length === 3 && surelock.stage.trace.lanes[2].count >= 2"
    )
    raced = page.evaluate("surelock.stage.trace.lanes[2].decoder")
    assert (
        raced["compute"]["epsilon"] == epsilon
        and raced["name"].startswith("SureLock, ε ")
        and not raced["events"]
    )
    assert not page.is_visible(".sl-epsilon") and page.is_visible(".sl-cell-curve"), (
        "records still come"
    )
    page.evaluate("surelock.live.stop()")
    until(
        page,
        "surelock.stage.root.dataset.state === 'idle' && !document.querySelector('.sl-epsilon').hidden",
    )
