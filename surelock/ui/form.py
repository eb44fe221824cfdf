"""The form in the sidebar: the settings that all lanes share, the lanes, and notes beside the fields."""

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
#: The end of the sentence "This model knows ...", by model.
KNOWS = {"stories": "English stories for small children, and nothing else"}
#: The form's first length, with which a run takes a few seconds.
FIRST_LENGTH = 64
#: The form's first settings, by model; they replace settings that the model recommends. The recorded run has the same
#: seed. Its story was chosen among prompts and seeds by its text alone.
OPENING = {"stories": {"seed": 4, "gen_length": FIRST_LENGTH, "steps": FIRST_LENGTH}}
FIRST_LANES = ("everything", "surelock")  # presets
#: Fields that are shown at once; "More settings" contains the other fields.
MAIN = ("gen_length", "steps")
#: The greatest values that the page's fields offer, by setting.
MOST_OFFERED: dict[str, float] = {
    name: setting.offered[1] for name, setting in SHARED.items() if setting.offered
}
_NUMBERED = re.compile(r"( \(\d+\))+$")  # the " (2)" behind a repeated name
#: More tokens than any chat template adds, the estimate for a model that is not loaded yet.
CHAT_TOKENS = 64


#: Options of an event that skips Gradio's queue. The event's function checks its arguments itself: Gradio would refuse
#: a number beyond a slider's end before the form could correct the number.
QUIET: Json = {
    "queue": False,
    "show_progress": "hidden",
    "api_visibility": "private",
    "preprocess": False,
}


def defaults() -> Json:
    """Return the values of the fields if neither a link nor a model sets them: the library's for FIRST_LENGTH."""
    plain = to_plain(DecodeSettings(gen_length=FIRST_LENGTH))
    return plain | {"steps": plain["gen_length"], "block_length": plain["gen_length"]}


def readable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return an event's function that refuses unreadable arguments by a `gr.Error` of one sentence.

    Any caller can send any arguments to the function of an event.
    """

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
    """The form of the page. It is built inside a `gr.Sidebar`.

    models: the models of the server; the first one is selected.
    most: the most positions of a run.
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
        # the components of the shared settings, by name
        self.fields: Json = {name: self._field(name, start) for name in MAIN}
        with gr.Accordion("More settings", open=False):
            self.chat = gr.Checkbox(True, label="Chat template, if the model has one")
            self.fields |= {name: self._field(name, start) for name in SHARED if name not in MAIN}
        self.wants = gr.Textbox(wants.text, visible="hidden")
        # the warnings of `refit_to_prompt` as JSON, for the page's script
        self.warned = gr.Textbox(visible="hidden")
        self._connect()

    def about(self, label: str) -> str:
        """Return the HTML of the note on a model."""
        return f'<p class="sl-model-badge">{escape(self.models.about(label)).replace("$", "&#36;")}</p>'

    def suits(self, label: str) -> Json:
        """Return the form's first settings for a model: the recommended settings, replaced by those of OPENING."""
        return {**self.models.recommended(label), **OPENING.get(label, {})}

    def _field(self, name: str, start: Fields) -> Any:
        """Return the component of a shared setting, made from the description of the setting."""
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
        if setting.none is not None:  # the block length, for which few values fit
            return gr.Dropdown([value], value=value, allow_custom_value=True, **args)
        return gr.Number(value, **args)

    @property
    def inputs(self) -> list[Any]:
        """The components whose values are sent for a run: model, prompt, chat, lanes, and the shared settings."""
        return [self.model, self.prompt, self.chat, self.lanes, *self.fields.values()]

    def lanes_value(self, label: str, wanted: Any, *, arrived: Fields | None = None) -> str:
        """Return the value of the lanes' component, JSON of an object with the fields lanes, presets, arrived,
        examples and knows.

        wanted: a list of lanes, ids of presets or objects; None for FIRST_LANES. Unreadable lanes are left out.
        arrived: {"said": sentence} if a link or a run of the page fills the form, else None.
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
        """Return the updates of length, steps and block length after a change of one of them, and the new wants.

        name: the field that the visitor has changed.
        wanted: the text of the wants before the change.
        schedule: the present values of the three fields.
        """
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
        """Return the updates after a change of the prompt: the prompt's note, length, steps and block length, and the
        warnings as JSON.

        The warnings are: foreign, whether the model cannot know the words of the prompt; rare, whether the words take
        many tokens; tooLong, a sentence if the prompt leaves no room for an answer, else "".
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
            # mask tokens are blanks, not parts of words
            rare = pieces.is_rare([token for token in tokens if token != lm.mask_id])
        return [
            gr.update(info=fits),
            *self._schedule(label, prompt, chat, Wants.read(wanted), shown),
            json.dumps({"foreign": foreign, "rare": rare, "tooLong": too_long}),
        ]

    def _schedule(
        self, label: str, prompt: str, chat: bool, wants: Wants, shown: Fields | None = None
    ) -> list[Any]:
        """Return the updates that set length, steps and block length to values that fit.

        shown: the present values. A field that shows the right value keeps it: the visitor may be typing there.
        """
        longest = self.longest(label, prompt, chat)
        fitted = fit(wants, longest)
        fits = f"{SHARED['gen_length'].help} At most {longest} beside this prompt."
        updates: dict[str, Json] = {
            "gen_length": {"maximum": longest, "info": fitted.said.get("gen_length", "") or fits},
            # a slider needs at least two values
            "steps": {"maximum": max(2, fitted.values["gen_length"])},
            "block_length": {"choices": fitted.blocks},
        }
        for name, more in updates.items():
            more.setdefault("info", fitted.said.get(name, SHARED[name].help))
            if shown is None or shown[name] != fitted.values[name]:
                more["value"] = fitted.values[name]
        return [gr.update(**updates[name]) for name in NAMES]

    def longest(self, label: str, prompt: str, chat: bool) -> int:
        """Return the most tokens that can be generated after a prompt.

        While the prompt's tokens are unknown, every byte of the prompt counts as a token.
        """
        tokens, most = self._tokens(label, prompt, chat)
        if tokens is not None:
            count = len(tokens)
        else:
            count = len(prompt.encode("utf-8", "replace"))
            if label not in EXAMPLES:
                count += CHAT_TOKENS
        room = min(most - count, int(MOST_OFFERED["gen_length"]))
        return max(2 * LEAST, room - room % GRAIN)

    def _tokens(self, label: str, prompt: str, chat: bool) -> tuple[list[int] | None, int]:
        """Return the token ids of a prompt, None if they are unknown, and the most positions of a run."""
        lm = self.models.ready(label)
        if lm is None or len(prompt) > MOST_CHARACTERS:
            return None, self.most
        most = min(self.most, lm.config.max_length)
        try:
            return prompt_tokens(lm, prompt, chat), most
        except ValueError:
            return None, most

    def _change_model(self, label: str, lanes: str, chat: bool) -> list[Any]:
        """Return the updates after a change of the model: its first example, its settings, and the lanes as they are
        with the model's presets.
        """
        if label in self.models.labels:
            self.models.start_loading(label)
        examples = examples_for(label)
        value = self.lanes_value(label, lanes_in(lanes))
        settled = self.settle(self.suits(label), label, examples[0], chat)
        return [examples[0], value, *settled]

    def settle(self, wanted: Fields, label: str, prompt: str, chat: bool = True) -> list[Any]:
        """Return the updates that put the wanted settings, and defaults for the rest, into the fields; then the wants.

        The order of the updates is that of `fields`.
        """
        values, wants = self._fitted(wanted, self.longest(label, prompt, chat))
        updates = {name: gr.update(value=values[name]) for name in self.fields}
        updates |= dict(zip(NAMES, self._schedule(label, prompt, chat, wants), strict=True))
        return [*updates.values(), wants]

    @staticmethod
    def _fitted(wanted: Fields, longest: int) -> tuple[Json, Wants]:
        """Return the wanted settings, and defaults for the rest, changed to fit together; and the wants.

        longest: the most tokens that can be generated.
        """
        length = wanted.get("gen_length")
        values = defaults() | dict.fromkeys(NAMES, FIRST_LENGTH if length is None else length)
        values |= {
            name: value for name, value in wanted.items() if name in SHARED and value is not None
        }
        wants = Wants.from_values(values)
        return values | fit(wants, longest).values, wants


def _component(name: str, value: str | None = None) -> Any:
    """Return a component whose content the script assets/js/load/NAME.js makes."""
    return gr.HTML(
        value,
        html_template=f'<div class="sl-{name}"></div>',
        js_on_load=(ASSETS / "js" / "load" / f"{name}.js").read_text("utf-8"),
        apply_default_css=False,
        elem_id=f"sl-{name}",
    )


def _measured(prompt: str, tokens: Sequence[int] | None, most: int) -> tuple[str, str]:
    """Return a note on a prompt's length, and a warning if the prompt leaves no room for an answer in `most` positions.

    One of the two is "". Both are "" if the tokens are unknown.
    """
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
    """Return the wanted lanes that can be read."""
    by_id = {preset["id"]: preset for preset in presets}
    if not isinstance(wanted, list | tuple):
        return []
    lanes = [_lane(form, by_id) for form in wanted]
    return [lane for lane in lanes if lane is not None]


def _lane(wanted: Any, presets: Mapping[str, Fields]) -> Json | None:
    """Return a lane as the page has it: {name, preset, compute, unmask}; None if the wanted lane cannot be read.

    wanted: the id of a preset, or an object with `preset`, or an object with `compute` or `unmask`.
    presets: the presets by id. The `preset` of a lane with other rules is None.
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
    if not isinstance(name, str) or not name.strip():
        name = "Your own"
    choices = {"compute": plain_choice(decoder.compute), "unmask": plain_choice(decoder.unmask)}
    return {"name": name, "preset": None, **choices}


def examples_for(label: str) -> list[str]:
    """Return example prompts for a model. Models that are not in EXAMPLES share the same instructions."""
    return EXAMPLES.get(label, EXAMPLES[""])


def check_seed(seed: float | None) -> list[Any]:
    """Return the updates of the seed's note and of the button Run. An invalid seed disables the button."""
    try:
        read_shared({"seed": seed})
    except ValueError as error:
        return [gr.update(info=f"{in_words(first_line(error))}."), gr.update(interactive=False)]
    return [gr.update(info=SHARED["seed"].help), gr.update(interactive=True)]
