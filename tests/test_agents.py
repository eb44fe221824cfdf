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
    takes = {"accept": "application/json, text/event-stream"}
    return httpx.post(f"{app.url}/{TOOLS}", json=body, headers=takes, timeout=HANGS)


#: Calls that are refused as /decode refuses them, and what both say.
WRONG = {
    "gen_length": (TEXT, LONG, -1, 8.5),
    "temperature": (LONG, "hot", [TEXT]),
    "model": (LONG, "../stories", 3),
    "compute": (LONG, "best", 3),
    "events": (LONG, [{"step": 1, "kind": TEXT, "position": 1}], [{TEXT: 1}]),
    "chat": (LONG, "false", [1]),
    "prompt": (LONG, "", 5, [TEXT]),
    TEXT: (1,),
    "x" * 900_000: (1,),
}


@pytest.mark.parametrize("name", WRONG, ids=lambda name: ascii(name)[:20])
def test_an_agent_is_refused_in_the_words_of_decode_and_they_are_short(app: App, name: str) -> None:
    for value in WRONG[name]:
        given = {"prompt": "A fox", "gen_length": 8} | {name: value}
        answer = asks(app, called(**given))
        result = answer.json()["result"]
        (content,) = result["content"]
        assert answer.status_code == 200 and result["isError"] and answer.json()["id"] == 7
        script = httpx.post(f"{app.url}/gradio_api/call/v2/decode", json=given)
        if script.status_code == 200:
            told = httpx.get(f"{app.url}/gradio_api/call/decode/{script.json()['event_id']}").text
            said = json.loads(told.split("event: error\ndata: ")[1].splitlines()[0])["error"]
        else:
            said = script.json()["detail"]
        assert content["text"] == said and len(said) < 900 and "view API" not in said
        assert name[:5] in said


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
