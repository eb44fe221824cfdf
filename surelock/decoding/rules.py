"""The tables of compute rules and unmask policies by their kinds, and of their settings.

Rules from outside the package join them by `register`: as `package.module:Class` on the command line, or by an entry
point of the group `surelock.rules`. Nothing in a checkpoint, a trace, a link or a request makes a module be imported.
"""

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from surelock.decoding.compute import (
    BlockCache,
    BudgetRule,
    ComputeRule,
    DelayedCache,
    EntropyCache,
    Everything,
    SelectRule,
)
from surelock.decoding.locking import LockByAge, LockRule
from surelock.decoding.own import OwnRule
from surelock.decoding.settings import DecodeSettings, Setting, described
from surelock.decoding.unmasking import (
    EarlyFinish,
    Entropy,
    EntropyBound,
    Klass,
    LowConfidence,
    Margin,
    Random,
    Remask,
    Threshold,
    UnmaskPolicy,
)
from surelock.errors import nearest, shown

#: Every compute rule and every unmask policy by its kind. A new one is a class in its file and a line here.
COMPUTE: dict[str, type[ComputeRule]] = {
    rule.kind: rule
    for rule in (Everything, LockRule, LockByAge, SelectRule, BudgetRule, BlockCache, DelayedCache, EntropyCache)
}
#: Further rules of plain forms, which only a browser runs.
TYPED: dict[str, type[ComputeRule]] = {OwnRule.kind: OwnRule}
UNMASK: dict[str, type[UnmaskPolicy]] = {
    policy.kind: policy
    for policy in (LowConfidence, Random, Entropy, Margin, Threshold, Klass, EntropyBound, EarlyFinish, Remask)
}
TABLES: dict[str, dict[str, Any]] = {"compute": COMPUTE, "unmask": UNMASK}
#: The two choices of a flat form: what flags, `/decode` and agents say of them.
CHOICES: dict[str, str] = {
    "compute": f"Which rows a step computes: {', '.join(COMPUTE)}, or a locking and a selecting rule together as in "
    f"lock+select (default: {LockRule.kind}).",
    "unmask": f"Which masked positions a step commits: {', '.join(UNMASK)} (default: {LowConfidence.kind}).",
}


@dataclass(frozen=True, slots=True)
class FlatSetting:
    """A setting in the flat form."""

    name: str
    setting: Setting
    default: Any
    kind: str = ""  # the kind of the rule or policy that it belongs to; "" for DecodeSettings
    group: str = ""  # the field that holds its group; "" for none


def flat_names(kind: type, kind_name: str = "", group: str = "") -> Iterator[tuple[str, FlatSetting]]:
    """Yield (flat name, setting) of each setting of a class; a nested group comes before its own settings."""
    defaults = kind()
    for name, description in described(kind):
        yield description.flat or name, FlatSetting(name, description, getattr(defaults, name), kind_name, group)
        if description.group is not None:
            yield from flat_names(description.group, kind_name, name)


@cache
def flat_settings() -> dict[str, FlatSetting]:
    """Return the settings of DecodeSettings, of all rules and of all policies by their flat names."""
    find_installed()
    found = dict(flat_names(DecodeSettings))
    for choice in (*COMPUTE.values(), *UNMASK.values()):
        found |= dict(flat_names(choice, choice.kind))
    return found


# --- rules from outside -----------------------------------------------------------------------------------------------


def register(kind: Any) -> Any:
    """Add a compute rule or an unmask policy to the tables, and return it: a decorator, too.

    From then on its kind is known to flags, traces, links, `/decode` and the form, as those of the package are. A class
    of the same module and name is replaced. Raises ValueError, which names the class and what it lacks.
    """
    what = getattr(kind, "__name__", None) or shown(kind)
    if not (isinstance(kind, type) and issubclass(kind, ComputeRule | UnmaskPolicy) and is_dataclass(kind)):
        raise ValueError(f"{what} is no rule: it must be a dataclass under surelock.ComputeRule or UnmaskPolicy")
    if missing := [name for name in ("kind", "label", "sentence") if not isinstance(getattr(kind, name, None), str)]:
        raise ValueError(f"{what} needs a {missing[0]}: a text")
    if not re.fullmatch(r"[a-z]\w*", kind.kind):
        raise ValueError(f"{what} has the kind {kind.kind!r}, which must be a word such as 'now_and_then'")
    table, name = TABLES["compute" if issubclass(kind, ComputeRule) else "unmask"], kind.kind
    before = (COMPUTE | UNMASK | TYPED).get(name)
    if before is not None and (before.__module__, before.__qualname__) != (kind.__module__, kind.__qualname__):
        raise ValueError(f"{what} has the kind {name!r} of {before.__module__}.{before.__qualname__}: give it another")
    try:
        names = dict(flat_names(kind, name))
    except TypeError as error:
        raise ValueError(f"{what} cannot be made without arguments: each setting needs a default ({error})") from error
    if before is None:
        others = (DecodeSettings, *COMPUTE.values(), *UNMASK.values())
        if twice := sorted(names.keys() & {flat for choice in others for flat, _ in flat_names(choice)}):
            flat = f'flat="{name}_{twice[0]}"'
            raise ValueError(f"{what} has a setting {twice[0]!r} as another kind has: add {flat} to its setting(...)")
    table[name] = kind
    flat_settings.cache_clear()
    return kind


@cache
def find_installed() -> None:
    """Register the entry points `surelock.rules` of installed packages. Raises ValueError for one that cannot be."""
    for each in entry_points(group="surelock.rules"):
        try:
            register(each.load())
        except (ImportError, AttributeError) as error:
            raise ValueError(f"the entry point {each.name} = {each.value} cannot be loaded: {error}") from error


def register_all(name: str) -> None:
    """Import a module and register its rules and policies. Raises ValueError without one."""
    module = _imported(name)
    kinds = [each for each in vars(module).values() if isinstance(each, type) and each.__module__ == module.__name__]
    if not (rules := [each for each in kinds if issubclass(each, ComputeRule | UnmaskPolicy)]):
        raise ValueError(f"{name} holds no rule and no policy: a class under surelock.ComputeRule or UnmaskPolicy")
    for each in rules:
        register(each)


def outside() -> list[str]:
    """Return the kinds that are not the package's own."""
    find_installed()
    return [kind for kind, each in (COMPUTE | UNMASK).items() if not each.__module__.startswith("surelock.")]


def resolved(text: str) -> str:
    """Return a choice with the kind of each class in place of `package.module:Class`, which is then registered."""

    def kind_of(found: re.Match[str]) -> str:
        module = _imported(found[1])
        if not hasattr(module, found[2]):
            raise ValueError(f"the module {found[1]} has no {found[2]!r}{nearest(found[2], vars(module))}")
        return register(getattr(module, found[2])).kind

    return re.sub(r"([\w.]+):(\w+)", kind_of, text)


def read_choice(name: str, text: str) -> dict[str, Any]:
    """Return the flat form of a choice as it is named on the command line.

    name: "compute" or "unmask".
    text: a kind, a pair ("lock+select") or a class (`package.module:Class`), each with settings: "age,steps=12".

    Raises ValueError, which names what is wrong.
    """
    kinds, given = [], {}
    for part in re.split(r"\+(?=[^\W\d])", resolved(text)):
        kind, *pairs = part.split(",")
        check_kind(name, kind)
        kinds.append(kind)
        known = {key: (flat, each) for flat, each in flat_names(TABLES[name][kind]) for key in (flat, each.name)}
        for key, equals, value in (pair.partition("=") for pair in pairs):
            if key not in known or not equals:
                has = f"it has {', '.join(known) or 'none'}{nearest(key, known)}"
                raise ValueError(f"{key!r} is no setting of {name} {kind!r} in the form key=value: {has}")
            flat, each = known[key]
            given[flat] = each.setting.from_text(key, value)
    return {name: "+".join(kinds), **given}


def check_kind(name: str, kind: Any, table: dict[str, Any] | None = None) -> None:
    """Raise ValueError for a kind that the table of `name` does not have. table: a wider one."""
    find_installed()
    table = TABLES[name] if table is None else table
    if not isinstance(kind, str) or kind not in table:
        raise ValueError(f"{name} must be one of {', '.join(table)}, not {shown(kind)}{nearest(kind, table)}")


def _imported(name: str) -> Any:
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
