"""Text that would like to be code: in prompts, tokens, model names and links. It is shown or refused, never run."""

import json
from typing import Any

from playwright.sync_api import Page

from surelock.trace import replay
from tests.browser.actions import replayed, seek, until, visit
from tests.browser.server import ROOT

HOSTILE = [
    "<img src=x onerror=\"window.hit='img'\">",
    "<script>window.hit='script'</script>",
    "${(window.hit='dollar')}",
    "{{constructor.constructor('window.hit=1')()}}",
    "{{#each value}}{{this}}{{/each}}",
    "</script><script>window.hit='close'</script>",
    "javascript:window.hit=1",
    "\u202eevil\u202c",
    "\x00\x07\x1b[31m",
    "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
    "👩‍👩‍👧‍👦🏳️‍🌈",
    "a\u0301\u0302\u0303\u0304" * 20,
    "\u2028\u2029\u200b\ufeff",
    "=cmd|'/c calc'!A1",
    "`'\"\\",
    "-->]]>",
]


def unharmed(page: Page) -> None:
    """Nothing ran, and the stage still works."""
    assert page.evaluate(
        """() => window.hit === undefined
          && !document.querySelector('.sl-stage :is(img, script, a[href^=javascript]), .sl-lanes :is(img, script)')"""
    )
    seek(page, 1)
    seek(page, 3)
    box = page.locator("canvas.sl-grid").nth(1).bounding_box()
    assert box is not None and box["width"] > 200 and box["height"] > 40


def hostile_trace() -> dict[str, Any]:
    """The recorded run with hostile pieces, names and prompt."""
    recorded = (ROOT / "assets" / "runs" / "stories.json").read_text("utf-8")
    document = json.loads(recorded.replace('"surelock"', json.dumps(HOSTILE[5])))  # its id
    for number, token in enumerate(document["pieces"]):
        document["pieces"][token] = HOSTILE[number % len(HOSTILE)]
    bytes_of = list("é☃👍".encode())
    for number, token in enumerate(list(document["pieces"])[: 2 * len(bytes_of) : 2]):
        document["pieces"][token] = [bytes_of[number]]
    document["header"]["prompt"] = "".join(HOSTILE)
    document["header"]["model"]["name"] = HOSTILE[0]
    document["header"]["created"] = HOSTILE[5]
    for number, lane in enumerate(document["header"]["lanes"]):
        lane |= {
            "name": HOSTILE[number][:80],
            "unmask": {"kind": HOSTILE[2], HOSTILE[1]: HOSTILE[0]},
        }
        lane["settings"][HOSTILE[3]] = HOSTILE[6]
    document["header"][HOSTILE[1]] = HOSTILE[0]
    document["header"]["lanes"][1]["name"] = "<a href='javascript:window.hit=1'>SureLock</a> %{x}"
    return document


def look_everywhere(page: Page) -> None:
    """Make every part show its text."""
    assert page.locator(".sl-reading[open]").count() == page.locator(".sl-reading").count() > 0
    for cell in range(14, 40):
        page.evaluate("(cell) => { surelock.page.set({ hover: cell }); }", cell)
    page.evaluate("() => { surelock.stage.cells.pin(15); surelock.stage.cells.pin(16); }")
    for tab in ("Runs", "Export", "About", "Analysis"):
        page.click(f"role=tab[name='{tab}']")
    page.evaluate("surelock.stage.lower.scrollIntoView()")
    until(page, "document.querySelector('.sl-plot')?.data?.length >= 4")  # a plot draws names, too


def hostile_lesson() -> dict[str, Any]:
    """A lesson for the hostile run whose every text is hostile."""
    lesson = json.loads((ROOT / "assets" / "lessons" / "1-unmasking.json").read_text("utf-8"))
    told = "".join(HOSTILE)
    option = {"id": "a", "text": told}
    asked = {
        "kind": "choose",
        "ask": told,
        "answer": {"is": "saved_more", "lane": "subject", "tie": 0},
    }
    pages = [
        {
            "kind": "predict",
            "text": told,
            "shows": ["grids"],
            "explains": HOSTILE[:2],
            "question": asked | {"options": [option, option]},
        },
        {"kind": "gap", "text": told, "shows": ["grids"]},
    ]
    needs = [{"lane": "reference", "compute": "everything"}]
    return lesson | {"title": told, "pages": pages, "run": {"recorded": "stories", "needs": needs}}


def test_hostile_tokens_in_a_replay(page, tmp_path, monkeypatch):
    """And in a lesson that the replay holds."""
    found = {"lessons": [hostile_lesson()], "problems": HOSTILE}
    monkeypatch.setattr(replay, "read_lessons", lambda: found)
    replay.replay_shell.cache_clear()
    replayed(page, tmp_path, hostile_trace())
    replay.replay_shell.cache_clear()
    look_everywhere(page)
    unharmed(page)
    legend = page.locator(".sl-plot .legendtext").all_text_contents()
    assert "<a href='javascript:window.hit=1'>SureLock</a> % {x}, median" in legend
    page.click("role=button[name='Lessons']")
    assert page.locator(".sl-lesson-problem").all_inner_texts()[1] == HOSTILE[1]
    page.click("text=Begin")
    page.locator(".sl-lesson input[type=radio]").first.check()
    page.click("text=This is my prediction")
    page.wait_for_selector(".sl-lesson-gap")
    unharmed(page)


def test_hostile_links(page, app):
    visit(
        page,
        app.url,
        gen_length=128,
        steps=128,
        prompt=HOSTILE[0],
        unmask=HOSTILE[2],
        model=HOSTILE[1],
        lanes=json.dumps(
            [{"name": HOSTILE[0], "compute": {"kind": "lock"}}, *HOSTILE, {"compute": HOSTILE[2]}]
        ),
        seed="1;alert(1)",
    )
    unharmed(page)
    assert page.locator(".sl-lane-preset").first.input_value() == "own"
