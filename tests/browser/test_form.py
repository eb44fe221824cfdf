"""The form in a real browser: an early Run, half a link, the queue and the way out of it, Pause and Stop."""

from urllib.parse import urlencode

from playwright.sync_api import Page, Route, expect

from tests.browser.actions import run_to_end, until, visit, wait_for_run


def set_length(page: Page, length: int) -> None:
    field = page.locator("#sl-gen-length input[type=number]")
    field.fill(str(length))
    field.press("Tab")


def shows(page: Page, length: int, steps: int, block: int) -> None:
    for name, value in (("gen-length", length), ("steps", steps)):
        expect(page.locator(f"#sl-{name} input[type=number]")).to_have_value(str(value))
    expect(page.locator("#sl-block-length input")).to_have_value(str(block))


def test_run_pressed_before_the_form_is_filled_starts_once_it_is(page, app):
    link = {
        "prompt": "A red hen sat",
        "gen_length": 24,
        "steps": 12,
        "seed": 3,
        "lanes": '["klass"]',
    }
    page.add_init_script(
        """new MutationObserver((_, observer) => {
      const run = document.querySelector(".sl-action-run");
      if (!run || !window.surelock) return;
      observer.disconnect();
      window.early = !surelock.page.now.arrived;
      run.click();
      window.answer = document.querySelector(".sl-status").textContent;
    }).observe(document, { childList: true, subtree: true });"""
    )
    page.goto(f"{app.url}/?{urlencode(link)}")
    page.wait_for_function("window.surelock?.live.run")
    wait_for_run(page, 1)
    assert page.evaluate("!early || answer.includes('the run starts once they are here')")
    header = page.evaluate("surelock.stage.trace.header")
    assert header["prompt"] == "A red hen sat" and [each["name"] for each in header["lanes"]] == [
        "KLASS"
    ]
    settings = header["lanes"][0]["settings"]
    assert [settings[name] for name in ("gen_length", "steps", "seed")] == [24, 12, 3]


def test_a_run_that_was_pressed_before_the_recorded_one_came_stays_on_show(page, app):
    held: list[Route] = []
    page.route("**/runs/stories.json*", lambda route: held.append(route))
    page.goto(app.url)
    page.wait_for_function("window.surelock?.page.now.arrived")
    page.click(".sl-action-run")
    page.wait_for_function("surelock.live.run?.trace.count > 0")
    for route in held:
        route.continue_()
    until(page, "surelock.page.now.recorded")
    wait_for_run(page, 1)
    assert page.evaluate("surelock.stage.trace === surelock.live.run.trace")


def test_lengths_come_back_and_none_that_is_offered_is_refused(page, app):
    page.goto(app.url)
    page.wait_for_function(
        "window.surelock?.stage.trace && document.querySelector('#sl-gen-length')"
    )
    page.click("text=More settings")
    shows(page, 64, 64, 32)
    for length, block in ((32, 32), (28, 28), (16, 16), (64, 32)):
        set_length(page, length)
        shows(page, length, length, block)
    set_length(page, 9999)
    expect(page.locator("#sl-gen-length")).to_contain_text("to what fits beside the prompt")
    shows(page, 496, 496, 31)
    assert page.get_attribute("#sl-gen-length input[type=range]", "max") == "496"
    page.fill("#sl-prompt textarea", "dog " * 200)
    expect(page.locator("#sl-prompt")).to_contain_text("tokens of the 512 that fit here.")
    expect(page.locator("#sl-gen-length input[type=range]")).not_to_have_attribute("max", "496")
    longest = int(page.get_attribute("#sl-gen-length input[type=range]", "max") or 0)
    expect(page.locator("#sl-gen-length input[type=number]")).to_have_value(str(longest))
    page.click("#sl-run")
    wait_for_run(page, 1)
    page.click(".sl-control-stop")
    page.fill("#sl-prompt textarea", "dog " * 501)
    for note in page.locator(".sl-writes").all():
        expect(note).to_have_text(
            "Too long: 503 tokens; at most 512 fit here, 16 of them for the answer."
        )
    page.fill("#sl-prompt textarea", "A red hen sat")
    expect(page.locator("#sl-gen-length input[type=range]")).to_have_attribute("max", "504")
    expect(page.locator(".sl-model-badge")).to_contain_text("writes children's stories")


def test_selection_and_unlocking_are_set_in_plain_words_and_run(page, app):
    """And Tab leaves no list open, Escape closes it."""
    visit(page, app.url)
    options = page.locator("[role=listbox]")
    page.click("text=More settings")
    page.focus("#sl-block-length input")
    expect(options).to_have_count(1)
    page.keyboard.press("Escape")
    expect(options).to_have_count(0)
    page.keyboard.press("Tab")
    expect(page.locator("#sl-block-length input")).not_to_be_focused()
    expect(options).to_have_count(0)
    lane = page.locator(".sl-lane").nth(1)
    lane.locator("summary").click()
    lane.get_by_label("Name").fill("Mine")
    lane.get_by_label("Name").press("Tab")
    lane.get_by_label("Unlock again").check()
    lane.get_by_label("Probe every").wait_for()
    lane.get_by_label("Of the remaining positions, compute").select_option(label="Selection")
    run_to_end(page)
    assert page.evaluate("surelock.stage.trace.lanes[1].name") == "Mine"
    compute = page.evaluate("surelock.stage.trace.lanes[1].decoder.compute")
    assert compute["kind"] == "both" and compute["select"]["kind"] == "select"
    assert compute["lock"]["unlock"]["period"] >= 1


def test_blanks_are_filled_in_as_the_line_under_the_field_says(page, app):
    visit(page, app.url, lanes='["everything", "surelock"]')
    page.fill("#sl-prompt textarea", "Tom found a __ in the garden. He was ___ and ran.")
    expect(page.locator("#sl-prompt .sl-writes")).to_have_text(
        "2 blanks of 2 and 3 tokens, then 24 more."
    )
    set_length(page, 0)
    expect(page.locator(".sl-prompt-box .sl-writes")).to_have_text(
        "2 blanks of 2 and 3 tokens, nothing behind it."
    )
    run_to_end(page)
    assert page.evaluate(
        "[surelock.stage.trace.steps, surelock.stage.trace.header.lanes[0].settings.steps]"
    ) == [
        5,
        None,
    ]
    text = page.locator(".sl-text").first
    for each in page.locator(".sl-text").all():  # also where it differs
        expect(each.locator(".sl-filled")).to_have_count(2)
    assert (text.text_content() or "").startswith("Tom found a ")
    guessed = "surelock.stage.sides[0].labels.faint.filter(Boolean).length"
    page.evaluate("surelock.stage.timeline.seek(1)")
    until(page, f"{guessed} === 3")
    page.locator(".sl-choice input[type=checkbox]").evaluate("(box) => box.click()")
    until(page, f"{guessed} === 0")
    page.reload()
    until(page, "document.querySelector('#sl-prompt textarea')?.value.includes('__')")
    expect(page.locator("#sl-gen-length input[type=number]")).to_have_value("0")
