"""What a visitor asks for, checked: from the form's values or an API call to token ids, settings and a rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from surelock.decoding.settings import DecodeSettings, LockRule
    from surelock.model.language_model import LanguageModel

MOST_CHARACTERS = 20_000
MOST_SCALE = 1000.0  # of temperature and guidance: far beyond any use, far below what overflows
_WHOLE = ("gen_length", "steps", "block_length", "seed", "visible_steps", "no_repeat_ngram_size")


@dataclass(frozen=True, slots=True)
class Job:
    """A checked request. ``settings`` and ``rule`` are plain keyword arguments of DecodeSettings and LockRule."""

    label: str
    prompt: str
    tokens: list[int]
    settings: dict[str, Any]
    rule: dict[str, Any]


def read_settings(values: Mapping[str, Any]) -> tuple[DecodeSettings, LockRule]:
    """Settings and rule from plain values (whole numbers may come as floats or digits). Raises ValueError: one
    sentence that begins with the field's name.
    """
    from surelock.decoding.settings import DecodeSettings, LockRule

    plain = {name: _whole(value) if name in _WHOLE else value for name, value in values.items()}

    def pick(kind: type) -> dict[str, Any]:
        return {field.name: plain[field.name] for field in fields(kind) if field.name in plain}

    return DecodeSettings(**pick(DecodeSettings)), LockRule(**pick(LockRule))


def _whole(value: Any) -> Any:
    if isinstance(value, str) and value.isdecimal() and len(value) < 10:
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def read_job(lm: LanguageModel, label: str, prompt: Any, chat: bool, values: Mapping[str, Any], most: int) -> Job:
    """Check a request against a model and this server's limit of ``most`` positions. Raises ValueError with one
    sentence.
    """
    settings, rule = read_settings(values)
    for name in ("temperature", "cfg_scale"):
        if getattr(settings, name) > MOST_SCALE:
            raise ValueError(f"{name} must be at most {MOST_SCALE:g} here, not {getattr(settings, name):g}")
    if not isinstance(prompt, str) or not prompt.strip():
        raise ValueError("prompt is empty: write a few words for the model to continue.")
    if not prompt.isascii() and any("\ud800" <= char <= "\udfff" for char in prompt):
        raise ValueError("prompt holds half of a character (a lone surrogate): it is no text.")
    if len(prompt) > MOST_CHARACTERS:
        raise ValueError(f"prompt is too long: {len(prompt):,} characters; at most {MOST_CHARACTERS:,} are taken here.")
    tokens = prompt_tokens(lm, prompt, chat)
    check_length(len(tokens), settings.gen_length, most)
    names = [field.name for field in fields(settings) if field.name != "replay"]
    plain_rule = {name: getattr(rule, name) for name in ("epsilon", "percentile", "visible_steps")}
    return Job(label, prompt, tokens, {name: getattr(settings, name) for name in names}, plain_rule)


def prompt_tokens(lm: LanguageModel, prompt: str, chat: bool) -> list[int]:
    """Token ids of a prompt; for a model without a tokenizer the prompt is the ids themselves, in decimal."""
    if lm.tokenizer is not None:
        return lm.encode(prompt, chat=chat and has_chat(lm))
    words = prompt.replace(",", " ").split()
    if not all(word.isdecimal() and len(word) < 10 for word in words):
        raise ValueError("prompt must be token ids, such as 17 4 256: this model has no tokenizer.")
    return [int(word) for word in words]


def check_length(prompt_length: int, gen_length: int, most: int) -> None:
    """Raise ValueError if prompt and generated part do not fit together."""
    if prompt_length + gen_length > most:
        total = f"{prompt_length} tokens and {gen_length} to generate make {prompt_length + gen_length}"
        raise ValueError(f"prompt is too long: {total}; at most {most} positions fit here.")


def has_chat(lm: LanguageModel) -> bool:
    """Whether the model's tokenizer brings a chat template."""
    return bool(getattr(lm.tokenizer, "chat_template", None))
