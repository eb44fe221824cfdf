"""The page's parts that need no browser: runs and sessions, requests, the form's rules, models, links, files served."""

from __future__ import annotations

import json
import pickle
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

import surelock
from surelock.decoding.recommended import block_choices, over_recommended
from surelock.trace.recorder import Recorder, make_header
from surelock.ui import session as sessions_module
from surelock.ui.endpoint import make_endpoint
from surelock.ui.form import DEFAULTS, Form, check_seed, fit_schedule
from surelock.ui.layout import _from_link, build
from surelock.ui.models import Models, NotReady
from surelock.ui.request import Job, read_job, read_settings
from surelock.ui.serving import page_head, routes
from surelock.ui.session import ENDED, PAUSED, Sessions, trim_memory

JOB = Job("m", "hello", [5, 6], {"gen_length": 6}, {"epsilon": 0.1})


class FakeRecorder:
    """Stands for a Recorder: records are the facts themselves."""

    def __init__(self) -> None:
        self.header = {"length": 8, "steps": 6}

    def start(self) -> dict[str, Any]:
        return {"header": self.header}

    def record(self, facts: Any) -> Any:
        return facts

    def fresh_pieces(self, records: Any) -> dict[str, str]:
        return {}


class FakeDecoder:
    """Stands for the decoders: counts the steps it was made to compute, and whether it was closed."""

    def __init__(self, steps: int = 6, error: BaseException | None = None) -> None:
        self.steps, self.error, self.computed, self.closed = steps, error, 0, 0

    def __call__(self, *_: Any) -> Iterator[list[dict[str, Any]]]:
        try:
            for step in range(self.steps):
                if self.error and step == 2:
                    raise self.error
                self.computed += 1
                yield [{"decoder": "surelock", "step": step}]
        finally:
            self.closed += 1


def open_run(decoder: FakeDecoder, owner: str = "a", sessions: Sessions | None = None) -> tuple[Sessions, Any]:
    sessions = sessions or Sessions(decoder)  # type: ignore[arg-type]
    return sessions, sessions.open(owner, JOB, FakeRecorder())  # type: ignore[arg-type]


def messages(batches: Iterator[str]) -> list[dict[str, Any]]:
    return [message for batch in batches for message in json.loads(batch)]


@pytest.fixture
def each_step_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surelock.ui.session.SEND_SECONDS", 0.0)


def test_a_run_streams_numbered_messages_to_its_end() -> None:
    decoder = FakeDecoder()
    _, run = open_run(decoder)
    seen = messages(run.stream(-1))
    assert [message["seq"] for message in seen] == list(range(8))
    assert "open" in seen[0] and seen[-1]["end"] == "finished" and run.state == ENDED
    assert {message["run"] for message in seen} == {run.id} and len(run.id) >= 24


def test_quick_steps_are_sent_together_and_the_first_at_once() -> None:
    decoder = FakeDecoder()
    _, run = open_run(decoder)
    batches = [[message["seq"] for message in json.loads(batch)] for batch in run.stream(-1)]
    assert batches == [[0], [1], list(range(2, 8))]


@pytest.mark.usefixtures("each_step_alone")
def test_pause_ends_the_generator_and_resume_repeats_what_was_missed() -> None:
    decoder = FakeDecoder()
    _, run = open_run(decoder)
    stream = run.stream(-1)
    first = [next(stream) for _ in range(3)]
    run.pause()
    assert list(stream) == [] and run.state == PAUSED and decoder.computed == 2 and not decoder.closed
    resumed = messages(run.stream(json.loads(first[1])[-1]["seq"]))
    assert [message["seq"] for message in resumed] == list(range(2, 8))


def test_one_step_at_a_time() -> None:
    decoder = FakeDecoder()
    _, run = open_run(decoder)
    next(stream := run.stream(-1))
    run.pause()
    list(stream)
    after = len(run.log) - 1
    assert [message["seq"] for message in messages(run.stream(after, most=1))] == [after + 1]
    assert run.state == PAUSED


@pytest.mark.usefixtures("each_step_alone")
def test_stop_ends_a_streaming_run_after_its_step_and_a_paused_one_at_once() -> None:
    decoder = FakeDecoder()
    _, run = open_run(decoder)
    stream = run.stream(-1)
    next(stream), next(stream)
    assert run.stop() is None
    assert messages(stream)[-1]["end"] == "stopped" and decoder.computed == 1 and decoder.closed == 1
    _, paused = open_run(FakeDecoder())
    assert json.loads(paused.stop())["end"] == "stopped"


@pytest.mark.usefixtures("each_step_alone")
@pytest.mark.parametrize("how", ["the reader goes away", "the visitor leaves", "both"])
def test_a_closed_tab_stops_the_run_within_two_steps_and_frees_it(how: str) -> None:
    decoder = FakeDecoder(steps=10_000)
    sessions, run = open_run(decoder)
    stream = run.stream(-1)
    for _ in range(5):
        next(stream)
    if how != "the reader goes away":
        sessions.leave("a")
    if how != "the visitor leaves":
        stream.close()
        sessions.leave("a")
    else:
        list(stream)
    assert decoder.computed <= 4 + 2 and decoder.closed == 1 and len(sessions) == 0


def test_memory_goes_back_to_the_system_once_runs_were_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    trimmed = threading.Semaphore(0)
    monkeypatch.setattr("surelock.ui.session.TRIM_SECONDS", 0.05)
    monkeypatch.setattr("surelock.ui.session.trim_memory", trimmed.release)
    sessions, _ = open_run(FakeDecoder())
    open_run(FakeDecoder(), "b", sessions)
    sessions.leave("a")
    sessions.leave("b")
    assert trimmed.acquire(timeout=5) and not trimmed.acquire(timeout=0.3)
    monkeypatch.undo()
    trim_memory()


def test_leaving_while_a_step_is_being_computed() -> None:
    inside, go = threading.Event(), threading.Event()

    def slow(*_: Any) -> Iterator[list[dict[str, Any]]]:
        while True:
            inside.set()
            go.wait(5)
            yield [{}]

    sessions = Sessions(slow)  # type: ignore[arg-type]
    run = sessions.open("a", JOB, FakeRecorder())  # type: ignore[arg-type]
    seen: list[str] = []
    thread = threading.Thread(target=lambda: seen.extend(run.stream(-1)))
    thread.start()
    assert inside.wait(5)
    sessions.leave("a")
    go.set()
    thread.join(5)
    assert not thread.is_alive() and run.state == ENDED and len(sessions) == 0


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ArithmeticError("the network put out NaN in step 2"), "NaN in step 2"),
        (MemoryError(), "more memory"),
        (RuntimeError("CUDA out of memory. Tried"), "ran out of memory"),
        (ValueError("bad"), "bad"),
    ],
)
def test_failures_are_one_sentence_and_free_the_run(error: BaseException, said: str) -> None:
    decoder = FakeDecoder(error=error)
    _, run = open_run(decoder)
    last = messages(run.stream(-1))[-1]
    assert last["end"] == "failed" and said in last["problem"] and last["problem"].endswith(".")


def test_visitors_are_apart_and_only_the_latest_runs_are_kept() -> None:
    decoder = FakeDecoder()
    sessions, other = open_run(decoder, "b")
    runs = [open_run(decoder, "a", sessions)[1] for _ in range(sessions_module.KEPT_RUNS + 3)]
    assert len(sessions) == sessions_module.KEPT_RUNS + 1
    assert [run.state for run in runs[:-1]] == [ENDED] * (len(runs) - 1) and runs[-1].state == PAUSED
    assert sessions.find(runs[0].id) is None and sessions.find(runs[-1].id) is runs[-1]
    sessions.leave("a")
    assert sessions.find(other.id) is other and len(sessions) == 1


def test_a_run_that_nobody_resumes_is_dropped() -> None:
    sessions, _ = open_run(FakeDecoder())
    sessions.sweep(time.monotonic() + sessions_module.IDLE_SECONDS - 5)
    assert len(sessions) == 1
    sessions.sweep(time.monotonic() + sessions_module.IDLE_SECONDS + 5)
    assert len(sessions) == 0


@pytest.mark.parametrize("run_id", [None, 3, "", "x" * 1000, ["a"], {"a": 1}])
def test_foreign_ids_find_nothing(run_id: Any) -> None:
    sessions, _ = open_run(FakeDecoder())
    assert sessions.find(run_id) is None


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"gen_length": 0}, "gen_length"),
        ({"gen_length": "many"}, "gen_length"),
        ({"steps": 999}, "steps"),
        ({"block_length": 7}, "block_length"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"seed": -1}, "seed"),
        ({"seed": None}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"percentile": 101}, "percentile"),
        ({"epsilon": None}, "epsilon"),
        ({"epsilon": "x"}, "epsilon"),
        ({"remasking": "<b>"}, "remasking"),
        ({"visible_steps": -1}, "visible_steps"),
    ],
)
def test_invalid_settings_are_refused_by_name(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ValueError, match=rf"^{field}"):
        read_settings(DEFAULTS | changes)


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ("", "empty"),
        ("  \n", "empty"),
        (None, "empty"),
        (7, "empty"),
        ("x" * 100_000, "100,000"),
        ("word " * 600, "positions"),
    ],
)
def test_prompts_that_cannot_be_taken(stories: surelock.LanguageModel, prompt: Any, said: str) -> None:
    with pytest.raises(ValueError, match=rf"^prompt.*{said}"):
        read_job(stories, "stories", prompt, True, DEFAULTS, 256)


def test_a_model_without_a_tokenizer_takes_token_ids(lm: surelock.LanguageModel) -> None:
    values = DEFAULTS | {"gen_length": 8, "steps": 8, "block_length": 8}
    assert read_job(lm, "tiny", "3, 4 5", True, values, 32).tokens == [3, 4, 5]
    with pytest.raises(ValueError, match=r"^prompt must be token ids"):
        read_job(lm, "tiny", "once upon", True, values, 32)


@pytest.mark.parametrize(
    ("given", "steps", "block"),
    [
        ((64, 128, 128, 128), 64, 64),
        ((256, 128, 128, 128), 256, 256),
        ((64, 32, 16, 64), 32, 16),
        ((64, 30, 16, 64), 30, 64),
        ((48, 128, 32, 128), 48, 24),
        ((64, 64, 100, 64), 64, 64),
        ((64, 100, 64, 128), 64, 64),
        ((40, 40, None, 40), 40, 40),
        ((40, 40, "abc", 40), 40, 40),
    ],
)
def test_the_schedule_is_kept_valid(given: tuple[Any, ...], steps: int, block: int) -> None:
    new_steps, new_block, _ = fit_schedule(*given)
    assert (new_steps["value"], new_block["value"]) == (steps, block)
    surelock.DecodeSettings(gen_length=given[0], steps=steps, block_length=block)


def test_what_is_changed_is_explained_beside_the_field() -> None:
    steps, _, _ = fit_schedule(64, 100, 64, 128)
    assert "Lowered from 100" in steps["info"]
    _, block, _ = fit_schedule(64, 30, 16, 64)
    assert "Changed from 16" in block["info"]
    info, run = check_seed(-3)
    assert "whole number" in info["info"] and run["interactive"] is False


def test_every_offered_block_length_is_valid() -> None:
    for length, steps in [(64, 64), (96, 24), (40, 7), (8, 1)]:
        for block in block_choices(length, steps):
            surelock.DecodeSettings(gen_length=length, steps=steps, block_length=block)


def test_links_restore_what_is_valid_together() -> None:
    with gr.Blocks():
        form = Form(Models(["stories"]), 512)
    values = {
        "gen_length": "64",
        "steps": "32",
        "block_length": "16",
        "epsilon": "0.005",
        "seed": "7",
        "suppress_eos": "true",
        "no_repeat_ngram_size": "5",
        "remasking": "entropy",
        "nonsense": "1",
    }
    settled = dict(zip(form.names, form.settle(_from_link(values)), strict=True))
    values.pop("nonsense")
    assert [settled[name]["value"] for name in values] == [64, 32, 16, 0.005, 7, True, 5, "entropy"]
    for bad in (
        {"steps": "9999"},
        {"gen_length": "100000000"},
        {"seed": "-1"},
        {"remasking": "${x}"},
        {"epsilon": "nan"},
        {"no_repeat_ngram_size": "99"},
        {"gen_length": "x"},
    ):
        settled = dict(zip(form.names, form.settle(_from_link(bad)), strict=True))
        assert settled["gen_length"]["value"] == DEFAULTS["gen_length"]


def test_the_form_starts_with_what_the_model_recommends(tmp_path: Path) -> None:
    """A visitor may press Run before the page's load event has come back."""
    models = Models(["stories"])
    recommended = models.recommended("stories")
    with gr.Blocks():
        fields = Form(models, 512).fields
    assert recommended.keys() <= fields.keys()
    assert {name: fields[name].value for name in recommended} == recommended
    (tmp_path / "generation_config.json").write_text("{", "utf-8")
    with gr.Blocks():
        fields = Form(Models([str(tmp_path)]), 512).fields
    assert {name: field.value for name, field in fields.items()} == DEFAULTS


def test_a_link_keeps_the_models_blocks_or_shortens_them_to_what_fits() -> None:
    recommended = {"temperature": 0.7, "gen_length": 128, "steps": 128, "block_length": 16}
    for linked, block in [
        ({}, 16),
        ({"gen_length": 240}, 16),
        ({"gen_length": 240, "steps": 240}, 16),
        ({"gen_length": 100}, 10),
        ({"steps": 100}, None),
        ({"gen_length": 64, "steps": 2}, None),
        ({"gen_length": 64, "block_length": 32}, 32),
        ({"gen_length": 0}, None),
        ({"gen_length": 10**15}, 16),
    ]:
        found = over_recommended(recommended, linked)
        assert found.get("block_length") == block, linked
        assert found.items() >= linked.items()
        assert found["temperature"] == 0.7
    with gr.Blocks():
        form = Form(Models(["stories"]), 512)
    for linked, block in (({"gen_length": 100}, 10), ({"steps": 100}, 128)):
        settled = dict(zip(form.names, form.settle(over_recommended(recommended, linked)), strict=True))
        assert settled["temperature"]["value"] == 0.7
        assert settled["gen_length"]["value"] == linked.get("gen_length", 128)
        assert settled["block_length"]["value"] == block
    settled = dict(zip(form.names, form.settle({"seed": -1}, otherwise=recommended), strict=True))
    assert [settled[name]["value"] for name in ("temperature", "block_length", "seed")] == [0.7, 16, 0]


def test_models_never_show_a_path(tmp_path: Path) -> None:
    (tmp_path / "my-model").mkdir()
    models = Models([str(tmp_path / "my-model"), "stories"])
    assert models.labels == ["my-model", "stories"]
    with pytest.raises(NotReady, match="one of those this page offers"):
        models.get(str(tmp_path))
    with pytest.raises(NotReady, match="still loading"):
        models.get("my-model")
    for _ in range(200):
        if models.state("my-model") != "loading":
            break
        time.sleep(0.05)
    with pytest.raises(NotReady, match="could not be loaded") as caught:
        models.get("my-model")
    assert str(tmp_path) not in str(caught.value)


def test_the_endpoint_gives_what_generate_gives(stories: surelock.LanguageModel) -> None:
    from surelock.ui.device import make_decoder

    models = Models(["stories"])
    models._loaded["stories"] = stories
    decode = make_endpoint(models, make_decoder(models), 512)
    steps = list(decode("Once upon a time", gen_length=12, epsilon=0.01))
    settings, rule = surelock.DecodeSettings(gen_length=12), surelock.LockRule(epsilon=0.01)
    assert [step["step"] for step in steps[:-1]] == list(range(12))
    assert steps[-1]["texts"] == surelock.generate(stories, ["Once upon a time"], settings, lock=rule)
    assert 0 < steps[-1]["flops_ratio"] <= 1
    json.dumps(steps, allow_nan=False)
    for bad in ({"prompt": ""}, {"prompt": "x", "steps": 99}, {"prompt": "x", "model": "/etc"}):
        with pytest.raises(gr.Error):
            list(decode(**{"gen_length": 8, **bad}))


def test_on_zero_gpu_only_plain_values_cross(stories: surelock.LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """There the decorated function runs in another process: what goes in and comes out is pickled."""
    from surelock.ui import device

    def gpu(duration: int) -> Any:
        def decorate(function: Any) -> Any:
            def run(*arguments: Any) -> Iterator[Any]:
                for value in function(*pickle.loads(pickle.dumps(arguments))):
                    yield pickle.loads(pickle.dumps(value))

            return run

        return decorate

    monkeypatch.setitem(sys.modules, "spaces", SimpleNamespace(GPU=gpu))
    monkeypatch.setattr(device, "on_zero_gpu", lambda: True)
    models = Models(["stories"])
    models._loaded["stories"] = stories
    job = read_job(
        stories, "stories", "Once upon a time", False, DEFAULTS | {"gen_length": 8, "steps": 8, "block_length": 8}, 256
    )
    settings, rule = surelock.DecodeSettings(**job.settings), surelock.LockRule(**job.rule)
    recorder = Recorder(make_header(stories, job.prompt, job.tokens, settings, rule), stories.tokenizer)
    run = Sessions(device.make_decoder(models), pausable=False).open("a", job, recorder)
    seen = messages(run.stream(-1))
    assert seen[0]["pausable"] is False and seen[-1]["end"] == "finished" and len(seen) == 10
    assert recorder.top("surelock", 7, len(job.tokens))


def test_only_decode_is_public() -> None:
    page, _ = build(Models(["stories"]), most=256, queue_size=4)
    public = [function.api_name for function in page.fns.values() if function.api_visibility == "public"]
    assert public == ["decode"]


def test_only_the_stages_files_are_served() -> None:
    client = TestClient(Starlette(routes=routes()))
    assert client.get("/surelock/js/stage.js").status_code == 200
    assert client.get("/surelock/plotly.min.js").status_code == 200
    for path in (
        "/surelock/js/../../app.py",
        "/surelock/js/%2e%2e/%2e%2e/app.py",
        "/surelock/stories/config.json",
        "/surelock/js//etc/passwd",
        "/surelock/",
        "/surelock/js/",
    ):
        assert client.get(path).status_code in (404, 405), path


def test_the_head_names_only_files_that_exist() -> None:
    client = TestClient(Starlette(routes=routes()))
    for part in page_head().split('href="')[1:]:
        assert client.get("/" + part.split('"')[0]).status_code == 200
