"""Reads lm-eval's `--model_args` and a task's generation_kwargs into the flat form of a decoder."""

import logging
from collections.abc import Mapping
from functools import cache
from typing import Any

from surelock.decoding.flags import read_choices
from surelock.decoding.rules import CHOICES, flat_settings
from surelock.errors import nearest

#: The names of the length in tasks; the first that is given counts, as in lm-eval.
_LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
_HARNESS = {"do_sample", "until", "temperature", *_LENGTHS}


def read_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of `--model_args` in the flat form. Raises ValueError for a name that is no setting."""
    named = {name: text for name, text in arguments.items() if name in CHOICES and isinstance(text, str) and text}
    choices = read_choices(named)  # first: it registers rules from outside
    settings = flat_settings().keys() | CHOICES.keys()
    if unknown := sorted(arguments.keys() - settings):
        hint = nearest(unknown[0], settings)
        raise ValueError(f"{unknown[0]} is no argument of the model surelock, nor a setting of a decoder{hint}")
    return {name: _value(name, value) for name, value in arguments.items()} | choices


def read_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a request's generation_kwargs in the flat form. Other names are logged once."""
    settings = flat_settings()
    found = {name: _value(name, value) for name, value in request.items() if name in settings.keys() | CHOICES.keys()}
    length = next((request[name] for name in _LENGTHS if request.get(name) is not None), None)
    samples, temperature = request.get("do_sample"), request.get("temperature")
    if not samples or temperature is not None:  # do_sample without a temperature leaves it to the model
        found["temperature"] = 0.0 if samples is False else float(temperature or 0.0)
    if length is not None:
        found.setdefault("gen_length", int(length))
    for name in sorted(request.keys() - found.keys() - _HARNESS):
        _log_unknown(name)
    return found


@cache  # once for each name
def _log_unknown(name: str) -> None:
    logging.getLogger(__name__).warning("%s is nothing that this sampler knows: it is left out", name)


def _value(name: str, value: Any) -> Any:
    """The value, or None if it is spelled "none" and the setting can be None."""
    each = flat_settings().get(name)
    return None if each is not None and each.setting.spells_none(value) else value
