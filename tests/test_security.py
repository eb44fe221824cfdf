"""What a stranger may not do with a served page: read files, choose models, upload, see paths, or get no reason."""

import getpass
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.browser.server import ROOT, App, serve, wait_for_model
from tests.browser.visitor import Visitor
from tests.soak.abuse import FILES, GIVEN_AWAY, ROUTES, raw_get
from tests.soak.visits import HOWS, visits
from tests.waiting import HANGS

ADDRESSES = [
    "",
    *[
        "config",
        "theme.css",
        "manifest.json",
        "openapi.json",
        "monitoring",
        "nonsense",
        "surelock/x",
    ],
]
ADDRESSES += [f"gradio_api/{name}" for name in ("info", "openapi.json", "app_id", "nonsense")]
OWN_FILES = [
    str(ROOT / name)
    for name in ("app.py", "requirements.txt", "assets/stories/config.json", ".git/config")
]


@pytest.fixture(scope="module")
def visitor(app: App) -> Iterator[Visitor]:
    made = Visitor(app.url)
    yield made
    made.close()


def gives_nothing_away(text: str) -> None:
    """No file's content, no secret, no path of this machine."""
    found = [part for part in (*GIVEN_AWAY, str(ROOT), str(Path.home()) + "/") if part in text]
    assert found == []
    assert not re.search(r'"/(?:tmp|home|root|usr|opt|var)/', text)


def refused_with_a_reason(answer: httpx.Response) -> None:
    assert 400 <= answer.status_code < 500, answer.text[:200]
    assert answer.text not in ("", "Internal Server Error"), "no reason is given"
    gives_nothing_away(answer.text)


@pytest.mark.parametrize("route", ROUTES)
def test_no_file_route_serves_other_files(app: App, route: str) -> None:
    for path in (*FILES, *OWN_FILES, *(own.lstrip("/").replace("/", "%2f") for own in OWN_FILES)):
        status, text = raw_get(app.url, route + path)
        assert status >= 400, (route, path, text[:100])
        assert not [part for part in GIVEN_AWAY if part in text]


def test_climbing_out_of_every_folder_that_is_served(app: App) -> None:
    for folder in ("scripts", "runs", "stories"):
        for up in ("..", "%2e%2e", ".%2e", "%252e%252e", "..%2f", "..\\", "..;", "....//"):
            for target in ("app.py", "assets/stories/config.json", "etc/passwd"):
                path = f"surelock/{folder}/" + f"{up}/" * 6 + target
                assert raw_get(app.url, path)[0] >= 400, path
        assert raw_get(app.url, f"surelock/{folder}/")[0] >= 400, "lists its files"
    for path in ("surelock/", "surelock/stories/config.json", "surelock/scripts//etc/passwd"):
        assert raw_get(app.url, path)[0] >= 400, path


@pytest.mark.parametrize("folder", ["static/", "assets/", "surelock/scripts/", "gradio_api/file="])
def test_a_name_too_long_for_any_file_is_refused(app: App, folder: str) -> None:
    refused_with_a_reason(httpx.get(f"{app.url}/{folder}{'x' * 5000}"))


def test_uploads_are_refused_or_small(app: App) -> None:
    big = httpx.post(f"{app.url}/gradio_api/upload", files={"files": ("a.bin", b"x" * 3_000_000)})
    refused_with_a_reason(big)
    small = httpx.post(
        f"{app.url}/gradio_api/upload", files={"files": ("../../a.html", b"<script>1</script>")}
    )
    gives_nothing_away(small.text)
    if small.status_code == 200:
        answer = httpx.get(f"{app.url}/gradio_api/file={small.json()[0]}")
        assert answer.headers["content-type"] != "text/html"


def test_only_decode_is_described(app: App) -> None:
    for address in ("gradio_api/info", "gradio_api/info?all_endpoints=true"):
        info = httpx.get(f"{app.url}/{address}").json()
        assert (list(info["named_endpoints"]), info["unnamed_endpoints"]) == (["/decode"], {})
        gives_nothing_away(json.dumps(info))


@pytest.mark.parametrize("address", ADDRESSES)
def test_no_answer_shows_a_path_or_a_secret(app: App, address: str) -> None:
    gives_nothing_away(httpx.get(f"{app.url}/{address}").text)


@pytest.mark.parametrize(
    "name", ["/etc", "../stories", str(ROOT / "assets/stories"), "GSAI-ML/LLaDA-8B-Instruct", ""]
)
def test_the_page_lends_no_other_model(app: App, visitor: Visitor, name: str) -> None:
    with pytest.raises(httpx.HTTPStatusError) as caught:
        visitor.open(model=name, gen_length=8, steps=8, block_length=8)
    assert caught.value.response.json()["detail"] == "model must be one of those this page offers."
    if name:
        assert visitor.state(quote(name, safe="")) == "This page does not offer that model."
        assert "model must be one of" in decode(app, {"model": name})
    page = httpx.get(f"{app.url}/config", params={"model": name})
    gives_nothing_away(page.text)


def decode(app: App, changes: dict[str, Any]) -> str:
    """What /decode says to a request with these parameters."""
    body = json.dumps({"prompt": "A fox", "gen_length": 8} | changes)
    asked = httpx.post(
        f"{app.url}/gradio_api/call/v2/decode",
        content=body,
        headers={"content-type": "application/json"},
    )
    if asked.status_code != 200:
        refused_with_a_reason(asked)
        return asked.text
    return httpx.get(
        f"{app.url}/gradio_api/call/decode/{asked.json()['event_id']}", timeout=HANGS
    ).text


@pytest.mark.parametrize("one_of", [18, pytest.param(3, marks=pytest.mark.long)])
def test_fields_that_gradio_knows_and_the_page_does_not_use_do_no_harm(
    app: App, visitor: Visitor, one_of: int
) -> None:
    """Each function, called beside the queue and through it, with one field of some: an answer each, no
    traceback, and the next run.
    """
    before = app.log.read_text()
    deep = [json.loads("[" * depth + "]" * depth) for depth in (100, 300, 900)]
    odd = [{"data": [each] * 20} for each in deep] + [{"event_data": each} for each in deep]
    odd += [{"event_data": {"_data": each, "index": [each], "target": 1}} for each in deep]
    odd += [{"trigger_id": each} for each in (0, -1, 10**30, "x", [1])] + [
        {"batched": True},
        {"simple_format": True},
    ]
    odd += [
        {"request": {"headers": {}}, "data": []},
        {"event_id": "x"},
        {"rendered_in": 1},
        {"fn_index": True},
    ]
    for number, known in enumerate(visitor.http.get("/config").json()["dependencies"]):
        for fields in odd[number % one_of :: one_of]:
            body = {
                "data": [None] * len(known["inputs"]),
                "fn_index": known["id"],
                "session_hash": "odd",
            } | fields
            for path in ("run/predict", "queue/join"):
                answer = visitor.http.post(f"{app.url}/gradio_api/{path}", json=body)
                assert answer.status_code < 500, (path, known["id"], str(fields)[:90], answer.text)
                gives_nothing_away(answer.text)
    visitor.http.post(f"{app.url}/gradio_api/reset", json={"event_id": deep[2]})
    visitor.http.post(
        f"{app.url}/gradio_api/cancel", json={"event_id": "x", "session_hash": "odd", "fn_index": 1}
    )
    assert list(visitor.run(gen_length=8, steps=8, block_length=8))[-1]["end"] == "finished"
    assert app.log.read_text()[len(before) :].count("Traceback") == 0


@pytest.mark.parametrize(
    "path", ["call/decode/none", "call/v2/decode/none", "queue/data?session_hash=none"]
)
def test_a_stream_of_an_unknown_call_ends_with_an_error(app: App, path: str) -> None:
    before = app.log.stat().st_size
    assert "error" in httpx.get(f"{app.url}/gradio_api/{path}").text
    assert app.log.stat().st_size == before, "and leaves nothing in the log"


def test_a_run_is_reached_by_its_id_alone(app: App, visitor: Visitor) -> None:
    run = visitor.open(prompt="The sun came up and", gen_length=8, steps=8, block_length=8)
    assert [*visitor.read(run)][-1][0] == "end"
    for guess in (run[:-1], run.swapcase(), run + "x", "*", "..%2fx", "0", "guess"):
        for method, path in (
            ("GET", "events"),
            ("GET", "trace"),
            ("GET", "top?step=0&position=0"),
            ("POST", "stop"),
        ):
            answer = httpx.request(method, f"{app.url}/surelock/runs/{guess}/{path}")
            assert answer.status_code == 404, (guess, path)
    exported = visitor.trace(run)
    gives_nothing_away(json.dumps(exported))
    assert getpass.getuser() not in json.dumps(exported["header"]).lower().split('"')


@pytest.mark.long
def test_a_short_soak(tmp_path: Path) -> None:
    """The soak in small: nothing crashes, hangs or is lost; nothing stays but the runs that are kept."""
    with serve("--keep-mb", "64", log=tmp_path / "log") as small:
        wait_for_model(small)
        visits(small, 6, 8)  # fills the kept runs
        before = small.memory()
        report = visits(small, 6, 12, seed=1)
        assert report["ok"] and report["begun"] > 3 and all(report[how] for how in HOWS), report
        assert small.memory() < 1.1 * before
