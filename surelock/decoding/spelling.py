"""Short spellings of a decoder, and their translation into the nested form.

A short spelling is a mapping. The values of `compute` and `unmask` are a kind, a kind followed by settings
("lock,epsilon=1e-3"), two rules together ("lock+select"), or a nested form. Every other key is the short name of a
setting (`Setting.flat`), which has an effect if its kind is chosen. Flags, fields of a prompts file, fields of
`/decode`, `--model_args` and generation_config.json are short spellings. The nested form is a short spelling too.
"""

import re
from collections.abc import Container, Iterator, Mapping
from functools import cache
from typing import Any

from surelock.decoding.compute import Both
from surelock.decoding.locking import LockRule
from surelock.decoding.rules import COMPUTE, TABLES, UNMASK, class_of
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
    kind: str = ""  # kind of the rule or policy that has the setting; "" for DecodeSettings
    group: str = ""  # field of the setting's group; "" for a setting without a group


def flat_names(
    kind: type, kind_name: str = "", group: str = ""
) -> Iterator[tuple[str, FlatSetting]]:
    """Yield (short name, setting) for the settings of a class; a nested group comes before its settings."""
    defaults = kind()
    for name, description in described(kind):
        default = getattr(defaults, name)
        short = description.flat or name
        yield short, FlatSetting(name, description, default, kind_name, group)
        if isinstance(description, Group):
            yield from flat_names(description.of, kind_name, name)


@cache
def flat_settings() -> dict[str, FlatSetting]:
    """Return the settings of DecodeSettings, of all rules and of all policies by their short names."""
    settings = dict(flat_names(DecodeSettings))
    for kind, choice in (COMPUTE | UNMASK).items():
        settings |= dict(flat_names(choice, kind))
    return settings


def names_behind(choice: str) -> dict[str, list[str]]:
    """Return, by kind, the names of the settings that may follow the kind. choice: "compute" or "unmask"."""
    return {kind: [name for name, _ in described(made)] for kind, made in TABLES[choice].items()}


def parts_of(text: str) -> list[tuple[str, list[str]]]:
    """Return (kind, "key=value" texts) for every rule or policy in a text such as "lock,epsilon=1e-3+select"."""
    texts = re.split(r"\+(?=[^\W\d])", text)  # the + in 1e+3 does not join two rules
    parts = (part.split(",") for part in texts)
    return [(kind, pairs) for kind, *pairs in parts]


def unfolded(values: Fields) -> Json:
    """Return a short spelling in which settings that followed a kind have moved to their short names.

    Raises ValueError for an unknown kind, a wrong setting, and for too many kinds. The message names it.
    """
    unfolded_values = dict(values)
    for choice in DEFAULTS:
        text = values.get(choice)
        if not isinstance(text, str) or text == "":
            continue
        parts = parts_of(text)
        _check_number(choice, len(parts))
        unfolded_values[choice] = "+".join(kind for kind, _ in parts)
        for kind, pairs in parts:
            unfolded_values |= _behind(choice, kind, pairs)
    return unfolded_values


def _check_number(choice: str, parts: int) -> None:
    """Raise ValueError for more than two rules and for more than one policy."""
    if choice == "compute" and parts > 2:
        raise ValueError(f"compute can be one rule or two together, not {parts}")
    if choice == "unmask" and parts > 1:
        raise ValueError(f"unmask can be one policy, not {parts}")


def _behind(choice: str, kind: str, pairs: list[str]) -> Json:
    """Return the settings that follow a kind, by their short names. pairs: "key=value" texts."""
    settings = {}
    for short, flat_setting in flat_names(class_of(choice, kind)):
        settings[short] = settings[flat_setting.name] = short, flat_setting
    values = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if key not in settings or not equals:
            has = f"it has {', '.join(settings) or 'none'}{nearest(key, settings)}"
            raise ValueError(
                f"{key!r} is no setting of {choice} {kind!r} in the form key=value: {has}"
            )
        short, flat_setting = settings[key]
        values[short] = flat_setting.setting.from_text(key, value)
    return values


def without_nones(values: Fields) -> Json:
    """Return a short spelling in which "none" is replaced by None at settings that can be None."""
    known = flat_settings()
    return {
        name: None if name in known and known[name].setting.spells_none(value) else value
        for name, value in values.items()
    }


def kinds_of(values: Fields) -> list[Any]:
    """Return the kinds that an unfolded short spelling chooses."""
    return [part.get("kind") for choice in DEFAULTS for part in _chosen(choice, values)]


def _chosen(choice: str, values: Fields) -> list[Fields]:
    """Return the nested forms of the rules or of the policy in `values[choice]`. Short names are not applied."""
    plain = values.get(choice, "")
    if isinstance(plain, str):
        return [{"kind": kind} for kind in (plain or DEFAULTS[choice]).split("+")]
    if not isinstance(plain, Mapping):
        raise ValueError(f"{choice} must be the name of a kind, not {shown(plain)}")
    parts = [plain.get("lock"), plain.get("select")] if plain.get("kind") == Both.kind else [plain]
    return [part if isinstance(part, Mapping) else {} for part in parts]


def nested(values: Fields) -> Json:
    """Return the nested form of a short spelling, which `Decoder.from_plain` reads.

    Unknown names, and settings of kinds that are not chosen, are left out. Raises ValueError, which names the setting.
    """
    values = unfolded(values)
    parts: dict[str, list[Json]] = {"compute": [], "unmask": []}
    for choice, forms in parts.items():
        for part in _chosen(choice, values):
            forms.append(put_flat(part, class_of(choice, part.get("kind")), values))
    compute = parts["compute"][0]
    if len(parts["compute"]) > 1:
        compute = {"kind": Both.kind, "lock": compute, "select": parts["compute"][1]}
    settings = values.get("settings") or {}
    if isinstance(settings, Mapping):
        settings = put_flat(settings, DecodeSettings, values)
    return {
        "settings": settings,
        "compute": compute,
        "unmask": parts["unmask"][0],
        "events": values.get("events"),
    }


def put_flat(part: Fields, kind: type, values: Fields) -> Json:
    """Return the nested form `part` of the class `kind`, with its settings from `values` put in place.

    values: settings by short name; names that are no settings of the class are ignored. A setting in a group switches
    the group on, unless the group is switched off. Raises ValueError, which names the setting, for a wrong value.
    """
    plain = dict(part)
    for short, flat_setting in flat_names(kind):
        if short not in values:
            continue
        value = values[short]
        if isinstance(flat_setting.setting, Group):
            plain[flat_setting.name] = {} if value is True else value or None
            continue
        value = flat_setting.setting.read(short, value)
        if not flat_setting.group:
            plain[flat_setting.name] = value
        elif isinstance(group := plain.setdefault(flat_setting.group, {}), Mapping):
            plain[flat_setting.group] = {**group, flat_setting.name: value}
    return plain


def check_owners(values: Fields, kinds: Container[str]) -> None:
    """Raise ValueError for a setting of a kind that is not chosen, or of a group that is switched off.

    values: a short spelling. kinds: the chosen kinds.
    """
    for short, flat_setting in flat_settings().items():
        if short not in values:
            continue
        if flat_setting.kind and flat_setting.kind not in kinds:
            name = "compute" if flat_setting.kind in COMPUTE else "unmask"
            raise ValueError(
                f"{short} is a setting of {name} {flat_setting.kind!r}, which was not chosen"
            )
        if flat_setting.group and not values.get(flat_setting.group, True):
            raise ValueError(
                f"{short} is a setting of {flat_setting.group}, which was switched off"
            )
