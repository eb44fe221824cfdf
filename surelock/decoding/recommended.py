"""What suits a model: its generation_config.json, read into settings. The library's own defaults never depend on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from surelock.decoding.settings import DecodeSettings, LockRule, UnlockRule


def recommended_settings(generation: Mapping[str, Any], given: Mapping[str, Any]) -> DecodeSettings:
    """DecodeSettings from a model's generation_config.json, overridden by what is `given` (see `over_recommended`)."""
    names = {field.name for field in fields(DecodeSettings)}
    return DecodeSettings(**{name: v for name, v in over_recommended(generation, given).items() if name in names})


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


def recommended_rule(generation: Mapping[str, Any], given: Mapping[str, Any]) -> LockRule:
    """LockRule likewise; given["unlock"] true takes the default UnlockRule."""
    names = ("epsilon", "percentile", "visible_steps")
    values = {name: source[name] for source in (generation, given) for name in names if name in source}
    return LockRule(**values, unlock=UnlockRule() if given.get("unlock") else None)
