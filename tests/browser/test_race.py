"""The race by the clock, its chapters, and what the address and the tab keep of it."""

from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Page, expect

from tests.browser.actions import SHORT, arrive, run_to_end, seek, shows, status, until, visit


def reload(page: Page) -> None:
    page.reload()
    page.wait_for_function(
        "window.surelock?.stage.trace && Number(surelock.stage.root.dataset.step) >= 0"
    )


def address(page: Page) -> dict[str, list[str]]:
    page.evaluate("surelock.addressing.write()")  # it does so by itself a third of a second later
    return parse_qs(urlsplit(page.url).query)


def test_the_address_holds_step_pins_and_race_and_a_reload_brings_them_back(page, app):
    arrive(page, app.url)
    assert urlsplit(page.url).query == ""
    seek(page, 40)
    page.evaluate("surelock.stage.cells.pin(30)")
    page.keyboard.press("s")
    page.evaluate("surelock.stage.colouring.choose('kl')")
    assert address(page) == {"step": ["41"], "pins": ["30"], "race": ["steps"], "colour": ["kl"]}
    reload(page)
    shows(page, 40)
    assert page.evaluate("surelock.stage.view") == {
        "step": 40,
        "pins": [30],
        "byClock": False,
        "colour": "kl",
    }
    page.goto(f"{app.url}/gradio_api/info")
    page.go_back()
    page.wait_for_function("window.surelock?.stage.trace")
    shows(page, 40)


def test_a_reload_brings_back_the_runs_of_this_tab_and_the_form(page, app):
    visit(page, app.url, prompt="The little dog ran to the")
    run_to_end(page)
    seek(page, 9)
    page.evaluate("surelock.stage.cells.pin(12)")
    there = address(page)
    assert (
        there["prompt"] == ["The little dog ran to the"]
        and there["step"] == ["10"]
        and there["pins"] == ["12"]
    )
    tokens = page.evaluate("[...surelock.stage.sides[1].labels.tokens]")
    reload(page)
    shows(page, 9)
    assert page.evaluate("[...surelock.stage.sides[1].labels.tokens]") == tokens
    assert "As you left it" in page.inner_text(".sl-run-label") and status(page) == ""
    assert page.evaluate("surelock.stage.runs.entries.map(({source}) => source)") == [
        "recorded",
        "live",
    ]
    until(
        page, "document.querySelector('#sl-prompt textarea').value === 'The little dog ran to the'"
    )
    until(page, "document.querySelector('#sl-gen-length input[type=number]').value === '24'")
    for more in (" old", " 龍" * 3000):  # the second is too long for an address
        page.click("#sl-prompt textarea")
        page.keyboard.press("ControlOrMeta+End")
        page.keyboard.insert_text(more)
        until(page, f"surelock.page.now.prompt.endsWith('{more}')")
        address(page)
        reload(page)
        until(page, f"document.querySelector('#sl-prompt textarea')?.value.endsWith('{more}')")


def test_a_shared_link_is_computed_at_once_and_says_what_it_lacks(page, app):
    query = "&".join(f"{name}={value}" for name, value in SHORT.items())
    arrive(page, f"{app.url}/?{query}&prompt=The+cat&step=7&pins=5,900&race=steps")
    assert page.evaluate("surelock.stage.trace.header.prompt") == "The cat"
    page.wait_for_function("document.querySelector('#sl-prompt textarea').value === 'The cat'")
    page.wait_for_function("surelock.live.run && surelock.stage.root.dataset.state === 'idle'")
    shows(page, 23)
    assert page.evaluate("surelock.stage.view") == {
        "step": 23,
        "pins": [5],
        "byClock": False,
        "colour": "state",
    }
    lacks = "This run lacks what the link asks for: some of its pinned positions."
    assert status(page) == f"The link points at step 7. {lacks}"
    assert "step" not in address(page)
    expect(page.locator(".sl-verdict")).to_contain_text("work")
