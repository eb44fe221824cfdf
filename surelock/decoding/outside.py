"""Rules and policies from outside the package. A flag names such a class as `package.module:Class`."""

import os
import re
import sys
from dataclasses import is_dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from surelock.decoding.compute import ComputeRule
from surelock.decoding.rules import COMPUTE, TABLES, UNMASK, kind_of
from surelock.decoding.settings import DecodeSettings
from surelock.decoding.spelling import flat_names, flat_settings
from surelock.decoding.unmasking import UnmaskPolicy
from surelock.errors import nearest


def import_rules(text: str) -> None:
    """Import the classes that a flag names, and add them to `COMPUTE` and `UNMASK`.

    The page's form, `/decode`, replays and files of prompts then know these classes. Raises ValueError for a class that
    cannot be imported or is no complete rule or policy. The message names the class.
    """
    for name, attribute in re.findall(r"([\w.]+):(\w+)", text):
        module = _imported(name)
        if not hasattr(module, attribute):
            raise ValueError(
                f"the module {name} has no {attribute!r}{nearest(attribute, vars(module))}"
            )
        choice = getattr(module, attribute)
        _check(attribute, choice)
        table = TABLES["compute" if issubclass(choice, ComputeRule) else "unmask"]
        table[kind_of(choice)] = choice
        flat_settings.cache_clear()


def _check(name: str, made: Any) -> None:
    """Raise ValueError unless `made` is a complete rule or policy. The message says what is missing."""
    if not (
        isinstance(made, type)
        and issubclass(made, ComputeRule | UnmaskPolicy)
        and is_dataclass(made)
    ):
        raise ValueError(
            f"{name} is no rule: it must be a dataclass under surelock.ComputeRule or UnmaskPolicy"
        )
    if missing := [
        attribute
        for attribute in ("kind", "label", "sentence")
        if not isinstance(getattr(made, attribute, None), str)
    ]:
        raise ValueError(f"{name} needs a {missing[0]}: a text")
    try:
        names = dict(flat_names(made))
    except TypeError as error:
        raise ValueError(
            f"{name} cannot be made without arguments: each setting needs a default ({error})"
        ) from error
    others = dict(flat_names(DecodeSettings))
    for kind, choice in (COMPUTE | UNMASK).items():
        if kind != kind_of(made):
            others |= flat_names(choice)
    if twice := sorted(names.keys() & others.keys()):
        flat = f'flat="{made.kind}_{twice[0]}"'
        raise ValueError(
            f"{name} has a setting {twice[0]!r} as another kind has: add {flat} to its setting(...)"
        )


def _imported(name: str) -> ModuleType:
    """Return the imported module of a name. It may lie in the current folder, where no other import is looked up."""
    if name.endswith(".py"):
        module = name.removesuffix(".py")
        raise ValueError(
            f"{name} is a file: name its module, {module}, in the folder where it lies"
        )
    folder = os.getcwd()
    added = folder not in sys.path
    if added:
        sys.path.append(folder)
    try:
        return import_module(name)
    except (ImportError, SyntaxError, ValueError) as error:
        # ValueError: the name is empty, or a setting of the module has an unknown kind
        raise ValueError(f"the module {name!r} cannot be imported: {error}") from error
    finally:
        if added:
            sys.path.remove(folder)
