"""Length, steps and block length: the wanted values, and the nearest ones that fit together.

The fields show values that fit. The wanted values are kept, and come back as soon as they fit again.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

from surelock.decoding.recommended import block_choices, nearest_block
from surelock.decoding.settings import DecodeSettings, Setting, described
from surelock.ui.request import digits
from surelock.values import Fields, frozen

SHARED: dict[str, Setting] = dict(described(DecodeSettings))
NAMES: tuple[str, ...] = ("gen_length", "steps", "block_length")
LEAST = 8  # the shortest length that is offered, and the step between lengths
GRAIN = 8


@frozen
class Wants:
    """The values that the visitor, a link or the model wanted last.

    steps, block_length: None for as many as positions; they follow the length.
    """

    gen_length: int
    steps: int | None = None
    block_length: int | None = None

    @classmethod
    def from_values(cls, values: Fields) -> Wants:
        """Return the wants of setting values. Steps or a block equal to the length follow it."""
        length = int(values["gen_length"])
        steps, block = (_unless(length, values.get(name)) for name in NAMES[1:])
        return cls(length, steps, block)

    @classmethod
    def read(cls, text: Any) -> Wants:
        """Return the wants that `text` holds, see `Form.wants`."""
        return cls(*(int(value) if value is not None else None for value in json.loads(text)))  # type: ignore[arg-type]

    @property
    def text(self) -> str:
        return json.dumps([self.gen_length, self.steps, self.block_length])

    def with_field(self, name: str, value: Any, length: int) -> Wants:
        """Return the wants after the visitor has changed a field.

        A value that is no number, or below the least (0 positions, 1 step or block), changes nothing.
        length: the present length, in tokens.
        """
        value = digits(value)
        least = 0 if name == "gen_length" else 1
        if not isinstance(value, int | float) or value < least:
            return self
        wanted = int(value) if name == "gen_length" else _unless(length, int(value))
        return replace(self, **{name: wanted})


@frozen
class Fitted:
    """Values that fit together.

    values: by field. blocks: the block lengths that fit, ascending.
    said: a sentence for every field that differs from the wanted value.
    """

    values: dict[str, int]
    blocks: list[int]
    said: dict[str, str]


def not_whole(value: Any) -> str:
    """Return a sentence about a number that is not whole, or ""."""
    value = digits(value)
    if isinstance(value, float) and math.isfinite(value) and value != int(value):
        return f"{value:g} is no whole number: {int(value)} is taken."
    return ""


def fit(wants: Wants, longest: int) -> Fitted:
    """Return the values nearest to the wants, with a length of at most `longest`."""
    length = wants.gen_length
    if length > longest:
        length = max(LEAST, longest - longest % GRAIN)
    if not length:  # the run fills in blanks alone
        return Fitted({"gen_length": 0, "steps": 1, "block_length": 1}, [1], {})
    steps = min(wants.steps or length, length)
    blocks = block_choices(length, steps)
    block = nearest_block(length, steps, wants.block_length or length) or length
    said = {}
    if length < wants.gen_length:
        said["gen_length"] = f"Shortened from {wants.gen_length} to what fits beside the prompt."
    if wants.steps and steps < wants.steps:
        said["steps"] = f"Lowered from {wants.steps}: at most one step per generated position."
    if wants.block_length and block != wants.block_length:
        change = "One block instead of" if block == length else "Changed from"
        said["block_length"] = (
            f"{change} {wants.block_length}: blocks must divide {length} positions, and their number {steps} steps."
        )
    return Fitted({"gen_length": length, "steps": steps, "block_length": block}, blocks, said)


def _unless(length: int, value: int | None) -> int | None:
    """The value, None if it follows the length."""
    return None if value is None or value == max(1, length) else value
