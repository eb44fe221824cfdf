"""The page where the visitor's browser decodes: what it shows is what it shows of the server's runs."""

import json
import socket
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

from surelock.trace.table import read_trace
from tests.browser.actions import exported, run_to_end, seek, settled, until, visit
from tests.browser.server import App, serve
from tests.browser.test_site import touched
from tests.waiting import HANGS

OFFER = "This server can compute it instead: choose it in the settings."
COMMITS = "surelock.live.run.trace.lanes.map(({ steps }) => steps.map(({ unmasked, locked }) => [unmasked, locked]))"

DAMAGE = "surelock.live.run.trace.lanes.map(({ steps }) => steps.at(-1).damage)"


def here(page: Page, app: App, **settings: Any) -> Page:
    """The page, whose browser computes what is run next."""
    visit(page, app.url, **settings)
    page.select_option(".sl-action-where", "browser")
    return page


def plain(page: Page, expression: str) -> Any:
    return json.loads(
        page.evaluate(
            f"JSON.stringify({expression}, (_, value) => value?.buffer ? [...value] : value)"
        )
    )


def test_a_run_here_is_the_servers_and_all_that_is_asked_of_it_answers(page, app, tmp_path):
    visit(page, app.url)
    run_to_end(page)
    commits = plain(page, COMMITS)
    damage = plain(page, DAMAGE)
    page.select_option(".sl-action-where", "browser")
    run_to_end(page)
    assert page.evaluate("surelock.live.run.id").startswith("browser-")
    assert plain(page, COMMITS) == commits
    for ours, other in zip(plain(page, DAMAGE), damage, strict=True):
        assert ours.keys() == other.keys()
        for name in ("mean", "regret"):
            assert ours[name] == pytest.approx(other[name], rel=1e-3, abs=1e-5)

    looked = "surelock.source.SOURCE.attended(surelock.stage.trace, surelock.stage.trace.lanes[1], 16, 6)"
    found = [page.evaluate(looked.replace("SOURCE", source)) for source in ("browser", "server")]
    assert len(found[0]) > 3 and [at for at, _ in found[0]] == [at for at, _ in found[1]]
    assert [share for _, share in found[0]] == pytest.approx(
        [share for _, share in found[1]], abs=2e-4
    )

    cell = 16
    asked = []
    page.on(
        "request",
        lambda request: asked.append(request.url) if "/gradio_api/" in request.url else None,
    )
    step = page.evaluate(
        f"surelock.stage.trace.lanes[1].steps.findIndex(({{ unmasked }}) => unmasked.includes({cell}))"
    )
    seek(page, step)
    page.evaluate(
        f"surelock.stage.cells.pin({cell}); surelock.stage.cells.open({cell}, surelock.stage.sides[1])"
    )
    line = page.locator(".sl-attended", has_text="attended most to").first
    expect(line).to_be_visible()
    assert page.locator(".sl-drawer").inner_text().count("%") >= 5, "likely words"
    assert touched(page) == 2
    alike = "surelock.starting.raceLike(surelock.stage.trace, surelock.stage.trace.lanes.map(({ decoder }) => decoder))"
    assert page.evaluate(alike) == "", "a lesson's own run"
    until(page, "surelock.live.run?.trace?.lanes.length === 2 && surelock.live.run.over")
    frames = read_trace(exported(page, tmp_path))
    assert frames.lanes.engine.str.startswith("onnxruntime-web").all()
    assert [url for url in asked if "heartbeat" not in url] == [], "the server is asked nothing"


def test_nothing_is_fetched_before_a_run_is_asked_for_and_a_second_visit_is_ready(page, app):
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    here(page, app, gen_length=8, steps=8)
    settled(page)
    parts = [url for url in asked if "worker.js" in url or "/stories/" in url]
    assert parts == [] and page.workers == []
    run_to_end(page)
    asked.clear()
    here(page, app, gen_length=8, steps=8)
    until(page, "surelock.page.now.decoder")
    run_to_end(page)
    assert [url for url in asked if "sha256=" in url] == [], "it was kept"


def test_what_this_browser_lacks_is_said_and_the_server_offered(page, app):
    page.add_init_script("delete window.Worker")
    here(page, app)
    page.click("#sl-run")
    expect(page.locator(".sl-status")).to_have_text(
        f"This browser cannot decode: it has no Worker. {OFFER}"
    )
    assert page.evaluate("surelock.stage.trace === surelock.page.now.recorded")
    page.select_option(".sl-action-where", "server")
    run_to_end(page)


def test_over_plain_http_at_a_numeric_address(window):
    """No secure context: no store, no crypto.subtle. And a server that computes nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # nothing is sent
        own = probe.getsockname()[0]
    if own.startswith("127."):
        pytest.skip("this machine has no address but its own")
    with serve("--decode-in", "browser", "--host", "0.0.0.0") as app:
        url = app.url.replace("127.0.0.1", own)
        page = window()
        page.goto(f"{url}/?gen_length=8&steps=8")
        until(page, "window.surelock?.stage.trace")
        assert page.evaluate("[isSecureContext, 'caches' in self]") == [False, False]
        assert not page.is_visible(".sl-action-where"), "there is nothing to choose"
        page.click(".sl-action-run")
        until(page, "surelock.live.run?.over")
        missing = "Over plain http a browser keeps no files of a page: the next visit may fetch the decoder again."
        expect(page.locator(".sl-status")).to_have_text(missing)
        said = httpx.post(f"{app.url}/gradio_api/call/v2/decode", json={"prompt": "A"}).json()[
            "event_id"
        ]
        answer = httpx.get(f"{app.url}/gradio_api/call/decode/{said}", timeout=HANGS).text
        assert "This server computes no runs (--decode-in browser)" in answer
