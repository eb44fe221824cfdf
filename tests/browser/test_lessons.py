"""The lessons on the page, in an exported replay, by keyboard and on a phone."""

import json
from math import floor
from pathlib import Path
from typing import Any

import pytest
from lesson_answers import Document, answer, holds
from playwright.sync_api import Page

from surelock.trace.lessons import LESSONS, read_lessons
from surelock.trace.replay import embedded_json, replay_html
from tests.browser.actions import recorded, replayed, settled, until
from tests.browser.hands import CARD, RANGE, Hands, Keys, Mouse
from tests.browser.server import App

LESSONS_THERE = read_lessons()["lessons"]
# every kind of question
TWO = [lesson for lesson in LESSONS_THERE if lesson["name"] in ("unmasking", "too-early")]
# of a learner's own run: it is the same lesson
SHORT = {"gen_length": 16, "steps": 16, "block_length": 16}
SHORTER = "(own) => Object.assign(surelock.stage.lessons.lesson.run.settings ??= {}, own)"
CLOSE = {"%": 5, "steps": 1}
LIST = "role=button[name='Lessons']"


def opened(page: Page, url: str, name: str, number: int = 1) -> None:
    page.goto(f"{url}?lesson={name}&page={number}")
    until(page, "window.surelock?.stage.lessons?.open")


def begin(page: Page, lesson: dict[str, Any]) -> None:
    """By the list of lessons."""
    page.click(LIST)
    page.click(f"[aria-label$='lesson: {lesson['title']}']")
    place(page, 1)


def card(page: Page) -> str:
    return page.inner_text(CARD)


def press(page: Page, name: str) -> None:
    Mouse(page).press(name)


def place(page: Page, number: int) -> None:
    until(page, f"surelock.stage.lessons?.open && surelock.stage.lessons.page === {number - 1}")


READ: dict[str, Document] = {}


def run_of(page: Page) -> Document:
    """The run that the lesson is about, as the page exports it; each is read once."""
    trace = "surelock.stage.lessons.trace"
    key = page.evaluate(f"[{trace}.header.created, {trace}.reference.decoder.settings.seed].join()")
    if key not in READ:
        READ[key] = page.evaluate(f"{trace}.toDocument()")
    return READ[key]


def in_unit(question: dict[str, Any], found: float) -> int | float:
    """A number as the question asks for it; halves go up, as in JavaScript."""
    return floor(100 * found + 0.5) if question["unit"] == "%" else floor(2 * found + 0.5) / 2


def prediction(page: Page, question: dict[str, Any], right: bool) -> Any:
    """What to predict of the run on show, to be right or wrong about it."""
    found = answer(run_of(page), question["answer"])
    if question["kind"] == "cells":
        last = page.evaluate("surelock.stage.trace.n")
        return (
            found[: question["count"]]
            if right
            else [last - 1 - i for i in range(question["count"])]
        )
    if question["kind"] == "value":
        low = question["low"]
        high = question["high"]
        true = int(in_unit(question, found))
        return true if right else high if true < (low + high) / 2 else low
    return (
        found
        if right
        else next(option["id"] for option in question["options"] if option["id"] != found)
    )


def predict(page: Page, hands: Hands, question: dict[str, Any], right: bool) -> Any:
    """Answer what the page asks, rightly or wrongly; returns what was predicted, as far as the hands are exact."""
    value = prediction(page, question, right)
    if question["kind"] == "cells":
        earlier = page.evaluate("surelock.stage.view.pins")
        hands.pin([*earlier, *value])
        assert f"{question['count']} of {question['count']} pinned" in card(
            page
        ) and page.is_hidden(".sl-gauges")
    elif question["kind"] == "value":
        step = page.evaluate("surelock.stage.timeline.step")
        hands.slide(value)
        value = int(page.input_value(RANGE))
        assert (
            f"{value} {question['unit']}" in card(page)
            and page.evaluate("surelock.stage.timeline.step") == step
        )
    else:
        hands.choose(value)
    hands.press("This is my prediction")
    return value


def is_right(question: dict[str, Any], predicted: Any, found: Any) -> bool:
    if question["kind"] == "cells":
        return set(predicted) <= set(found)
    if question["kind"] == "value":
        return abs(predicted - in_unit(question, found)) <= CLOSE[question["unit"]]
    return predicted == found


def play(page: Page, hands: Hands, lesson: dict[str, Any], right: bool, own: bool = False) -> None:
    """A lesson from its first page to its last, on the run on show or on the learner's own. What it says of a
    prediction and of its claim is what Python makes of the run.
    """
    question = {}
    predicted = None
    for number, told in enumerate(lesson["pages"], 1):
        place(page, number)
        assert f"Page {number} of {len(lesson['pages'])}" in card(page)
        if told["kind"] == "predict":
            question = told["question"]
            predicted = predict(page, hands, question, right)
        elif told["kind"] == "run":
            live = page.evaluate("Boolean(surelock.live)")  # an exported replay makes no runs
            choices = lesson["run"].get("own", {}).get("options", []) if live else []
            assert page.locator(f"{CARD} select option").count() == (
                len(choices) if len(choices) > 1 else 0
            )
            hands.press("Make my own run" if own else "Stay with this run")
        else:
            if told["kind"] in ("gap", "why"):
                check(page, lesson, question, predicted, told["kind"])
            hands.press("End the lesson" if number == len(lesson["pages"]) else "Next")
    until(page, "!surelock.stage.lessons?.open")


def check(
    page: Page, lesson: dict[str, Any], question: dict[str, Any], predicted: Any, kind: str
) -> None:
    run = run_of(page)
    assert (lesson["claim"]["otherwise"] in card(page)) == (not holds(run, lesson["claim"]))
    if kind == "gap":
        found = answer(run, question["answer"])
        told = page.get_attribute(".sl-lesson-gap", "data-right")
        assert told == str(is_right(question, predicted, found)).lower(), (
            predicted,
            found,
            card(page),
        )
        assert "You predicted: " in card(page)
        if question["kind"] == "value":
            assert f"On this run: {in_unit(question, found):g} " in card(page)
        elif question["kind"] == "cells":
            assert set(page.evaluate("surelock.stage.view.pins")) <= set(found)


def test_lessons_on_recorded_runs_with_the_network_off(page, tmp_path):
    """From disk: a replay holds the lessons, and plays those that are about its run, here one of each run, with right
    predictions or wrong ones.
    """
    page.context.set_offline(True)
    for name in ("blanks", "too-early"):
        replayed(page, tmp_path, recorded(name))
        lesson = [each for each in LESSONS_THERE if each["run"]["recorded"] == name][-1]
        begin(page, lesson)
        play(page, Mouse(page), lesson, lesson["number"] % 2 == 0)
        assert page.inner_text(".sl-status") == ""
    page.click(LIST)
    assert "8 of 8 pages seen, 2 of 2 predictions made" in page.inner_text(".sl-lessons")
    with page.expect_download() as waiting:
        page.click("text=Save my answers")
    saved = json.loads(Path(waiting.value.path()).read_text("utf-8"))
    assert saved["format"] == "surelock-answers" and "too-early" in {
        each["name"] for each in saved["lessons"]
    }
    page.click("[aria-label$='lesson: Is there a better rule?']")
    until(page, "document.querySelector('.sl-status').textContent.includes('about other lanes')")


def test_by_keyboard_alone_on_a_run_of_ones_own(page, app):
    """What would give a prediction away is hidden meanwhile."""
    page.goto(f"{app.url}/?race=steps")
    until(page, "window.surelock?.stage.trace")
    for number, lesson in enumerate(TWO):
        keys = Keys(page)
        keys.to("now.matches('.sl-lessons-button')")
        page.keyboard.press("Enter")
        keys.to(f"now.getAttribute('aria-label')?.endsWith('lesson: {lesson['title']}')")
        page.keyboard.press("Enter")
        place(page, 1)
        page.evaluate(SHORTER, SHORT)
        play(page, keys, lesson, right=number % 2 == 0, own=True)
        assert page.inner_text(".sl-run-label").startswith("Your run")


PARTS = {
    "narrator": ".sl-narrator-box",
    "gauges": ".sl-gauges",
    "grids": ".sl-window",
    "rasters": ".sl-raster-box",
    "texts": ".sl-text",
    "timeline": ".sl-timeline",
    "curves": ".sl-plot",
    "inspector": ".sl-drawer",
}
IN_SIGHT = """(selectors) => selectors.map((selector) => [...document.querySelectorAll(selector)]
  .map((node) => node.getBoundingClientRect())
  .filter(({ width, height }) => width && height)
  .map(({ top, bottom }) => Math.min(bottom, innerHeight) - Math.max(top, 0)))"""
BEGIN = """async (name) => {
  const { stage } = surelock, lesson = stage.lessons.lessons.find((one) => one.name === name);
  stage.show(await stage.lessons.recorded(lesson.run.recorded));
  await stage.lessons.begin(lesson);
}"""
SIZES = [
    (1280, 800, "", LESSONS_THERE),
    (390, 844, "", TWO),
    (1280, 720, "&present", LESSONS_THERE),
]


@pytest.mark.parametrize("size", SIZES)
def test_a_page_shows_what_it_speaks_of_and_nothing_else(window, app, size):
    """On a laptop and on a projector all of it, whole or in a window of its own; on a phone it begins in sight."""
    width, height, query, lessons = size
    page = window(width, height)
    page.goto(f"{app.url}/?lesson=unmasking&page=1{query}")
    until(page, "window.surelock?.stage.lessons?.open")
    for lesson in lessons:
        page.evaluate(BEGIN, lesson["name"])
        for number, told in enumerate(lesson["pages"]):
            page.evaluate("(page) => surelock.stage.lessons.go(page)", number)
            page.evaluate("document.querySelector('.sl-lesson').scrollIntoView()")
            if "curves" in told["shows"]:
                until(page, "surelock.stage.curves")
            if "gauges" in told["shows"]:
                until(page, "surelock.stage.panels")
            settled(page)
            where = (lesson["name"], number + 1)
            shown = [part for part in told["shows"] if not part.startswith("lane:")]
            lanes = len(told["shows"]) - len(shown) or page.evaluate(
                "surelock.stage.trace.lanes.length"
            )
            for part, seen in zip(PARTS, page.evaluate(IN_SIGHT, [*PARTS.values()]), strict=True):
                per_lane = part in ("grids", "rasters", "texts")
                assert len(seen) == (lanes if per_lane else 1) * (part in shown), (
                    where,
                    part,
                    seen,
                )
                least = max(seen, default=99) if width == 390 else min(seen, default=99)
                enough = {"grids": 60, "rasters": 60}.get(part, 30)  # a text of a line may be whole
                assert part == "timeline" or least >= enough, (where, part, seen)
            assert (
                page.locator(".sl-above, .sl-tablist, .sl-bar-row, .sl-run-label")
                .locator("visible=true")
                .count()
                == 0
            ), where


def test_a_rule_that_a_learner_writes_is_checked_at_a_fixed_share(page: Page, app: App) -> None:
    """One that computes everything errs least, and is told that it costs more."""
    opened(page, f"{app.url}/", "own-rule", 4)
    page.fill(".sl-lesson .sl-code", "const rows = ({ active }) => active;")
    page.locator(".sl-lesson .sl-code").blur()
    page.evaluate(
        "(own) => Object.assign(surelock.stage.lessons.lesson.run.settings ??= {}, own)", SHORT
    )
    press(page, "Make my own run")
    place(page, 5)
    run = run_of(page)
    assert (
        answer(run, {"is": "error_rank", "lanes": ["age", "own"], "want": "least", "tie": 0.05})
        == "own"
    )
    press(page, "Skip")
    lesson = next(each for each in LESSONS_THERE if each["name"] == "own-rule")
    assert not holds(run, lesson["claim"]) and lesson["claim"]["otherwise"] in card(page)
    press(page, "Back")
    press(page, "Back")
    assert "active }) => active" in page.input_value(".sl-lesson .sl-code"), "it is written on"


def test_another_lesson_and_a_damaged_one(page: Page, tmp_path: Path) -> None:
    """A hostile title stays text."""
    title = "<img src=x onerror=alert(1)>"
    another = json.loads((LESSONS / "2-work.json").read_text("utf-8")) | {
        "name": "eight",
        "number": 8,
        "title": title,
    }
    (tmp_path / "8.json").write_text(json.dumps(another), encoding="utf-8")
    (tmp_path / "9.json").write_text(json.dumps(another | {"minutes": "long"}), encoding="utf-8")
    html = replay_html(recorded())
    before, _, rest = html.partition('<script id="sl-lessons" type="application/json">')
    html = f'{before}<script id="sl-lessons" type="application/json">{embedded_json(read_lessons(tmp_path))}'
    html += rest[rest.index("</script>") :]
    path = tmp_path / "replay.html"
    path.write_text(html, encoding="utf-8")
    opened(page, path.as_uri(), "eight")
    assert title in card(page)
    press(page, "Leave the lesson")
    page.click(LIST)
    assert "The lesson 9.json is damaged at minutes:" in page.inner_text(".sl-lessons")
    assert page.locator(".sl-lesson-list li").count() == 1
    page.goto(f"{path.as_uri()}?lesson=none")
    until(
        page,
        "document.querySelector('.sl-status')?.textContent === 'There is no lesson “none” here.'",
    )
