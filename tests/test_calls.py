"""/decode, as it answers scripts and agents: in process, then by the clients that callers use."""

import json
import re
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import httpx
import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError
from starlette.middleware import Middleware
from starlette.requests import Request

import surelock
from surelock.trace.replay import replay_html
from surelock.ui import endpoint as endpoint_module
from surelock.ui import limits
from surelock.ui.endpoint import Calls, admit
from surelock.ui.gate import Gate, Refused
from surelock.ui.layout import build
from surelock.ui.limits import Limits
from surelock.ui.models import Models
from surelock.ui.parameters import parameters
from surelock.ui.queue import Queue
from surelock.ui.shared_race import Runner, make_runner
from tests.browser.visitor import Visitor, held
from tests.loops import finished
from tests.waiting import HANGS

if TYPE_CHECKING:
    from tests.browser.server import App

Endpoint = Callable[..., list[dict[str, Any]]]


def endpoint_of(models: Models, runner: Runner, **bounds: float) -> Endpoint:
    """What answers a call, as the list of its objects."""
    calls = Calls(models, runner, Queue(4), Limits(**bounds), 512)
    request = Request({"type": "http", "headers": []})

    async def answers(given: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [answer async for answer in calls.answers(given, request)]

    return lambda prompt="", **given: finished(answers({"prompt": prompt, **given}))


@pytest.fixture
def endpoint(models: Models) -> Endpoint:
    return endpoint_of(models, make_runner(models))


def test_the_endpoint_tells_why_a_run_ended(models: Models) -> None:
    def full(*_: Any) -> Any:
        raise MemoryError
        yield

    with pytest.raises(
        ValueError, match="The run stopped: the device ran out of memory; try a shorter run"
    ):
        endpoint_of(models, full)("Once", gen_length=8)


def test_a_trace_is_refused_before_the_run_where_no_page_could_show_it() -> None:
    limits.check_size("trace", 2048, 2048)
    for size in ((2049, 2048), (9000, 1)):
        with pytest.raises(ValueError, match=r"^trace is of at most 4,194,304 positions"):
            limits.check_size("trace", *size)


def test_the_endpoint_fills_a_blank_from_a_list(endpoint: Endpoint) -> None:
    *steps, last = endpoint("Tom had a __{red|blue|light green} ball.", gen_length=0)
    assert last["texts"][0] in [
        f"Tom had a {word} ball." for word in ("red", "blue", "light green")
    ]
    assert last["steps"] == len(steps) and last["spared"] == 0
    with pytest.raises(
        ValueError, match="prompt has a blank whose list must hold 2 to 64 different words"
    ):
        endpoint("Tom had a __{red} ball.", gen_length=0)
    many = "He saw a __{dog|big red dog} and a __{dog|red dog} there. " * 9
    with pytest.raises(
        ValueError, match="36 numbers of tokens in all, and 32 is the most: leave out a few words"
    ):
        endpoint(many, gen_length=0)


def test_the_endpoint_stops_at_the_end_and_says_what_that_spared(endpoint: Endpoint) -> None:
    prompt = "Tom and Lily played all day. Then they went home."
    length = {"gen_length": 128, "block_length": 32}
    *steps, last = endpoint(prompt, **length, stop_at_end=True)
    *every, whole = endpoint(prompt, **length)
    assert last["texts"] == whole["texts"]
    assert last["steps"] == len(steps) < len(every) == 128
    assert last["spared"] == 128 - len(steps) and whole["spared"] == 0
    assert last["flops_ratio"] < 0.5 and last["active_ratio"] < 0.5
    with pytest.raises(ValueError, match="stop_at_end must be"):
        endpoint(prompt, **length, stop_at_end="maybe")


def test_the_endpoint_decodes_as_the_library(
    stories: surelock.LanguageModel, endpoint: Endpoint
) -> None:
    rule = {"epsilon": 0.01, "percentile": 50.0, "visible_steps": 0}
    shared: dict[str, Any] = {
        "gen_length": 12, "steps": 6, "block_length": 6, "temperature": 0.5, "seed": 3, "suppress_eos": True,
        "suppress_eos_confidence": True, "no_repeat_ngram_size": 2,
    }  # fmt: skip
    asked = {"compute": surelock.LockRule(**rule), "unmask": surelock.Entropy()}
    texts = surelock.generate(stories, ["Once"], surelock.DecodeSettings(**shared), **asked)
    nested = {"compute": {"kind": "lock", **rule}, "unmask": {"kind": "entropy"}}
    assert endpoint("Once", **shared, **nested)[-1]["texts"] == texts
    short = {"compute": "lock,epsilon=0.01,percentile=50,visible_steps=0", "unmask": "entropy"}
    assert endpoint("Once", **shared, **short)[-1]["texts"] == texts


def test_the_endpoint_fills_blanks_unless_they_are_text(
    stories: surelock.LanguageModel, endpoint: Endpoint
) -> None:
    prompt = "Tom found a __ in the garden."
    masks = stories.encode(prompt, blanks=True)
    (wanted,) = surelock.generate(stories, [masks], surelock.DecodeSettings(gen_length=0))
    for blanks in ({}, {"blanks": None}, {"blanks": True}):
        assert endpoint(prompt, gen_length=0, **blanks)[-1]["texts"] == [wanted]
    *_, last = endpoint(prompt, gen_length=4, blanks=False)
    assert last["tokens"][:-4] == stories.encode(prompt) and last["steps"] == 4
    with pytest.raises(ValueError, match="gen_length"):
        endpoint(prompt, gen_length=0, blanks=False)


def test_the_endpoint_takes_events(endpoint: Endpoint) -> None:
    events = [{"step": 3, "kind": "write", "position": 6, "token": 42}]
    *_, last = endpoint("Once upon a time", gen_length=8, events=events)
    assert last["tokens"][6] == 42


def test_the_endpoint_gives_the_trace_where_it_is_asked_to(endpoint: Endpoint) -> None:
    """A file of it opens in everything that opens one, a replay among them."""
    *_, last = endpoint("Once upon a time", gen_length=6, trace=True, commit_error=True)
    document = json.loads(json.dumps(last["trace"]))
    trace = surelock.read_trace(document)
    assert len(trace.steps) == 6 and '"prompt":"Once upon a time"' in replay_html(document)
    *_, without = endpoint("Once upon a time", gen_length=6)
    assert "trace" not in without and without["tokens"] == last["tokens"]
    errors = [error for record in document["records"] for error in record["commit_error"]]
    assert len(errors) == last["commit_error"]["commits"] == 6


def test_the_endpoint_measures_the_commit_error_where_it_is_asked_to(
    stories: surelock.LanguageModel, endpoint: Endpoint
) -> None:
    *_, without = endpoint("Once upon a time", gen_length=12, compute="age,steps=1")
    *_, last = endpoint("Once upon a time", gen_length=12, compute="age,steps=1", commit_error=True)
    settings = surelock.DecodeSettings(gen_length=12)
    how: dict[str, Any] = {"compute": surelock.LockByAge(1), "unmask": surelock.LowConfidence()}
    steps = surelock.decode(
        stories, ["Once upon a time"], settings, **how, observe=True, keep_logits=True
    )
    errors = surelock.commit_error(stories, steps, settings)
    told = last["commit_error"]
    assert "commit_error" not in without and last["texts"] == without["texts"]
    assert told["mean"] == pytest.approx(errors.error.mean()) and told["mean"] > 0
    assert (told["commits"], told["changed"]) == (12, int(errors.changed.sum()))
    assert [each["position"] for each in told["each"]] == errors.position.tolist()
    assert [each["regret"] for each in told["each"]] == pytest.approx(errors.regret.tolist())
    assert told["regret"] == pytest.approx(errors.regret.mean()) and told["regret"] > 0
    json.dumps(last, allow_nan=False)
    *_, last = endpoint(
        "Once upon a time", gen_length=12, compute="age", unmask="random", commit_error=True
    )
    told = last["commit_error"]
    assert told["regret"] is None and {each["regret"] for each in told["each"]} == {None}
    json.dumps(last, allow_nan=False)


def test_gradios_client_waits_in_the_queue_and_is_told_its_place(app: "App") -> None:
    client = Client(app.url, verbose=False)
    with held(app.url) as leave:
        job = client.submit(prompt="The dog", gen_length=8, api_name="/decode")
        while not job.outputs():
            time.sleep(0.05)
        assert job.outputs()[0].keys() == {"place", "seconds"} and job.outputs()[0]["place"] == 1
        leave()
        assert job.result(HANGS)["done"]
    refused = client.submit(prompt="The dog", gen_length=8, steps=9, api_name="/decode")
    with pytest.raises(AppError, match=r"^steps \(9\) must be at most gen_length \(8\)"):
        refused.result(HANGS)


def test_a_call_without_a_place_in_the_queue_is_refused_before_it_is_read(
    models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    """429 where its client has all of its places, 503 where nobody has one."""
    monkeypatch.setattr(endpoint_module, "AGAIN_SECONDS", 0.0)
    queue = Queue(4)
    calls = Calls(models, make_runner(models), queue, Limits(), 512)
    scope: dict[str, Any] = {"method": "POST", "path": "/gradio_api/call/v2/decode", "headers": []}

    def answer(client: str) -> int:
        try:
            with admit(Mock(), calls, scope | {"client": (client, 1)}, {"prompt": "A fox"}):
                return 200
        except Refused as refused:
            assert "The queue is full" in str(refused)
            return refused.status

    with ExitStack() as places:
        places.enter_context(queue.place("holder", "a", script=True))
        assert answer("a") == 200
        places.enter_context(queue.place("waits", "a", script=True))
        assert (answer("a"), answer("b")) == (429, 200)
        for client in "bcd":
            places.enter_context(queue.place(client, client, script=True))
        assert answer("e") == 503


@pytest.mark.parametrize(
    "path", ["call/decode/{}", "call/v2/decode/{}", "queue/data?session_hash=tab"]
)
def test_a_call_that_nobody_reads_ends(
    models: Models, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(Queue.change, "__defaults__", (0.05,))
    queue = Queue(8)
    calls = Calls(models, make_runner(models), queue, Limits(), 512)
    page = build(models, calls, most=512)
    served = {"middleware": [Middleware(Gate, admit=partial(admit, page, calls))]}
    _, url, _ = page.launch(prevent_thread_lock=True, quiet=True, app_kwargs=served)
    with (
        closing(page),
        httpx.Client(base_url=f"{url}gradio_api", timeout=HANGS) as http,
        ExitStack() as holder,
    ):
        holder.enter_context(queue.place("another", "another"))
        http.post("/call/v2/decode", json={"prompt": "A fox"}).raise_for_status()
        while len(queue._entries) < 2:  # Gradio may begin a later call sooner
            time.sleep(0.01)
        data = ["A fox", *(each.default for each in parameters()[1:])]
        event = http.post("/call/decode", json={"data": data, "session_hash": "tab"}).json()[
            "event_id"
        ]
        with http.stream("GET", f"/{path.format(event)}") as stream:
            places = (
                int(found[1])
                for line in stream.iter_lines()
                if (found := re.search(r'"place": ?(\d+)', line))
            )
            assert next(places) == 2
            monkeypatch.setattr(endpoint_module, "UNREAD_SECONDS", 0.5)
            assert 1 in places
            assert [next(places) for _ in range(30)] == [1] * 30, (
                "three times as long as the other went on"
            )


@pytest.mark.parametrize("how", ["closes its stream", "cancels"])
def test_a_caller_who_leaves_ends_his_computation(app: "App", how: str) -> None:
    whole = whole_call(app)
    call = {"prompt": f"The dog {how}", "gen_length": 480, "compute": "everything"}
    if how == "cancels":
        job = Client(app.url, verbose=False).submit(**call, api_name="/decode")
        while not job.outputs():
            time.sleep(0.05)
        job.cancel()
    else:
        with httpx.Client(base_url=f"{app.url}/gradio_api/call", timeout=HANGS) as http:
            event = http.post("/v2/decode", json=call).json()["event_id"]
            with http.stream("GET", f"/decode/{event}") as stream:
                next(stream.iter_lines())
    visitor = Visitor(app.url)
    begun = time.monotonic()
    *_, last = visitor.run(prompt=f"After him who {how}", gen_length=8, steps=8, block_length=8)
    assert last["end"] == "finished" and time.monotonic() - begun < whole / 2, "the call went on"
    visitor.close()


def whole_call(app: "App", many: int = 8) -> float:
    """The seconds of a call of 480 steps that compute every row, by the first ones of such a run on this machine."""
    visitor = Visitor(app.url)
    lane = {
        "id": "all",
        "name": "All",
        "compute": {"kind": "everything"},
        "unmask": {"kind": "low_confidence"},
    }
    messages = visitor.run(
        prompt="The dog waits", gen_length=480, steps=480, block_length=480, lanes=[lane]
    )
    records = (record for message in messages for record in message.get("records", ()))
    seconds = [record["seconds"] for record in islice(records, many)]
    visitor.close()
    return 480 * min(seconds)
