"""A lab for models without a tokenizer."""

from __future__ import annotations

from dataclasses import dataclass, field

from surelock.experiments.grid import Cell
from surelock.experiments.lab import Lab
from surelock.experiments.prompts import Prompt


@dataclass(frozen=True, slots=True)
class IdsLab(Lab):
    """A lab whose prompts are given token ids, numbered from 0, whatever a cell asks for."""

    ids: list[list[int]] = field(default_factory=list)

    def prompts(self, cell: Cell) -> list[Prompt]:
        return [Prompt(i, "", ids) for i, ids in enumerate(self.ids)]
