"""Reading the grids: colours by value, long texts that stay legible, and terms that explain themselves."""

from playwright.sync_api import Page, expect

from tests.browser.actions import arrive, imported, seek, settled, visit
from tests.browser.measure import big_trace


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


def test_cells_are_coloured_by_what_is_chosen_and_long_texts_stay_legible(page, app):
    arrive(page, app.url)
    seek(page, 60)
    assert not page.is_visible(".sl-scale")
    options = page.locator("label:has-text('Colours') option").all_inner_texts()
    assert options == ["State", "Confidence", "KL", "Age"]
    state = fill(page, 0, 20)
    for label in options[1:]:
        page.get_by_label("Colours").select_option(label=label)
        assert page.locator(".sl-scale > span").all_inner_texts()[0] == f"{label}:"
        assert page.evaluate("surelock.stage.colouring.name") == label.lower()
        assert fill(page, 0, 20) != state
    masked = page.evaluate("surelock.stage.trace.n - 1")
    assert fill(page, 0, masked) == page.evaluate(
        "[1, 3, 5].map((i) => parseInt(surelock.stage.colours.masked.slice(i, i + 2), 16))"
    ), "what is not written has no age"
    page.evaluate("() => { surelock.stage.colouring.choose('state'); }")
    settled(page)
    assert fill(page, 0, 20) == state

    imported(page, big_trace(510))
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
    page.wait_for_function(
        "[...document.querySelectorAll('.sl-window')].every((box) => box.scrollTop === 0)"
    )
    seek(page, 300)
    assert page.evaluate("document.querySelector('.sl-window').scrollTop") == 0, (
        "a hand on the wheel is not fought"
    )
    page.wait_for_function("/,[^,]+$/.test(surelock.stage.sides[1].grid.looks[0])")
    page.locator("canvas.sl-grid").first.focus()
    page.keyboard.press("End")
    assert page.evaluate("document.querySelector('.sl-window').scrollTop") > 100, (
        "the focused cell is in sight"
    )
    page.click("role=tab[name='Numbers']")
    page.get_by_label("Long text").select_option(label="The whole canvas, without its tokens")
    assert page.evaluate(
        "[...document.querySelectorAll('.sl-window')].every((box) => box.scrollHeight <= box.clientHeight)"
    )
    assert page.evaluate(
        "surelock.stage.sides[0].grid.looks.every((look) => look === '' || look.endsWith(','))"
    )
    page.wait_for_function("document.documentElement.scrollWidth <= innerWidth")


def test_a_term_is_tapped_and_its_sentence_stays_inside_a_phone(page, app):
    page.set_viewport_size({"width": 390, "height": 844})
    visit(page, app.url)
    for term in page.locator(".sl-gauges .sl-term").all():
        term.dispatch_event("pointerdown", {"pointerType": "touch"})
        term.focus()
        term.dispatch_event("click")  # not a mouse's, which would close it when it leaves
        expect(page.locator("[role=tooltip]")).to_be_visible()  # the first fetches what they say
        box = page.locator("[role=tooltip]").bounding_box()
        assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 390
        assert box["y"] >= 0 and box["y"] + box["height"] <= 844
    page.locator(".sl-key").first.click()
    expect(page.locator("[role=tooltip]")).to_be_hidden()
