"""Keyboard, screen reader, reduced motion and forced colours."""

import json

from playwright.sync_api import Page, expect

from tests.browser.actions import drawn_states, seek, serious, settled, shows, until, visit

FOCUSED = "document.activeElement"


def test_the_first_tab_stop_leads_to_the_grids_and_a_question_mark_lists_the_keys(page, app):
    visit(page, app.url)
    page.keyboard.press("Tab")
    assert page.evaluate(f"{FOCUSED}.matches('.sl-skip')")
    box = page.locator(".sl-skip").bounding_box()
    assert box is not None and box["y"] >= 0, "seen while it has the focus"
    page.keyboard.press("Enter")
    assert page.evaluate(f"{FOCUSED} === document.querySelector('canvas.sl-grid')")

    seek(page, 40)
    page.locator("canvas.sl-grid").nth(1).focus()
    page.keyboard.press("?")
    keys = page.get_by_role("dialog", name="Keys")
    expect(keys).to_be_visible()
    named = set(keys.locator("kbd").all_inner_texts())
    assert named >= {"Space", "←", "→", "Home", "End", "N", "P", "S", "F", "?", "Enter"}
    assert serious(page) == []
    page.keyboard.press("ArrowRight")
    page.keyboard.press("f")
    shows(page, 40)
    assert not page.evaluate("document.body.classList.contains('sl-present')"), (
        "the page behind it keeps still"
    )
    page.keyboard.press("Escape")
    expect(keys).to_be_hidden()
    assert page.evaluate(f"{FOCUSED} === document.querySelectorAll('canvas.sl-grid')[1]"), (
        "the focus is back"
    )

    page.set_viewport_size({"width": 640, "height": 400})  # magnified to 200 %
    box = page.locator(".sl-timeline").bounding_box()
    assert box is not None and box["height"] <= 0.2 * 400, "the player takes a line"


def test_the_summary_waits_while_a_cell_speaks(window, app):
    # a clock is one of all pages of a context
    page = window()
    page.clock.install()  # summaries come every four seconds at most
    visit(page, app.url)
    seek(page, 30)
    summary = page.locator(".sl-stage > .sl-hidden").first
    spoken = page.locator(".sl-spoken")
    assert (summary.text_content() or "").startswith("Step "), (
        "the first is spoken with the first step"
    )
    page.clock.fast_forward(4500)
    expect(summary).to_contain_text("Step 31")
    page.locator("canvas.sl-grid").nth(1).focus()
    page.keyboard.press("ArrowRight")
    expect(spoken).to_contain_text("Position")
    assert (
        spoken.get_attribute("aria-live") == "assertive"
        and summary.get_attribute("aria-live") == "polite"
    )
    page.evaluate("surelock.stage.timeline.seek(50)")
    page.clock.fast_forward(4500)
    expect(summary).to_contain_text("Step 31")
    page.evaluate(f"{FOCUSED}.blur()")
    page.clock.fast_forward(4500)
    expect(summary).to_contain_text("Step 51")
    label = page.locator("canvas.sl-grid").nth(1).get_attribute("aria-label") or ""
    assert "masked" in label and "locked" in label


def test_forced_colours_keep_what_colours_mean(page, app):
    """Bars, swatches and cells stay, and what is told apart by colour is still told apart."""
    page.emulate_media(forced_colors="active", color_scheme="light", reduced_motion="reduce")
    visit(page, app.url)
    seek(page, 70)
    told_apart(page, "#ffffff")
    page.emulate_media(forced_colors="active", color_scheme="dark", reduced_motion="reduce")
    until(page, "surelock.stage.colours.masked === '#000000'")
    told_apart(page, "#000000")


def told_apart(page: Page, canvas: str) -> None:
    """On a canvas of that colour, the system's own."""
    settled(page)
    paint = "(selector) => getComputedStyle(document.querySelector(selector)).background"
    bar, track = (
        page.evaluate(paint, f".sl-gauge-flops .sl-{part}") for part in ("bar", "gauge-bars")
    )
    assert bar != track
    swatches = [page.evaluate(paint, f".sl-swatch-{kind}") for kind in ("masked", "locked")]
    assert len(set(swatches)) == 2
    colours = page.evaluate("surelock.stage.colours")
    assert colours["masked"] == canvas != colours["activeRing"]
    for one, other in (
        ("lockedMark", "locked"),
        ("maskedDot", "masked"),
        ("restingRing", "resting"),
    ):
        assert colours[one] != colours[other]
    assert (
        len({colours[f"raster{state}"] for state in ("Masked", "Active", "Locked", "Resting")}) == 4
    )
    assert all(colour.startswith("#") for colour in [*colours["lanes"], *colours["pins"]]), (
        "Plotly knows no names"
    )
    drawn = page.evaluate(
        """() => {
          const { grid, canvas, lane } = surelock.stage.sides[1], states = lane.row(70);
          const pen = canvas.getContext("2d"), seen = {};
          for (const state of [0, 1, 2]) {
            const [x, y, w, h] = grid.rect(states.indexOf(state)).map((side) => Math.round(side * grid.ratio));
            const { data } = pen.getImageData(x + 2, y, w - 4, h);
            const shades = new Set();
            for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 250) shades.add(data.slice(i, i + 3).join());
            seen[state] = shades.size;
          }
          return seen;
        }"""
    )
    assert all(count > 1 for count in drawn.values()), drawn


def test_where_motion_is_not_wanted_the_recorded_run_stands_at_its_end(page, app):
    page.goto(app.url)
    page.wait_for_function("window.surelock?.stage.trace && surelock.stage.timeline.atEnd")
    expect(page.locator(".sl-play")).to_have_attribute("aria-label", "Play")
    assert "less work" in page.inner_text(".sl-verdict"), "the verdict"
    assert not page.evaluate("surelock.stage.timeline.playing"), "it stays there"
    page.click(".sl-play")
    page.wait_for_function(
        "Number(surelock.stage.root.dataset.step) < 40 && surelock.stage.timeline.playing"
    )
    page.wait_for_function("Number(surelock.stage.root.dataset.step) > 4")
    assert set(drawn_states(page, 1)) <= {0, 1, 2}


def test_axe_finds_nothing_serious_while_presenting(page, app):
    visit(page, app.url)
    page.keyboard.press("f")
    until(page, "document.body.classList.contains('sl-present')")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        until(page, f"document.body.classList.contains('dark') === {json.dumps(scheme == 'dark')}")
        settled(page)
        assert serious(page) == [], scheme
