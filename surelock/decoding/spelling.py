"""Short spellings of a decoder, and the nested form that they stand for.

A short spelling is a mapping of names. `compute` and `unmask` hold a kind with settings behind it
("lock,epsilon=1e-3"), two rules together ("lock+select"), or a nested form. Every other name is that of a setting
(`Setting.flat`), which counts where its kind is chosen. Flags, fields of a prompts file, of `/decode` and of
`--model_args`, and generation_config.json are short spellings; the nested form is one, too.
"""

import re
from collections.abc import Container, Iterator, Mapping
from functools import cache
from typing import Any

from surelock.decoding.compute import Both
from surelock.decoding.locking import LockRule
from surelock.decoding.rules import COMPUTE, UNMASK, class_of
from surelock.decoding.settings import DecodeSettings, Group, Setting, described
from surelock.decoding.unmasking import LowConfidence
from surelock.errors import nearest, shown
from surelock.values import Fields, Json, frozen

DEFAULTS = {"compute": LockRule.kind, "unmask": LowConfidence.kind}


@frozen
class FlatSetting:
    """The place of a short name in the nested form."""

    name: str
    setting: Setting
    default: Any
    kind: str = ""  # the kind of the rule or policy that it belongs to; "" for DecodeSettings
    group: str = ""  # the field that holds its group; "" for none


def flat_names(kind: type, kind_name: str = "", group: str = "") -> Iterator[tuple[str, FlatSetting]]:
    """Yield (short name, setting) of each setting of a class; a nested group comes before its own settings."""
    defaults = kind()
    for name, description in described(kind):
        yield description.flat or name, FlatSetting(name, description, getattr(defaults, name), kind_name, group)
        if isinstance(description, Group):
            yield from flat_names(description.of, kind_name, name)


@cache
def flat_settings() -> dict[str, FlatSetting]:
    """Return the settings of DecodeSettings, of all rules and of all policies by their short names."""
    found = dict(flat_names(DecodeSettings))
    for choice in (*COMPUTE.values(), *UNMASK.values()):
        found |= dict(flat_names(choice, choice.kind))
    return found


def parts_of(name: str, values: Fields) -> list[Fields]:
    """Return {"kind": ..., setting: text or value} of each rule of `compute`, or of the policy of `unmask`.

    Raises ValueError, which begins with `name`, for what is neither a text nor an object.
    """
    choice = values.get(name) or DEFAULTS[name]
    if isinstance(choice, Mapping):
        parts = [choice.get("lock"), choice.get("select")] if choice.get("kind") == Both.kind else [choice]
        return [part if isinstance(part, Mapping) else {} for part in parts]
    if not isinstance(choice, str):
        raise ValueError(f"{name} must be the name of a kind, not {shown(choice)}")
    parts = []
    for text in re.split(r"\+(?=[^\W\d])", choice) if name == "compute" else [choice]:
        kind, *pairs = text.split(",")
        parts.append({"kind": kind} | {key: value for key, _, value in (pair.partition("=") for pair in pairs)})
    return parts


def kinds_of(values: Fields) -> list[Any]:
    """Return the kinds that a short spelling chooses."""
    return [part.get("kind") for name in DEFAULTS for part in parts_of(name, values)]


def names_of(values: Fields) -> set[str]:
    """Return all short names: also those of rules from outside that a short spelling chooses."""
    chosen = [class_of(name, part.get("kind")) for name in DEFAULTS for part in parts_of(name, values)]
    return {*DEFAULTS, *flat_settings(), *(short for kind in chosen for short, _ in flat_names(kind))}


def nested(values: Fields) -> Json:
    """Return the nested form of a short spelling, which `Decoder.from_plain` reads.

    Unknown names, and settings of kinds that are not chosen, are left out. Raises ValueError, which names the setting.
    """
    rules, policies = (parts_of(name, values) for name in DEFAULTS)
    if len(rules) > 2:
        raise ValueError(f"compute can be one rule or two together, not {len(rules)}")
    compute = [_filled("compute", part, values) for part in rules]
    return {
        "settings": _put({**values.get("settings", {})}, dict(flat_names(DecodeSettings)), values),
        "compute": {"kind": Both.kind, "lock": compute[0], "select": compute[-1]} if len(rules) > 1 else compute[0],
        "unmask": _filled("unmask", policies[0], values),
        "events": values.get("events"),
    }


def _filled(choice: str, part: Fields, values: Fields) -> Json:
    """The nested form of a part, with the settings behind its kind and those that short names give."""
    kind = part.get("kind")
    names = dict(flat_names(class_of(choice, kind)))
    shorts = {key: short for short, each in names.items() for key in (each.name, short)}
    behind = {}
    for key, value in part.items():
        if key == "kind":
            continue
        if key not in shorts or value == "":
            has = f"it has {', '.join(shorts) or 'none'}{nearest(key, shorts)}"
            raise ValueError(f"{key!r} is no setting of {choice} {kind!r} in the form key=value: {has}")
        setting = names[shorts[key]].setting
        behind[shorts[key]] = value if isinstance(setting, Group) else setting.read(key, value)
    return _put({"kind": kind}, names, {**values, **behind})


def _put(plain: Json, names: Mapping[str, FlatSetting], values: Fields) -> Json:
    """Put values into a nested form by their short names. Settings of a group ask for it, unless it is switched off."""
    for short, each in names.items():
        if short not in values:
            continue
        if isinstance(each.setting, Group):
            plain[each.name] = each.setting.switched(values[short])
        elif not each.group:
            plain[each.name] = each.setting.read(short, values[short])
        elif plain.setdefault(each.group, {}) is not None:
            plain[each.group] = {**plain[each.group], each.name: each.setting.read(short, values[short])}
    return plain


def check_owners(given: Fields, kinds: Container[str]) -> None:
    """Raise ValueError for a given setting of a kind that is not chosen or of a group that is switched off."""
    for flat, each in flat_settings().items():
        if flat not in given:
            continue
        if each.kind and each.kind not in kinds:
            name = "compute" if each.kind in COMPUTE else "unmask"
            raise ValueError(f"{flat} is a setting of {name} {each.kind!r}, which was not chosen")
        if each.group and not given.get(each.group, True):
            raise ValueError(f"{flat} is a setting of {each.group}, which was switched off")
