"""Lanes on the page: one to four lanes, a chosen reference, comparisons under their own names."""

import json
import sys
from typing import Any

from playwright.sync_api import Page, expect

from surelock.trace.table import read_trace
from tests.browser.actions import (
    arrive,
    compare,
    draws,
    exported,
    imported,
    run_to_end,
    seek,
    touch,
    true_states,
    until,
    visit,
)
from tests.browser.server import ROOT, App, serve, wait_for_model

LANES = "surelock.stage.trace.lanes"
FOUR = ["everything", "surelock", "threshold", "dual-cache"]
NAMES = ["Every token", "SureLock", "Parallel threshold", "Dual cache"]


def race(page: Page, app: App, *presets: str, **settings: Any) -> None:
    """Open the page with these lanes, and run them to their end."""
    visit(page, app.url, lanes=json.dumps(presets), **settings)
    run_to_end(page)


def told(page: Page) -> dict[str, Any]:
    """What the stage holds of each lane at its end: name, tokens, states and totals, the same in every page."""
    return page.evaluate(
        """() => Object.fromEntries(surelock.stage.trace.lanes.map((lane) => {
          const { totalFlops, totalRows, lockedCount } = lane.at(1e9), last = lane.count - 1;
          return [lane.name, { tokens: [...lane.tokens(last)], states: [...lane.row(last)], steps: lane.count,
            totals: [totalFlops, totalRows, lockedCount], asked: JSON.stringify(lane.decoder.compute) }];
        }))"""
    )


def test_four_lanes_say_the_same_everywhere(page, app, tmp_path):
    """On the page, in the export, imported, beside any reference, and in the replay offline."""
    race(page, app, *FOUR)
    assert page.locator(".sl-side h2").all_inner_texts() == NAMES
    document = json.loads(exported(page, tmp_path).read_text("utf-8"))
    assert [lane["name"] for lane in document["header"]["lanes"]] == NAMES
    for step in (5, 23):
        seek(page, step)
        for lane in range(4):
            draws(page, lane, true_states(document, lane, step))
    shown = told(page)
    trace = read_trace(document)
    imported(page, document)
    assert told(page) == shown

    flops = trace.steps.groupby("lane", sort=False).flops.sum().tolist()
    seek(page, 23)
    for reference in (1, 3, 0):
        page.locator(".sl-refer").nth(reference).click()
        assert page.locator(".sl-refer[aria-current]").count() == 1
        others = [i for i in range(4) if i != reference]
        assert page.locator(".sl-gauge >> nth=0 >> .sl-gauge-name").all_inner_texts() == [
            NAMES[i] for i in others
        ]
        values = page.locator(".sl-gauge >> nth=0 >> .sl-gauge-value").all_inner_texts()
        assert values == [f"{100 * flops[i] / flops[reference]:.0f} %" for i in others]
        spoken = page.locator(".sl-stage > .sl-hidden").first  # now and then
        expect(spoken).to_contain_text(f"of the computation of {NAMES[reference]}")
    page.locator(".sl-refer").nth(2).click()
    header = json.loads(exported(page, tmp_path).read_text("utf-8"))["header"]
    assert header["reference"] == header["lanes"][2]["id"]

    replay = exported(page, tmp_path, "Replay (HTML)")
    page.goto("about:blank")
    page.context.set_offline(True)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    arrive(page, replay.as_uri())
    seek(page, 17)
    for lane in range(4):
        draws(page, lane, true_states(document, lane, 17))
    assert told(page) == shown
    page.locator(".sl-plot").first.scroll_into_view_if_needed()  # what nobody sees is not drawn
    until(page, "document.querySelector('.sl-plot')?.data?.length >= 4")
    compare(page, 1, 12)
    until(page, "document.querySelectorAll('.sl-top-name').length >= 10")
    how = page.locator(".sl-side-more header p").nth(3).inner_text()
    assert how.startswith("Computes every position when a block begins")
    assert [url for url in asked if url.startswith("http")] == []


def test_a_rule_from_outside_races_three_others(page, tmp_path):
    """The guide's rule, which `--rules` names: chosen in the form, computed by the server, in the export."""
    guide = (ROOT / "docs" / "researchers.md").read_text("utf-8")
    (tmp_path / "my_rules.py").write_text(guide.split("```python\n")[1].split("```")[0], "utf-8")
    program = [sys.executable, str(ROOT / "app.py"), "--rules", "my_rules:StableArgmax"]
    with serve(command=program, cwd=tmp_path, log=tmp_path / "log") as app:
        wait_for_model(app)
        visit(page, app.url, lanes=json.dumps(FOUR), gen_length=16)
        page.locator("select.sl-lane-preset").first.select_option("my_rules:StableArgmax")
        run_to_end(page)
        document = json.loads(exported(page, tmp_path).read_text("utf-8"))
    first = document["header"]["lanes"][0]
    assert first["compute"] == {"kind": "my_rules:StableArgmax", "stable_steps": 3}
    assert first["name"] == "Lock a stable argmax 3"
    records = [record for record in document["records"] if record["lane"] == first["id"]]
    rows = [sum(record["computed"][1::2]) for record in records]
    locks = [len(record["locked"]) for record in records]
    assert rows[:3] == [rows[0]] * 3 and locks[:2] == [0, 0] and locks[2] > 0
    assert all(
        after == before - locked
        for before, after, locked in zip(rows, rows[1:], locks, strict=False)
    )


def test_a_paused_run_is_touched_and_its_race_goes_on_afterwards(page: Page, app: App) -> None:
    visit(page, app.url, gen_length=128, steps=128)
    page.click("#sl-run")
    page.wait_for_function(
        "() => surelock.live.run?.trace.count >= 12 && (surelock.live.pause() || true)"
    )
    expect(page.locator(".sl-status")).to_contain_text("Paused after step")
    assert page.evaluate("surelock.stage.trace.count") < 128
    cell = page.evaluate("surelock.stage.trace.lanes[1].steps[8].unmasked[0]")
    touch(page, 1, cell, "dog")
    assert page.evaluate(f"{LANES}.map(({{ count }}) => count)") == [128, 128]
    page.click(".sl-untouch")
    assert page.evaluate("surelock.stage.trace.count") < 128, "it rests as it did"
    page.click(".sl-control-pause")
    until(page, "surelock.live.run.over")
    assert page.evaluate(f"{LANES}.map(({{ count }}) => count)") == [128, 128]
