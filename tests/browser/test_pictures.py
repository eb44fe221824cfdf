"""The race as a video and as a picture, made in the browser from a replay that stands alone."""

import pytest
from playwright.sync_api import expect

from tests.browser.actions import exported, recorded, replayed, until

SAID = ".sl-share [role=status]"
LENGTH_OF = """async (video) => {
  if (!video.videoWidth) await new Promise((resolve) => { video.onloadedmetadata = resolve; });
  video.currentTime = 13.5;
  await new Promise((resolve) => { video.onseeked = resolve; });
  return [video.duration, video.videoWidth, video.videoHeight];
}"""
WRITTEN = """() => {
  const pen = CanvasRenderingContext2D.prototype, write = pen.fillText;
  window.said = [];
  pen.fillText = function (text, ...at) {
    said.push(text);
    write.call(this, text, ...at);
  };
}"""


@pytest.fixture
def replay(page, tmp_path):
    """The recorded run as a file, at rest, at its exports; the network is off."""
    page.context.set_offline(True)
    replayed(page, tmp_path, recorded())
    page.evaluate("surelock.stage.timeline.pause()")
    page.click("role=tab[name='Export']")
    return page


def test_the_video_is_a_webm_of_the_length_it_says(replay, tmp_path):
    replay.click("text=Race (video)")
    until(replay, "document.querySelector('.sl-filming progress').value > 0")
    replay.click(".sl-filming button")
    expect(replay.locator(SAID)).to_have_text("The video was cancelled.")
    assert replay.locator(".sl-filming").is_hidden()

    with replay.expect_download() as waiting:
        replay.click("text=Race (video)")
        expect(replay.locator(".sl-filming")).to_contain_text("Making the video")
        replay.click("text=Race (video)")  # the first one ends, and its end hides nothing
        until(replay, "document.querySelector('.sl-filming progress').value > 0.3")
        assert replay.locator(".sl-filming").is_visible()
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


def test_the_picture_shows_the_end(replay, tmp_path):
    """A file of its size, in which the lanes' names and the verdict are written."""
    replay.evaluate("surelock.stage.timeline.seek(127)")
    until(replay, "document.querySelector('.sl-verdict').textContent.includes('less work')")
    replay.evaluate(WRITTEN)
    data = exported(replay, tmp_path, "Picture (PNG)").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert [int.from_bytes(data[at : at + 4], "big") for at in (16, 20)] == [1600, 900] and len(
        data
    ) > 50_000
    told = " ".join(replay.evaluate("said"))
    names = replay.evaluate("surelock.stage.trace.lanes.map(({ name }) => name)")
    assert [
        each for each in (*names, replay.inner_text(".sl-verdict-work")) if each not in told
    ] == []
