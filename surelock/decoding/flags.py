"""The command-line flags of the decoder, derived from the descriptions of the settings (the flat form)."""

import argparse
from collections.abc import Mapping
from typing import Any

from surelock.decoding.rules import CHOICES, COMPUTE, FlatSetting, flat_settings, read_choice


def add_decoder_flags(parser: argparse.ArgumentParser) -> None:
    """Add a flag for each setting of every kind. A flag that is not given is absent from the parsed arguments."""
    about = "Defaults here and below: the model's generation_config.json overrides them."
    groups: dict[str, Any] = {"": parser.add_argument_group("sampler", about)}
    add_choice_flags(groups[""])
    for flat, each in flat_settings().items():
        if each.kind not in groups:
            what = "rule" if each.kind in COMPUTE else "policy"
            groups[each.kind] = parser.add_argument_group(f"{what} {each.kind!r}")
        _add(groups[each.kind], flat, each)


def add_choice_flags(parser: Any) -> None:
    outside = " Also package.module:Class; settings may follow, as in age,steps=12."
    for name, metavar in (("compute", "RULE"), ("unmask", "POLICY")):
        known = f"{CHOICES[name]}{outside}"
        parser.add_argument(f"--{name}", metavar=metavar, default=argparse.SUPPRESS, help=known)


def given_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the flags of the decoder that were given, in the flat form. Raises ValueError for a wrong choice."""
    values = vars(arguments)
    given = read_choices({name: values[name] for name in CHOICES if name in values})
    found = {name: value for name, value in values.items() if name in flat_settings()}
    if twice := found.keys() & given.keys():
        raise ValueError(f"{min(twice)} is given twice, as a flag and behind its kind")
    return given | found


def read_choices(named: Mapping[str, str]) -> dict[str, Any]:
    """Return the flat form of --compute and --unmask, as `read_choice` reads them."""
    return {key: value for name, text in named.items() for key, value in read_choice(name, text).items()}


def _add(group: Any, flat: str, each: FlatSetting) -> None:
    setting, flag = each.setting, f"--{flat.replace('_', '-')}"
    default = setting.none if each.default is None else each.default
    sentence = f"{setting.help.rstrip('.')} (default: {default})".replace("%", "%%")
    how: dict[str, Any] = {
        "default": argparse.SUPPRESS,
        "help": sentence[0].lower() + sentence[1:] if sentence[1].islower() else sentence,
    }
    if setting.kind in ("flag", "group"):
        return group.add_argument(flag, action=argparse.BooleanOptionalAction, **how)
    kind = int if setting.kind == "whole" else float

    def read(text: str) -> Any:
        return None if setting.spells_none(text) else kind(text)

    read.__name__ = "whole number" if setting.kind == "whole" else "number"  # what argparse calls it
    group.add_argument(flag, type=read, metavar="N" if setting.kind == "whole" else "X", **how)
