"""Many visitors at once, and visitors that leave: nobody sees another's run, and nothing stays behind."""

import json
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page

from tests.browser.actions import SHORT, run_to_end, until, visit, wait_for_run
from tests.browser.server import App
from tests.browser.visitor import Visitor


def one_run(app: App, number: int) -> tuple[str, str, str, int]:
    """A visitor's whole visit: (prompt sent, id of the run, prompt that came back, steps)."""
    visitor = Visitor(app.url)
    prompt = f"Visitor {number} saw {number} birds. They"
    seen = list(visitor.run(prompt=prompt, gen_length=16, steps=16, block_length=16))
    visitor.close()
    return (
        prompt,
        visitor.id,
        seen[0]["open"]["header"]["prompt"],
        sum("records" in message for message in seen),
    )


@pytest.mark.parametrize("many", [5, pytest.param(20, marks=pytest.mark.long)])
def test_many_visitors_at_once(app: App, many: int) -> None:
    def crowd(first: int) -> list[tuple[str, str, str, int]]:
        with ThreadPoolExecutor(many) as pool:
            return list(pool.map(lambda number: one_run(app, number), range(first, first + many)))

    visits = crowd(0)  # the first crowd fills the server's own caches
    before = app.memory()
    visits += crowd(many)
    assert all(sent == back and steps == 16 for sent, _, back, steps in visits)
    assert len({run for _, run, *_ in visits}) == 2 * many
    assert app.memory() < 1.05 * before, before


def test_a_closed_tab_stops_computing_and_frees_its_run(page: Page, app: App) -> None:
    other = Visitor(app.url)
    visit(page, app.url, gen_length=160, steps=160)
    page.click("#sl-run")
    wait_for_run(page, 5)
    run = page.evaluate("surelock.live.run.id")
    page.close()
    assert list(other.run(gen_length=8, steps=8, block_length=8))[-1]["end"] == "finished"
    assert len(other.trace(run)["records"]) < 2 * 160, "the other run came before its end"
    other.close()


def test_two_tabs_have_a_run_each(page: Page, app: App) -> None:
    """The second is opened from the first, whose storage it copies, while the first one's run is computed."""
    prompts = ("A fox saw a hen. It", "Mia had a red kite")
    visit(page, app.url, gen_length=64, steps=64, prompt=prompts[0])
    page.click("#sl-run")
    wait_for_run(page, 2)
    with page.expect_popup() as opened:
        page.evaluate(
            "(url) => void open(url)", f"{app.url}/?{urlencode({**SHORT, 'prompt': prompts[1]})}"
        )
    other = opened.value
    until(
        other,
        "window.surelock?.stage.trace && document.querySelector('#sl-gen-length input')?.value == 24",
    )
    run_to_end(other)
    until(page, "surelock.stage.root.dataset.state === 'idle' && !surelock.stage.trace.race.live")
    shown = "(({ header, count }) => [header.prompt, count])(surelock.stage.trace)"
    for each, expected in ((page, [prompts[0], 64]), (other, [prompts[1], 24])):
        assert each.evaluate(shown) == expected
        each.reload()
        until(each, f"window.surelock?.stage.trace && {shown}[0] === {json.dumps(expected[0])}")
        assert each.evaluate(shown) == expected
