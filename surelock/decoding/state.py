"""What a run knows of every position: all that a compute rule and an unmask policy may decide by."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from surelock.decoding.canvas import Canvas
from surelock.decoding.schedule import Schedule

Slots = NDArray[np.int64]


class State:
    """The state of Algorithm 1 (lines 1-3) for a batch. Arrays are flat, one value for each of the canvas' slots.

    step: the present one. tokens int64, masked bool: the canvas' own. locked bool. visible int: forward passes that had
    the slot's real token as input. computed_at int: the step that computed it last, -1 for never. kl, confidence
    float64: of that computation, NaN where nobody goes by it. locked_at, unlocked_at, probed_at int: the step in
    which it last was, -1 for never. alive bool: of a sequence that has not ended.
    """

    def __init__(self, canvas: Canvas, schedule: Schedule) -> None:
        self.canvas, self.schedule = canvas, schedule
        self.step = 0
        self.tokens, self.masked = canvas.tokens, canvas.masked
        self.locked = np.zeros(canvas.total, dtype=bool)
        self.visible = np.zeros(canvas.total, dtype=int)
        self.computed_at = np.full(canvas.total, -1)
        self.kl = np.full(canvas.total, np.inf)
        self.confidence = np.full(canvas.total, np.nan)
        self.locked_at, self.unlocked_at, self.probed_at = np.full((3, canvas.total), -1)
        self.alive = np.ones(canvas.total, dtype=bool)
        self._kept: dict[str, NDArray] = {}

    def split(self, slots: Slots) -> list[slice]:
        """Where each sequence's part of ascending `slots` lies."""
        return self.canvas.split(slots)

    def kept(self, name: str, fill: float) -> NDArray:
        """A rule's or a policy's own array, [total], kept from step to step; `fill` everywhere at first."""
        if name not in self._kept:
            self._kept[name] = np.full(self.canvas.total, fill)
        return self._kept[name]

    def lock(self, slots: Slots) -> None:
        """Lock `slots`: they are no longer computed."""
        self.locked[slots] = True
        self.locked_at[slots] = self.step

    def unlock(self, slots: Slots) -> None:
        """Unlock `slots`: they are computed again, and have no earlier posterior to be compared with."""
        self.locked[slots] = False
        self.unlocked_at[slots] = self.step
        self.kl[slots] = np.inf
