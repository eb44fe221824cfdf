"""The race as a video and as a picture, made in the browser from a replay that stands alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.actions import exported, recorded, replayed, until
from tests.browser.server import ROOT

PARTS = "".join(
    f'export * from "./assets/js/{part}.js";' for part in ("export/poster", "stage/theme", "stage/narrator")
)
SAID = ".sl-share [role=status]"
LENGTH_OF = """async (video) => {
  if (!video.videoWidth) await new Promise((resolve) => { video.onloadedmetadata = resolve; });
  video.currentTime = 13.5;
  await new Promise((resolve) => { video.onseeked = resolve; });
  return [video.duration, video.videoWidth, video.videoHeight];
}"""

WRITTEN = """async () => {
  const { Poster, stepsAfter, palette } = modules;
  const { trace, root } = surelock.stage;
  const said = [], pen = CanvasRenderingContext2D.prototype, write = pen.fillText;
  pen.fillText = function (text, ...at) {
    said.push(text);
    write.call(this, text, ...at);
  };
  const poster = new Poster(document.createElement("canvas"), trace, palette(root), { texts: true });
  const all = trace.race.pacemaker.seconds;
  const steps = [-1, 0.9 * all, all].map((elapsed) => stepsAfter(trace, elapsed));
  const told = steps.map((each) => {
    said.length = 0;
    poster.draw(each);
    return said.join(" ");
  });
  pen.fillText = write;
  return [steps, told];
}"""


@pytest.fixture
def replay(page: Page, tmp_path: Path) -> Page:
    """The recorded run as a file, at rest, at its exports; the network is off."""
    if not (ROOT / "node_modules").is_dir():
        pytest.skip("no node_modules: npm ci")
    page.context.set_offline(True)
    replayed(page, tmp_path, recorded())
    page.evaluate("surelock.stage.timeline.pause()")
    page.click("role=tab[name='Export']")
    build = [str(ROOT / "node_modules" / ".bin" / "esbuild"), "--bundle", "--format=iife", "--global-name=modules"]
    made = subprocess.run(build, input=PARTS, cwd=ROOT, capture_output=True, text=True, check=True)
    page.add_script_tag(content=made.stdout)
    return page


@pytest.mark.long
def test_the_video_is_a_webm_of_the_length_it_says(replay: Page, tmp_path: Path) -> None:
    replay.click("text=Race (video)")
    until(replay, "document.querySelector('.sl-filming progress').value > 0")
    replay.click(".sl-filming button")
    expect(replay.locator(SAID)).to_have_text("The video was cancelled.")
    assert replay.locator(".sl-filming").is_hidden()

    with replay.expect_download(timeout=120_000) as waiting:
        replay.click("text=Race (video)")
        expect(replay.locator(".sl-filming")).to_contain_text("Making the video")
        until(replay, "document.querySelector('.sl-filming progress').value > 0.1")
    path = tmp_path / "race.webm"
    waiting.value.save_as(path)
    assert waiting.value.suggested_filename.endswith(".webm")
    expect(replay.locator(SAID)).to_have_text("Done.")
    assert replay.locator(".sl-filming").is_hidden()
    replay.evaluate("() => { delete window.VideoEncoder; }")
    replay.click("text=Race (video)")
    expect(replay.locator(SAID)).to_contain_text("This browser makes no video here")
    data = path.read_bytes()
    assert data[:4] == b"\x1aE\xdf\xa3" and b"V_VP8" in data[:400] and len(data) > 100_000
    (tmp_path / "show.html").write_text('<video src="race.webm" muted></video>')
    replay.goto((tmp_path / "show.html").as_uri())
    assert replay.locator("video").evaluate(LENGTH_OF) == [14, 1280, 720]
    assert len(set(replay.locator("video").screenshot())) > 200  # a picture, not one colour


def test_the_picture_shows_the_end(replay: Page, tmp_path: Path) -> None:
    """A file of its size; and every word that is drawn, also during the race: names, verdict, numbers, texts."""
    data = exported(replay, tmp_path, "Picture (PNG)").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert [int.from_bytes(data[at : at + 4], "big") for at in (16, 20)] == [1600, 900] and len(data) > 50_000

    (start, late, end), (_, race, told) = replay.evaluate(WRITTEN)
    assert start == [-1, -1] and end == [127, 127] and late[1] == 127 and 100 < late[0] < 127
    assert "“SureLock” has finished; “Every token” is still at work." in race
    names = replay.evaluate("surelock.stage.trace.header.lanes.map(({ name }) => name)")
    assert all(name in told for name in names)
    verdict = replay.evaluate("modules.verdict(surelock.stage.trace)")
    assert verdict in told
    replay.evaluate("surelock.stage.timeline.seek(127)")
    until(replay, "Number(surelock.stage.root.dataset.step) === 127")
    for written in replay.locator(".sl-text").all_inner_texts():
        assert " ".join(written.split())[:200] in told
    share = replay.evaluate(
        "((trace) => trace.totals(trace.lanes[1], trace.race.last).flopsShare)(surelock.stage.trace)"
    )
    assert "masked active resting locked differs from the reference" in told
    assert f"{100 * share:.0f} % of all FLOPs" in told
