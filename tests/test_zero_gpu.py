"""A ZeroGPU Space, simulated: runs in a forked worker, what they ask for, and what is said when they get no time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from checkpoints import write_llada
from starlette.middleware import Middleware

import surelock
from surelock.trace.lanes import Lane
from surelock.trace.recorder import Recorder, make_header
from surelock.ui import device, launch
from surelock.ui.endpoint import make_endpoint
from surelock.ui.gate import Gate
from surelock.ui.layout import build
from surelock.ui.models import Models
from surelock.ui.request import Job
from surelock.ui.session import Sessions
from surelock.ui.zero_gpu import MOST_SECONDS, gpu_seconds
from tests.browser.visitor import Visitor
from tests.loops import messages
from tests.zero_gpu import Spaces

Use = Callable[[Spaces], Models]


@pytest.fixture
def use(stories: surelock.LanguageModel, monkeypatch: pytest.MonkeyPatch) -> Use:
    """Put a stand-in in the package's place."""

    def put(spaces: Spaces) -> Models:
        monkeypatch.setitem(sys.modules, "spaces", spaces)
        monkeypatch.setattr(device, "on_zero_gpu", lambda: True)
        models = Models(["stories"])
        models._loaded["stories"] = stories
        return models

    return put


def job(length: int = 8, lanes: int = 1, **more: Any) -> Job:
    settings = surelock.DecodeSettings(gen_length=length)
    decoder = surelock.Decoder(settings=settings, compute=surelock.LockRule(), **more)
    lanes = tuple(Lane(id=name, name=name, decoder=decoder) for name in "abcd"[:lanes])
    return Job("stories", "Tom", [300, 301, 302], lanes)


def raced(models: Models, asked: Job) -> list[dict[str, Any]]:
    """All messages of a run on the page."""
    lm = models.get("stories")
    recorder = Recorder(make_header(lm, asked.prompt, asked.tokens, asked.lanes), lm.tokenizer)
    sessions = Sessions(device.make_decoder(models), pausable=False)
    return messages(sessions.open("a", asked, recorder).stream(-1))


def test_a_run_in_a_worker_is_the_run_here(use: Use, stories: surelock.LanguageModel) -> None:
    spaces = Spaces()
    models = use(spaces)
    (first, *_, last), asked = raced(models, job(lanes=2)), job(lanes=2)
    assert first["pausable"] is False and last == {**last, "end": "finished", "problem": None}
    assert spaces.asked == [gpu_seconds(stories.network, asked, True)] and spaces.left == 120 - spaces.asked[0]
    *_, answer = make_endpoint(models, device.make_decoder(models), 512)("Tom had a ball", gen_length=6)
    assert answer["texts"] == surelock.generate(
        stories, ["Tom had a ball"], surelock.DecodeSettings(gen_length=6), compute=surelock.LockRule()
    )


def test_every_model_is_loaded_before_the_page_opens(
    use: Use, stories: surelock.LanguageModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Not in a thread afterwards: ZeroGPU packs what lies on the GPU when the page opens."""
    use(Spaces())
    write_llada(tmp_path, layers=1, d_model=8, heads=1, kv_heads=1, d_ff=8, vocab=17, tied=True, seed=1)

    def opened(models: Models, **_: Any) -> Any:
        raise SystemExit(str([models.state(label) for label in models.labels]))

    monkeypatch.setattr(launch, "on_zero_gpu", lambda: True)
    monkeypatch.setattr(launch, "build", opened)
    with pytest.raises(SystemExit, match=r"\['ready', 'ready'\]"):
        launch.main(["--model", "stories", str(tmp_path)])
    with pytest.raises(SystemExit, match="2"):
        launch.main(["--weights", "int8"])


def test_a_run_goes_under_its_visitors_headers(use: Use) -> None:
    spaces = Spaces()
    page, _, shares, _ = build(use(spaces), most=128, queue_size=4)
    gate = Middleware(Gate, admit=shares.admit)
    _, url, _ = page.launch(
        prevent_thread_lock=True, quiet=True, ssr_mode=False, **{"app_kwargs": {"middleware": [gate]}}
    )
    visitor = Visitor(url)
    try:
        visitor.http.headers["x-ip-token"] = "a token"
        *_, last = visitor.run(Generated_length=8, Steps=8, Block_length=8)
    finally:
        visitor.close()
        page.close(verbose=False)
    assert (last["end"], spaces.visitors) == ("finished", ["a token"])


def test_a_second_run_is_had_on_two_minutes_a_day(use: Use) -> None:
    """Which a fixed 120 s would refuse."""
    spaces = Spaces()
    models = use(spaces)
    assert [raced(models, job())[-1]["end"] for _ in range(3)] == ["finished"] * 3


def test_a_refusal_is_one_sentence(use: Use) -> None:
    models = use(Spaces(left=5))
    needed = gpu_seconds(models.get("stories").network, job(), True)
    end = raced(models, job())[-1]
    quota = f"you have exceeded your ZeroGPU quota ({needed}s requested vs. 5s left); try again in 3:20:00; "
    quota += "create a free account to get more"
    assert end["end"] == "failed" and end["problem"] == f"The run stopped: {quota}."
    with pytest.raises(gr.Error) as caught:
        list(make_endpoint(models, device.make_decoder(models), 512)("Tom had a ball", gen_length=8))
    assert (
        caught.value.message.startswith("you have exceeded your ZeroGPU quota (") and "http" not in caught.value.message
    )


def test_what_takes_longer_than_it_asked_for_ends_in_a_sentence(use: Use) -> None:
    end = raced(use(Spaces(clock=1e-6)), job(length=200))[-1]
    said = "The run stopped: its time on the GPU was over before it ended; try a shorter run, or fewer lanes."
    assert (end["end"], end["problem"]) == ("failed", said)


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (ValueError("event: position 3 is masked"), "event: position 3 is masked"),
        (
            RuntimeError("CUDA out of memory. Tried to allocate 2 GiB\nat"),
            "the device ran out of memory; try a shorter run",
        ),
        (MemoryError(), "the device ran out of memory; try a shorter run"),
    ],
)
def test_what_goes_wrong_in_a_worker_is_said_here(
    use: Use, monkeypatch: pytest.MonkeyPatch, raised: Exception, said: str
) -> None:
    """Of another error than Gradio's only the name would come back."""

    def fail(*_: Any, **__: Any) -> Any:
        raise raised

    monkeypatch.setattr("surelock.trace.race.race", fail)
    assert raced(use(Spaces()), job())[-1]["problem"] == f"The run stopped: {said}."


def test_what_is_asked_for_grows_with_the_work(stories: surelock.LanguageModel) -> None:
    """Length, steps, lanes, guidance, commit errors, the model; and never more than a visitor has."""
    network = stories.network

    def seconds(asked: Job, errors: bool = False) -> int:
        return gpu_seconds(network, asked, errors)

    short = seconds(job(128))
    assert short < seconds(job(128, lanes=4)) < seconds(job(512, lanes=4)) and short < seconds(job(128), errors=True)
    assert seconds(job(512), errors=True) == seconds(job(512, lanes=2)), "the shadow computes each step once more"
    assert 10 * short < MOST_SECONDS, "ten runs of the page's length a day"
    assert seconds(job(100_000, lanes=4), errors=True) == MOST_SECONDS
