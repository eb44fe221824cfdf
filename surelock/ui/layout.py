"""Builds the page: the form, the stage that shows runs, the events between them, and the endpoint /decode."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import gradio as gr
from gradio.events import api

from surelock.places import ASSETS
from surelock.ui.endpoint import Calls, make_endpoint
from surelock.ui.form import QUIET, Form, examples_for, readable
from surelock.ui.link import NAMES, read_link
from surelock.ui.models import Models
from surelock.ui.parameters import ENDPOINT, description
from surelock.ui.schedule import fit

TITLE = (
    '<h1>SureLock</h1><p class="sl-lead">A diffusion language model writes by filling in blanks over many steps. '
    '<span class="sl-wide-only">On the right</span><span class="sl-narrow-only">Below</span>, what has settled '
    "is locked and never computed again.</p>"
)


def build(
    models: Models, calls: Calls, *, most: int, sources: Sequence[str] = ("server",)
) -> gr.Blocks:
    """Return the page as Gradio's blocks.

    calls: answers calls of /decode.
    most: the most positions of a run.
    sources: the places where runs may be computed, "server" and "browser"; the page selects the first one.
    """
    with gr.Blocks(title="SureLock", fill_width=True, analytics_enabled=False) as page:
        with gr.Sidebar(width=340, label="Settings", open=False):
            form = Form(models, most)
        head = f'<header id="sl-title">{TITLE}</header>'
        place = f'<div class="sl-stage" data-sources="{" ".join(sources)}"></div>'
        stage = gr.HTML(
            html_template=f'<div class="sl-page">{head}{place}</div>',
            js_on_load=(ASSETS / "js" / "load" / "stage.js").read_text("utf-8"),
            apply_default_css=False,
            elem_id="sl-stage-host",
        )
        _connect(page, form, stage, models)
        api(
            make_endpoint(calls),
            api_name=ENDPOINT,
            api_description=description(),
            concurrency_limit=None,  # calls wait in the queue of `surelock.ui.queue`, not in Gradio's
        )
    page.queue(api_open=False)
    return page


def _connect(page: gr.Blocks, form: Form, stage: gr.HTML, models: Models) -> None:
    def arrive(request: gr.Request) -> list[Any]:
        """Fill the form from the page's address."""
        return settled(dict(request.query_params))

    @readable
    def use(event: gr.EventData) -> list[Any]:
        """Fill the form from the settings of a run that the page shows."""
        wanted = {name: getattr(event, name, None) for name in NAMES}
        return settled({name: text for name, text in wanted.items() if isinstance(text, str)})

    def settled(query: Mapping[str, str]) -> list[Any]:
        """Return the updates that fill the form from the query of a link."""
        link = read_link(query, models.labels, form.suits)
        label = link.model or models.labels[0]
        models.start_loading(label)
        examples = examples_for(label)
        if lost := form.lanes_lost(label, link.lanes):
            link.problems.append(f"{lost} of its {len(link.lanes)} lanes cannot be read (left out)")
        prompt = link.prompt or examples[0]
        *settled, wants = form.settle(link.over(form.suits(label)), label, prompt, link.chat)
        link.fitted(fit(wants, form.longest(label, prompt, link.chat)))
        keeps_prompt = link.prompt is None and link.model is None
        return [
            form.about(label),
            label,
            gr.skip() if keeps_prompt else prompt,
            link.chat,
            form.lanes_value(label, link.lanes, arrived={"said": link.sentence}),
            *settled,
            wants.text,
        ]

    form.model.change(readable(form.about), form.model, form.badge, **QUIET)
    filled = [form.badge, form.model, form.prompt, form.chat, form.lanes, *form.settled]
    page.load(arrive, None, filled, **QUIET)
    stage.select(use, None, filled, **QUIET)
    names = ["model", "prompt", "chat", "lanes", *form.fields]
    press = _handed_to("live.press", names)
    edit = _handed_to("addressing.edit", names)
    form.run.click(None, form.inputs, None, js=press, api_visibility="private")
    gr.on([field.change for field in form.inputs], None, form.inputs, None, js=edit, **QUIET)


def _handed_to(method: str, names: list[str]) -> str:
    """Return a script for an event. It calls a method of assets/js/run/live.js with the form's values by name."""
    by_name = f"Object.fromEntries({json.dumps(names)}.map((name, i) => [name, values[i]]))"
    return f"(...values) => {{ window.surelock?.{method}({by_name}); }}"
