"""Descriptions of all settings, rules, policies and presets as JSON, for the page, the replay and agents."""

import math
from typing import Any

from surelock.decoding.compute import ComputeRule
from surelock.decoding.decoder import plain_choice
from surelock.decoding.presets import PRESETS, preset_of
from surelock.decoding.rules import COMPUTE, UNMASK, held, kind_of
from surelock.decoding.settings import DecodeSettings, Group, Setting, described
from surelock.decoding.unmasking import LowConfidence, UnmaskPolicy
from surelock.values import Fields, Json


def describe() -> Json:
    """Return the descriptions of all settings.

    {"settings": {name: setting}, "compute": {kind: {"label", "sentence", "locks", "settings"}}, "unmask": {kind:
    {"label", "sentence", "settings"}}}. A setting has the fields of `Setting` and its "default"; a group also has
    "settings". A rule or policy from outside the package also has "was", its kind in traces of version 4. A rule or
    policy that the decoder in the browser does not have, such as one from outside, has "server": true.
    """
    # The page shows the default first.
    policies = {LowConfidence.kind: LowConfidence} | UNMASK
    return {
        "settings": _settings(DecodeSettings),
        "compute": {
            kind: _choice(rule) | {"locks": rule.locks} for kind, rule in held("compute").items()
        },
        "unmask": {kind: _choice(policy) for kind, policy in policies.items()},
    }


def presets_for(generation: Fields) -> list[Json]:
    """Return the presets for a model. generation: the model's recommendations, a short spelling."""
    presets = []
    outside = [kind for kind in COMPUTE | UNMASK if ":" in kind]
    for preset in (*PRESETS.values(), *map(preset_of, outside)):
        decoder = preset.decoder(generation)
        choices = {"compute": plain_choice(decoder.compute), "unmask": plain_choice(decoder.unmask)}
        presets.append(
            {"id": preset.id, "name": preset.name, "sentence": preset.sentence, **choices}
        )
    return presets


def _choice(kind: type[ComputeRule] | type[UnmaskPolicy]) -> Json:
    plain = {"label": kind.label, "sentence": kind.sentence, "settings": _settings(kind)}
    is_outside = kind_of(kind) != kind.kind
    if is_outside:
        plain["was"] = kind.kind
    if is_outside or getattr(kind, "server_only", False):
        plain["server"] = True
    return plain


def _settings(kind: type) -> Json:
    defaults = kind()
    return {name: _setting(setting, getattr(defaults, name)) for name, setting in described(kind)}


def _setting(setting: Setting, default: Any) -> Json:
    plain = {
        name: getattr(setting, name)
        for name in ("kind", "label", "help", "range", "flat", "advanced")
    }
    plain["default"] = default
    plain |= {
        name: getattr(setting, name)
        for name in ("none", "offered", "log")
        if getattr(setting, name)
    }
    for end in ("low", "high"):
        if math.isfinite(value := getattr(setting, end, math.inf)):
            plain[end] = value
    return plain | {"settings": _settings(setting.of)} if isinstance(setting, Group) else plain
