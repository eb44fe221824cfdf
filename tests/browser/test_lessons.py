"""The lessons on the page, in an exported replay, by keyboard and on a phone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from playwright.sync_api import BrowserContext, Page

from surelock.trace.lessons import LESSONS, read_lessons
from surelock.trace.replay import embedded_json, replay_html
from tests.browser.actions import until
from tests.browser.server import ROOT, App

RUNS = ROOT / "assets" / "runs"
LESSONS_THERE = read_lessons()["lessons"]
CARD = ".sl-lesson"


def opened(page: Page, url: str, name: str, number: int = 1) -> None:
    page.goto(f"{url}?lesson={name}&page={number}")
    until(page, "window.surelock?.stage.lessons.open")


def card(page: Page) -> str:
    return page.inner_text(CARD)


def press(page: Page, name: str) -> None:
    page.click(f"{CARD} >> role=button[name='{name}']")


def place(page: Page, number: int) -> None:
    until(page, f"surelock.stage.lessons.page === {number - 1}")


def truth(page: Page, asked: dict[str, Any]) -> Any:
    """What the page's own run answers."""
    code = "async (asked) => (await import('surelock/answers.js')).answer(surelock.stage.lessons.trace, asked)"
    return page.evaluate(code.replace("surelock/answers.js", answers_module(page)), asked)


def answers_module(page: Page) -> str:
    return "surelock/answers.js" if page.url.startswith("file:") else "./surelock/js/answers.js"


def predict(page: Page, question: dict[str, Any], right: bool) -> None:
    """Answer what the page asks, rightly or wrongly."""
    found = truth(page, question["answer"])
    if question["kind"] == "cells":
        last = page.evaluate("surelock.stage.trace.n")
        cells = found[: question["count"]] if right else [last - 1 - i for i in range(question["count"])]
        earlier = page.evaluate("surelock.stage.view.pins")
        for cell in (*earlier, *cells):
            page.evaluate("(cell) => surelock.stage.pin(cell)", cell)
    elif question["kind"] == "value":
        scale = 100 if question["unit"] == "%" else 1
        low, high = question["low"], question["high"]
        wrong = high if scale * found < (low + high) / 2 else low
        page.locator(f"{CARD} input[type=range]").fill(str(round(scale * found) if right else wrong))
    else:
        wrong = next(option["id"] for option in question["options"] if option["id"] != found)
        page.check(f"{CARD} input[value='{found if right else wrong}']")
    press(page, "This is my prediction")


def play(page: Page, lesson: dict[str, Any], right: bool) -> None:
    """A lesson from its first page to its last on the run on show."""
    for number, told in enumerate(lesson["pages"], 1):
        place(page, number)
        assert f"Page {number} of {len(lesson['pages'])}" in card(page)
        if told["kind"] == "predict":
            predict(page, told["question"], right)
        elif told["kind"] == "run":
            press(page, "Stay with this run")
        else:
            if told["kind"] == "gap":
                assert page.get_attribute(".sl-lesson-gap", "data-right") == str(right).lower(), card(page)
            press(page, "End the lesson" if number == len(lesson["pages"]) else "Next")
    until(page, "!surelock.stage.lessons.open")


def test_every_lesson_on_recorded_runs_with_the_network_off(page: Page, tmp_path: Path) -> None:
    """From disk: a replay holds the lessons, and plays those that are about its run. Right and wrong predictions."""
    page.context.set_offline(True)
    for name in sorted({lesson["run"]["recorded"] for lesson in LESSONS_THERE}):
        path = tmp_path / f"{name}.html"
        path.write_text(replay_html(json.loads((RUNS / f"{name}.json").read_text("utf-8"))), encoding="utf-8")
        for lesson in [each for each in LESSONS_THERE if each["run"]["recorded"] == name]:
            for right in (True, False):
                opened(page, path.as_uri(), lesson["name"])
                play(page, lesson, right)
                assert page.inner_text(".sl-status") == ""
    page.click("role=tab[name='Lessons']")
    assert "8 of 8 pages seen, 2 of 2 predictions made" in page.inner_text(".sl-lessons")
    with page.expect_download() as waiting:
        page.click("text=Save my answers")
    saved = json.loads(Path(waiting.value.path()).read_text("utf-8"))
    assert saved["format"] == "surelock-answers" and {each["name"] for each in saved["lessons"]} >= {
        "work",
        "too-early",
    }
    page.click("[aria-label$='lesson: Is there a better rule?']")
    until(page, "document.querySelector('.sl-status').textContent.includes('about other contestants')")


def test_a_lesson_on_a_run_of_ones_own(page: Page, app: App) -> None:
    """Predicted on the recorded run, checked against the learner's own; the address holds the page."""
    opened(page, f"{app.url}/", "too-early", 3)
    lesson = next(each for each in LESSONS_THERE if each["name"] == "too-early")
    predict(page, lesson["pages"][2]["question"], True)
    place(page, 4)
    assert "lesson=too-early" in page.url and "page=4" in page.url
    press(page, "Make my own run")
    place(page, 5)  # on its own, once the run is over
    traces = "[surelock.stage.lessons.trace, surelock.stage.trace]"
    seeds = page.evaluate(f"{traces}.map(({{ reference }}) => reference.contestant.settings.seed)")
    assert seeds[0] == seeds[1] != 11 and page.inner_text(".sl-run-label").startswith("Your run")
    assert page.get_attribute(".sl-stage", "data-step") == "31"
    own = truth(page, lesson["pages"][2]["question"]["answer"])
    assert page.get_attribute(".sl-lesson-gap", "data-right") == str(own == "letter").lower()

    page.evaluate("surelock.stage.lessons.lesson.claim.at_least = 1e9")  # as on a run that does not show the effect
    press(page, "Back")
    press(page, "Skip")
    assert lesson["claim"]["otherwise"] in card(page)
    press(page, "Leave the lesson")
    assert "lesson=" not in page.url and not page.is_visible(CARD)


def test_by_keyboard_alone(page: Page, app: App) -> None:
    page.goto(f"{app.url}/?race=steps")
    until(page, "window.surelock?.stage.trace")
    page.focus("role=tab[name='Analysis']")
    for key in ("ArrowRight", "ArrowRight", "Tab", "Enter"):
        page.keyboard.press(key)
    place(page, 1)
    tab_to(page, "Next")
    page.keyboard.press("Enter")
    tab_to(page, "Stay with this run")
    page.keyboard.press("Enter")
    place(page, 3)
    assert page.is_hidden(".sl-gauges") and page.evaluate("surelock.stage.timeline.step") == 19
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('canvas.sl-grid')"):
            break
    for key in ("ArrowDown", "Enter", "ArrowDown", "Enter", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    until(page, "surelock.stage.view.pins.length === 3")
    assert "3 of 3 pinned" in card(page)
    for _ in range(60):
        page.keyboard.press("Shift+Tab")
        if page.evaluate("document.activeElement.textContent === 'This is my prediction'"):
            break
    page.keyboard.press("Enter")
    place(page, 4)
    assert "You predicted:" in card(page) and len(page.evaluate("surelock.stage.view.pins")) == 3
    tab_to(page, "Next")
    page.keyboard.press("Enter")
    place(page, 5)
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('.sl-lesson input[type=range]')"):
            break
    page.keyboard.press("ArrowRight")
    assert "51 %" in card(page) and page.evaluate("surelock.stage.timeline.step") != 20
    tab_to(page, "This is my prediction")
    page.keyboard.press("Enter")
    place(page, 6)


def test_in_presenter_mode(page: Page, app: App) -> None:
    """The buttons and the grids are in sight on the small projector."""
    page.set_viewport_size({"width": 1024, "height": 768})
    page.goto(f"{app.url}/?lesson=work&page=3&present")
    until(page, "window.surelock?.stage.lessons.open")
    for what in (f"{CARD} >> role=button[name='Skip']", "canvas.sl-grid >> nth=0", ".sl-play"):
        box = page.locator(what).bounding_box()
        assert box and box["y"] < 768 - 20 and box["height"] > 20, what
    assert page.is_hidden(".sl-gauges") and page.is_hidden(".sl-narrator-box")


def tab_to(page: Page, text: str) -> None:
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == text:
            return
    raise AssertionError(f"Tab does not come to {text!r}")


def test_on_a_phone(browser: Any, app: App) -> None:
    context: BrowserContext = browser.new_context(
        viewport={"width": 390, "height": 844}, has_touch=True, reduced_motion="reduce"
    )
    page = context.new_page()
    opened(page, f"{app.url}/", "better-rule", 2)
    box = page.locator(CARD).bounding_box()
    assert box and box["x"] >= 0 and box["x"] + box["width"] <= 390
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.locator(f"{CARD} label").nth(1).tap()
    page.locator(f"{CARD} >> role=button[name='This is my prediction']").tap()
    place(page, 3)
    assert page.locator(f"{CARD} select option").count() == 4
    page.locator(f"{CARD} >> role=button[name='Stay with this run']").tap()
    place(page, 4)
    assert page.get_attribute(".sl-lesson-gap", "data-right") == "true"
    context.close()


def test_a_seventh_lesson_and_a_damaged_one(page: Page, tmp_path: Path) -> None:
    """A hostile title stays text."""
    title = "<img src=x onerror=alert(1)>"
    seventh = json.loads((LESSONS / "2-work.json").read_text("utf-8")) | {"name": "seven", "number": 7, "title": title}
    (tmp_path / "7.json").write_text(json.dumps(seventh), encoding="utf-8")
    (tmp_path / "8.json").write_text(json.dumps(seventh | {"minutes": "long"}), encoding="utf-8")
    html = replay_html(json.loads((RUNS / "stories.json").read_text("utf-8")))
    before, _, rest = html.partition('<script id="sl-lessons" type="application/json">')
    html = f'{before}<script id="sl-lessons" type="application/json">{embedded_json(read_lessons(tmp_path))}'
    html += rest[rest.index("</script>") :]
    path = tmp_path / "replay.html"
    path.write_text(html, encoding="utf-8")
    opened(page, path.as_uri(), "seven")
    assert title in card(page)
    play(page, seventh, True)
    page.click("role=tab[name='Lessons']")
    assert "The lesson 8.json is damaged at minutes:" in page.inner_text(".sl-lessons")
    assert page.locator(".sl-lesson-list li").count() == 1
    page.goto(f"{path.as_uri()}?lesson=none")
    until(page, "document.querySelector('.sl-status')?.textContent === 'There is no lesson “none” here.'")
