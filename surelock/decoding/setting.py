"""One setting, described once: its label, help, range and plain form stand in the dataclass field that holds it.

The command line's flags, the page's form, `/decode`, links, the runs table and the check of a trace are derived from
these descriptions; so is the check of a value where it is made.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from operator import index
from typing import Any

_KEY = "setting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is known of a field.

    kind: "whole", "number", "flag" or "group" (a nested settings class, `group`). low, high: the ends of its range,
    both allowed unless `above`, which leaves out `low`. none: what None stands for, None where it is refused. several:
    a list of one value per sequence is taken, too. flat: its name where the settings of all kinds share one namespace
    (flags, links, `/decode`). offered: low, high and step of a slider; log: it runs on a logarithmic scale, below its
    low end stands for `never`, -1. advanced: folded away at first.
    """

    kind: str
    label: str
    help: str
    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    none: str | None = None
    several: bool = False
    flat: str = ""
    offered: tuple[float, float, float] | None = None
    log: bool = False
    advanced: bool = False
    group: type | None = None

    def checked(self, name: str, value: Any) -> Any:
        """The value in its own type. Raises ValueError, which begins with the name, when it is none that fits."""
        if value is None and self.none is not None:
            return None
        if self.several and isinstance(value, Sequence) and not isinstance(value, str) and len(value):
            return tuple(self._one(name, item) for item in value)
        return self._one(name, value)

    def _one(self, name: str, value: Any) -> Any:
        if (self.kind == "flag" and isinstance(value, bool)) or (self.group and isinstance(value, self.group)):
            return value
        kind: Any = {"whole": Integral, "number": Real}.get(self.kind, ())
        if isinstance(value, kind) and not isinstance(value, bool) and self._within(value):
            return index(value) if self.kind == "whole" else float(value)
        raise ValueError(f"{name} must be {self.range}, not {value!r}")

    def spells_none(self, value: Any) -> bool:
        """Whether a text says that the setting is to be None, as on a command line."""
        return bool(self.none) and isinstance(value, str) and value.lower() == "none"

    def _within(self, value: Any) -> bool:
        try:
            number = float(value)
        except OverflowError:  # an integer or a fraction that no float can hold
            return False
        return (self.low < number if self.above else self.low <= number) and number <= self.high

    @property
    def range(self) -> str:
        """What may be given, in words: "a whole number of at least 1"."""
        if self.kind == "flag":
            return "True or False"
        noun = f"of {self.group.__name__}" if self.group else {"whole": "a whole number"}.get(self.kind, "a number")
        if self.low == -math.inf:
            words = noun
        elif self.high < math.inf and not self.above:
            words = f"{noun} from {self.low:g} to {self.high:g}"
        else:
            words = f"{noun} {'above' if self.above else 'of at least'} {self.low:g}"
            words += f" and at most {self.high:g}" if self.high < math.inf else ""
        words += ", or one per sequence" if self.several else ""
        return words if self.none is None else f"{words}, or None for {self.none}"


def setting(kind: str, default: Any, label: str, help: str, **more: Any) -> Any:
    """A dataclass field that carries its description, see `Setting`."""
    return field(default=default, metadata={_KEY: Setting(kind=kind, label=label, help=help, **more)})


def described(settings: Any) -> Iterator[tuple[str, Setting]]:
    """(name, description) of each described field of a settings class or object, in order."""
    for each in fields(settings):
        if _KEY in each.metadata:
            yield each.name, each.metadata[_KEY]


def check(settings: Any) -> None:
    """Check every described field of a new settings object and put it into its own type; ValueError names the field."""
    for name, description in described(settings):
        object.__setattr__(settings, name, description.checked(name, getattr(settings, name)))


def to_plain(settings: Any) -> dict[str, Any]:
    """The described fields as JSON values: infinities as text, a nested group as a mapping."""
    return {name: _plain(getattr(settings, name)) for name, _ in described(settings)}


def _plain(value: Any) -> Any:
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if isinstance(value, tuple):
        return list(value)
    return value if value is None or isinstance(value, bool | int | float) else to_plain(value)


def from_plain(kind: type, plain: Mapping[str, Any]) -> Any:
    """The settings object of a mapping as `to_plain` makes it; whole numbers may come as floats.

    Raises ValueError, which names the field, for what does not exist or does not fit.
    """
    known = dict(described(kind))
    if unknown := [name for name in plain if name not in known]:
        raise ValueError(f"{unknown[0]} is no setting of {kind.__name__}: it has {', '.join(known) or 'none'}")
    return kind(**{name: read_value(known[name], value) for name, value in plain.items()})


def read_value(description: Setting, value: Any) -> Any:
    """A JSON value as the type that the setting has: infinities from text, whole numbers from floats, nested groups."""
    if description.group is not None and isinstance(value, Mapping):
        return from_plain(description.group, value)
    if description.kind == "number" and value in ("inf", "-inf"):
        return float(value)
    if description.kind == "whole" and isinstance(value, float) and value.is_integer():
        return int(value)
    return value
