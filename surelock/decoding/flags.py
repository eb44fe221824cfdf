"""The command-line flags of the decoder, derived from the descriptions of the settings (the flat form)."""

import argparse
from typing import Any

from surelock.decoding.choices import CHOICES, COMPUTE, FlatSetting, flat_settings


def add_decoder_flags(parser: argparse.ArgumentParser) -> None:
    """Add a flag for each setting of every kind. A flag that is not given is absent from the parsed arguments."""
    about = "Defaults here and below: the model's generation_config.json overrides them."
    groups: dict[str, Any] = {"": parser.add_argument_group("sampler", about)}
    for name, metavar in (("compute", "RULE"), ("unmask", "POLICY")):
        groups[""].add_argument(f"--{name}", metavar=metavar, default=argparse.SUPPRESS, help=CHOICES[name])
    for flat, each in flat_settings().items():
        if each.kind not in groups:
            what = "rule" if each.kind in COMPUTE else "policy"
            groups[each.kind] = parser.add_argument_group(f"{what} {each.kind!r}")
        _add(groups[each.kind], flat, each)


def given_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the flags of the decoder that were given, in the flat form."""
    known = CHOICES.keys() | flat_settings().keys()
    return {name: value for name, value in vars(arguments).items() if name in known}


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
