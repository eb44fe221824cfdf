"""What suits a model: its generation_config.json, as a decoder. The library's own defaults never depend on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from surelock.decoding.choices import Decoder, check_owners, chosen_kinds, from_flat
from surelock.decoding.settings import DecodeSettings


def recommended(generation: Mapping[str, Any], given: Mapping[str, Any]) -> Decoder:
    """The decoder of a model's generation_config.json, in the flat form, overridden by what is `given` in it.

    Raises ValueError, which begins with the setting's name, also for a given setting of a kind that is not chosen.
    """
    values = over_recommended(generation, given)
    check_owners(given, *chosen_kinds(values))
    return from_flat(values)


def over_recommended(generation: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What is `given` over what a model recommends. A given gen_length or steps drops the model's own steps and
    shortens its block_length to what fits; where nothing does, all is one block.
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
    """Block lengths, at most `most`, that divide the length and whose number divides the steps."""
    blocks = range(1, gen_length + 1 if most is None else min(most, gen_length) + 1)
    return [block for block in blocks if gen_length % block == 0 and steps % (gen_length // block) == 0]
