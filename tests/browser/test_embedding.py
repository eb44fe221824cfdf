"""The stage inside other pages: in a frame of a slide, and in a notebook."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import Frame, Page

import surelock
from surelock.trace.replay import replay_html
from tests.browser.actions import until
from tests.browser.server import ROOT
from tests.browser.test_hostile import hostile_trace

STORIES = ROOT / "assets" / "runs" / "stories.json"
AROUND = "#sl-title, .sidebar, footer, .sl-tabs, .sl-gauges, .sl-lower, .sl-drawer, main > h1"
SEEN = f"() => [...document.querySelectorAll('{AROUND}')].filter((node) => node.getClientRects().length).length"

#: Whether a frame reaches the page around it; the origin of a file is "null" with and without a sandbox.
REACHES = "() => { try { return Boolean(parent.document); } catch { return false; } }"


STANDS = "Number(window.surelock?.stage.root.dataset.step ?? -1) >= 0"


def framed(page: Page, tmp_path: Path, source: str) -> Frame:
    """The stage of a page in a frame of another page, once it shows a step."""
    slide = tmp_path / "slide.html"
    slide.write_text(f'<iframe src="{source}" width="1280" height="720"></iframe>')
    page.goto(slide.as_uri())
    until(page.frames[1], STANDS)
    return page.frames[1]


def test_the_page_in_a_frame(page, app, tmp_path):
    frame = framed(page, tmp_path, f"{app.url}/?embed&alone=1&step=60")
    assert (
        frame.evaluate("document.body.classList.contains('sl-embed')") and frame.evaluate(SEEN) == 0
    )
    assert frame.locator(".sl-side h2").all_inner_texts() == ["SureLock"]
    assert frame.inner_text(".sl-step-label") == "step 60 / 128"
    assert not frame.evaluate("surelock.stage.timeline.playing")
    link = frame.locator("text=Open in SureLock")
    assert (
        link.get_attribute("href") == f"{app.url}/?step=60"
        and link.get_attribute("target") == "_blank"
    )
    assert frame.evaluate("document.documentElement.scrollWidth <= innerWidth")

    frame = framed(page, tmp_path, f"{app.url}/?embed&step=9999999999&lanes=two")
    until(frame, "surelock.live.run?.over")
    assert frame.locator(".sl-side h2").count() == 2 and "damaged at step" in frame.inner_text(
        ".sl-status"
    )


def test_a_replay_in_a_frame(page, tmp_path):
    (tmp_path / "replay.html").write_text(
        replay_html(json.loads(STORIES.read_text("utf-8"))), encoding="utf-8"
    )
    frame = framed(page, tmp_path, "replay.html#embed&step=400")
    assert (
        frame.evaluate("document.body.classList.contains('sl-embed')") and frame.evaluate(SEEN) == 0
    )
    assert (
        frame.inner_text(".sl-step-label") == "step 128 / 128"
        and frame.locator("canvas.sl-grid").count() == 2
    )
    page.goto((tmp_path / "replay.html").as_uri())
    until(page, STANDS)
    assert (
        not page.evaluate("document.body.classList.contains('sl-embed')")
        and page.evaluate(SEEN) > 2
    )
    page.click("role=tab[name='Runs']")
    assert (
        page.locator("button:has-text('Show')").count() > 0
        and page.locator("text=Use these settings").count() == 0
    )


def test_a_trace_in_a_notebook(page, tmp_path):
    """Two cells' output: a trace that would like to be code, and one from a file; the network is off."""
    outputs = [surelock.show(hostile_trace()), surelock.show(str(STORIES), height=500)]
    html = "".join(output._repr_html_() for output in outputs)
    assert len(html) < 5_000_000
    with pytest.raises(ValueError, match="height"):
        surelock.show(str(STORIES), height=0)
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html><meta charset=utf-8><body>{html}", encoding="utf-8")
    page.context.set_offline(True)
    page.goto(path.as_uri())
    frames = page.frames[1:]
    assert len(frames) == 2
    for frame in frames:
        until(frame, STANDS)
        assert frame.evaluate("[origin, window.hit ?? null]") == [
            "null",
            None,
        ] and not frame.evaluate(REACHES)
        frame.evaluate("surelock.stage.timeline.seek(100)")
        frame.wait_for_selector(".sl-stage[data-step='100']")
        assert frame.inner_text(".sl-status") == ""
    assert (
        page.evaluate("window.hit ?? null") is None
        and page.locator("iframe").nth(1).bounding_box()["height"] == 500
    )  # type: ignore[index]
    frames[1].click("role=tab[name='Export']")
    with page.expect_download() as waiting:
        frames[1].click("text=Steps (CSV)")
    waiting.value.save_as(tmp_path / "steps.csv")
    assert (tmp_path / "steps.csv").read_text("utf-8").startswith("lane,step,position")
