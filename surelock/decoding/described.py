"""All settings, rules, policies and presets as JSON, for the page, the replay and agents."""

import math
from collections.abc import Mapping
from typing import Any

from surelock.decoding.compute import ComputeRule
from surelock.decoding.decoder import plain_choice
from surelock.decoding.presets import PRESETS, preset_of
from surelock.decoding.rules import COMPUTE, TYPED, UNMASK, find_installed, outside
from surelock.decoding.settings import DecodeSettings, Setting, described
from surelock.decoding.unmasking import LowConfidence, UnmaskPolicy


def describe() -> dict[str, Any]:
    """Return the descriptions of all settings.

    {"settings": {name: setting}, "compute": {kind: {"label", "sentence", "locks", "settings"}}, "unmask": {kind:
    {"label", "sentence", "settings"}}}. A setting holds the fields of `Setting` and its default; a group also holds
    "settings".
    """
    find_installed()
    policies = {LowConfidence.kind: LowConfidence} | UNMASK  # the default first, wherever it stands in the table
    return {
        "settings": _settings(DecodeSettings),
        "compute": {kind: _choice(rule) | {"locks": rule.locks} for kind, rule in (COMPUTE | TYPED).items()},
        "unmask": {kind: _choice(policy) for kind, policy in policies.items()},
    }


def presets_for(generation: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the presets for a model. generation: what it recommends, in the flat form."""
    found = []
    for preset in (*PRESETS.values(), *map(preset_of, outside())):
        decoder = preset.decoder(generation)
        choices = {"compute": plain_choice(decoder.compute), "unmask": plain_choice(decoder.unmask)}
        found.append({"id": preset.id, "name": preset.name, "sentence": preset.sentence, **choices})
    return found


def _choice(kind: type[ComputeRule] | type[UnmaskPolicy]) -> dict[str, Any]:
    return {"label": kind.label, "sentence": kind.sentence, "settings": _settings(kind)}


def _settings(kind: type) -> dict[str, Any]:
    defaults = kind()
    return {name: _setting(setting, getattr(defaults, name)) for name, setting in described(kind)}


def _setting(setting: Setting, default: Any) -> dict[str, Any]:
    plain = {name: getattr(setting, name) for name in ("kind", "label", "help", "range", "flat", "advanced")}
    plain["default"] = default
    plain |= {name: getattr(setting, name) for name in ("low", "high") if math.isfinite(getattr(setting, name))}
    plain |= {name: getattr(setting, name) for name in ("none", "offered", "log") if getattr(setting, name)}
    return plain if setting.group is None else plain | {"settings": _settings(setting.group)}
