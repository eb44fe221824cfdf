"""What suits a model: its generation_config.json, read into settings. The library's own defaults never depend on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from surelock.decoding.settings import DecodeSettings, LockRule, UnlockRule


def recommended_settings(generation: Mapping[str, Any], given: Mapping[str, Any]) -> DecodeSettings:
    """DecodeSettings from a model's generation_config.json, overridden by what is `given`.

    A given gen_length drops the model's own steps, and its block_length where that does not fit.
    """
    names = {field.name for field in fields(DecodeSettings)}
    base = {name: value for name, value in generation.items() if name in names}
    if "gen_length" in given:
        base.pop("steps", None)
        if given["gen_length"] % (base.get("block_length") or 1):
            base.pop("block_length")
    return DecodeSettings(**base | {name: value for name, value in given.items() if name in names})


def recommended_rule(generation: Mapping[str, Any], given: Mapping[str, Any]) -> LockRule:
    """LockRule likewise; given["unlock"] true takes the default UnlockRule."""
    names = ("epsilon", "percentile", "visible_steps")
    values = {name: source[name] for source in (generation, given) for name in names if name in source}
    return LockRule(**values, unlock=UnlockRule() if given.get("unlock") else None)
