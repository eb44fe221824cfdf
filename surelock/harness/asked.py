"""What a decoder is asked for by `--model_args` and by a task's generation_kwargs, as one flat form."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from surelock.decoding.choices import flat_settings

_CHOICES = {"compute", "unmask"}
#: What tasks call the length; the first that is there counts, as in the harness.
_LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
_HARNESS = {"do_sample", "until", "temperature", *_LENGTHS}
_told: set[str] = set()


def read_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The settings among the model's arguments, in the flat form. Raises ValueError for what is no setting."""
    settings = flat_settings()
    if unknown := sorted(arguments.keys() - settings.keys() - _CHOICES):
        raise ValueError(f"{unknown[0]} is no argument of the model surelock, nor a setting of a decoder")
    return {name: _value(name, value) for name, value in arguments.items()}


def read_request(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The settings among a request's generation_kwargs, in the flat form: its length, its temperature (0 unless it
    samples) and whatever else is a setting. What this sampler has no notion of is named once in the log.
    """
    settings = flat_settings()
    found = {name: _value(name, value) for name, value in asked.items() if name in settings.keys() | _CHOICES}
    length = next((asked[name] for name in _LENGTHS if asked.get(name) is not None), None)
    samples, temperature = asked.get("do_sample"), asked.get("temperature")
    if not samples or temperature is not None:  # who samples without saying how leaves it to the model
        found["temperature"] = 0.0 if samples is False else float(temperature or 0.0)
    if length is not None:
        found.setdefault("gen_length", int(length))
    for name in sorted(asked.keys() - found.keys() - _HARNESS - _told):
        _told.add(name)
        logging.getLogger(__name__).warning("%s is nothing that this sampler knows: it is left out", name)
    return found


def _value(name: str, value: Any) -> Any:
    """None where it is spelled, as on the command line."""
    each = flat_settings().get(name)
    return None if each is not None and each.setting.spells_none(value) else value
