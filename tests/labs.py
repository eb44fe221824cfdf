"""What the tests of experiments and benchmarks share: a lab without a tokenizer, a clock, a quick run."""

from dataclasses import dataclass, field
from pathlib import Path

from surelock.__main__ import main
from surelock.research.lab import Lab
from surelock.research.prompts import Prompt
from surelock.research.runner import Cell


@dataclass(frozen=True, slots=True)
class IdsLab(Lab):
    """A lab whose prompts are given token ids, whatever a cell asks for."""

    ids: list[list[int]] = field(default_factory=list)

    def prompts(self, cell: Cell) -> list[Prompt]:
        return [Prompt("", ids) for ids in self.ids]


class HandClock:
    """In the place of the module `time`: moves when a test moves it."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


def quick(name: str, out: Path, *flags: str) -> int:
    """The status of an experiment in `--quick`."""
    words = f"experiment {name} --quick --device cpu --threads 1 --out".split()
    return main([*words, str(out), *flags])
