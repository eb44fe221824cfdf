"""The tables of compute rules and unmask policies by their kinds, and the classes of kinds.

A rule from outside the package is `package.module:Class`. A command imports what its own flags name. Nothing in a
checkpoint, a trace, a link or a request makes a module be imported: there such a kind is known once a program has
imported its module.
"""

import os
import re
import sys
from dataclasses import is_dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from surelock.decoding import compute, locking, unmasking
from surelock.decoding.compute import Both, ComputeRule, Everything
from surelock.decoding.locking import LockRule
from surelock.decoding.own import OwnRule
from surelock.decoding.unmasking import LowConfidence, Replay, UnmaskPolicy
from surelock.errors import nearest, shown
from surelock.values import Json

Tables = dict[str, Json]


def _by_kind(module: ModuleType) -> Json:
    """The rules or policies that a module defines, in its order. A new one is a class there."""
    classes = [each for each in vars(module).values() if isinstance(each, type) and each.__module__ == module.__name__]
    return {each.__dict__["kind"]: each for each in classes if "kind" in each.__dict__}


COMPUTE: dict[str, type[ComputeRule]] = {Everything.kind: Everything} | _by_kind(locking) | _by_kind(compute)
del COMPUTE[Both.kind]
UNMASK: dict[str, type[UnmaskPolicy]] = _by_kind(unmasking)
del UNMASK[Replay.kind]
#: Further rules of nested forms, which only a browser runs.
TYPED: dict[str, type[ComputeRule]] = {OwnRule.kind: OwnRule}
TABLES: Tables = {"compute": COMPUTE, "unmask": UNMASK}
HELD: Tables = {"compute": COMPUTE | TYPED, "unmask": UNMASK}
BASES: dict[str, type] = {"compute": ComputeRule, "unmask": UnmaskPolicy}
#: The two choices of a decoder: what flags, `/decode` and agents say of them.
CHOICES: dict[str, str] = {
    "compute": f"Which rows a step computes: {', '.join(COMPUTE)}, or a locking and a selecting rule together as in "
    f"lock+select (default: {LockRule.kind}).",
    "unmask": f"Which masked positions a step commits: {', '.join(UNMASK)} (default: {LowConfidence.kind}).",
}


def kind_of(choice: ComputeRule | UnmaskPolicy) -> str:
    """Return the kind of a rule or a policy in nested forms: of one from outside its module and class."""
    of = type(choice)
    return choice.kind if of.__module__.startswith("surelock.") else f"{of.__module__}:{of.__qualname__}"


def find_class(name: str, kind: Any, tables: Tables = TABLES) -> Any:
    """Return the class of a kind, None if there is none. name: "compute" or "unmask"."""
    if not isinstance(kind, str):
        return None
    if kind in tables[name]:
        return tables[name][kind]
    module, _, named = kind.partition(":")
    home = sys.modules.get(module)
    if not isinstance(home, ModuleType) or module.partition(".")[0] == "surelock":
        return None
    outside = vars(home).get(named)  # getattr would import what a lazy module names
    is_rule = isinstance(outside, type) and issubclass(outside, BASES[name]) and is_dataclass(outside)
    return outside if is_rule else None


def class_of(name: str, kind: Any, tables: Tables = TABLES) -> Any:
    """Return what `find_class` does. Raises ValueError, which names the known kinds, if there is none."""
    if name == "unmask" and kind == Replay.kind:
        raise ValueError("unmask 'replay' needs the tokens themselves: it is for `surelock.decode` only")
    found = find_class(name, kind, tables)
    if found is None:
        table = tables[name]
        raise ValueError(f"{name} must be one of {', '.join(table)}, not {shown(kind)}{nearest(kind, table)}")
    return found


def import_rules(text: str) -> None:
    """Import the modules of the classes that a flag names. Raises ValueError, which names what a class lacks."""
    for name, kind in re.findall(r"([\w.]+):(\w+)", text):
        module = _imported(name)
        made = getattr(module, kind, None)
        if made is None:
            raise ValueError(f"the module {name} has no {kind!r}{nearest(kind, vars(module))}")
        if not (isinstance(made, type) and issubclass(made, ComputeRule | UnmaskPolicy) and is_dataclass(made)):
            raise ValueError(f"{kind} is no rule: it must be a dataclass under surelock.ComputeRule or UnmaskPolicy")
        if lacks := [each for each in ("kind", "label", "sentence") if not isinstance(getattr(made, each, None), str)]:
            raise ValueError(f"{kind} needs a {lacks[0]}: a text")
        try:
            made()
        except TypeError as error:
            raise ValueError(f"{kind} cannot be made without arguments: each setting needs a default") from error


def _imported(name: str) -> ModuleType:
    """The module of a name, which may lie in the current folder. No other module is taken from there."""
    folder = os.getcwd()
    added = folder not in sys.path
    if added:
        sys.path.append(folder)
    try:
        return import_module(name)
    except (ImportError, ValueError) as error:  # ValueError: an empty name
        raise ValueError(f"the module {name!r} cannot be imported: {error}") from error
    finally:
        if added:
            sys.path.remove(folder)
