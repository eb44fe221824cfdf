"""The cost of the texts of an evaluation."""

from __future__ import annotations

from dataclasses import dataclass

from surelock.decoding.step import Step


@dataclass(slots=True)
class Work:
    """The cost of generated texts.

    texts: the number of texts.
    steps: the number of steps of batches.
    seconds: the sum of the steps' times.
    flops, baseline_flops: algorithmic FLOPs, and those of computing every row.
    """

    texts: int = 0
    steps: int = 0
    seconds: float = 0.0
    flops: float = 0.0
    baseline_flops: float = 0.0

    def add(self, step: Step) -> None:
        """Count one step of a batch."""
        self.steps += 1
        self.seconds += step.seconds
        self.flops += float(step.flops.sum())
        self.baseline_flops += float(step.baseline_flops.sum())

    @property
    def flops_ratio(self) -> float | None:
        """flops / baseline_flops; None before the first step."""
        return self.flops / self.baseline_flops if self.baseline_flops else None
