"""`surelock site`: the page without a server, under a path of a file server and as one file from a disk."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from surelock.__main__ import main
from surelock.trace.frames import read_trace
from tests.browser.actions import seek, serious, until
from tests.browser.hands import Mouse
from tests.browser.test_lessons import LESSONS_THERE, SHORT, opened, play

QUERY = "gen_length=16&steps=16&block_length=16&race=steps"


class Quiet(SimpleHTTPRequestHandler):
    """A plain file server."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the site under /a/b/."""
    root = tmp_path_factory.mktemp("served")
    main(["site", str(root / "a" / "b")])
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=root)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/a/b/"
        server.shutdown()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("file") / "surelock.html"
    main(["site", "--one-file", str(path)])
    assert path.stat().st_size < 30e6
    return path


def run(page: Page) -> None:
    before = page.evaluate("surelock.live.run?.id ?? null")
    page.click(".sl-action-run")
    until(page, f"(surelock.live.run?.id ?? null) !== {json.dumps(before)} && surelock.live.run.over", 90)


def all_that_it_can(page: Page, url: str) -> None:
    """A run, a what-if, an export, and a lesson to its end."""
    page.goto(f"{url}?{QUERY}")
    until(page, "window.surelock?.stage.trace && Number(surelock.stage.root.dataset.step) >= 1")
    assert serious(page) == []
    run(page)
    lanes = page.evaluate("surelock.stage.trace.lanes.length")
    seek(page, 6)
    cell = page.evaluate("surelock.stage.trace.lanes[1].steps[6].unmasked[0]")
    page.evaluate(f"surelock.stage.pin({cell}); surelock.stage.drawer.open({cell}, surelock.stage.sides[1])")
    page.click(".sl-whatif summary")
    page.fill(".sl-whatif input[type=text]", "dog")
    page.press(".sl-whatif input[type=text]", "Enter")
    until(page, f"surelock.live.run?.trace?.lanes.length === {lanes + 1} && surelock.live.run.over", 60)
    assert "dog" in page.evaluate("surelock.stage.trace.lanes.at(-1).name")
    page.keyboard.press("Escape")
    page.click("role=tab[name='Export']")
    with page.expect_download() as download:
        page.click("text=Trace (JSON)")
    frames = read_trace(json.loads(Path(download.value.path()).read_text("utf-8")))
    assert frames.lanes.engine.str.startswith("onnxruntime-web").all() and len(frames.lanes) == lanes + 1
    lesson = LESSONS_THERE[0]
    opened(page, url, lesson["name"])
    page.evaluate("(own) => Object.assign(surelock.stage.lessons.lesson.run.settings ??= {}, own)", SHORT)
    play(page, Mouse(page), lesson, right=True, own=True)


def test_under_a_path_of_a_plain_file_server(page: Page, folder: str) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    all_that_it_can(page, folder)
    assert all(url.startswith((folder, "blob:", "data:")) for url in asked)


def test_one_file_from_a_disk_with_the_network_off(page: Page, file: Path) -> None:
    page.context.set_offline(True)
    all_that_it_can(page, file.as_uri())


def test_a_link_fills_the_form_and_what_it_cannot_hold_is_said(page: Page, folder: str) -> None:
    page.goto(f"{folder}?gen_length=24&steps=24&block_length=8&prompt=A+dog&model=other")
    until(page, "window.surelock?.stage.trace")
    assert page.input_value("#sl-prompt textarea") == "A dog"
    assert page.get_attribute("#sl-gen-length input", "aria-valuetext") == "24"
    assert page.input_value("#sl-block-length select") == "8"
    run(page)
    assert page.evaluate("surelock.live.run.trace.lanes[0].decoder.settings.block_length") == 8
    assert page.evaluate("surelock.live.run.trace.count") == 24


def test_a_part_that_breaks_off_or_came_changed_is_one_sentence_and_a_second_press_decodes(
    page: Page, folder: str
) -> None:
    whole = "**/model-00001-*"
    for damage in (
        lambda body: body[: len(body) * 6 // 10],
        lambda body: body[:-9] + bytes([body[-9] ^ 1]) + body[-8:],
    ):
        page.goto(f"{folder}?{QUERY}")
        until(page, "window.surelock?.stage.trace")
        page.route(whole, lambda route, _, damage=damage: route.fulfill(body=damage(route.fetch().body())))
        page.click(".sl-action-run")
        expect(page.locator(".sl-status")).to_contain_text("model-00001", timeout=30_000)
        assert page.inner_text(".sl-status").count(".") <= 3, page.inner_text(".sl-status")
        assert page.evaluate("surelock.stage.trace === surelock.page.now.recorded")
        page.unroute(whole)
    run(page)


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "index.html").write_text("my own page", "utf-8")
    for arguments, said in {
        (str(tmp_path),): "holds something else",
        (str(tmp_path / "index.html"),): "DIR must be a folder",
        ("--one-file", str(tmp_path / "page.txt")): ".html",
    }.items():
        assert main(["site", *arguments]) == 2
        told = capsys.readouterr().err
        assert said in told and told.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]
