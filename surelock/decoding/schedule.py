"""How far each sequence is: which block it fills, and how many positions a step commits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from surelock.decoding.canvas import Canvas
from surelock.decoding.settings import DecodeSettings


class Schedule:
    """Per sequence: the block it fills, the step within it, and commits still owed from earlier steps.

    early: a block ends as soon as none of its positions is masked, not only after its steps.
    """

    def __init__(self, canvas: Canvas, settings: DecodeSettings, early: bool) -> None:
        self._canvas = canvas
        self._length = settings.block_length or settings.gen_length
        self._blocks = settings.blocks
        self._steps = settings.total_steps // settings.blocks
        self._early = early
        self._block = np.zeros(canvas.batch, dtype=int)
        self._step = np.zeros(canvas.batch, dtype=int)
        self._owed = np.zeros(canvas.batch, dtype=int)

    @property
    def running(self) -> NDArray[np.bool_]:
        """[B] bool: the sequences that have not ended."""
        return self._block < self._blocks

    def block(self, b: int) -> slice:
        """The slots of the block that sequence b fills."""
        start = int(self._canvas.generated_from[b] + self._block[b] * self._length)
        return slice(start, start + self._length)

    def open(self, b: int) -> slice:
        """The slots whose masks sequence b may commit: its block, and what is before it."""
        return slice(int(self._canvas.generated_from[b]), self.block(b).stop)

    @property
    def steps_in_block(self) -> NDArray[np.int64]:
        """[B]: each sequence's step within its block, 0-based."""
        return self._step

    def last_step(self, b: int) -> bool:
        """Whether this is the last step of sequence b's block: all that is still masked there must be committed."""
        return bool(self._step[b] == self._steps - 1)

    def share(self, b: int) -> int:
        """Positions of this step by an even share of the block's, the remainder in the first steps."""
        share, remainder = divmod(self._length, self._steps)
        return int(share + (self._step[b] < remainder))

    def quota(self, b: int) -> int:
        """Positions to commit in this step: its share, and what is owed."""
        return self.share(b) + int(self._owed[b])

    def advance(self, b: int, committed: int) -> None:
        """Close the step of sequence b. Commits that selection could not meet carry over to the next."""
        self._owed[b] = max(0, self.quota(b) - committed)
        self._step[b] += 1
        done_early = self._early and not self._canvas.masked[self.open(b)].any()
        if self._step[b] == self._steps or done_early:
            self._block[b] += 1
            self._step[b] = self._owed[b] = 0
