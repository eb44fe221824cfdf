"""Length, steps and block length: the wanted values, and the nearest values that fit together.

The form's fields show values that fit. The wanted values are kept, and the fields show them again as soon as they fit.
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
LEAST = 8  # the shortest length that the form offers
GRAIN = 8  # the step between lengths


@frozen
class Wants:
    """The values that the visitor, a link or the model set last.

    gen_length: the number of positions.
    steps: the number of steps; None for one step per position.
    block_length: the number of positions of a block; None for one block of all positions.
    """

    gen_length: int
    steps: int | None = None
    block_length: int | None = None

    @classmethod
    def from_values(cls, values: Fields) -> Wants:
        """Return the wants of setting values. Steps or a block length equal to the length become None."""
        length = int(values["gen_length"])
        steps, block = (_unless(length, values.get(name)) for name in NAMES[1:])
        return cls(length, steps, block)

    @classmethod
    def read(cls, text: Any) -> Wants:
        """Return the wants that `Wants.text` wrote."""
        return cls(*(int(value) if value is not None else None for value in json.loads(text)))  # type: ignore[arg-type]

    @property
    def text(self) -> str:
        """The wants as JSON."""
        return json.dumps([self.gen_length, self.steps, self.block_length])

    def with_field(self, name: str, value: Any, length: int) -> Wants:
        """Return the wants after the visitor has changed a field.

        name: the field. value: its value. A value that is no number or too small changes nothing; the least values are
            0 positions, 1 step and blocks of 1 position.
        length: the present length, in positions.
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

    values: the value of every field, by name.
    blocks: the block lengths that fit, in ascending order.
    said: a sentence for every field whose value differs from the wanted value, by name.
    """

    values: dict[str, int]
    blocks: list[int]
    said: dict[str, str]


def not_whole(value: Any) -> str:
    """Return a sentence if a value is a number that is not whole, else ""."""
    value = digits(value)
    if isinstance(value, float) and math.isfinite(value) and value != int(value):
        return f"{value:g} is no whole number: {int(value)} is taken."
    return ""


def fit(wants: Wants, longest: int) -> Fitted:
    """Return the values nearest to the wants, with a length of at most `longest`."""
    length = wants.gen_length
    if length > longest:
        length = max(LEAST, longest - longest % GRAIN)
    if not length:  # the run only fills in blanks of the prompt
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
        why = f"blocks must divide {length} positions, and the number of blocks must divide {steps} steps"
        said["block_length"] = f"{change} {wants.block_length}: {why}."
    return Fitted({"gen_length": length, "steps": steps, "block_length": block}, blocks, said)


def _unless(length: int, value: int | None) -> int | None:
    """Return a value; None if the value equals the length, and follows later changes of the length."""
    return None if value is None or value == max(1, length) else value
