"""Many visitors at once, and visitors that leave: nobody sees another's run, and nothing stays behind."""

import json
from urllib.parse import urlencode

from tests.browser.actions import SHORT, run_to_end, until, visit, wait_for_run
from tests.browser.visitor import Visitor


def test_a_closed_tab_stops_computing_and_frees_its_run(page, app):
    other = Visitor(app.url)
    visit(page, app.url, gen_length=160, steps=160)
    page.click("#sl-run")
    wait_for_run(page, 5)
    run = page.evaluate("surelock.live.run.id")
    page.close()
    assert list(other.run(gen_length=8, steps=8, block_length=8))[-1]["end"] == "finished"
    assert len(other.trace(run)["records"]) < 2 * 160, "the other run came before its end"
    other.close()


def test_two_tabs_have_a_run_each(page, app):
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
