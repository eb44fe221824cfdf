"""The command-line flags of the decoder, derived from the descriptions of the settings."""

import argparse
from typing import Any

from surelock.decoding.outside import import_rules
from surelock.decoding.rules import COMPUTE, DECODER_PARTS, class_of
from surelock.decoding.settings import Flag, Group, Whole
from surelock.decoding.spelling import FlatSetting, flat_settings, names_behind, parts_of, unfolded
from surelock.values import Fields, Json


def add_decoder_flags(parser: argparse.ArgumentParser) -> None:
    """Add a flag for every setting of every kind. A flag that is left out is absent from the parsed arguments."""
    about = "Defaults here and below: the model's generation_config.json overrides them."
    groups: Json = {"": parser.add_argument_group("sampler", about)}
    add_choice_flags(groups[""])
    for flat, flat_setting in flat_settings().items():
        if flat_setting.kind not in groups:
            what = "rule" if flat_setting.kind in COMPUTE else "policy"
            groups[flat_setting.kind] = parser.add_argument_group(f"{what} {flat_setting.kind!r}")
        _add(groups[flat_setting.kind], flat, flat_setting)


def add_choice_flags(parser: Any) -> None:
    """Add the flags `--compute` and `--unmask`."""
    for name, metavar, example in (
        ("compute", "RULE", "age,steps=12"),
        ("unmask", "POLICY", "threshold,p=0.8"),
    ):
        outside = f" Also package.module:Class; settings may follow, as in {example}."
        behind = [
            f"{kind}: {', '.join(names)}" for kind, names in names_behind(name).items() if names
        ]
        about = f"{DECODER_PARTS[name]}{outside} Names behind a kind are {'; '.join(behind)}."
        parser.add_argument(f"--{name}", metavar=metavar, default=argparse.SUPPRESS, help=about)


def given_settings(arguments: argparse.Namespace) -> Json:
    """Return the decoder's flags on the command line, an unfolded short spelling.

    Rules that the flags name are imported. Raises ValueError for a wrong choice or value.
    """
    values = vars(arguments)
    known = flat_settings()
    behind = read_choices(values)
    for name in DECODER_PARTS.keys() & values.keys():
        class_of(name, parts_of(values[name])[0][0])  # raises ValueError for an empty text too
    chosen = {name: value for name, value in values.items() if name in known}
    if twice := chosen.keys() & behind.keys():
        raise ValueError(f"{min(twice)} is given twice, as a flag and behind its kind")
    for name, value in chosen.items():
        if isinstance(value, str):
            chosen[name] = known[name].setting.from_text(name, value)
    return chosen | behind


def read_choices(values: Fields) -> Json:
    """Return the flags `compute` and `unmask`, an unfolded short spelling. Rules that they name are imported.

    Raises ValueError for a class that cannot be imported, and for a wrong choice.
    """
    named = {name: values[name] for name in DECODER_PARTS if isinstance(values.get(name), str)}
    for text in named.values():
        import_rules(text)
    return unfolded(named)


def _add(group: Any, flat: str, flat_setting: FlatSetting) -> None:
    setting = flat_setting.setting
    flag = f"--{flat.replace('_', '-')}"
    default = setting.none if flat_setting.default is None else flat_setting.default
    sentence = f"{setting.help.rstrip('.')} (default: {default})".replace("%", "%%")
    sentence = sentence[0].lower() + sentence[1:] if sentence[1].islower() else sentence
    if isinstance(setting, Flag | Group):
        how: Json = {"action": argparse.BooleanOptionalAction}
    else:
        how = {"metavar": "N" if isinstance(setting, Whole) else "X"}
    group.add_argument(flag, default=argparse.SUPPRESS, help=sentence, **how)
