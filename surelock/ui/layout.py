"""The page: puts the form, the stage and the events together."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, cast

import gradio as gr
from gradio.events import api

from surelock.ui.device import make_decoder, on_zero_gpu
from surelock.ui.door import Door
from surelock.ui.endpoint import make_endpoint
from surelock.ui.form import Form, examples_for
from surelock.ui.gradio_patches import (
    explain,
    keep_no_values,
    keep_queue,
    poll_calmly,
    refuse_in_a_sentence,
    take_any_number,
)
from surelock.ui.limits import Limits
from surelock.ui.link import read_link
from surelock.ui.models import Loading, Models
from surelock.ui.parameters import ANSWER, description, schemas
from surelock.ui.queue import Queue
from surelock.ui.readers import Inboxes, Readers, following
from surelock.ui.request import key_of, read_request
from surelock.ui.run import Run
from surelock.ui.runs import Runs
from surelock.ui.schedule import fit
from surelock.ui.session import Sessions, refusal, said
from surelock.ui.shares import DEVICE_SLOT, SCRIPTS, Ask, Shares
from surelock.ui.stage import make_stage
from surelock.ui.wording import in_words

TITLE = (
    "<h1>SureLock</h1><p>A diffusion language model writes by filling in blanks over many steps. "
    '<span class="sl-wide-only">On the right</span><span class="sl-narrow-only">Below</span>, what has settled '
    "is locked and never computed again.</p>"
)
STATUS_SECONDS = 2.0  # between two messages about a place in the queue
LOAD_SECONDS = 30.0  # that a run waits for its model; others wait behind it
Batches = AsyncGenerator[str]


def build(
    models: Models,
    *,
    most: int,
    queue_size: int,
    limits: Limits | None = None,
    sources: Sequence[str] = ("server",),
) -> tuple[gr.Blocks, Sessions, Shares, Door]:
    """Build the page.

    sources: see `make_stage`.
    """
    readers, limits = Readers(), limits or Limits()
    decoder = make_decoder(models)
    sessions = Sessions(decoder, pausable=not on_zero_gpu(), limits=limits)
    with gr.Blocks(title="SureLock", fill_width=True, analytics_enabled=False) as page:
        with gr.Sidebar(width=340, label="Settings", open=False):
            form = Form(models, most)
        gr.HTML(TITLE, apply_default_css=False, elem_id="sl-title")
        stage = make_stage(models, sessions, most, sources)
        slot = {"concurrency_id": DEVICE_SLOT, "concurrency_limit": 1}
        _connect(page, form, stage, models)
        keys = _serve_runs(page, sessions, readers, models, most, slot)
        api(
            make_endpoint(models, decoder, most, readers, limits),
            api_name=SCRIPTS,
            api_description=description(),
            **slot,
        )
        explain(page, SCRIPTS, schemas(models.labels), ANSWER)
    page.queue(STATUS_SECONDS, api_open=False)  # functions that need the device are called through the queue alone
    poll_calmly(page)
    keep_queue(page)
    take_any_number()
    refuse_in_a_sentence(page)
    keep_no_values()
    runs = Runs(limits, shared=not on_zero_gpu())
    door = Door(models, make_decoder(models, advanced=False), Queue(queue_size), runs, most)
    return page, sessions, Shares(page, queue_size, readers, sessions, keys), door


def _serve_runs(
    page: gr.Blocks, sessions: Sessions, readers: Readers, models: Models, most: int, slot: Mapping[str, Any]
) -> dict[int, Ask]:
    """Add the functions that start and continue runs, for assets/js/run/server_source.js.

    Returns, for the function that requests a job, by its number, a function that returns the job's key.
    """

    async def start(request: gr.Request, asked: dict) -> Batches:
        """Stream a new run, once its model is loaded, until it ends or is paused. asked: see `read_request`."""
        run, patience = None, time.monotonic() + LOAD_SECONDS
        while run is None:
            try:
                run = await asyncio.to_thread(begun, str(request.session_hash), asked)
            except Loading as error:
                if time.monotonic() > patience:
                    yield refusal(str(error))
                    return
                yield said(note=error.said)
                await asyncio.sleep(0.5)
            except ValueError as error:
                yield refusal(in_words(str(error)))
                return
        async for batch in read_by(request, run.stream(-1)):
            yield batch

    def read_by(request: gr.Request, batches: Batches) -> AsyncIterator[str]:
        session, inboxes = str(request.session_hash), cast(Inboxes, page._queue.pending_messages_per_session)
        return following(batches, readers.watched(session), lambda: inboxes.taken(session))

    def begun(owner: str, asked: dict) -> Run:
        job = read_request(models, asked, most)
        lm = models.get(job.label)
        # Only now: two threads that bring in torch and accelerate at once, this and the one that loads, break both.
        from surelock.trace.recorder import Recorder, make_header

        header = make_header(lm, job.prompt, job.tokens, job.lanes, name=job.label, chat=job.chat)
        return sessions.open(owner, job, Recorder(header, lm.tokenizer))

    async def follow(request: gr.Request, run: str, after: int, steps: int | None) -> Batches:
        """Continue a run. after: the last message that the page has. steps: how many; None is to its end."""
        async for batch in read_by(request, _continue(sessions, run, after, steps)):
            yield batch

    made, _ = (api(function, api_visibility="private", **slot) for function in (start, follow))
    return {made["id"]: lambda values: key_of(values[0]) if len(values) == 1 else None}


def _connect(page: gr.Blocks, form: Form, stage: gr.HTML, models: Models) -> None:
    def arrive(request: gr.Request) -> list[Any]:
        """Fill the form from the page's address."""
        return settled(dict(request.query_params), request.session_hash)

    def use(event: gr.EventData) -> list[Any]:
        """Fill the form from a run that the page shows."""
        asked = event._data if isinstance(event._data, dict) else {}
        return settled({name: text for name, text in asked.items() if isinstance(text, str)})

    def settled(query: Mapping[str, str], session: str | None = None) -> list[Any]:
        """Return the updates of the form for the query of a link. session: of a page that has just loaded."""
        link = read_link(query, models.labels, form.suits)
        label = link.model or models.labels[0]
        models.start_loading(label)
        examples = examples_for(label)
        if lost := form.lanes_lost(label, link.lanes):
            link.problems.append(f"{lost} of its {len(link.lanes)} lanes cannot be read (left out)")
        *settled, wants = form.settle(link.over(form.suits(label)), label, link.prompt or examples[0], link.chat)
        link.fitted(fit(wants, form.longest(label, link.prompt or examples[0], link.chat)))
        return [
            form.about(label),
            label,
            link.prompt or (gr.skip() if link.model is None else examples[0]),
            link.chat,
            gr.update(choices=examples, value=None),
            form.lanes_value(label, link.lanes, arrived={"said": link.sentence, "session": session}),
            *settled,
            wants,
        ]

    quiet: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
    form.model.change(form.about, form.model, form.badge, **quiet)
    filled = [form.badge, form.model, form.prompt, form.chat, form.examples, form.lanes, *form.settled]
    page.load(arrive, None, filled, **quiet)
    stage.select(use, None, filled, **quiet)
    names = ["model", "prompt", "chat", "lanes", *form.fields]
    press, edit = _handed_to("live.press", names), _handed_to("addressing.edit", names)
    form.run.click(None, form.inputs, None, js=press, api_visibility="private")
    gr.on([field.change for field in form.inputs], None, form.inputs, None, js=edit, **quiet)


def _handed_to(method: str, names: list[str]) -> str:
    """A script that calls a method of the page's script (assets/js/run/live.js) with the form's values by name."""
    by_name = f"Object.fromEntries({json.dumps(names)}.map((name, i) => [name, values[i]]))"
    return f"(...values) => {{ window.surelock?.{method}({by_name}); }}"


async def _continue(sessions: Sessions, run_id: Any, after: Any, most: Any) -> Batches:
    """Continue a run from the last message that the page has."""
    run = sessions.find(run_id)
    if run is None:
        yield refusal(sessions.why_gone(run_id))
    elif not (_whole(after, -1) and (most is None or _whole(most, 1))):
        yield refusal("A run goes on after a message's number, from -1 on, by a whole number of steps or to its end.")
    else:
        async with aclosing(run.stream(after, most)) as batches:
            async for batch in batches:
                yield batch


def _whole(value: Any, least: int) -> bool:
    return type(value) is int and value >= least
