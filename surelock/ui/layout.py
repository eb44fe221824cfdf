"""The page: puts the form, the stage and the events together."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import gradio as gr
from gradio.events import api

from surelock.decoding.choices import flat_settings, from_flat, plain_choice, present_names
from surelock.decoding.recommended import over_recommended
from surelock.ui.device import make_decoder, on_zero_gpu
from surelock.ui.endpoint import description, make_endpoint
from surelock.ui.form import Form, examples_for, read_value
from surelock.ui.gradio_patches import poll_calmly
from surelock.ui.models import Models, NotReady
from surelock.ui.request import MOST_CHARACTERS, Job, read_branch, read_job, read_lanes
from surelock.ui.session import Sessions, refusal
from surelock.ui.stage import make_stage

if TYPE_CHECKING:
    from surelock.quality.judge import Judge

TITLE = (
    "<h1>SureLock: watch decoders race</h1>"
    "<p>A diffusion language model fills in masked words, and usually computes every position in every step. "
    "SureLock stops computing those that have converged. Race it against that, and against others.</p>"
    '<p class="sl-paper">After <a href="https://daioba.github.io/surelock" target="_blank" rel="noopener">Stopping '
    "Computation for Converged Tokens in Masked Diffusion-LM Decoding</a> by Daisuke Oba, Danushka Bollegala, Masahiro "
    "Kaneko and Naoaki Okazaki (ICLR 2026).</p>"
)
DEVICE_SLOT = "device"  # all that decodes shares this queue, one at a time


def build(models: Models, *, most: int, queue_size: int, judge: Judge | None = None) -> tuple[gr.Blocks, Sessions]:
    """The page for these models, with at most ``most`` positions a run and ``queue_size`` waiting visitors.

    judge: scores the text of each finished run.
    """
    decoder = make_decoder(models, judge)
    sessions = Sessions(decoder, pausable=not on_zero_gpu())
    with gr.Blocks(title="SureLock", fill_width=True, analytics_enabled=False) as page:
        with gr.Sidebar(width=340, label="Settings"):
            form = Form(models, most)
        gr.HTML(TITLE, apply_default_css=False, elem_id="sl-title")
        stage = make_stage(models, sessions)
        _connect(page, form, stage, models, sessions, most)
        slot = {"concurrency_id": DEVICE_SLOT, "concurrency_limit": 1}
        api(make_endpoint(models, decoder, most), api_name="decode", api_description=description(), **slot)
    page.queue(max_size=queue_size, api_open=True)
    poll_calmly(page)
    return page, sessions


def _connect(page: gr.Blocks, form: Form, stage: gr.HTML, models: Models, sessions: Sessions, most: int) -> None:
    def start(request: gr.Request, label: Any, prompt: Any, chat: Any, lanes: Any, *given: Any) -> Iterator[str]:
        """A new run, from the form's values, to its end or until it is paused."""

        def read(lm: Any, longest: int) -> Job:
            contestants = read_lanes(read_value(lanes), form.shared(given))
            return read_job(lm, label, prompt, bool(chat), contestants, longest)

        yield from opened(request, label, read)

    def branch(request: gr.Request, event: gr.EventData) -> Iterator[str]:
        """A new run that continues what the page shows, from one of its steps."""
        asked = event._data if isinstance(event._data, dict) else {}
        label = asked.get("model")
        yield from opened(request, label, lambda lm, longest: read_branch(lm, str(label), asked, longest))

    def opened(request: gr.Request, label: Any, read: Callable[[Any, int], Job]) -> Iterator[str]:
        from surelock.trace.recorder import Recorder, make_header

        try:
            lm = models.get(label)
            job = read(lm, min(most, lm.network.config.max_length))
            header = make_header(lm, job.prompt, job.tokens, job.contestants, name=label)
        except (NotReady, ValueError) as error:
            yield refusal(str(error))
            return
        yield from sessions.open(str(request.session_hash), job, Recorder(header, lm.tokenizer)).stream(-1)

    def resume(event: gr.EventData) -> Iterator[str]:
        yield from _continue(sessions, event._data, None)

    def step(event: gr.EventData) -> Iterator[str]:
        yield from _continue(sessions, event._data, 1)

    def leave(request: gr.Request) -> None:
        sessions.leave(str(request.session_hash))

    def arrive(request: gr.Request) -> list[Any]:
        return settled(dict(request.query_params))

    def use(event: gr.EventData) -> list[Any]:
        """The settings of a run that the page shows, in the form."""
        asked = event._data if isinstance(event._data, dict) else {}
        return settled({name: text for name, text in asked.items() if isinstance(text, str)})

    def settled(wanted: Mapping[str, str]) -> list[Any]:
        """What a link's query, or the like, puts into the form."""
        prompt = wanted.get("prompt", "")[:MOST_CHARACTERS]
        label = wanted.get("model", "") if wanted.get("model") in models.labels else models.labels[0]
        suits, linked = models.recommended(label), from_link(wanted)
        lanes = form.lanes_value(label, lanes_from_link(wanted, {**suits, **linked}))
        models.start_loading(label)
        examples = gr.update(choices=examples_for(label), value=None)
        return [
            label,
            examples,
            prompt or gr.skip(),
            lanes,
            *form.settle(over_recommended(suits, linked), otherwise=suits),
        ]

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
    stage.apply(branch, None, trigger_mode="multiple", **slot)
    settling: dict[str, Any] = {
        "inputs": None,
        "outputs": [form.model, form.examples, form.prompt, form.lanes, *form.fields.values()],
        "queue": False,
        "show_progress": "hidden",
        "api_visibility": "private",
    }
    page.load(arrive, **settling)
    stage.select(use, **settling)
    page.unload(leave)


def _continue(sessions: Sessions, data: Any, most: int | None) -> Iterator[str]:
    """Go on with a run that the page names, from the last message it has."""
    data = data if isinstance(data, dict) else {}
    run, after = sessions.find(data.get("run")), data.get("after")
    if run is None:
        yield refusal("This run is no longer kept on the server; press Run to start a new one.")
    elif isinstance(after, int) and after >= -1:
        yield from run.stream(after, most)


def from_link(query: Mapping[str, str]) -> dict[str, Any]:
    """Settings (the flat form) from a link's query, each read as its description says; the unreadable are left out."""
    found: dict[str, Any] = {}
    for name, text in present_names(query).items():
        setting = flat_settings()[name].setting if name in flat_settings() else None
        if name in ("compute", "unmask"):
            found[name] = text
        elif setting is not None and setting.kind in ("flag", "group"):
            found[name] = text == "true"
        elif setting is not None:
            try:
                found[name] = setting.checked(name, int(text) if setting.kind == "whole" else float(text))
            except ValueError:
                continue
    return found


def lanes_from_link(query: Mapping[str, str], flat: Mapping[str, Any]) -> Any:
    """Who races, from a link: its `contestants` or, in a link of the first edition, its rule beside every position."""
    if "contestants" in query:
        try:
            return json.loads(query["contestants"])
        except (json.JSONDecodeError, RecursionError):
            return None
    how = {name for name, each in flat_settings().items() if each.kind}  # the sizes are the form's, not a lane's
    if not how & from_link(query).keys():
        return None
    try:
        kept = {name: value for name, value in present_names(flat).items() if name in {*how, "compute", "unmask"}}
        decoder = from_flat(kept)
    except ValueError:
        return None
    unmask = plain_choice(decoder.unmask)
    own = {"name": "SureLock", "compute": plain_choice(decoder.compute), "unmask": unmask}
    return [{"name": "Every position", "compute": {"kind": "everything"}, "unmask": unmask}, own]
