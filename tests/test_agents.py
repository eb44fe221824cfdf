"""/decode for agents: what its schema says is what the library says, and a real client calls it as a tool."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent, Tool

import surelock
from surelock.ui import launch
from surelock.ui.parameters import parameters
from tests.browser.server import App, serve, wait_for_model
from tests.loops import finished
from tests.soak.abuse import GIVEN_AWAY, JSON, PARAMETERS, wrongly_refused
from tests.waiting import HANGS

TOOLS = "gradio_api/mcp/"


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    with serve("--mcp", log=tmp_path_factory.mktemp("agents") / "log") as served:
        wait_for_model(served)
        yield served


@pytest.fixture(scope="module")
def asked(app: App) -> tuple[list[Tool], list[CallToolResult]]:
    """The tools that a client of the protocol finds, and the answers to two calls, the second of which cannot be."""

    async def ask() -> tuple[list[Tool], list[CallToolResult]]:
        async with (
            streamable_http_client(f"{app.url}/{TOOLS}") as (incoming, outgoing, _),
            ClientSession(incoming, outgoing) as session,
        ):
            await session.initialize()
            tools = (await session.list_tools()).tools
            prompt = {"prompt": "The dog ran", "gen_length": 8}
            calls = [{**prompt, "compute": {"kind": "age", "steps": 2}}, {**prompt, "steps": 9}]
            return tools, [await session.call_tool(tools[0].name, call) for call in calls]

    return finished(ask())


def text_of(answer: CallToolResult) -> str:
    (content,) = answer.content
    assert isinstance(content, TextContent)
    return content.text


def test_an_agent_decodes(asked: Any, stories: surelock.LanguageModel) -> None:
    _, (answer, refusal) = asked
    last = json.loads(text_of(answer))
    settings = surelock.DecodeSettings(gen_length=8)
    rule = surelock.LockByAge(2)
    policy = surelock.LowConfidence()
    assert not answer.isError and last["done"] and last["steps"] == 8
    assert last["texts"] == surelock.generate(
        stories, ["The dog ran"], settings, compute=rule, unmask=policy
    )
    assert refusal.isError and text_of(refusal) == "steps (9) must be at most gen_length (8)"


TEXT = "a caller's text\nWARNING: forged \x1b[31m"
LONG = TEXT * 20_000


def called(**arguments: Any) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "id": 7,
        "method": "tools/call",
        "params": {"name": "decode", "arguments": arguments},
    }


def asks(app: App, body: Any) -> httpx.Response:
    headers = JSON | {"accept": "application/json, text/event-stream"}
    content = json.dumps(body)
    return httpx.post(f"{app.url}/{TOOLS}", content=content, headers=headers, timeout=HANGS)


@pytest.mark.parametrize("name", PARAMETERS)
def test_an_agent_is_refused_in_the_words_of_decode_and_they_are_short(app: App, name: str) -> None:
    """They hold no file and no secret of this machine."""
    for value in PARAMETERS[name]:
        given = {"prompt": "A fox", "gen_length": 8} | {name: value}
        answer = asks(app, called(**given))
        if answer.status_code != 200:  # of the gate
            assert answer.status_code == 400 and wrongly_refused(httpx, app.url, name, value) == ""
            continue
        result = answer.json()["result"]
        (content,) = result["content"]
        assert result["isError"] and answer.json()["id"] == 7
        said = content["text"]
        body = json.dumps(given)
        script = httpx.post(f"{app.url}/gradio_api/call/v2/decode", content=body, headers=JSON)
        if script.status_code == 200:
            stream = f"{app.url}/gradio_api/call/decode/{script.json()['event_id']}"
            told = httpx.get(stream).text.split("event: error\ndata: ")[1]
            assert said == json.loads(told.splitlines()[0])["error"]
        else:
            assert said == script.json()["detail"]
        assert len(said) < 900 and not [part for part in GIVEN_AWAY if part in said]


#: Calls of another tool, and what is no call.
NONE = (
    called() | {"params": {"name": TEXT}},
    called() | {"params": {"name": LONG}},
    called() | {"params": {"name": None, TEXT: 1}},
    called() | {"params": {"name": "decode", "arguments": TEXT}},
    called() | {"params": [TEXT]},
    [called()] * 3,
    {TEXT: 1},
    {"jsonrpc": "1.0", "method": "ping"},
    {"jsonrpc": "2.0", "method": LONG, "id": 1},
    called() | {"id": [TEXT]},
    5,
)


def test_what_is_no_call_is_refused_and_the_log_holds_nothing_of_it(app: App) -> None:
    before = app.log.read_text()
    for body in NONE:
        answer = asks(app, body)
        assert answer.status_code in (200, 202, 400), body
        told = answer.json() if answer.content else {"error": "a notification has no answer"}
        assert "error" in told or told["result"]["isError"], body
    assert (
        "caller" not in app.log.read_text()[len(before) :]
        and len(app.log.read_text()) - len(before) < 2000
    )


def test_nothing_is_computed_for_agents_that_have_left(app: App) -> None:
    """Six that leave after a second (a minute's work and more), then one that stays."""

    def ask(seconds: float, **wanted: Any) -> str:
        call = {"name": "decode", "arguments": {"prompt": "The dog ran", **wanted}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        takes = {"accept": "application/json, text/event-stream"}
        try:
            return httpx.post(f"{app.url}/{TOOLS}", json=body, headers=takes, timeout=seconds).text
        except httpx.TimeoutException:
            return "left"

    with ThreadPoolExecutor(6) as crowd:
        left = list(crowd.map(lambda _: ask(1, gen_length=480, compute="everything"), range(6)))
    assert left == ["left"] * 6
    assert "done" in ask(HANGS, gen_length=8)


def test_there_is_one_tool_and_it_says_what_each_parameter_is(asked: Any) -> None:
    ((tool,), _) = asked
    told = tool.inputSchema["properties"]
    assert tool.name == "decode" and tool.inputSchema["required"] == ["prompt"]
    assert list(told) == [each.name for each in parameters()]
    assert all(each["description"].endswith(".") for each in told.values())
    assert "flops_ratio" in tool.description


def test_without_the_package_it_is_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(launch, "find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        launch.main(["--mcp"])
    assert "--mcp needs the package mcp (pip install mcp)" in capsys.readouterr().err
