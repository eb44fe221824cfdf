"""Presenter mode: what matters on one screen, 1.6 times as large; the pointer's ring; in and out by key and address."""

from math import prod

import pytest
from playwright.sync_api import expect

from tests.browser.actions import CENTRE, recorded, replayed, seek, settled, until, visit

PRESENTING = "document.body.classList.contains('sl-present')"
SHOWN = (
    ".sl-narrator-box",
    ".sl-numbers",
    ".sl-lane-1.sl-side",
    ".sl-lane-2.sl-side",
    ".sl-timeline",
)
WHOLE = """(selector) => [...document.querySelectorAll(selector)].every((node) => {
  const { top, bottom } = node.getBoundingClientRect();
  return top >= 0 && bottom <= innerHeight && node.scrollHeight <= node.clientHeight + 1;
})"""
FONTS = """(selectors) => selectors.map((selector) => document.querySelector(selector))
  .map((node) => parseFloat(getComputedStyle(node).fontSize) * node.currentCSSZoom)"""
TYPE = [".sl-narrator", ".sl-side h2", ".sl-step-label", ".sl-number"]
CELL = """surelock.stage.sides.slice(0, 1).flatMap(({ grid: { box }, canvas }) =>
  [box.w, box.h].map((x) => x * canvas.currentCSSZoom))"""


@pytest.mark.parametrize("size", [(1024, 768, 1), (1280, 720, 1.5)])
def test_what_matters_is_on_one_screen_and_large(window, app, size):
    """1280x720 at 1.5 is a projector of 1920x1080 at 150 % zoom."""
    width, height, ratio = size
    page = window(width, height, device_scale_factor=ratio)
    visit(page, app.url)
    seek(page, 60)
    type_before = page.evaluate(FONTS, TYPE)
    cell_before = page.evaluate(CELL)
    page.keyboard.press("f")
    until(page, PRESENTING)
    settled(page)
    for now, before in zip(page.evaluate(FONTS, TYPE), type_before, strict=True):
        assert now >= 1.6 * before - 0.1
    assert prod(page.evaluate(CELL)) >= 1.55**2 * prod(cell_before), "cells"
    for step in (0, 60, 127):
        seek(page, step)
        for selector in SHOWN:
            box = page.locator(selector).bounding_box()
            assert box is not None and box["x"] >= 0 and box["y"] >= 0, selector
            assert box["x"] + box["width"] <= width and box["y"] + box["height"] <= height, (
                selector,
                step,
            )
        hidden_words = page.evaluate(
            """(step) => surelock.stage.sides.filter(({ lane, grid, canvas }) => {
              const [, top, , height] = grid.rect(lane.steps[step].unmasked[0]), view = canvas.parentElement;
              return top < view.scrollTop || top + height > view.scrollTop + view.clientHeight;
            }).length""",
            step,
        )
        assert hidden_words == 0, "the windows follow what is written"
    assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")
    for selector in (".sidebar", "footer", "#sl-title", ".sl-tabs"):
        expect(page.locator(selector).first).to_be_hidden()


def test_the_verdict_of_four_lanes_is_whole(page, tmp_path):
    """In a replay, which presents too."""
    page.set_viewport_size({"width": 1280, "height": 720})
    replayed(page, tmp_path, recorded("too-early"), "?present")
    until(page, PRESENTING)
    page.evaluate("surelock.stage.timeline.seek(Infinity)")
    until(page, "surelock.stage.root.dataset.step === '31'")
    settled(page)
    assert page.evaluate(WHOLE, ".sl-narrator-box") and page.evaluate(WHOLE, ".sl-verdict")
    windows = page.evaluate(
        "surelock.stage.sides.map(({ box }) => box.getBoundingClientRect().height)"
    )
    assert min(windows) >= 60, windows


def test_a_ring_follows_the_pointer_and_cells_are_hit(page, app):
    visit(page, app.url)
    page.keyboard.press("f")
    until(page, PRESENTING)
    seek(page, 40)
    settled(page)
    x, y = page.evaluate(CENTRE, [1, 30])
    page.mouse.move(x, y)
    until(page, "surelock.page.now.hover === 30")
    ring = page.locator(".sl-pointer").bounding_box()
    assert ring is not None and ring["width"] >= 60
    assert (
        abs(ring["x"] + ring["width"] / 2 - x) < 2 and abs(ring["y"] + ring["height"] / 2 - y) < 2
    )
    assert (
        page.evaluate("getComputedStyle(document.querySelector('.sl-pointer')).pointerEvents")
        == "none"
    )
    tip = page.locator(".sl-tip").bounding_box()
    assert tip is not None and abs(tip["x"] - x) < 60 and abs(tip["y"] - y) < 60
    page.mouse.click(x, y)
    expect(page.locator(".sl-touch-box")).to_be_visible()
    menu = page.locator(".sl-touch-box").bounding_box()
    assert menu is not None and 0 < menu["x"] - x < 160, "beside its cell, magnified"
    page.keyboard.press("Escape")
    page.keyboard.press("f")
    until(page, f"!{PRESENTING}")
    expect(page.locator(".sl-pointer")).to_be_hidden()
    expect(page.locator(".sidebar")).to_be_visible()


def test_the_address_presents_where_full_screen_is_refused(page, app):
    page.add_init_script(
        "Element.prototype.requestFullscreen = () => Promise.reject(new TypeError('not allowed'))"
    )
    page.goto(f"{app.url}/?present&lesson=unmasking")
    page.wait_for_function(f"window.surelock?.stage.lessons?.open && {PRESENTING}")
    settled(page)
    assert page.evaluate("surelock.stage.root.getBoundingClientRect().width") == 1440
    card, text = (page.locator(each).bounding_box() for each in (".sl-lesson", ".sl-lesson-text"))
    assert card and text and text["width"] > 0.95 * card["width"]
    page.keyboard.press("Escape")
    until(page, f"!{PRESENTING}")
