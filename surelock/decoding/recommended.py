"""The decoder that a model's generation_config.json recommends. The library's defaults do not depend on it."""

from collections.abc import Mapping
from typing import Any

from surelock.decoding.choices import Decoder, check_owners, chosen_kinds, from_flat
from surelock.decoding.settings import DecodeSettings


def recommended(generation: Mapping[str, Any], given: Mapping[str, Any]) -> Decoder:
    """Return the decoder that a model recommends.

    generation: the model's generation_config.json, in the flat form.
    given: settings in the flat form that override it.

    Raises ValueError, which begins with the setting's name, also for a given setting of a kind that is not chosen.
    """
    values = over_recommended(generation, given)
    check_owners(given, *chosen_kinds(values))
    return from_flat(values)


def over_recommended(generation: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a model, overridden by the given ones, in the flat form.

    A given gen_length or steps drops the model's steps, and shortens its block_length to one that divides them; if none
    does, the text is one block.
    """
    values = {**generation, **given}
    if not given.keys() & {"gen_length", "steps"}:
        return values
    if "steps" not in given:
        values.pop("steps", None)
    length = values.get("gen_length", DecodeSettings().gen_length)
    steps = values.get("steps") or length
    if "block_length" not in given:
        most = values.get("block_length") or 0
        values["block_length"] = max(block_choices(length, steps, most), default=None)
    return values


def block_choices(gen_length: int, steps: int, most: int | None = None) -> list[int]:
    """Return the block lengths up to `most` that divide `gen_length` into a number of blocks that divides `steps`."""
    blocks = range(1, gen_length + 1 if most is None else min(most, gen_length) + 1)
    return [block for block in blocks if gen_length % block == 0 and steps % (gen_length // block) == 0]
