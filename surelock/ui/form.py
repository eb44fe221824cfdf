"""The sidebar: every setting as a field, and what is said beside a field whose value does not go with another's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from surelock.decoding.recommended import block_choices
from surelock.ui.models import Models, NotReady
from surelock.ui.request import MOST_CHARACTERS, prompt_tokens, read_settings

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
DEFAULTS: dict[str, Any] = {
    "gen_length": 128,
    "steps": 128,
    "epsilon": 5e-4,
    "percentile": 20.0,
    "visible_steps": 1,
    "block_length": 128,
    "temperature": 0.0,
    "cfg_scale": 0.0,
    "remasking": "low_confidence",
    "threshold": 0.9,
    "seed": 0,
    "suppress_eos": False,
    "suppress_eos_confidence": False,
    "no_repeat_ngram_size": 0,
}
INFO = {
    "prompt": "",
    "gen_length": "Positions to generate.",
    "steps": "Equal to the length unmasks one token per step.",
    "percentile": "Only the m % most certain of the candidates may lock in a step; 100 is no gate.",
    "visible_steps": "Passes that must have seen the real token before its position locks; 0 is Algorithm 1 literally.",
    "block_length": "Semi-autoregressive blocks from left to right.",
    "temperature": "0 always takes the most likely token.",
    "cfg_scale": "Classifier-free guidance; above 0 every step runs twice.",
    "remasking": "Which masked positions are unmasked first.",
    "threshold": "For the policy “threshold”: unmask all that are at least this certain.",
    "seed": "The same seed gives the same run.",
    "no_repeat_ngram_size": "No phrase of this many tokens comes twice; 0 allows it.",
}
MOST_NGRAM = 12
POLICIES = ["low_confidence", "random", "entropy", "margin", "threshold"]


class Form:
    """The fields, built inside a ``gr.Sidebar``. ``names`` lists the settings in the order of ``inputs``."""

    def __init__(self, models: Models, most: int) -> None:
        self.models, self.most = models, most
        self.longest = max(16, most - 8 - most % 8)
        first = models.labels[0]
        # A visitor may press Run before the page's load event has settled the fields.
        start = self._together(models.recommended(first)) or DEFAULTS
        self.model = gr.Dropdown(models.labels, value=first, label="Model", interactive=len(models.labels) > 1)
        self.prompt = gr.Textbox(
            examples_for(first)[0], label="Prompt", lines=3, max_lines=8, info=INFO["prompt"], elem_id="sl-prompt"
        )
        self.examples = gr.Dropdown(
            examples_for(first), value=None, label="Examples", info="Openings written for this model."
        )
        self.run = gr.Button("Run", variant="primary", elem_id="sl-run", size="lg")
        self.controls = gr.HTML(
            html_template='<div class="sl-controls"></div>',
            js_on_load=(ASSETS / "js" / "load" / "controls.js").read_text("utf-8"),
            apply_default_css=False,
            elem_id="sl-controls",
        )
        self.queue = gr.HTML('<div class="sl-queue"></div>', apply_default_css=False, elem_id="sl-queue")
        self.fields: dict[str, Any] = self._main(start) | self._more(start)
        self.names = list(self.fields)
        self._connect(start)

    def _main(self, start: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "gen_length": gr.Slider(
                8,
                self.longest,
                start["gen_length"],
                step=8,
                label="Generated length",
                info=INFO["gen_length"],
                elem_id="sl-length",
            ),
            "steps": gr.Slider(
                1,
                self.longest,
                start["steps"],
                step=1,
                label="Steps",
                info=INFO["steps"],
                elem_id="sl-steps",
            ),
            "epsilon": gr.HTML(
                start["epsilon"],
                html_template='<div class="sl-epsilon"></div>',
                js_on_load=(ASSETS / "js" / "load" / "epsilon.js").read_text("utf-8"),
                apply_default_css=False,
                elem_id="sl-epsilon",
            ),
            "percentile": gr.Slider(0, 100, start["percentile"], step=1, label="Percentile m", info=INFO["percentile"]),
            "visible_steps": gr.Slider(
                0, 8, start["visible_steps"], step=1, label="Wait until seen", info=INFO["visible_steps"]
            ),
        }

    def _more(self, start: Mapping[str, Any]) -> dict[str, Any]:
        with gr.Accordion("More settings", open=False):
            self.chat = gr.Checkbox(True, label="Chat template, if the model has one")
            return {
                "block_length": gr.Dropdown(
                    [start["block_length"]],
                    value=start["block_length"],
                    label="Block length",
                    info=INFO["block_length"],
                    allow_custom_value=True,
                ),
                "temperature": gr.Slider(
                    0, 2, start["temperature"], step=0.05, label="Temperature", info=INFO["temperature"]
                ),
                "cfg_scale": gr.Slider(0, 4, start["cfg_scale"], step=0.1, label="Guidance", info=INFO["cfg_scale"]),
                "remasking": gr.Dropdown(
                    POLICIES, value=start["remasking"], label="Remasking policy", info=INFO["remasking"]
                ),
                "threshold": gr.Slider(
                    0.05,
                    1,
                    start["threshold"],
                    step=0.01,
                    label="Threshold",
                    info=INFO["threshold"],
                    visible=False,
                ),
                "seed": gr.Number(start["seed"], label="Seed", info=INFO["seed"], elem_id="sl-seed"),
                "suppress_eos": gr.Checkbox(start["suppress_eos"], label="Never choose end of text"),
                "suppress_eos_confidence": gr.Checkbox(
                    start["suppress_eos_confidence"], label="Unmask end of text last"
                ),
                "no_repeat_ngram_size": gr.Slider(
                    0,
                    MOST_NGRAM,
                    start["no_repeat_ngram_size"],
                    step=1,
                    label="Phrase not said again",
                    info=INFO["no_repeat_ngram_size"],
                ),
            }

    @property
    def inputs(self) -> list[Any]:
        """Components whose values make a request: model, prompt, chat, then the settings."""
        return [self.model, self.prompt, self.chat, *self.fields.values()]

    def values(self, given: Sequence[Any]) -> dict[str, Any]:
        """Settings by name from the values of ``inputs[3:]``; the empty seed and epsilon stay None and are refused by
        name.
        """
        return dict(zip(self.names, given, strict=True))

    def _connect(self, start: Mapping[str, Any]) -> None:
        quiet: dict[str, Any] = {
            "queue": False,
            "show_progress": "hidden",
            "api_visibility": "private",
            "trigger_mode": "always_last",
        }
        schedule = [self.fields[name] for name in ("gen_length", "steps", "block_length")]
        self._last_length = gr.State(start["gen_length"])
        self.fields["gen_length"].input(
            fit_schedule, [*schedule, self._last_length], [*schedule[1:], self._last_length], **quiet
        )
        self.fields["steps"].input(
            fit_schedule, [*schedule, self._last_length], [*schedule[1:], self._last_length], **quiet
        )
        self.fields["remasking"].change(
            lambda policy: gr.update(visible=policy == "threshold"),
            self.fields["remasking"],
            self.fields["threshold"],
            **quiet,
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
        self.model.change(self._change_model, self.model, [self.examples, self.prompt, *self.fields.values()], **quiet)

    def _measure(self, label: str, prompt: str, chat: bool, gen_length: float) -> Any:
        """What is said beside the prompt: its length, and whether it fits."""
        if len(prompt) > MOST_CHARACTERS:
            return gr.update(info=f"Too long: {len(prompt):,} characters; at most {MOST_CHARACTERS:,} are taken here.")
        try:
            lm = self.models.get(label)
            tokens = len(prompt_tokens(lm, prompt, chat))
        except (NotReady, ValueError):
            return gr.update(info=INFO["prompt"])
        most = min(self.most, lm.network.config.max_length)
        fits = tokens + int(gen_length) <= most
        return gr.update(
            info=f"{tokens} tokens; with {int(gen_length)} to generate {tokens + int(gen_length)} of at most {most}"
            + ("." if fits else ": too long, shorten one of them.")
        )

    def _change_model(self, label: str) -> list[Any]:
        self.models.start_loading(label) if label in self.models.labels else None
        examples = examples_for(label)
        return [gr.update(choices=examples, value=None), examples[0], *self.settle(self.models.recommended(label))]

    def settle(self, wanted: Mapping[str, Any], otherwise: Mapping[str, Any] | None = None) -> list[Any]:
        """Updates that put wanted settings into the fields, the defaults where nothing is wanted; if they are not valid
        together, those that are wanted ``otherwise``.
        """
        values = self._together(wanted) or self._together(otherwise or {}) or DEFAULTS
        updates = {name: gr.update(value=values[name]) for name in self.names}
        length, steps = int(values["gen_length"]), int(values["steps"])
        updates["steps"] = gr.update(value=steps, maximum=length)
        updates["block_length"] = gr.update(choices=block_choices(length, steps), value=int(values["block_length"]))
        updates["threshold"] = gr.update(value=values["threshold"], visible=values["remasking"] == "threshold")
        return [updates[name] for name in self.names]

    def _together(self, wanted: Mapping[str, Any]) -> dict[str, Any] | None:
        """The wanted settings over the defaults; None where they are not valid together, or not on this page."""
        length = wanted.get("gen_length", DEFAULTS["gen_length"])
        values = DEFAULTS | {"steps": length, "block_length": length}
        values |= {name: value for name, value in wanted.items() if name in DEFAULTS and value is not None}
        try:
            settings, _ = read_settings(values)
        except ValueError:
            return None
        fits = 8 <= settings.gen_length <= self.longest
        known = settings.remasking in POLICIES and settings.no_repeat_ngram_size <= MOST_NGRAM
        return values if fits and known and not isinstance(settings.seed, tuple) else None


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
        else INFO["steps"]
    )
    said_block = (
        f"Changed from {asked}: blocks must divide {length} positions, and their number {steps} steps."
        if block != asked and not follows
        else INFO["block_length"]
    )
    return [
        gr.update(value=steps, maximum=length, info=said_steps),
        gr.update(choices=choices, value=block, info=said_block),
        length,
    ]


def check_seed(seed: float | None) -> list[Any]:
    """Explain an unusable seed beside the field and hold Run back until it is mended."""
    if isinstance(seed, int | float) and seed >= 0 and float(seed).is_integer():
        return [gr.update(info=INFO["seed"]), gr.update(interactive=True)]
    return [gr.update(info="The seed must be a whole number of at least 0."), gr.update(interactive=False)]
