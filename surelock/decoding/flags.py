"""The command-line flags that say what decodes, derived from the settings' own descriptions (the flat form)."""

from __future__ import annotations

import argparse
from typing import Any

from surelock.decoding.choices import COMPUTE, UNMASK, FlatSetting, flat_settings


def add_decoder_flags(parser: argparse.ArgumentParser) -> None:
    """A flag for each setting of every kind; what is not given is left to the model, else to the library."""
    told = "The defaults told here and below hold where the model's generation_config.json says nothing else."
    groups: dict[str, Any] = {"": parser.add_argument_group("sampler", told)}
    add = groups[""].add_argument
    add(
        "--compute",
        metavar="RULE",
        default=argparse.SUPPRESS,
        help=f"which rows a step computes: {', '.join(COMPUTE)}, or a locking and a choosing one as in lock+select "
        "(default: lock)",
    )
    add(
        "--unmask",
        metavar="POLICY",
        default=argparse.SUPPRESS,
        help=f"which masked positions a step commits: {', '.join(UNMASK)} (default: low_confidence)",
    )
    for flat, each in flat_settings().items():
        if each.kind not in groups:
            what = "rule" if each.kind in COMPUTE else "policy"
            groups[each.kind] = parser.add_argument_group(f"{what} {each.kind!r}")
        _add(groups[each.kind], flat, each)


def given_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """What was given of the decoder's flags, in the flat form."""
    known = {"compute", "unmask", *flat_settings()}
    return {name: value for name, value in vars(arguments).items() if name in known}


def _add(group: Any, flat: str, each: FlatSetting) -> None:
    setting, flag = each.setting, f"--{flat.replace('_', '-')}"
    default = setting.none if each.default is None else each.default
    told = f"{setting.help.rstrip('.')} (default: {default})".replace("%", "%%")
    how: dict[str, Any] = {
        "default": argparse.SUPPRESS,
        "help": told[0].lower() + told[1:] if told[1].islower() else told,
    }
    if setting.kind in ("flag", "group"):
        return group.add_argument(flag, action=argparse.BooleanOptionalAction, **how)
    kind = int if setting.kind == "whole" else float

    def read(text: str) -> Any:
        return None if setting.spells_none(text) else kind(text)

    read.__name__ = "whole number" if setting.kind == "whole" else "number"  # what argparse calls it
    group.add_argument(flag, type=read, metavar="N" if setting.kind == "whole" else "X", **how)
