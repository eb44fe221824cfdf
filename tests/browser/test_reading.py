"""Reading the grids: colours by value, long texts that stay legible, and terms that explain themselves."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Page, expect

from tests.browser.actions import seek, visit
from tests.browser.measure import big_trace
from tests.browser.server import App


def open_trace(page: Page, n: int) -> None:
    page.click("role=tab[name='Export']")
    page.set_input_files(
        "#sl-import", {"name": "big.json", "mimeType": "application/json", "buffer": json.dumps(big_trace(n)).encode()}
    )
    page.wait_for_function(f"surelock.stage.trace.n === {n}", timeout=60_000)


def fill(page: Page, lane: int, cell: int) -> list[int]:
    """The colour inside a cell's corner, away from its word, its ring and its hatch."""
    return page.evaluate(
        """([lane, cell]) => {
          const { grid, canvas } = surelock.stage.sides[lane];
          const [x, y] = grid.rect(cell);
          const [left, top] = [x + 4, y + 4].map((at) => Math.round(at * grid.ratio));
          return [...canvas.getContext('2d').getImageData(left, top, 1, 1).data].slice(0, 3);
        }""",
        [lane, cell],
    )


@pytest.mark.parametrize("dark", [False, True])
def test_cells_are_coloured_by_what_is_chosen(page: Page, app: App, dark: bool) -> None:
    page.emulate_media(color_scheme="dark" if dark else "light")
    visit(page, app.url)
    page.wait_for_function("surelock.stage.trace.n > 100")
    seek(page, 60)
    assert not page.is_visible(".sl-scale")
    options = page.locator("label:has-text('Colours') option").all_inner_texts()
    assert options == ["State", "Confidence", "KL", "Age"], "no judge read the recorded run"
    ends = {
        "Confidence": ["0 %", "100 % sure"],
        "KL": ["1e-8 nats or less", "1 or more"],
        "Age": ["just written", "128 steps ago"],
    }
    state = fill(page, 0, 20)
    for label, told in ends.items():
        page.get_by_label("Colours").select_option(label=label)
        assert page.locator(".sl-scale > span").all_inner_texts() == [told[0], "", told[1]]
        assert page.evaluate("surelock.stage.colourBy") == label.lower()
        assert fill(page, 0, 20) != state
    newest = page.evaluate("surelock.stage.trace.lanes[0].steps[60 - 4].unmasked[0]")  # no longer lit
    old, new = sum(fill(page, 0, 0)), sum(fill(page, 0, newest))
    assert (old > new) if dark else (old < new), "the ends of the scale are ordered by lightness"
    masked = page.evaluate("surelock.stage.trace.n - 1")
    assert fill(page, 0, masked) == page.evaluate(
        "[1, 3, 5].map((i) => parseInt(surelock.stage.colours.masked.slice(i, i + 2), 16))"
    ), "what is not written has no age"
    page.evaluate("() => { surelock.stage.colourBy = 'nothing of the kind'; }")
    assert page.evaluate("surelock.stage.colourBy") == "age"
    page.evaluate("() => { surelock.stage.colourBy = 'state'; }")
    assert fill(page, 0, 20) == state


def test_a_judges_surprise_can_be_chosen_where_there_is_one(page: Page, app: App) -> None:
    visit(page, app.url)
    document = big_trace(40)
    text = [document["pieces"][str(7 + step % 50)] for step in range(24)]
    score = {"bits_per_character": 1.0, "nats": [0.1 * i for i in range(24)], "tokens": text}
    document["scores"] = {"a judge": {"lane-1": score}}
    page.click("role=tab[name='Export']")
    page.set_input_files(
        "#sl-import", {"name": "small.json", "mimeType": "application/json", "buffer": json.dumps(document).encode()}
    )
    page.wait_for_function("surelock.stage.trace.n === 40")
    page.get_by_label("Colours").select_option(label="Surprise (judge)")
    values = page.evaluate("[...surelock.stage.colouring.values(surelock.stage.trace.lanes[0], 23)].slice(16, 40)")
    assert values == pytest.approx([0.1 * i / 8 for i in range(24)], abs=1e-5)


def test_long_texts_stay_legible_and_follow_what_is_written(page: Page, app: App) -> None:
    visit(page, app.url)
    open_trace(page, 510)
    boxes = page.locator(".sl-window")
    for step in (0, 250, 493):
        seek(page, step)
        for lane in (0, 1):
            inside = page.evaluate(
                """([lane, cell]) => {
                  const { grid, box } = surelock.stage.sides[lane];
                  const [, y, w, h] = grid.rect(cell);
                  return [w >= 50, h >= 18, y >= box.scrollTop, y + h <= box.scrollTop + box.clientHeight];
                }""",
                [lane, 16 + step],
            )
            assert inside == [True] * 4, (step, lane)
    sizes = page.evaluate(
        "[...surelock.stage.sides[0].grid.fits.values()].map(({ size, lines }) => [size, lines.length])"
    )
    assert sizes and all(size >= 9 and lines == 1 for size, lines in sizes), "no word is broken"
    seek(page, 250)
    boxes.first.hover()
    page.mouse.wheel(0, -5000)
    page.wait_for_function("[...document.querySelectorAll('.sl-window')].every((box) => box.scrollTop === 0)")
    seek(page, 300)
    assert page.evaluate("document.querySelector('.sl-window').scrollTop") == 0, "a hand on the wheel is not fought"
    page.wait_for_function("surelock.stage.sides[1].grid.looks[0] >= 0 && surelock.stage.sides[1].grid.texts[0] !== ''")
    page.locator("canvas.sl-grid").first.focus()
    page.keyboard.press("End")
    assert page.evaluate("document.querySelector('.sl-window').scrollTop") > 100, "the focused cell is in sight"
    page.get_by_label("Long text").select_option(label="The whole canvas, without its words")
    assert page.evaluate(
        "[...document.querySelectorAll('.sl-window')].every((box) => box.scrollHeight <= box.clientHeight)"
    )
    assert page.evaluate("surelock.stage.sides[0].grid.texts.every((text) => !text)")
    page.wait_for_function("document.documentElement.scrollWidth <= innerWidth")


def test_terms_explain_themselves(page: Page, app: App) -> None:
    visit(page, app.url)
    tip = page.locator("[role=tooltip]")
    flops = page.locator(".sl-gauges .sl-term").first
    flops.focus()
    expect(tip).to_contain_text("additions and multiplications")
    assert flops.get_attribute("aria-describedby") == tip.get_attribute("id")
    page.keyboard.press("ArrowRight")
    expect(tip).to_contain_text("A locked position is no longer computed")
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()
    page.locator(".sl-legend .sl-term").last.hover()
    expect(tip).to_contain_text("The reference is the contestant")
    page.mouse.move(2, 2)
    expect(tip).to_be_hidden()
    page.click("role=tab[name='About']")
    page.click("role=tab[name='Runs']")
    assert page.locator(".sl-runs thead .sl-term").all_text_contents() == ["?"] * 3, "of FLOPs, active ratio, choices"
    named = set(page.locator(".sl-term").all_text_contents())
    assert {
        "FLOPs",
        "KL",
        "ε",
        "percentile",
        "posterior",
        "Choices changed",
        "locked",
        "reference",
    } <= named
    stops = page.evaluate(
        """() => {
          const stops = '.sl-stage :is(a[href], button, select, input, canvas, [tabindex])';
          const all = [...document.querySelectorAll(stops)];
          const grid = all.findIndex((node) => node.matches('.sl-grid'));
          return all.slice(0, grid).filter((node) => node.tabIndex >= 0 && node.checkVisibility()).length;
        }"""
    )
    assert stops <= 4, "few Tab stops of the stage stand before the first grid"


def test_a_term_is_tapped_and_its_sentence_stays_inside_a_phone(page: Page, app: App) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    visit(page, app.url)
    for term in page.locator(".sl-gauges .sl-term").all():
        term.dispatch_event("pointerdown", {"pointerType": "touch"})
        term.click()
        box = page.locator("[role=tooltip]").bounding_box()
        assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 390
        assert box["y"] >= 0 and box["y"] + box["height"] <= 844
    page.locator(".sl-narrator").first.click()
    expect(page.locator("[role=tooltip]")).to_be_hidden()
