"""A visit's runs, and the way of their settings back into the form."""

import pytest
from checkpoints import write_chat_model
from playwright.sync_api import expect

from tests.browser.actions import visit, wait_for_run
from tests.browser.server import ROOT, serve

PROMPT = "Tom had a small red boat. One day"


def test_a_runs_settings_go_back_into_the_form(page, app):
    visit(page, app.url, prompt=PROMPT)
    page.click("role=tab[name='Runs']")
    page.click("button[aria-label='Use these settings, of run 1']")
    page.wait_for_function(
        "document.querySelector('#sl-gen-length input[type=number]').value === '128'"
    )
    expect(page.locator(".sl-status")).to_contain_text("The form holds the settings")
    told = page.evaluate("surelock.stage.trace.header")
    expect(page.locator("#sl-prompt textarea")).to_have_value(told["prompt"])
    names = [lane["name"] for lane in told["lanes"]]
    expect(page.locator(".sl-lane-preset")).not_to_have_count(0)
    shown = [
        lane.evaluate("(one) => one.selectedOptions[0].text")
        for lane in page.locator(".sl-lane-preset").all()
    ]
    assert shown == names
    lanes = page.evaluate(
        "surelock.stage.trace.header.lanes.map(({ compute }) => compute.epsilon ?? null)"
    )
    page.locator(".sl-lane-details summary").nth(1).click()
    assert (
        page.locator(".sl-lane").nth(1).locator(".sl-field-value").first.inner_text() == "5e-4"
        and lanes[1] == 5e-4
    )
    assert page.evaluate("surelock.live.run") is None  # nothing runs until Run is pressed

    page.evaluate("surelock.stage.trace.header.model.name = 'another'")
    page.click("button[aria-label='Use these settings, of run 1']")
    expect(page.locator(".sl-status")).to_have_text("This page does not offer that model.")


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """A page that offers more models than the embedded one."""
    folder = tmp_path_factory.mktemp("models")
    tales = folder / "tales"
    qwen = folder / "qwen"
    tales.symlink_to(ROOT / "assets" / "stories")
    write_chat_model(qwen)
    with serve("--model", "stories", str(tales), str(qwen)) as app:
        yield app


def test_settings_come_with_their_model_and_a_real_models_folder_runs(page, several):
    """The model changes and takes the prompt and the settings along, not its own examples and recommendations. Qwen3's
    kind runs in its own template, in the blocks that suit its family.
    """
    visit(page, several.url)
    label = page.locator("input[aria-label='Model']")
    expect(label).to_have_value("stories")
    page.evaluate("surelock.stage.trace.header.model.name = 'tales'")
    page.evaluate("surelock.stage.trace.header.prompt = 'A fox ran'")
    page.click("role=tab[name='Runs']")
    page.click("button[aria-label='Use these settings, of run 1']")
    expect(label).to_have_value("tales")
    expect(page.locator(".sl-status")).to_contain_text("The form holds the settings")
    expect(page.locator("#sl-prompt textarea")).to_have_value("A fox ran")
    expect(page.locator("#sl-gen-length input[type=number]")).to_have_value("128")

    visit(page, several.url, model="qwen", prompt="What is a fox?", gen_length=64, steps=64)
    page.click("#sl-run")  # and it begins when the model is loaded
    wait_for_run(page, 64)
    header = page.evaluate("surelock.stage.trace.header")
    assert header["model"]["name"] == "qwen"
    assert header["lanes"][0]["settings"]["block_length"] == 32
    assert header["mask_id"] == 1 and header["length"] == len(header["prompt_tokens"]) + 64
