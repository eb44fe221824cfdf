"""Settings, each described once: the dataclass field of a setting holds its label, help, range and plain form.

The flags of the command line, the form of the page, the parameters of `/decode`, links, and the check of traces are
derived from these descriptions. So is the check of a value when the dataclass is made.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from numbers import Integral, Real
from operator import index
from typing import Any

from surelock.errors import cut, nearest, shown

_KEY = "setting"
_MOST_WHOLE = 2**53  # JSON readers that use float64 round larger numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The description of one setting."""

    kind: str  # "whole", "number", "flag", "code" (a text of at most `high` characters) or "group" (a nested class)
    label: str
    help: str  # one sentence for the page, the command line and `/decode`
    low: float = -math.inf
    high: float = math.inf  # both ends are included
    above: bool = False  # True excludes `low`
    none: str | None = None  # the meaning of None, in words; None where the setting cannot be None
    several: bool = False  # whether a list of one value per sequence is accepted
    flat: str = ""  # its name where the settings of all kinds share one namespace; "" is the field's name
    offered: tuple[float, float, float] | None = None  # low, high and step of the slider on the page
    log: bool = False  # whether the slider is logarithmic; its lowest place then stands for -1, "never"
    advanced: bool = False  # whether the page folds it away at first
    group: type | None = None

    def checked(self, name: str, value: Any) -> Any:
        """Return the value in the setting's type. Raises ValueError, which begins with `name`, for any other value."""
        if value is None and self.none is not None:
            return None
        if self.several and isinstance(value, Sequence) and not isinstance(value, str) and len(value):
            one = replace(self, several=False, none=None)
            return tuple(one.checked(name, item) for item in value)
        if (self.kind == "flag" and isinstance(value, bool)) or (self.group and isinstance(value, self.group)):
            return value
        if self.kind == "code":
            if isinstance(value, str) and len(value) <= self.high:
                return value
            raise ValueError(f"{name} must be {self.range}, not {shown(value)}")
        kind: Any = {"whole": Integral, "number": Real}.get(self.kind, ())
        given: Any = value
        if isinstance(given, kind) and not isinstance(given, bool):
            try:
                number = float(given)
            except OverflowError:  # an integer or a fraction that no float can hold
                number = math.nan
            above_low = self.low < number if self.above else self.low <= number
            if above_low and number <= self.high and (self.kind == "number" or abs(number) <= _MOST_WHOLE):
                return index(given) if self.kind == "whole" else float(given)
        raise ValueError(f"{name} must be {self.range}, not {shown(value)}")

    def from_text(self, name: str, text: str) -> Any:
        """Return the value that a text spells. Raises ValueError, which begins with `name`, for any other text."""
        if self.spells_none(text):
            return None
        spelled = {"true": True, "1": True, "false": False, "0": False}.get(text.lower())
        if self.kind in ("flag", "group") and spelled is not None:
            return spelled
        try:
            return {"whole": int, "number": float}[self.kind](text)
        except (KeyError, ValueError):
            raise ValueError(f"{name} must be {self.range}, not {shown(text)}") from None

    def spells_none(self, value: Any) -> bool:
        return bool(self.none) and isinstance(value, str) and value.lower() == "none"

    @property
    def range(self) -> str:
        """The allowed values in words, such as "a whole number of at least 1"."""
        if self.kind == "flag":
            return "True or False"
        if self.kind == "code":
            return f"a text of at most {self.high:,} characters"
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
    """Return a dataclass field with its description. more: further arguments of `Setting`."""
    return field(default=default, metadata={_KEY: Setting(kind=kind, label=label, help=help, **more)})


@cache
def described(kind: type) -> tuple[tuple[str, Setting], ...]:
    """Return (name, description) of each described field of a settings class, in order."""
    return tuple((each.name, each.metadata[_KEY]) for each in fields(kind) if _KEY in each.metadata)


def check(settings: Any) -> None:
    """Check and convert every described field of a new settings object. Raises ValueError, which names the field."""
    for name, description in described(type(settings)):
        object.__setattr__(settings, name, description.checked(name, getattr(settings, name)))


class Described:
    """A class of settings that are checked when it is made."""

    __slots__ = ()
    __post_init__ = check


def to_plain(settings: Any) -> dict[str, Any]:
    """Return the described fields as JSON values: infinities as text, a nested group as a mapping."""
    return {name: _plain(getattr(settings, name)) for name, _ in described(type(settings))}


def _plain(value: Any) -> Any:
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if isinstance(value, tuple):
        return list(value)
    return value if value is None or isinstance(value, bool | int | float | str) else to_plain(value)


def from_plain(kind: type, plain: Mapping[str, Any]) -> Any:
    """Return the settings object of a mapping that `to_plain` has made; whole numbers may be floats.

    A missing field has its default. Raises ValueError, which names the field, for an unknown name and for a value out
    of range.
    """
    known = dict(described(kind))
    if unknown := [name for name in plain if name not in known]:
        has = f"it has {', '.join(known) or 'none'}{nearest(unknown[0], known)}"
        raise ValueError(f"{cut(unknown[0], 60)} is no setting of {kind.__name__}: {has}")
    return kind(**{name: read_value(known[name], value) for name, value in plain.items()})


def read_value(description: Setting, value: Any) -> Any:
    """Return a JSON value in the setting's type: infinities from text, whole numbers from floats, nested groups."""
    if description.group is not None and isinstance(value, Mapping):
        return from_plain(description.group, value)
    if description.kind == "number" and value in ("inf", "-inf"):
        return float(value)
    if description.kind == "whole" and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeSettings(Described):
    """The settings of every decoder, whatever its rule and its policy.

    gen_length: positions to generate behind the prompt. 0 needs a prompt with masks.
    steps: denoising steps. None is one for each mask.
    block_length: length of the semi-autoregressive blocks, decoded from left to right. None is one block.
    temperature: of the Gumbel-max choice of candidate tokens. 0 takes the most likely token.
    cfg_scale: scale of classifier-free guidance. 0 is off.
    seed: a whole number (sequence b of a batch has seed + b), or one for each sequence.
    suppress_eos: never choose EOS.
    suppress_eos_confidence: commit positions that would become EOS or end-of-turn last.
    no_repeat_ngram_size: never choose a token that completes an n-gram of this size a second time, prompt included. 0
    is off. EOS and end-of-turn may always be chosen, and tokens of the same step are not compared with each other.

    Raises ValueError, which begins with the field's name.
    """

    gen_length: int = setting("whole", 128, "Generated length", "Positions to generate.", low=0, offered=(0, 512, 8))
    steps: int | None = setting(
        "whole",
        None,
        "Steps",
        "As many as the length: one token is written in each step.",
        low=1,
        none="one per position",
        offered=(1, 512, 1),
    )
    block_length: int | None = setting(
        "whole",
        None,
        "Block length",
        "The text is written in blocks of this length, from left to right.",
        low=1,
        none="one block",
        advanced=True,
    )
    temperature: float = setting(
        "number",
        0.0,
        "Temperature",
        "0 always takes the most likely token.",
        low=0,
        high=1000,
        offered=(0, 2, 0.05),
        advanced=True,
    )
    cfg_scale: float = setting(
        "number",
        0.0,
        "Guidance",
        "Classifier-free guidance; above 0 every step runs twice.",
        low=0,
        high=1000,
        offered=(0, 4, 0.1),
        advanced=True,
    )
    seed: int | Sequence[int] = setting(
        "whole", 0, "Seed", "The same seed gives the same run.", low=0, several=True, advanced=True
    )
    suppress_eos: bool = setting(
        "flag", False, "Never choose end of text", "The end-of-text token is never chosen.", advanced=True
    )
    suppress_eos_confidence: bool = setting(
        "flag",
        False,
        "Write end of text last",
        "Positions that would end the text or the turn are written last.",
        advanced=True,
    )
    no_repeat_ngram_size: int = setting(
        "whole",
        0,
        "Phrase not repeated",
        "No phrase of this many tokens comes twice; 0 allows repetition.",
        low=0,
        offered=(0, 12, 1),
        advanced=True,
    )

    def check_blocks(self) -> None:
        """Raise ValueError unless length, blocks and steps fit together behind a plain prompt."""
        if self.block_length is not None and self.gen_length % self.block_length:
            raise ValueError(f"block_length ({self.block_length}) must divide gen_length ({self.gen_length})")
        if self.steps is not None:
            if self.steps > self.gen_length:
                raise ValueError(f"steps ({self.steps}) must be at most gen_length ({self.gen_length})")
            blocks = self.gen_length // self.block_length if self.block_length else 1
            if self.steps % blocks:
                raise ValueError(f"steps ({self.steps}) must be a multiple of the number of blocks ({blocks})")

    @property
    def total_steps(self) -> int:
        """The most steps behind a plain prompt."""
        return self.steps or self.gen_length

    def seed_of(self, sequence: int) -> int:
        return self.seed + sequence if isinstance(self.seed, int) else self.seed[sequence]
