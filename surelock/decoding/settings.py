"""Settings. The dataclass field of a setting is the only place for its label, help, range and default.

A description (`Setting`) checks a value, reads JSON and text, and states the allowed values in words. Command-line
flags, the page's form, the parameters of `/decode`, links, and the check of traces are derived from descriptions.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from numbers import Integral, Real
from operator import index
from typing import Any, ClassVar

from surelock.errors import cut, nearest, shown
from surelock.values import Fields, Json, frozen

_KEY = "setting"
_MOST_WHOLE = 2**53  # JSON readers that use float64 round larger numbers
_SWITCHES = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The description of one setting. Its subclasses are the types of settings."""

    kind: ClassVar[str]  # the name of the type in JSON
    label: str
    help: str  # one sentence for the page, the command line and `/decode`
    none: str | None = (
        None  # the meaning of the value None, in words; None if the value cannot be None
    )
    # short name, unique among the settings of all kinds; "" means the field's name
    flat: str = ""
    # low, high and step of the slider on the page
    offered: tuple[float, float, float] | None = None
    # whether the slider is logarithmic; its lowest place is then the value -1, "never"
    log: bool = False
    advanced: bool = False  # whether the page hides the setting in a fold at first

    def checked(self, name: str, value: Any) -> Any:
        """Return the value in the setting's type. Raises ValueError, which begins with `name`, for a wrong value."""
        if value is None and self.none is not None:
            return None
        try:
            return self.converted(value)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"{name} must be {self.range}, not {shown(value)}") from None

    def read(self, name: str, value: Any) -> Any:
        """Return the checked value of a JSON value. Raises what `checked` raises."""
        return self.checked(name, self.from_json(value))

    def from_text(self, name: str, text: str) -> Any:
        """Return the value that a text spells, without checking its range.

        Raises ValueError, which begins with `name`, for a text that spells no value of the type.
        """
        if self.spells_none(text):
            return None
        try:
            return self.parsed(text)
        except (KeyError, ValueError):
            raise ValueError(f"{name} must be {self.range}, not {shown(text)}") from None

    def spells_none(self, value: Any) -> bool:
        """Return whether a value is the text "none" and the setting can be None."""
        return self.none is not None and isinstance(value, str) and value.lower() == "none"

    def converted(self, value: Any) -> Any:
        """Return a value in the setting's type. Raises TypeError, ValueError or OverflowError for a wrong value."""
        raise NotImplementedError

    def from_json(self, value: Any) -> Any:
        """Return the value that a JSON value encodes: values without a type in JSON are converted, others unchanged."""
        return value

    def parsed(self, text: str) -> Any:
        """Return the value that a text spells. Raises KeyError or ValueError for other texts."""
        return text

    @property
    def words(self) -> str:
        """The allowed values in words, except None, such as "a whole number of at least 1"."""
        return "True or False"

    @property
    def range(self) -> str:
        """The allowed values in words, including None."""
        return self.words if self.none is None else f"{self.words}, or None for {self.none}"


@dataclass(frozen=True, kw_only=True)
class Number(Setting):
    """A number, which may be infinite."""

    kind = "number"
    noun: ClassVar[str] = "a number"
    low: float = -math.inf
    high: float = math.inf  # both ends are included
    above: bool = False  # True excludes `low`

    def converted(self, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, Real):
            raise TypeError
        number = float(value)
        above_low = self.low < number if self.above else self.low <= number
        if not (above_low and number <= self.high):
            raise ValueError
        return number

    def from_json(self, value: Any) -> Any:
        return float(value) if value in ("inf", "-inf") else value

    def parsed(self, text: str) -> float:
        return float(text)

    @property
    def words(self) -> str:
        if self.low == -math.inf:
            return self.noun
        if self.high < math.inf and not self.above:
            return f"{self.noun} from {self.low:g} to {self.high:g}"
        words = f"{self.noun} {'above' if self.above else 'of at least'} {self.low:g}"
        return words if self.high == math.inf else f"{words} and at most {self.high:g}"


@dataclass(frozen=True, kw_only=True)
class Whole(Number):
    """A whole number. JSON may have it as a float."""

    kind = "whole"
    noun = "a whole number"

    def converted(self, value: Any) -> Any:
        if not isinstance(value, Integral) or abs(super().converted(value)) > _MOST_WHOLE:
            raise TypeError
        return index(value)

    def from_json(self, value: Any) -> Any:
        return int(value) if isinstance(value, float) and value.is_integer() else value

    def parsed(self, text: str) -> int:
        return int(text)


@dataclass(frozen=True, kw_only=True)
class Seeds(Whole):
    """A whole number, or one per sequence of a batch."""

    def converted(self, value: Any) -> Any:
        convert = super().converted
        if isinstance(value, Sequence) and not isinstance(value, str) and value:
            return tuple(convert(seed) for seed in value)
        return convert(value)

    @property
    def words(self) -> str:
        return f"{super().words}, or one per sequence"


@dataclass(frozen=True, kw_only=True)
class Flag(Setting):
    """True or False."""

    kind = "flag"

    def converted(self, value: Any) -> Any:
        if not isinstance(value, bool):
            raise TypeError
        return value

    def parsed(self, text: str) -> Any:
        return _SWITCHES[text.lower()]


@dataclass(frozen=True, kw_only=True)
class Code(Setting):
    """A text. high: the largest number of characters."""

    kind = "code"
    high: int

    def converted(self, value: Any) -> Any:
        if not isinstance(value, str) or len(value) > self.high:
            raise TypeError
        return value

    @property
    def words(self) -> str:
        return f"a text of at most {self.high:,} characters"


@dataclass(frozen=True, kw_only=True)
class Group(Setting):
    """A group of settings, or None. of: the class of the group."""

    kind = "group"
    of: type

    def converted(self, value: Any) -> Any:
        if not isinstance(value, self.of):
            raise TypeError
        return value

    def from_json(self, value: Any) -> Any:
        return from_plain(self.of, value) if isinstance(value, Mapping) else value

    def parsed(self, text: str) -> Any:
        return _SWITCHES[text.lower()]

    @property
    def words(self) -> str:
        return f"of {self.of.__name__}"


TYPES: dict[str, type[Setting]] = {"whole": Whole, "number": Number, "seeds": Seeds}
TYPES |= {"flag": Flag, "code": Code, "group": Group}


def setting(kind: str, default: Any, label: str, help: str, **more: Any) -> Any:
    """Return a dataclass field with the description of a setting.

    kind: name of a type in TYPES. default: the field's default. label, help, more: arguments of the type.

    Raises ValueError for another kind.
    """
    if kind not in TYPES:
        raise ValueError(f"a setting must be one of {', '.join(TYPES)}, not {shown(kind)}")
    return field(default=default, metadata={_KEY: TYPES[kind](label=label, help=help, **more)})


@cache
def described(kind: type) -> tuple[tuple[str, Setting], ...]:
    """Return (name, description) of the described fields of a settings class, in order."""
    return tuple(
        (field.name, field.metadata[_KEY]) for field in fields(kind) if _KEY in field.metadata
    )


def check(settings: Any) -> None:
    """Check and convert every described field of a new settings object. Raises ValueError, which names the field."""
    for name, description in described(type(settings)):
        object.__setattr__(settings, name, description.checked(name, getattr(settings, name)))


class Described:
    """Base class of settings: a new object checks its settings, see `check`."""

    __slots__ = ()
    __post_init__ = check


def to_plain(settings: Any) -> Json:
    """Return the described fields as JSON values by name. Infinities are texts, a nested group is a mapping."""
    return {name: _plain(getattr(settings, name)) for name, _ in described(type(settings))}


def _plain(value: Any) -> Any:
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if isinstance(value, tuple):
        return list(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return to_plain(value)


def from_plain(kind: type, plain: Fields) -> Any:
    """Return the settings object of class `kind` for a mapping such as `to_plain` returns. Whole numbers may be floats.

    A missing field has its default. Raises ValueError, which names the field, for an unknown name and for a value out
    of range.
    """
    known = dict(described(kind))
    if unknown := [name for name in plain if name not in known]:
        has = f"it has {', '.join(known) or 'none'}{nearest(unknown[0], known)}"
        raise ValueError(f"{cut(unknown[0], 60)} is no setting of {kind.__name__}: {has}")
    return kind(**{name: known[name].read(name, value) for name, value in plain.items()})


@frozen(kw_only=True)
class DecodeSettings(Described):
    """The settings that every decoder has, whatever its rule and its policy.

    gen_length: number of positions to generate after the prompt. 0 needs a prompt with masks.
    steps: number of denoising steps. None is one step per mask.
    block_length: length of the semi-autoregressive blocks, which are decoded from left to right. None is one block.
    temperature: temperature of the Gumbel-max choice of candidate tokens. 0 takes the most likely token.
    cfg_scale: scale of classifier-free guidance. 0 turns guidance off.
    seed: a whole number (sequence b of a batch has the seed `seed + b`), or one whole number per sequence.
    suppress_eos: never choose EOS.
    suppress_eos_confidence: commit positions that would become EOS or end-of-turn last.
    no_repeat_ngram_size: never choose a token that completes an n-gram of this size a second time, prompt included. 0
    allows repetition. EOS and end-of-turn may always be chosen. Tokens of the same step are not compared with each
    other.
    stop_at_end: end a sequence when its text is complete: there is an end after the whole prompt, and no position
    before the end is masked. Its rows are then not computed, and masked positions after the end become that end. Under
    a policy that takes back, the block of the end must be finished too.

    Raises ValueError, which begins with the field's name, for a wrong value.
    """

    gen_length: int = setting(
        "whole", 128, "Generated length", "Positions to generate.", low=0, offered=(0, 512, 8)
    )
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
        "seeds", 0, "Seed", "The same seed gives the same run.", low=0, advanced=True
    )
    suppress_eos: bool = setting(
        "flag",
        False,
        "Never choose end of text",
        "The end-of-text token is never chosen.",
        advanced=True,
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
    stop_at_end: bool = setting(
        "flag",
        False,
        "Stop at the end",
        "A text whose end and all words before it are written is over; nothing behind it is computed.",
        advanced=True,
    )

    @property
    def total_steps(self) -> int:
        """The largest number of steps for a plain prompt, one without masks."""
        return self.steps or self.gen_length

    def seed_of(self, sequence: int) -> int:
        """Return the seed of a sequence of the batch, numbered from 0."""
        return self.seed + sequence if isinstance(self.seed, int) else self.seed[sequence]
