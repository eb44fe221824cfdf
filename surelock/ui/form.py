"""The sidebar: what all contestants share as fields, who races as lanes, and what is said beside a field."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from surelock.decoding.choices import Decoder, plain_choice
from surelock.decoding.described import presets_for
from surelock.decoding.recommended import block_choices
from surelock.decoding.setting import Setting, described, to_plain
from surelock.decoding.settings import DecodeSettings
from surelock.trace.contestants import MOST
from surelock.ui.models import Models, NotReady
from surelock.ui.request import MOST_CHARACTERS, prompt_tokens, read_shared

ASSETS = Path(__file__).resolve().parents[2] / "assets"
EXAMPLES = {
    "stories": [
        "Once upon a time, there was a little girl named Lily. She",
        "Tom had a small red boat. One day, he took it to the pond and",
        "The old bear lived alone in the forest. Every morning he",
        'It was raining, and Mia could not go outside. "What can we do?" she asked.',
    ],
    "": [
        "Explain to a child why the sky is blue.",
        "Write a short poem about a lighthouse in winter.",
        "A farmer has 17 sheep and all but 9 run away. How many are left? Explain step by step.",
        "Write a Python function that returns the n-th Fibonacci number.",
    ],
}
FIRST_LANES = ("everything", "surelock")
MAIN = ("gen_length", "steps")  # the rest is folded away
SHARED: dict[str, Setting] = dict(described(DecodeSettings))
MOST_OFFERED: dict[str, float] = {name: each.offered[1] for name, each in SHARED.items() if each.offered}


def defaults() -> dict[str, Any]:
    """What the fields show where neither a link nor the model says anything: the library's own defaults."""
    plain = to_plain(DecodeSettings())
    return plain | {"steps": plain["gen_length"], "block_length": plain["gen_length"]}


class Form:
    """The fields, built inside a ``gr.Sidebar``. ``fields`` holds those of the shared settings by name."""

    def __init__(self, models: Models, most: int) -> None:
        self.models, self.most = models, most
        self.longest = max(16, most - 8 - most % 8)
        first = models.labels[0]
        # A visitor may press Run before the page's load event has settled the fields.
        start = self._together(models.recommended(first)) or defaults()
        self.model = gr.Dropdown(models.labels, value=first, label="Model", interactive=len(models.labels) > 1)
        self.prompt = gr.Textbox(examples_for(first)[0], label="Prompt", lines=3, max_lines=8, elem_id="sl-prompt")
        self.examples = gr.Dropdown(
            examples_for(first), value=None, label="Examples", info="Openings written for this model."
        )
        self.run = gr.Button("Run", variant="primary", elem_id="sl-run", size="lg")
        self.controls = _own_component("controls")
        self.queue = gr.HTML('<div class="sl-queue"></div>', apply_default_css=False, elem_id="sl-queue")
        self.lanes = _own_component("lanes", self.lanes_value(first, None))
        self.fields: dict[str, Any] = {name: self._field(name, start) for name in MAIN}
        with gr.Accordion("More settings", open=False):
            self.chat = gr.Checkbox(True, label="Chat template, if the model has one")
            self.fields |= {name: self._field(name, start) for name in SHARED if name not in MAIN}
        self._connect(start)

    def _field(self, name: str, start: Mapping[str, Any]) -> Any:
        """The component of a shared setting, made from its description."""
        setting, value = SHARED[name], start[name]
        told: dict[str, Any] = {"label": setting.label, "info": setting.help, "elem_id": f"sl-{name.replace('_', '-')}"}
        if setting.kind == "flag":
            return gr.Checkbox(value, **told)
        if setting.offered is not None:
            low, high, step = setting.offered
            return gr.Slider(low, self.longest if name in MAIN else high, value, step=step, **told)
        if setting.none is not None:  # the block length: what fits is a short list
            return gr.Dropdown([value], value=value, allow_custom_value=True, **told)
        return gr.Number(value, **told)

    @property
    def inputs(self) -> list[Any]:
        """Components whose values make a request: model, prompt, chat, who races, then the shared settings."""
        return [self.model, self.prompt, self.chat, self.lanes, *self.fields.values()]

    def shared(self, given: Sequence[Any]) -> DecodeSettings:
        """The settings from the values of ``inputs[4:]``. Raises ValueError, which begins with a name."""
        return read_shared(dict(zip(self.fields, given, strict=True)))

    def lanes_value(self, label: str, wanted: Any) -> str:
        """What the component of the lanes holds, as JSON: the lanes that are wanted (None: the first pair) and the
        presets, both for that model.
        """
        presets = presets_for(self.models.recommended(label))
        by_id = {preset["id"]: preset for preset in presets}
        asked = wanted if isinstance(wanted, list) else []
        lanes = [lane for each in asked if (lane := _lane(each, by_id)) is not None]
        lanes = lanes[:MOST] or [lane for preset in FIRST_LANES if (lane := _lane(preset, by_id)) is not None]
        names = [lane["name"] for lane in lanes]
        for i, lane in enumerate(lanes):
            times = names[: i + 1].count(lane["name"])
            lane |= {"id": f"lane-{i + 1}", "name": f"{names[i][:70]} ({times})" if times > 1 else names[i][:80]}
        return json.dumps({"lanes": lanes, "presets": presets}, ensure_ascii=False)

    def _connect(self, start: Mapping[str, Any]) -> None:
        quiet: dict[str, Any] = {
            "queue": False,
            "show_progress": "hidden",
            "api_visibility": "private",
            "trigger_mode": "always_last",
        }
        schedule = [self.fields[name] for name in ("gen_length", "steps", "block_length")]
        self._last_length = gr.State(start["gen_length"])
        for name in ("gen_length", "steps"):
            self.fields[name].input(
                fit_schedule, [*schedule, self._last_length], [*schedule[1:], self._last_length], **quiet
            )
        self.fields["seed"].change(check_seed, self.fields["seed"], [self.fields["seed"], self.run], **quiet)
        gr.on(
            [self.prompt.change, self.fields["gen_length"].change, self.chat.change],
            self._measure,
            [self.model, self.prompt, self.chat, self.fields["gen_length"]],
            self.prompt,
            **quiet,
        )
        self.examples.input(None, self.examples, self.prompt, js="(text) => text ?? ''", api_visibility="private")
        changed = [self.examples, self.prompt, self.lanes, *self.fields.values()]
        self.model.input(self._change_model, [self.model, self.lanes], changed, **quiet)

    def _measure(self, label: str, prompt: str, chat: bool, gen_length: float) -> Any:
        """What is said beside the prompt: its length, and whether it fits."""
        if len(prompt) > MOST_CHARACTERS:
            return gr.update(info=f"Too long: {len(prompt):,} characters; at most {MOST_CHARACTERS:,} are taken here.")
        try:
            lm = self.models.get(label)
            tokens = len(prompt_tokens(lm, prompt, chat))
        except (NotReady, ValueError):
            return gr.update(info="")
        most = min(self.most, lm.network.config.max_length)
        fits = tokens + int(gen_length) <= most
        return gr.update(
            info=f"{tokens} tokens; with {int(gen_length)} to generate {tokens + int(gen_length)} of at most {most}"
            + ("." if fits else ": too long, shorten one of them.")
        )

    def _change_model(self, label: str, lanes: str) -> list[Any]:
        """The model's own examples and settings, and the same lanes with what it recommends for them."""
        self.models.start_loading(label) if label in self.models.labels else None
        examples = examples_for(label)
        value = self.lanes_value(label, read_value(lanes))
        return [
            gr.update(choices=examples, value=None),
            examples[0],
            value,
            *self.settle(self.models.recommended(label)),
        ]

    def settle(self, wanted: Mapping[str, Any], otherwise: Mapping[str, Any] | None = None) -> list[Any]:
        """Updates that put wanted settings into the fields, the defaults where nothing is wanted; if they are not valid
        together, those that are wanted ``otherwise``.
        """
        values = self._together(wanted) or self._together(otherwise or {}) or defaults()
        updates = {name: gr.update(value=values[name]) for name in self.fields}
        length, steps = int(values["gen_length"]), int(values["steps"])
        updates["steps"] = gr.update(value=steps, maximum=length)
        updates["block_length"] = gr.update(choices=block_choices(length, steps), value=int(values["block_length"]))
        return list(updates.values())

    def _together(self, wanted: Mapping[str, Any]) -> dict[str, Any] | None:
        """The wanted settings over the defaults; None where they are not valid together, or not on this page."""
        length = wanted.get("gen_length", DecodeSettings().gen_length)
        values = defaults() | {"steps": length, "block_length": length}
        values |= {name: value for name, value in wanted.items() if name in SHARED and value is not None}
        try:
            settings = read_shared(values)
        except ValueError:
            return None
        offered = all(values[name] <= high for name, high in MOST_OFFERED.items() if name not in MAIN)
        fits = 8 <= settings.gen_length <= self.longest
        return values if fits and offered and not isinstance(settings.seed, tuple) else None


def _own_component(name: str, value: str | None = None) -> Any:
    """A component whose content is a module of ours, assets/js/NAME.js."""
    return gr.HTML(
        value,
        html_template=f'<div class="sl-{name}"></div>',
        js_on_load=(ASSETS / "js" / "load" / f"{name}.js").read_text("utf-8"),
        apply_default_css=False,
        elem_id=f"sl-{name}",
    )


def _lane(wanted: Any, presets: Mapping[str, Mapping[str, Any]]) -> dict[str, Any] | None:
    """A lane of the page: name, preset (None: the visitor's own), compute, unmask. None where it cannot be."""
    named = wanted if isinstance(wanted, str) else wanted.get("preset") if isinstance(wanted, Mapping) else None
    if isinstance(named, str) and named in presets:
        return {"preset": named, **{key: presets[named][key] for key in ("name", "compute", "unmask")}}
    if not isinstance(wanted, Mapping) or not wanted.keys() & {"compute", "unmask"}:
        return None
    try:
        decoder = Decoder.from_plain({name: wanted[name] for name in ("compute", "unmask") if name in wanted})
    except ValueError:
        return None
    name = wanted.get("name")
    choices = {"compute": plain_choice(decoder.compute), "unmask": plain_choice(decoder.unmask)}
    return {"name": name if isinstance(name, str) and name.strip() else "Your own", "preset": None, **choices}


def read_value(lanes: Any) -> Any:
    """The lanes in the value of their component, None where it holds none."""
    try:
        value = json.loads(lanes) if isinstance(lanes, str) else lanes
    except (json.JSONDecodeError, RecursionError):
        return None
    return value.get("lanes") if isinstance(value, Mapping) else value


def examples_for(label: str) -> list[str]:
    """Prompts written for that model; general instructions for one we know nothing of."""
    return EXAMPLES.get(label, EXAMPLES[""])


def fit_schedule(gen_length: float, steps: float, block_length: int | str | None, last_length: int) -> list[Any]:
    """Keep steps and block length valid for the length, and say beside the field what was changed and why. Steps or a
    block that equalled the length follow it; other blocks are shortened to what fits.
    """
    length, wanted = int(gen_length), int(steps or 1)
    typed = str(block_length)
    asked = int(typed) if typed.isdecimal() else last_length
    steps = length if wanted == last_length else max(1, min(wanted, length))
    choices = block_choices(length, steps)
    follows = asked == last_length
    block = length if follows else max((choice for choice in choices if choice <= asked), default=length)
    said_steps = (
        f"Lowered from {wanted}: at most one step per generated position."
        if steps < wanted and wanted != last_length
        else SHARED["steps"].help
    )
    said_block = (
        f"Changed from {asked}: blocks must divide {length} positions, and their number {steps} steps."
        if block != asked and not follows
        else SHARED["block_length"].help
    )
    return [
        gr.update(value=steps, maximum=length, info=said_steps),
        gr.update(choices=choices, value=block, info=said_block),
        length,
    ]


def check_seed(seed: float | None) -> list[Any]:
    """Explain an unusable seed beside the field and hold Run back until it is mended."""
    try:
        read_shared({"seed": seed})
    except ValueError:
        return [gr.update(info="The seed must be a whole number of at least 0."), gr.update(interactive=False)]
    return [gr.update(info=SHARED["seed"].help), gr.update(interactive=True)]
