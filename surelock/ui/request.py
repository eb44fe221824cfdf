"""What a visitor asks for, checked: from the form's values, a branch or an API call to token ids and lanes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from surelock.decoding.choices import TYPED
from surelock.decoding.settings import DecodeSettings, from_plain, to_plain
from surelock.model.errors import shown
from surelock.trace.lanes import MOST, Lane, check_field
from surelock.trace.pieces import Pieces

if TYPE_CHECKING:
    from surelock.model.language_model import LanguageModel

MOST_CHARACTERS = 20_000
MOST_EVENTS = 100


@dataclass(frozen=True, slots=True)
class Job:
    """A checked request. skip: of lanes whose first steps the page has already, how many it has. chat: whether
    the prompt was put into the model's chat template; None: it has none, or this is not known.
    """

    label: str
    prompt: str | None
    tokens: list[int]
    lanes: tuple[Lane, ...]
    skip: Mapping[str, int] = field(default_factory=dict)
    chat: bool | None = None

    @property
    def gen_length(self) -> int:
        return self.lanes[0].decoder.settings.gen_length

    @property
    def key(self) -> str:
        """Of all of it: jobs of one key have one result. It is compared often, so it is short."""
        return sha256(repr(self).encode()).hexdigest()


def read_shared(values: Mapping[str, Any]) -> DecodeSettings:
    """The settings that all lanes share, from the form's values (whole numbers may come as floats or digits).

    Raises ValueError: one sentence that begins with the field's name.
    """
    return from_plain(DecodeSettings, {name: digits(value) for name, value in values.items()})


def digits(value: Any) -> Any:
    """A whole number written in digits, as a form or a link may give it, as a number; all else as it is."""
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 10 else value


def read_lanes(lanes: Any, shared: DecodeSettings | None) -> list[Lane]:
    """Lanes from what the page holds of each: id, name, compute, unmask, and events and settings of its own.

    Raises ValueError, one sentence, for what is none.
    """
    if not isinstance(lanes, list) or not 1 <= len(lanes) <= MOST:
        count = len(lanes) if isinstance(lanes, list) else "something else"
        raise ValueError(f"lanes: one to four can race, not {count}.")
    known = {"id", "name", "compute", "unmask", "settings", "events", "parent"}
    found = []
    for lane in lanes:
        if not isinstance(lane, Mapping):
            raise ValueError(f"lanes must be objects, not {shown(lane)}.")
        plain = {name: value for name, value in lane.items() if name in known}
        if shared is not None:
            plain["settings"] = to_plain(shared)
        found.append(Lane.from_plain(plain))
        decoder = found[-1].decoder
        rules = [decoder.compute, *(event.compute for event in decoder.events if event.compute)]
        if any(not TYPED.keys().isdisjoint(rule.kinds.split("+")) for rule in rules):
            raise ValueError(f"lanes: {found[-1].name!r} has a rule of its own, which only a visitor's browser runs.")
        if len(found[-1].decoder.events) > MOST_EVENTS:
            raise ValueError(f"lanes: {found[-1].name!r} has more than {MOST_EVENTS} events.")
    check_field(found)
    return found


def read_job(lm: LanguageModel, label: str, prompt: Any, chat: bool, lanes: Sequence[Lane], most: int) -> Job:
    """Check a request against a model and this server's limit of ``most`` positions. Raises ValueError with one
    sentence.
    """
    if not isinstance(prompt, str) or not prompt.strip():
        raise ValueError("prompt is empty: write a few words for the model to continue.")
    if len(prompt) > MOST_CHARACTERS:
        raise ValueError(_too_long(prompt))
    tokens = prompt_tokens(lm, prompt, chat)
    job = Job(label, prompt, tokens, tuple(lanes), chat=chat if has_chat(lm) else None)
    check_length(job, most)
    return job


def _too_long(prompt: str) -> str:
    return f"prompt is too long: {len(prompt):,} characters; at most {MOST_CHARACTERS:,} are taken here."


def read_branch(lm: LanguageModel, label: str, asked: Mapping[str, Any], most: int) -> Job:
    """What continues a run from one of its steps: its prompt's tokens, and lanes with settings of their own.

    Each of `lanes` has `skip`, the steps that the page has. Raises ValueError with one sentence.
    """
    tokens, prompt, plain = asked.get("prompt_tokens"), asked.get("prompt"), asked.get("lanes")
    if not isinstance(tokens, list) or not tokens or not all(type(token) is int and token >= 0 for token in tokens):
        raise ValueError("prompt_tokens must be a list of token ids.")
    lanes = read_lanes(plain, None)
    skip = {}
    for lane, told in zip(lanes, plain or (), strict=True):
        steps = told.get("skip", 0)
        if type(steps) is not int or not 0 <= steps <= lane.decoder.settings.total_steps:
            raise ValueError(f"skip must be a number of steps of {lane.name!r}, not {shown(steps)}.")
        skip[lane.id] = steps
    if isinstance(prompt, str) and len(prompt) > MOST_CHARACTERS:
        raise ValueError(_too_long(prompt))
    chat = asked.get("chat")
    job = Job(
        label,
        prompt if isinstance(prompt, str) else None,
        tokens,
        tuple(lanes),
        skip,
        chat if isinstance(chat, bool) else None,
    )
    check_length(job, most)
    if any(token >= lm.config.vocab_size for token in tokens):
        raise ValueError(f"prompt_tokens do not belong to the model {label}: it has fewer tokens.")
    return job


def prompt_tokens(lm: LanguageModel, prompt: str, chat: bool) -> list[int]:
    """Token ids of a prompt; for a model without a tokenizer the prompt is the ids themselves, in decimal."""
    if lm.tokenizer is not None:
        return lm.encode(prompt, chat=chat and has_chat(lm))
    words = prompt.replace(",", " ").split()
    if not all(word.isdecimal() and len(word) < 10 for word in words):
        raise ValueError("prompt must be token ids, such as 17 4 256: this model has no tokenizer.")
    return [int(word) for word in words]


def check_length(job: Job, most: int) -> None:
    """Raise ValueError if prompt and generated part do not fit together."""
    total = len(job.tokens) + job.gen_length
    if total > most:
        told = f"{len(job.tokens)} tokens and {job.gen_length} to generate make {total}"
        raise ValueError(f"prompt is too long: {told}; at most {most} positions fit here.")


def has_chat(lm: LanguageModel) -> bool:
    """Whether the model's tokenizer brings a chat template."""
    return bool(getattr(lm.tokenizer, "chat_template", None))


def one_token(lm: LanguageModel, text: Any) -> dict[str, Any]:
    """{"id", "piece"} of the one token that a text is (with a space before it, where that is how a word begins).

    Raises ValueError, one sentence, where it is none or several.
    """
    if not isinstance(text, str) or not 0 < len(text) <= MOST_CHARACTERS:
        raise ValueError("Write a word first.")
    if lm.tokenizer is None:
        ids = [[int(text)]] if text.strip().isdecimal() and len(text) < 10 else []
    else:
        ids = [lm.encode(form) for form in (text, f" {text}") if form.isprintable()]
    usable = [found[0] for found in ids if len(found) == 1 and found[0] != lm.mask_id]
    if not usable or usable[-1] >= lm.config.vocab_size:
        raise ValueError(f"{shown(text)} is not one token of this model; try a shorter or a more common word.")
    return {"id": usable[-1], "piece": Pieces(lm.tokenizer).of([usable[-1]]).get(str(usable[-1]))}
