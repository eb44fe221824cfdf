"""The command-line flags of the decoder, derived from the descriptions of the settings."""

import argparse
from typing import Any

from surelock.decoding.rules import CHOICES, COMPUTE, class_of, import_rules
from surelock.decoding.settings import Flag, Group, Whole
from surelock.decoding.spelling import FlatSetting, flat_names, flat_settings, parts_of
from surelock.values import Json


def add_decoder_flags(parser: argparse.ArgumentParser) -> None:
    """Add a flag for each setting of every kind. A flag that is not given is absent from the parsed arguments."""
    about = "Defaults here and below: the model's generation_config.json overrides them."
    groups: Json = {"": parser.add_argument_group("sampler", about)}
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


def given_settings(arguments: argparse.Namespace) -> Json:
    """Return the flags of the decoder that were given, a short spelling.

    Modules of the rules that they name are imported. Raises ValueError for a wrong choice or value.
    """
    known = flat_settings()
    given = {name: value for name, value in vars(arguments).items() if name in known or name in CHOICES}
    for name, value in given.items():
        if name in CHOICES:
            import_rules(value)
            _check_once(name, given)
        elif not isinstance(known[name].setting, Group):
            given[name] = known[name].setting.read(name, value)
    return given


def _check_once(choice: str, given: Json) -> None:
    """Raise ValueError for a setting that is given as a flag and behind its kind."""
    for part in parts_of(choice, given):
        for short, each in flat_names(class_of(choice, part["kind"])):
            if short in given and part.keys() & {short, each.name}:
                raise ValueError(f"{short} is given twice, as a flag and behind its kind")


def _add(group: Any, flat: str, each: FlatSetting) -> None:
    setting, flag = each.setting, f"--{flat.replace('_', '-')}"
    default = setting.none if each.default is None else each.default
    sentence = f"{setting.help.rstrip('.')} (default: {default})".replace("%", "%%")
    sentence = sentence[0].lower() + sentence[1:] if sentence[1].islower() else sentence
    if isinstance(setting, Flag | Group):
        how: Json = {"action": argparse.BooleanOptionalAction}
    else:
        how = {"metavar": "N" if isinstance(setting, Whole) else "X"}
    group.add_argument(flag, default=argparse.SUPPRESS, help=sentence, **how)
