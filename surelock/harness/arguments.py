"""Reads lm-eval's `--model_args` and a task's generation_kwargs as short spellings of a decoder."""

import logging
from functools import cache

from surelock.decoding.flags import read_choices
from surelock.decoding.rules import DECODER_PARTS
from surelock.decoding.spelling import flat_settings, unfolded, without_nones
from surelock.errors import nearest
from surelock.values import Fields, Json

#: The names of the length in tasks; the first that is there counts, as in lm-eval.
_LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
_HARNESS = {"do_sample", "until", "temperature", *_LENGTHS}


def read_arguments(arguments: Fields) -> Json:
    """Return the settings of `--model_args`, an unfolded short spelling. Rules that they name are imported.

    Raises ValueError for a name that is no setting.
    """
    choices = read_choices(arguments)  # first: it imports rules
    settings = flat_settings().keys() | DECODER_PARTS.keys()
    if unknown := sorted(arguments.keys() - settings):
        hint = nearest(unknown[0], settings)
        raise ValueError(
            f"{unknown[0]} is no argument of the model surelock, nor a setting of a decoder{hint}"
        )
    return without_nones(arguments) | choices


def read_request(request: Fields) -> Json:
    """Return the settings of a request's generation_kwargs, an unfolded short spelling. Other names are logged once."""
    settings = flat_settings().keys() | DECODER_PARTS.keys()
    values = unfolded(
        without_nones({name: value for name, value in request.items() if name in settings})
    )
    length = next((request[name] for name in _LENGTHS if request.get(name) is not None), None)
    samples = request.get("do_sample")
    temperature = request.get("temperature")
    # do_sample without a temperature leaves it to the model
    if not samples or temperature is not None:
        values["temperature"] = 0.0 if samples is False else float(temperature or 0.0)
    if length is not None:
        values.setdefault("gen_length", int(length))
    for name in sorted(request.keys() - values.keys() - _HARNESS):
        _log_unknown(name)
    return values


@cache  # once for each name
def _log_unknown(name: str) -> None:
    logging.getLogger(__name__).warning(
        "%s is nothing that this sampler knows: it is left out", name
    )
