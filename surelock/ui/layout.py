"""The page: puts the form, the stage and the events together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr
from gradio.events import api

from surelock.decoding.recommended import over_recommended
from surelock.ui.device import make_decoder, on_zero_gpu
from surelock.ui.endpoint import make_endpoint
from surelock.ui.form import DEFAULTS, Form
from surelock.ui.models import Models, NotReady
from surelock.ui.request import MOST_CHARACTERS, read_job
from surelock.ui.session import Sessions, refusal
from surelock.ui.stage import make_stage

TITLE = (
    "<h1>SureLock: watch two decoders race</h1>"
    "<p>A diffusion language model fills in masked words. The baseline recomputes every position in every step; "
    "SureLock stops computing those that have converged.</p>"
)
DEVICE_SLOT = "device"  # all that decodes shares this queue, one at a time
POLL_SECONDS = 0.02


def build(models: Models, *, most: int, queue_size: int) -> tuple[gr.Blocks, Sessions]:
    """The page for these models, with at most ``most`` positions a run and ``queue_size`` waiting visitors."""
    decoder = make_decoder(models)
    sessions = Sessions(decoder, pausable=not on_zero_gpu())
    with gr.Blocks(title="SureLock", fill_width=True, analytics_enabled=False) as page:
        with gr.Sidebar(width=340, label="Settings"):
            form = Form(models, most)
        gr.HTML(TITLE, apply_default_css=False, elem_id="sl-title")
        stage = make_stage(models, sessions)
        _connect(page, form, stage, models, sessions, most)
        api(make_endpoint(models, decoder, most), api_name="decode", concurrency_id=DEVICE_SLOT, concurrency_limit=1)
    page.queue(max_size=queue_size, api_open=True)
    _poll_calmly(page)
    return page, sessions


def _poll_calmly(page: gr.Blocks) -> None:
    """Gradio's queue looks for work 1000 times a second, idle or not: 7 % of a core. Fifty times will do."""
    page._queue.sleep_when_free = POLL_SECONDS
    page._queue.progress_update_sleep_when_free = 10 * POLL_SECONDS  # of gr.Progress, which the page does not use


def _connect(page: gr.Blocks, form: Form, stage: gr.HTML, models: Models, sessions: Sessions, most: int) -> None:
    def start(request: gr.Request, label: Any, prompt: Any, chat: Any, *given: Any) -> Iterator[str]:
        """A new run, from the form's values, to its end or until it is paused."""
        from surelock.trace.recorder import Recorder, make_header

        try:
            lm = models.get(label)
            job = read_job(lm, label, prompt, bool(chat), form.values(given), min(most, lm.network.config.max_length))
            settings, rule = _objects(job.settings, job.rule)
        except (NotReady, ValueError) as error:
            yield refusal(str(error))
            return
        recorder = Recorder(make_header(lm, job.prompt, job.tokens, settings, rule, name=label), lm.tokenizer)
        yield from sessions.open(str(request.session_hash), job, recorder).stream(-1)

    def resume(event: gr.EventData) -> Iterator[str]:
        yield from _continue(sessions, event._data, None)

    def step(event: gr.EventData) -> Iterator[str]:
        yield from _continue(sessions, event._data, 1)

    def leave(request: gr.Request) -> None:
        sessions.leave(str(request.session_hash))

    def arrive(request: gr.Request) -> list[Any]:
        wanted = dict(request.query_params)
        prompt = wanted.get("prompt", "")[:MOST_CHARACTERS]
        label = wanted.get("model", "") if wanted.get("model") in models.labels else models.labels[0]
        suits = models.recommended(label)
        return [label, prompt or gr.skip(), *form.settle(over_recommended(suits, _from_link(wanted)), otherwise=suits)]

    slot: dict[str, Any] = {
        "outputs": stage,
        "concurrency_id": DEVICE_SLOT,
        "concurrency_limit": 1,
        "api_visibility": "private",
        "show_progress": "full",
        "show_progress_on": form.queue,
    }
    form.run.click(start, form.inputs, trigger_mode="always_last", **slot)
    stage.play(resume, None, trigger_mode="multiple", **slot)
    stage.tick(step, None, trigger_mode="multiple", **slot)
    page.load(
        arrive,
        None,
        [form.model, form.prompt, *form.fields.values()],
        queue=False,
        show_progress="hidden",
        api_visibility="private",
    )
    page.unload(leave)


def _continue(sessions: Sessions, data: Any, most: int | None) -> Iterator[str]:
    """Go on with a run that the page names, from the last message it has."""
    data = data if isinstance(data, dict) else {}
    run, after = sessions.find(data.get("run")), data.get("after")
    if run is None:
        yield refusal("This run is no longer kept on the server; press Run to start a new one.")
    elif isinstance(after, int) and after >= -1:
        yield from run.stream(after, most)


def _objects(settings: dict[str, Any], rule: dict[str, Any]) -> tuple[Any, Any]:
    from surelock.decoding.settings import DecodeSettings, LockRule

    return DecodeSettings(**settings), LockRule(**rule)


def _from_link(query: dict[str, str]) -> dict[str, Any]:
    """Settings from a link's query: numbers, booleans and words, each read as its default's type; what cannot be read
    is left out.
    """
    found: dict[str, Any] = {}
    for name, default in DEFAULTS.items():
        text = query.get(name)
        if text is None:
            continue
        if isinstance(default, bool):
            found[name] = text == "true"
        elif isinstance(default, int | float):
            try:
                found[name] = type(default)(text)
            except ValueError:
                continue
        else:
            found[name] = text
    return found
