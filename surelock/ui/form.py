"""The sidebar: fields for the settings that all lanes share, the lanes, and notes beside the fields."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from html import escape
from typing import Any

import gradio as gr
from gradio.context import LocalContext

from surelock.decoding.decoder import Decoder, plain_choice
from surelock.decoding.described import presets_for
from surelock.decoding.settings import DecodeSettings, to_plain
from surelock.errors import first_line, without_paths
from surelock.places import ASSETS
from surelock.trace.lanes import MOST
from surelock.trace.pieces import Pieces
from surelock.ui.models import Models
from surelock.ui.request import MOST_CHARACTERS, lanes_in, prompt_tokens, read_shared
from surelock.ui.schedule import GRAIN, LEAST, NAMES, SHARED, Wants, fit, not_whole
from surelock.ui.wording import in_words
from surelock.values import Fields, Json

EXAMPLES = {
    "stories": [
        "Once upon a time, there was a little girl named Lily. She",
        "Jack had a toy robot. One day, the robot",
        "It was Tom's birthday. His dad gave him a",
        "The sun was shining and the birds were singing. Lucy",
        "Lily saw a __ in the park. She was very __ and began to sing.",
    ],
    "": [
        "Explain to a child why the sky is blue.",
        "Write a short poem about a lighthouse in winter.",
        "A farmer has 17 sheep and all but 9 run away. How many are left? Explain step by step.",
        "Write a Python function that returns the n-th Fibonacci number.",
    ],
}
#: What a model knows, after "This model knows".
KNOWS = {"stories": "English stories for small children, and nothing else"}
#: The form's first length: a run takes a few seconds.
FIRST_LENGTH = 64
#: The form's first settings, over those that a model recommends. The seed is that of the recorded run, whose story was
#: chosen among openings and seeds by its text alone.
OPENING = {"stories": {"seed": 4, "gen_length": FIRST_LENGTH, "steps": FIRST_LENGTH}}
FIRST_LANES = ("everything", "surelock")
MAIN = ("gen_length", "steps")  # the other fields are folded away
MOST_OFFERED: dict[str, float] = {
    name: setting.offered[1] for name, setting in SHARED.items() if setting.offered
}
_NUMBERED = re.compile(r"( \(\d+\))+$")  # the number of a repeated name
CHAT_TOKENS = 64  # more than any chat template adds, for a model that is not loaded yet


#: Options of an event that skips Gradio's queue. Its function checks its arguments: Gradio would refuse a number beyond
#: a slider's end before the form can correct it.
QUIET: Json = {
    "queue": False,
    "show_progress": "hidden",
    "api_visibility": "private",
    "preprocess": False,
}


def defaults() -> Json:
    """Return the values of the fields without a link or a recommendation: the defaults for FIRST_LENGTH."""
    plain = to_plain(DecodeSettings(gen_length=FIRST_LENGTH))
    return plain | {"steps": plain["gen_length"], "block_length": plain["gen_length"]}


def readable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let an event's function refuse in a sentence what it cannot read: any caller may send it anything."""

    @wraps(function)
    def reads(*values: Any) -> Any:
        try:
            return function(*values)
        except (
            TypeError,
            ValueError,
            ArithmeticError,
            LookupError,
            AttributeError,
            RecursionError,
        ) as error:
            call: Any = LocalContext.request.get(None)
            if call is not None:
                call.request.state.status = 422  # Gradio answers 500, as if the server had failed
            message = f"The data is not what this function takes: {without_paths(error)}"
            raise gr.Error(message, print_exception=False) from error

    return reads


class Form:
    """The form, built inside a `gr.Sidebar`.

    fields: the components of the shared settings, by name.
    """

    def __init__(self, models: Models, most: int) -> None:
        self.models = models
        self.most = most
        first = models.labels[0]
        prompt = examples_for(first)[0]
        start, wants = self._fitted(self.suits(first), self.longest(first, prompt, True))
        self.model = gr.Dropdown(
            models.labels, value=first, label="Model", interactive=len(models.labels) > 1
        )
        self.badge = gr.HTML(self.about(first), apply_default_css=False, elem_id="sl-badge")
        self.prompt = gr.Textbox(prompt, label="Prompt", lines=3, max_lines=8, elem_id="sl-prompt")
        self.run = gr.Button("Run", variant="primary", elem_id="sl-run", size="lg")
        self.controls = _component("controls")
        self.lanes = _component("lanes", self.lanes_value(first, None))
        self.fields: Json = {name: self._field(name, start) for name in MAIN}
        with gr.Accordion("More settings", open=False):
            self.chat = gr.Checkbox(True, label="Chat template, if the model has one")
            self.fields |= {name: self._field(name, start) for name in SHARED if name not in MAIN}
        self.wants = gr.Textbox(wants.text, visible="hidden")
        # JSON of the page's warnings, see `refit_to_prompt`
        self.warned = gr.Textbox(visible="hidden")
        self._connect()

    def about(self, label: str) -> str:
        return f'<p class="sl-model-badge">{escape(self.models.about(label)).replace("$", "&#36;")}</p>'

    def suits(self, label: str) -> Json:
        """Return the settings that the form begins with for a model: recommended ones, then those of OPENING."""
        return {**self.models.recommended(label), **OPENING.get(label, {})}

    def _field(self, name: str, start: Fields) -> Any:
        """The component of a shared setting, made from its description."""
        setting = SHARED[name]
        value = start[name]
        args: Json = {
            "label": setting.label,
            "info": setting.help,
            "elem_id": f"sl-{name.replace('_', '-')}",
        }
        if setting.kind == "flag":
            return gr.Checkbox(value, **args)
        if setting.offered is not None:
            low, high, step = setting.offered
            high = self.most if name in MAIN else high
            return gr.Slider(low, high, value, step=step, **args)
        if setting.none is not None:  # the block length: few values fit
            return gr.Dropdown([value], value=value, allow_custom_value=True, **args)
        return gr.Number(value, **args)

    @property
    def inputs(self) -> list[Any]:
        """The components whose values make a request: model, prompt, chat, lanes, then the shared settings."""
        return [self.model, self.prompt, self.chat, self.lanes, *self.fields.values()]

    def lanes_value(self, label: str, wanted: Any, *, arrived: Fields | None = None) -> str:
        """Return the value of the lanes' component, as JSON: lanes, presets, `arrived`, and the model's example prompts
        and knowledge.

        wanted: the wanted lanes, presets by id or objects; None is FIRST_LANES.
        arrived: {"said": sentence} if a link or a run fills the form.
        """
        presets = presets_for(self.models.recommended(label))
        lanes = _lanes(wanted, presets)[:MOST] or _lanes(FIRST_LANES, presets)
        names: set[str] = set()
        for number, lane in enumerate(lanes, 1):
            plain = _NUMBERED.sub("", lane["name"])[:70]
            name = lane["name"][:80]
            times = 1
            while name in names:
                times += 1
                name = f"{plain} ({times})"
            names.add(name)
            lane |= {"id": f"lane-{number}", "name": name}
        about = {"examples": examples_for(label), "knows": KNOWS.get(label, "")}
        return json.dumps(
            {"lanes": lanes, "presets": presets, "arrived": arrived} | about, ensure_ascii=False
        )

    def lanes_lost(self, label: str, wanted: list[Any] | None) -> int:
        """Return the number of wanted lanes that cannot be read."""
        return len(wanted or ()) - len(_lanes(wanted, presets_for(self.models.recommended(label))))

    def _connect(self) -> None:
        quiet: Json = QUIET | {"trigger_mode": "always_last"}
        schedule = [self.fields[name] for name in NAMES]
        inputs = [self.model, self.prompt, self.chat, self.wants, *schedule]
        for name in NAMES:
            self.fields[name].input(
                readable(partial(self.refit, name)), inputs, [*schedule, self.wants], **quiet
            )
        changed = [self.prompt.change, self.chat.change]
        gr.on(
            changed,
            readable(self.refit_to_prompt),
            inputs,
            [self.prompt, *schedule, self.warned],
            **quiet,
        )
        warns = "(warned) => { window.surelock?.page.set(JSON.parse(warned)); }"
        self.warned.change(None, self.warned, None, js=warns, api_visibility="private")
        seed = self.fields["seed"]
        seed.change(readable(check_seed), seed, [seed, self.run], **quiet)
        changed = [self.prompt, self.lanes, *self.settled]
        self.model.input(
            readable(self._change_model), [self.model, self.lanes, self.chat], changed, **quiet
        )

    @property
    def settled(self) -> list[Any]:
        """The components that `settle` updates."""
        return [*self.fields.values(), self.wants]

    def refit(
        self, name: str, label: str, prompt: str | None, chat: bool, wanted: str, *schedule: Any
    ) -> list[Any]:
        """Return the updates after the visitor has changed length, steps or blocks, and the new wants."""
        shown = dict(zip(NAMES, schedule, strict=True))
        wants = Wants.read(wanted)
        length = int(shown["gen_length"] or wants.gen_length)
        wants = wants.with_field(name, shown[name], length)
        updates = self._schedule(label, prompt or "", chat, wants, shown)
        if sentence := not_whole(shown[name]):
            updates[NAMES.index(name)]["info"] = sentence
        return [*updates, wants.text]

    def refit_to_prompt(
        self, label: str, prompt: str | None, chat: bool, wanted: str, *schedule: Any
    ) -> list[Any]:
        """Return the updates after the prompt has changed: of its note, of the schedule, and of the warnings, as JSON.

        Warnings: foreign, whether the model cannot know the prompt; rare, whether its words take many tokens; tooLong,
        a sentence if no answer fits beside it, else "".
        """
        prompt = prompt or ""
        shown = dict(zip(NAMES, schedule, strict=True))
        lm = self.models.ready(label)
        tokens, most = self._tokens(label, prompt, chat)
        fits, too_long = _measured(prompt, tokens, most)
        foreign = rare = False
        if lm and tokens:
            pieces = Pieces(lm.tokenizer)
            foreign = pieces.is_foreign(tokens)
            # a blank is no part of a word
            rare = pieces.is_rare([token for token in tokens if token != lm.mask_id])
        return [
            gr.update(info=fits),
            *self._schedule(label, prompt, chat, Wants.read(wanted), shown),
            json.dumps({"foreign": foreign, "rare": rare, "tooLong": too_long}),
        ]

    def _schedule(
        self, label: str, prompt: str, chat: bool, wants: Wants, shown: Fields | None = None
    ) -> list[Any]:
        """The updates of length, steps and blocks to values that fit.

        shown: the present values. A field that shows the right value is not written: the visitor may be changing it.
        """
        longest = self.longest(label, prompt, chat)
        fitted = fit(wants, longest)
        fits = f"{SHARED['gen_length'].help} At most {longest} beside this prompt."
        updates: dict[str, Json] = {
            "gen_length": {"maximum": longest, "info": fitted.said.get("gen_length", "") or fits},
            # a slider of one place cannot be made
            "steps": {"maximum": max(2, fitted.values["gen_length"])},
            "block_length": {"choices": fitted.blocks},
        }
        for name, more in updates.items():
            more.setdefault("info", fitted.said.get(name, SHARED[name].help))
            if shown is None or shown[name] != fitted.values[name]:
                more["value"] = fitted.values[name]
        return [gr.update(**updates[name]) for name in NAMES]

    def longest(self, label: str, prompt: str, chat: bool) -> int:
        """Return the longest text, in tokens, that fits beside a prompt. Before the model is loaded,
        a byte of the prompt counts as a token.
        """
        tokens, most = self._tokens(label, prompt, chat)
        if tokens is not None:
            count = len(tokens)
        else:
            count = len(prompt.encode("utf-8", "replace")) + (
                CHAT_TOKENS if label not in EXAMPLES else 0
            )
        room = min(most - count, int(MOST_OFFERED["gen_length"]))
        return max(2 * LEAST, room - room % GRAIN)

    def _tokens(self, label: str, prompt: str, chat: bool) -> tuple[list[int] | None, int]:
        """The token ids of a prompt, None if unknown, and the number of positions."""
        lm = self.models.ready(label)
        if lm is None or len(prompt) > MOST_CHARACTERS:
            return None, self.most
        most = min(self.most, lm.config.max_length)
        try:
            return prompt_tokens(lm, prompt, chat), most
        except ValueError:
            return None, most

    def _change_model(self, label: str, lanes: str, chat: bool) -> list[Any]:
        """The updates after the model has changed: its examples and settings, and the same lanes with its presets."""
        if label in self.models.labels:
            self.models.start_loading(label)
        examples = examples_for(label)
        value = self.lanes_value(label, lanes_in(lanes))
        settled = self.settle(self.suits(label), label, examples[0], chat)
        return [examples[0], value, *settled]

    def settle(self, wanted: Fields, label: str, prompt: str, chat: bool = True) -> list[Any]:
        """Return the updates that put wanted settings, or else the defaults, into the fields, and the wants."""
        values, wants = self._fitted(wanted, self.longest(label, prompt, chat))
        updates = {name: gr.update(value=values[name]) for name in self.fields}
        updates |= dict(zip(NAMES, self._schedule(label, prompt, chat, wants), strict=True))
        return [*updates.values(), wants]

    @staticmethod
    def _fitted(wanted: Fields, longest: int) -> tuple[Json, Wants]:
        """The wanted settings over the defaults, changed to fit together, and the wants."""
        length = wanted.get("gen_length")
        values = defaults() | dict.fromkeys(NAMES, FIRST_LENGTH if length is None else length)
        values |= {
            name: value for name, value in wanted.items() if name in SHARED and value is not None
        }
        wants = Wants.from_values(values)
        return values | fit(wants, longest).values, wants


def _component(name: str, value: str | None = None) -> Any:
    """A component whose content is made by assets/js/load/NAME.js."""
    return gr.HTML(
        value,
        html_template=f'<div class="sl-{name}"></div>',
        js_on_load=(ASSETS / "js" / "load" / f"{name}.js").read_text("utf-8"),
        apply_default_css=False,
        elem_id=f"sl-{name}",
    )


def _measured(prompt: str, tokens: Sequence[int] | None, most: int) -> tuple[str, str]:
    """The note on a prompt's length if an answer fits beside it in `most` positions, and the warning if none does."""
    if len(prompt) > MOST_CHARACTERS:
        return (
            "",
            f"Too long: {len(prompt):,} characters; at most {MOST_CHARACTERS:,} are taken here.",
        )
    if tokens is None:
        return "", ""
    if len(tokens) + 2 * LEAST <= most:
        return f"{len(tokens)} tokens of the {most} that fit here.", ""
    return (
        "",
        f"Too long: {len(tokens)} tokens; at most {most} fit here, {2 * LEAST} of them for the answer.",
    )


def _lanes(wanted: Any, presets: Sequence[Fields]) -> list[Json]:
    """The wanted lanes that can be read."""
    by_id = {preset["id"]: preset for preset in presets}
    if not isinstance(wanted, list | tuple):
        return []
    return [lane for lane in (_lane(form, by_id) for form in wanted) if lane is not None]


def _lane(wanted: Any, presets: Mapping[str, Fields]) -> Json | None:
    """A lane of the page: {name, preset, compute, unmask}. preset: None for a lane of other rules.

    Returns None for what cannot be read.
    """
    preset = wanted.get("preset") if isinstance(wanted, Mapping) else wanted
    if isinstance(preset, str) and preset in presets:
        return {
            "preset": preset,
            **{key: presets[preset][key] for key in ("name", "compute", "unmask")},
        }
    if not isinstance(wanted, Mapping) or not wanted.keys() & {"compute", "unmask"}:
        return None
    try:
        decoder = Decoder.from_plain(
            {name: wanted[name] for name in ("compute", "unmask") if name in wanted}
        )
    except ValueError:
        return None
    name = wanted.get("name")
    choices = {"compute": plain_choice(decoder.compute), "unmask": plain_choice(decoder.unmask)}
    return {
        "name": name if isinstance(name, str) and name.strip() else "Your own",
        "preset": None,
        **choices,
    }


def examples_for(label: str) -> list[str]:
    """Return example prompts for a model; general instructions for an unknown one."""
    return EXAMPLES.get(label, EXAMPLES[""])


def check_seed(seed: float | None) -> list[Any]:
    """Return the updates of the seed's note and of Run, which is disabled for an invalid seed."""
    try:
        read_shared({"seed": seed})
    except ValueError as error:
        return [gr.update(info=f"{in_words(first_line(error))}."), gr.update(interactive=False)]
    return [gr.update(info=SHARED["seed"].help), gr.update(interactive=True)]
