"""The page: puts the form, the stage and the events together."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

import gradio as gr
from gradio.events import api

from surelock.ui.device import make_decoder, on_zero_gpu
from surelock.ui.endpoint import make_endpoint
from surelock.ui.fair import SCRIPTS, Asks, Readers, Shares
from surelock.ui.form import Form, examples_for, read_value
from surelock.ui.gradio_patches import explain, poll_calmly, take_any_number
from surelock.ui.limits import Limits
from surelock.ui.link import read_link
from surelock.ui.models import Models, NotReady
from surelock.ui.parameters import ANSWER, description, schemas
from surelock.ui.request import Job, read_branch, read_job, read_lanes
from surelock.ui.schedule import fit
from surelock.ui.session import Sessions, notice, refusal
from surelock.ui.stage import make_stage
from surelock.ui.wording import in_words

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


def build(
    models: Models,
    *,
    most: int,
    queue_size: int,
    judge: Judge | None = None,
    limits: Limits | None = None,
) -> tuple[gr.Blocks, Sessions, Shares]:
    """The page for these models, with at most ``most`` positions a run and ``queue_size`` waiting visitors.

    judge: scores the text of each finished run. limits: what runs may take of the server.
    """
    readers, limits = Readers(), limits or Limits()
    decoder = make_decoder(models, judge)
    sessions = Sessions(decoder, pausable=not on_zero_gpu(), limits=limits)
    with gr.Blocks(title="SureLock", fill_width=True, analytics_enabled=False) as page:
        with gr.Sidebar(width=340, label="Settings"):
            form = Form(models, most)
        head = gr.HTML(title(models, models.labels[0]), apply_default_css=False, elem_id="sl-title")
        asks = Asks(page)
        stage = make_stage(models, sessions, asks, most)
        _connect(page, form, head, stage, models, sessions, readers, asks, most)
        slot = {"concurrency_id": DEVICE_SLOT, "concurrency_limit": 1}
        api(
            make_endpoint(models, decoder, most, readers, limits),
            api_name=SCRIPTS,
            api_description=description(),
            **slot,
        )
        explain(page, SCRIPTS, schemas(models.labels), ANSWER)
    page.queue(api_open=False)  # what waits for the device is reached through the queue alone
    poll_calmly(page)
    take_any_number()
    return page, sessions, Shares(page, queue_size, readers)


def title(models: Models, label: str) -> str:
    """What stands above the stage: what this is, after whom, and what the model is."""
    return f'{TITLE}<p class="sl-model-badge">{escape(models.about(label)).replace("$", "&#36;")}</p>'


def _connect(
    page: gr.Blocks,
    form: Form,
    head: gr.HTML,
    stage: gr.HTML,
    models: Models,
    sessions: Sessions,
    readers: Readers,
    asks: Asks,
    most: int,
) -> None:
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
        opens = opened(request, label, lambda lm, longest: read_branch(lm, str(label), asked, longest))
        yield from asks.while_wanted(opens, asked)

    def opened(request: gr.Request, label: Any, read: Callable[[Any, int], Job]) -> Iterator[str]:
        from surelock.trace.recorder import Recorder, make_header

        try:
            lm = models.get(label)
            job = read(lm, min(most, lm.network.config.max_length))
            header = make_header(lm, job.prompt, job.tokens, job.contestants, name=label, chat=job.chat)
        except (NotReady, ValueError) as error:
            yield refusal(in_words(str(error)))
            return
        run = sessions.open(str(request.session_hash), job, Recorder(header, lm.tokenizer))
        yield from readers.while_read(run.stream(-1), request.session_hash)

    def resume(request: gr.Request, event: gr.EventData) -> Iterator[str]:
        goes_on = readers.while_read(_continue(sessions, event._data, None), request.session_hash)
        yield from asks.while_wanted(goes_on, event._data)

    def step(event: gr.EventData) -> Iterator[str]:
        yield from asks.while_wanted(_continue(sessions, event._data, 1), event._data)

    def leave(request: gr.Request) -> None:
        sessions.leave(str(request.session_hash))

    def arrive(request: gr.Request) -> list[Any]:
        """What the page's address asks for goes into the form."""
        return settled(dict(request.query_params))

    def use(event: gr.EventData) -> list[Any]:
        """The settings of a run that the page shows, in the form."""
        asked = event._data if isinstance(event._data, dict) else {}
        return settled({name: text for name, text in asked.items() if isinstance(text, str)})

    def settled(query: Mapping[str, str]) -> list[Any]:
        """What a link's query asks for, for the form; what of it cannot be had is said in a sentence."""
        link = read_link(query, models.labels, form.suits)
        label = link.model or models.labels[0]
        models.start_loading(label)
        examples = examples_for(label)
        if lost := form.lanes_lost(label, link.lanes):
            link.problems.append(f"{lost} of its {len(link.lanes)} contestants cannot be read (left out)")
        *settled, wants = form.settle(link.over(form.suits(label)), label, link.prompt or examples[0], link.chat)
        link.fitted(fit(wants, form.longest(label, link.prompt or examples[0], link.chat)))
        return [
            title(models, label),
            notice(link.sentence) if link.problems else gr.skip(),
            label,
            link.prompt or (gr.skip() if link.model is None else examples[0]),
            link.chat,
            gr.update(choices=examples, value=None),
            form.lanes_value(label, link.lanes, arrived=True),
            *settled,
            wants,
        ]

    slot: dict[str, Any] = {
        "outputs": stage,
        "concurrency_id": DEVICE_SLOT,
        "concurrency_limit": 1,
        "api_visibility": "private",
        "show_progress": "full",
        "show_progress_on": form.queue,
    }
    run: Any = form.run.click(start, form.inputs, trigger_mode="always_last", **slot)
    stage.play(resume, None, trigger_mode="multiple", **slot)
    stage.tick(step, None, trigger_mode="multiple", **slot)
    stage.apply(branch, None, trigger_mode="multiple", **slot)
    # What the stage asks for it takes back by name (see `Asks`). Gradio 6.31's own way forgets an event that begins
    # while the one before is still being cancelled; what is left of a Run then is stopped when it opens.
    stage.clear(None, None, None, cancels=run, api_visibility="private")
    quiet: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
    form.model.change(lambda label: title(models, label), form.model, head, **quiet)
    filled = [head, stage, form.model, form.prompt, form.chat, form.examples, form.lanes, *form.settled]
    page.load(arrive, None, filled, **quiet)
    stage.select(use, None, filled, **quiet)
    names = json.dumps(["model", "prompt", "chat", "lanes", *form.fields])
    told = f"Object.fromEntries({names}.map((name, i) => [name, values[i]]))"
    tell = f"(...values) => {{ window.surelock?.live?.edit({told}); }}"
    gr.on([field.change for field in form.inputs], None, form.inputs, None, js=tell, **quiet)
    page.unload(leave)


def _continue(sessions: Sessions, data: Any, most: int | None) -> Iterator[str]:
    """Go on with a run that the page names, from the last message it has."""
    data = data if isinstance(data, dict) else {}
    run, after = sessions.find(data.get("run")), data.get("after")
    if run is None:
        yield refusal(sessions.why_gone(data.get("run")))
    elif isinstance(after, int) and after >= -1:
        yield from run.stream(after, most)
