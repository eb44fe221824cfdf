"""The tables of compute rules and unmask policies by their kinds, and the classes of kinds.

A rule from outside the package is `package.module:Class`. A command imports what its flags name. Nothing in a
checkpoint, a trace, a link or a request makes a module be imported: there such a kind is known once a program has
imported its module.
"""

import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
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
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
    ]
    return {choice.__dict__["kind"]: choice for choice in classes if "kind" in choice.__dict__}


COMPUTE: dict[str, type[ComputeRule]] = (
    {Everything.kind: Everything} | _by_kind(locking) | _by_kind(compute)
)
del COMPUTE[Both.kind]
UNMASK: dict[str, type[UnmaskPolicy]] = _by_kind(unmasking)
del UNMASK[Replay.kind]
#: Further rules of nested forms, which only a browser runs.
TYPED: dict[str, type[ComputeRule]] = {OwnRule.kind: OwnRule}
TABLES: Tables = {"compute": COMPUTE, "unmask": UNMASK}
BASES: dict[str, type] = {"compute": ComputeRule, "unmask": UnmaskPolicy}
#: The two choices of a decoder: what flags, `/decode` and agents say of them.
DECODER_PARTS: dict[str, str] = {
    "compute": f"Which rows a step computes: {', '.join(COMPUTE)}, or a locking and a selecting rule together as in "
    f"lock+select (default: {LockRule.kind}).",
    "unmask": f"Which masked positions a step commits: {', '.join(UNMASK)} (default: {LowConfidence.kind}).",
}


def kind_of(choice: ComputeRule | UnmaskPolicy | type) -> str:
    """Return the kind of a rule, a policy or a class in nested forms: of one from outside its module and class."""
    of = choice if isinstance(choice, type) else type(choice)
    return (
        of.kind if of.__module__.startswith("surelock.") else f"{of.__module__}:{of.__qualname__}"
    )


def held(choice: str) -> Json:
    """Return the rules or policies of nested forms by kind: also those that only a browser runs."""
    return COMPUTE | TYPED if choice == "compute" else UNMASK


def outside(base: type) -> Iterator[Any]:
    """Yield the dataclasses under a class that imported modules outside the package hold under their names."""
    for subclass in base.__subclasses__():
        home = sys.modules.get(subclass.__module__)
        is_held = home is not None and vars(home).get(subclass.__qualname__) is subclass
        if is_held and is_dataclass(subclass) and not subclass.__module__.startswith("surelock."):
            yield subclass
        yield from outside(subclass)


def find_class(choice: str, kind: Any, *, typed: bool = False) -> Any:
    """Return the class of a kind, None if there is none.

    choice: "compute" or "unmask".
    typed: whether it may be one that only a browser runs.
    """
    if not isinstance(kind, str):
        return None
    table = held(choice) if typed else TABLES[choice]
    if kind in table:
        return table[kind]
    names = (
        (kind_class, (kind_of(kind_class), vars(kind_class).get("kind")))
        for kind_class in outside(BASES[choice])
    )
    # the attribute: in traces of version 4
    return next((kind_class for kind_class, kinds in names if kind in kinds), None)


def class_of(choice: str, kind: Any, *, typed: bool = False) -> Any:
    """Return what `find_class` does. Raises ValueError, which names the known kinds, if there is none."""
    if choice == "unmask" and kind == Replay.kind:
        raise ValueError(
            "unmask 'replay' needs the tokens themselves: it is for `surelock.decode` only"
        )
    kind_class = find_class(choice, kind, typed=typed)
    if kind_class is None:
        table = held(choice) if typed else TABLES[choice]
        hint = nearest(kind, table)
        if isinstance(kind, str) and ":" in kind:
            hint = f"; a rule from outside is known once a flag (--{choice}, --rules) or an import brings it"
        raise ValueError(f"{choice} must be one of {', '.join(table)}, not {shown(kind)}{hint}")
    return kind_class
