"""A narrow touch screen: taps, the drawer as a sheet, Run in sight; test_landing.py has its first screen."""

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.actions import CENTRE, seek, serious, steady, tap, until, visit, wait_for_run

WIDTH = 390
HEIGHT = 844


@pytest.fixture
def phone(window, app):
    page = window(WIDTH, HEIGHT)
    visit(page, app.url)
    seek(page, 50)
    return page


def box(page: Page, selector: str) -> Any:
    """Where an element is in the window, after smooth scrolling has ended."""
    found = page.locator(selector).first.bounding_box()
    assert found is not None, selector
    return found


def press(page: Page, lane: int, cell: int) -> None:
    """Tap a cell, open the drawer from its menu, and wait until that sheet stands still."""
    tap(page, f"({CENTRE})([{lane}, {cell}])")
    page.locator(".sl-touch >> text=compare").tap()
    # a part of the page, which the first tap fetches
    page.wait_for_selector(".sl-drawer", state="attached")
    steady(page, "document.querySelector('.sl-drawer').getBoundingClientRect().y")


def test_taps_open_the_menu_and_the_sheet_and_close_it(phone):
    cut = "(e) => e.scrollWidth > e.clientWidth"
    for step in (0, 127):
        seek(phone, step)
        assert not phone.locator(".sl-step-label").evaluate(cut), phone.inner_text(".sl-step-label")
    assert phone.evaluate("document.documentElement.scrollWidth") <= WIDTH
    assert (
        phone.evaluate("getComputedStyle(document.querySelector('.sl-grid')).touchAction")
        == "manipulation"
    )

    phone.evaluate("scrollTo(0, 240)")
    below = "document.querySelector('.sl-lower').getBoundingClientRect().y"
    was = phone.evaluate(below)
    press(phone, 1, 70)
    assert phone.evaluate("scrollY") == 240 and abs(phone.evaluate(below) - was) <= 2, (
        "nothing moves under the finger"
    )
    sheet = phone.locator(".sl-drawer")
    player = box(phone, ".sl-timeline")
    expect(sheet).to_be_visible()
    assert "Drag ε: " in sheet.inner_text(), "there are no keys"
    assert "Position 70" in sheet.inner_text()
    assert phone.locator(".sl-tip").is_hidden(), (
        "a finger has no pointer: nothing lies over the cells"
    )
    lies = box(phone, ".sl-drawer")
    assert (
        lies["y"] + lies["height"] <= player["y"] + 1 and player["y"] + player["height"] <= HEIGHT
    )
    top, bottom = phone.evaluate(
        "(({ top, bottom }) => [top, bottom])(surelock.stage.sides[1].place(70))"
    )
    apart = bottom <= lies["y"] or top >= lies["y"] + lies["height"]
    assert apart, "the cell that it speaks of stays in sight"
    assert phone.evaluate("[...surelock.page.now.pins.keys()]") == [70]
    phone.evaluate("for (let cell = 20; cell < 25; cell++) surelock.stage.cells.pin(cell)")
    press(phone, 1, 69)
    said = phone.locator(".sl-note")
    expect(said).to_contain_text("At most 6 positions can be pinned")
    place = box(phone, ".sl-note")
    assert lies["y"] - 60 < place["y"] < player["y"], "said where the tap was"

    phone.keyboard.press("Escape")
    for close in (
        lambda: phone.tap(".sl-drawer >> text=Close"),
        lambda: phone.keyboard.press("Escape"),
        lambda: phone.touchscreen.tap(WIDTH / 2, 100),
    ):
        phone.evaluate("scrollTo(0, 0)")
        press(phone, 0, 13)
        expect(sheet).to_be_visible()
        close()
        expect(sheet).to_be_hidden()
    phone.evaluate(
        "document.querySelector('.sl-lane-2 .sl-text').scrollIntoView({ block: 'center' })"
    )
    phone.evaluate("surelock.stage.timeline.seek(Infinity)")
    phone.tap(".sl-text .sl-fork")
    expect(sheet).to_be_visible()
    assert phone.evaluate("surelock.page.now.hover") > 12


def test_run_is_pressed_without_the_sidebar(phone):
    run = phone.locator(".sl-action-run")
    prompt = phone.locator(".sl-action-prompt")
    prompt.tap()
    until(phone, "document.activeElement.matches('.sl-prompt-box textarea')")
    phone.locator(".sl-prompt-foot >> text=Settings").tap()
    expect(phone.locator(".sidebar.open .sl-lane-preset").first).to_be_in_viewport()
    phone.locator(".sidebar .toggle-button").tap()
    expect(phone.locator(".sidebar.open")).to_have_count(0)
    prompt.tap()
    expect(phone.locator(".sl-prompt-box")).to_be_hidden()
    # it would cover what is scrolled beneath it
    expect(phone.locator(".sidebar .toggle-button")).to_be_hidden()
    options = phone.locator(".sl-action-where option").all_inner_texts()
    assert options == ["this server · shared", "this browser · at once"]
    at = box(phone, ".sl-narrator-box")["y"]
    run.tap()
    phone.wait_for_selector(".sl-action-stop")
    assert box(phone, ".sl-narrator-box")["y"] == at, "Stop takes no second line"
    wait_for_run(phone)
    phone.wait_for_function("surelock.stage.root.dataset.state === 'idle'")
    assert serious(phone) == []
    outside = (
        "e => !e.closest('.sl-tablist, .sl-hidden, .sl-side, .sl-quick, svg')"
        " && e.getBoundingClientRect().right > innerWidth + 1"
    )
    assert (
        phone.evaluate(f"[...document.querySelectorAll('.sl-stage *')].filter({outside}).length")
        == 0
    )
    assert (
        phone.evaluate("document.documentElement.scrollWidth") <= WIDTH
        and box(phone, ".sl-grid")["width"] > 300
    )
