"""A word is touched by mouse, keys and finger; a link is the story in a second profile."""

import pytest
from playwright.sync_api import expect

from tests.browser.actions import (
    CENTRE,
    arrive,
    run_to_end,
    seek,
    serious,
    steady,
    tap,
    until,
    visit,
)

OVER = "surelock.stage.root.dataset.state === 'idle' && surelock.page.now.waits === null"
TOKENS = "surelock.stage.trace.lanes.map((lane) => [...lane.tokens(lane.count - 1)])"
PROMPT = "Tom found a __ in the garden. He was"


def test_a_word_is_touched_by_mouse_and_keys_and_a_link_tells_it_elsewhere(page, window, app):
    """Elsewhere is a second profile, on a phone, without anything of the first."""
    visit(page, app.url, prompt=PROMPT, temperature=0.8)
    run_to_end(page)
    seek(page, 12)
    cell = page.evaluate("surelock.stage.trace.lanes[1].steps[8].unmasked[0]")
    page.mouse.click(*steady(page, f"({CENTRE})([1, {cell}])"))
    menu = page.locator(".sl-touch[role=menu]")
    expect(menu.locator("[role=menuitem].sl-touch-word")).to_have_count(5)
    assert serious(page, ".sl-touch-box") == []
    page.keyboard.press("Escape")
    expect(menu).to_have_count(0)
    assert page.evaluate("document.activeElement === surelock.stage.sides[1].canvas")
    page.keyboard.press("Enter")
    expect(menu.locator(".sl-touch-word")).to_have_count(5)
    page.keyboard.press("End")
    page.keyboard.press("Home")
    if menu.locator("[role=menuitem]").first.get_attribute("aria-current"):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    until(page, f"surelock.page.now.touches && surelock.live.run.over && {OVER}")
    said = page.locator(".sl-touched")
    expect(said).to_contain_text("Your word changed ")
    names = page.locator(".sl-side h2").all_inner_texts()
    assert [name.rpartition(", ")[2] for name in names] == ["as it was", "with your word"]
    assert all(name.startswith("SureLock") for name in names)
    assert serious(page, ".sl-floor") == []
    sent = page.evaluate(TOKENS)
    told = said.inner_text()
    page.evaluate("surelock.addressing.write()")
    link = page.evaluate("location.href")

    page.click(".sl-untouch")
    assert (
        page.locator(".sl-side").count() == 2 and page.evaluate("surelock.page.now.touches") is None
    )

    phone = window(390, 844)
    phone.goto(link)
    until(phone, "window.surelock?.stage.trace")
    assert phone.evaluate("[surelock.stage.trace.provisional, surelock.stage.trace.count]") == [
        True,
        0,
    ]
    assert phone.evaluate("surelock.stage.trace.header.prompt") == PROMPT
    until(phone, f"surelock.page.now.touches && {OVER}")
    assert phone.evaluate(TOKENS) == sent
    assert phone.inner_text(".sl-touched") == told and phone.inner_text(".sl-status") == ""
    seek(phone, 10)
    phone.evaluate("surelock.stage.sides[1].canvas.scrollIntoView({ block: 'start' })")
    other = phone.evaluate("surelock.stage.trace.lanes[1].steps[9].unmasked[0]")
    tap(phone, f"({CENTRE})([1, {other}])")
    sheet = phone.locator(".sl-touch-box")
    expect(sheet).to_be_visible()
    box = sheet.bounding_box()
    assert (
        box is not None
        and box["y"] + box["height"] == pytest.approx(844, abs=2)
        and box["width"] == 390
    )


def test_a_blank_from_a_list_shows_its_words_with_their_shares(page, app):
    """Words of the number of tokens that won; they share all of the blank."""
    visit(page, app.url, prompt="Tom had a __{red|blue|light green} ball.")
    run_to_end(page)
    cell = page.evaluate("surelock.stage.trace.header.lists[0].at")
    page.mouse.click(*steady(page, f"({CENTRE})([1, {cell}])"))
    chips = page.get_by_role("group", name="Words of the list").locator(".sl-chip")
    expect(chips).to_have_count(2)
    texts = chips.all_inner_texts()
    assert [text.split()[0] for text in texts] == ["red", "blue"]
    assert abs(sum(float(text.split()[-2]) for text in texts) - 100) <= 1
    assert serious(page, ".sl-touch-box") == []


def test_an_embedded_page_shows_shares_and_says_why_no_word_can_be_chosen(page, app):
    arrive(page, f"{app.url}/?embed&race=steps&step=60")
    page.evaluate("surelock.stage.cells.press(surelock.stage.sides[1], 60)")
    expect(page.locator(".sl-touch-said")).to_contain_text("This is a recording")
    assert page.locator(".sl-touch-word:not([aria-disabled])").count() == 0
