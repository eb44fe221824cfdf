"""The tables of compute rules and unmask policies by kind.

The kind of a rule from outside the package is `package.module:Class`. Only flags of a command import such a module. A
checkpoint, a trace, a link or a request never imports a module: it may name a kind from outside only if the program has
already imported its module.
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
    """Return the rules or policies that a module defines, in its order: its classes that have a `kind`."""
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
#: Rules of nested forms that only a browser runs.
TYPED: dict[str, type[ComputeRule]] = {OwnRule.kind: OwnRule}
TABLES: Tables = {"compute": COMPUTE, "unmask": UNMASK}
BASES: dict[str, type] = {"compute": ComputeRule, "unmask": UnmaskPolicy}
#: The two choices of a decoder, and their descriptions for flags, `/decode` and agents.
DECODER_PARTS: dict[str, str] = {
    "compute": f"Which rows a step computes: {', '.join(COMPUTE)}, or a locking and a selecting rule together as in "
    f"lock+select (default: {LockRule.kind}).",
    "unmask": f"Which masked positions a step commits: {', '.join(UNMASK)} (default: {LowConfidence.kind}).",
}


def kind_of(choice: ComputeRule | UnmaskPolicy | type) -> str:
    """Return the kind of a rule, a policy or their class, as nested forms have it.

    The kind of a class from outside the package is "module:class".
    """
    kind_class = choice if isinstance(choice, type) else type(choice)
    if kind_class.__module__.startswith("surelock."):
        return kind_class.kind
    return f"{kind_class.__module__}:{kind_class.__qualname__}"


def held(choice: str) -> Json:
    """Return the rules or policies of nested forms by kind, including rules that only a browser runs.

    choice: "compute" or "unmask".
    """
    return COMPUTE | TYPED if choice == "compute" else UNMASK


def outside(base: type) -> Iterator[Any]:
    """Yield the dataclasses that inherit from `base` and that imported modules outside the package define."""
    for subclass in base.__subclasses__():
        home = sys.modules.get(subclass.__module__)
        is_held = home is not None and vars(home).get(subclass.__qualname__) is subclass
        if is_held and is_dataclass(subclass) and not subclass.__module__.startswith("surelock."):
            yield subclass
        yield from outside(subclass)


def find_class(choice: str, kind: Any, *, typed: bool = False) -> Any:
    """Return the class of a kind, or None if there is none.

    choice: "compute" or "unmask".
    typed: whether rules that only a browser runs count.
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
    # Traces of version 4 have the attribute `kind` instead.
    return next((kind_class for kind_class, kinds in names if kind in kinds), None)


def class_of(choice: str, kind: Any, *, typed: bool = False) -> Any:
    """Return the class of a kind, see `find_class`. Raises ValueError with the known kinds if there is none."""
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
