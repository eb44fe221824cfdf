"""The page on paper."""

import re

import pytest

from tests.browser.actions import visit

BLANK = """(canvases) => canvases.map((canvas) => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(data.buffer)).size < 20;
})"""
SEEN = """() => [...document.body.children].filter((node) => node.getClientRects().length)
  .map(({ className }) => className)"""
TEXTS = """async () => {
  const { textOf } = await import(new URL("surelock/js/trace/prose.js", document.baseURI).href);
  const { trace } = surelock.stage;
  return trace.lanes.map((lane) => textOf(trace, lane, trace.count - 1));
}"""


@pytest.mark.usefixtures("modules")
def test_print_gives_a_handout(page, app):
    page.emulate_media(color_scheme="dark")
    visit(page, app.url, prompt="Tom had a small red boat.")
    page.evaluate("surelock.stage.timeline.pause()")
    assert page.evaluate("document.body.classList.contains('dark')")
    page.evaluate("surelock.stage.parts.panels.use(() => null)")  # it comes when the race is over
    before = page.evaluate(SEEN)
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(SEEN) == ["sl-handout"]
    handout = page.locator(".sl-handout")
    pictures = handout.locator("canvas")
    assert pictures.evaluate_all(BLANK) == [False] * 3
    assert handout.locator("figcaption").all_inner_texts() == [
        f"After step {step} of 128" for step in (43, 85, 128)
    ]
    corner = (
        "(canvas) => [...canvas.getContext('2d').getImageData(0, canvas.height - 1, 1, 1).data]"
    )
    assert pictures.first.evaluate(corner)[3] == 0  # paper shows through
    told = handout.inner_text()
    texts = page.evaluate(TEXTS)
    plain = " ".join(told.split())
    assert all(" ".join(text.split()) in plain for text in texts) and len(texts[0]) > 100
    share = page.evaluate(
        "((trace) => trace.totals(trace.lanes[1], trace.race.last).flopsShare)(surelock.stage.trace)"
    )
    assert all(
        word in told
        for word in ("Prompt: ", f"{100 * (1 - share):.0f} % less work", "Percentile m", "lanes=")
    )
    assert handout.locator("button, input").count() == 0 and not page.evaluate(
        "document.body.matches('.dark')"
    )
    ink = handout.evaluate("(node) => getComputedStyle(node).color")
    assert ink == "rgb(23, 32, 46)"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="screen", color_scheme="dark")
    assert page.evaluate(SEEN) == before and handout.count() == 0
    assert page.evaluate("document.body.classList.contains('dark')")

    # the browser's own printing, with its own events
    pages = re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4"))
    assert 1 < len(pages) < 4
    assert handout.count() == 0

    # in light it stays light
    page.evaluate("document.body.classList.remove('dark')")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert not page.evaluate("document.body.classList.contains('dark')")
