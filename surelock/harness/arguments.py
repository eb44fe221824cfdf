"""Reads the settings of a decoder, by their short names, from lm-eval's `--model_args` and from a task's
generation_kwargs.
"""

import logging
from functools import cache

from surelock.decoding.flags import read_choices
from surelock.decoding.rules import DECODER_PARTS
from surelock.decoding.spelling import flat_settings, unfolded, without_nones
from surelock.errors import nearest
from surelock.values import Fields, Json

#: The names that tasks use for the generated length. As in lm-eval, the first name that is present counts.
_LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
_HARNESS = {"do_sample", "until", "temperature", *_LENGTHS}


def read_arguments(arguments: Fields) -> Json:
    """Return the settings in `--model_args`, an unfolded short spelling. Import the rules that they name.

    Raises ValueError for a name that is no setting.
    """
    choices = read_choices(arguments)  # must come first: it imports rules, which bring settings
    settings = flat_settings().keys() | DECODER_PARTS.keys()
    if unknown := sorted(arguments.keys() - settings):
        hint = nearest(unknown[0], settings)
        raise ValueError(
            f"{unknown[0]} is no argument of the model surelock, nor a setting of a decoder{hint}"
        )
    return without_nones(arguments) | choices


def read_request(request: Fields) -> Json:
    """Return the settings in a request's generation_kwargs, an unfolded short spelling.

    A name that is no setting is logged once and left out.
    """
    settings = flat_settings().keys() | DECODER_PARTS.keys()
    known = {name: value for name, value in request.items() if name in settings}
    values = unfolded(without_nones(known))
    length = next((request[name] for name in _LENGTHS if request.get(name) is not None), None)
    samples = request.get("do_sample")
    temperature = request.get("temperature")
    # a request with do_sample and without a temperature keeps the model's recommended temperature
    if not samples or temperature is not None:
        values["temperature"] = 0.0 if samples is False else float(temperature or 0.0)
    if length is not None:
        values.setdefault("gen_length", int(length))
    for name in sorted(request.keys() - values.keys() - _HARNESS):
        _log_unknown(name)
    return values


@cache  # a name is logged once
def _log_unknown(name: str) -> None:
    logging.getLogger(__name__).warning(
        "%s is nothing that this sampler knows: it is left out", name
    )
