"""What a block-causal network adds to a run: blocks that are finished or have not begun need not be computed."""

import numpy as np

from surelock.decoding.state import Canvas, Schedule, Slots


class BlockCausal:
    """Which rows of a block-causal network rest, and which are computed a last time. Arrays have a value a slot.

    A row sees its own block of the network and all blocks before it. When a block and all before it are written, its
    rows *settle*: the next step computes them once more, locked ones too. Their keys and values are then exact, since
    no later token changes them. Rows of later blocks rest until their block begins, since no row sees them.

    size: positions of a block; None is a network in which every row sees all others, where no row rests.
    rests, settles: [total] bool, rows that no rule decides about in this step, and those that it makes exact.
    """

    def __init__(self, canvas: Canvas, schedule: Schedule, size: int | None) -> None:
        self._canvas, self._schedule, self._size = canvas, schedule, size
        self.rests, self.settles, self._exact = np.zeros((3, canvas.total), dtype=bool)

    def change(self, slots: Slots) -> None:
        """Changed tokens change the keys and values of their block and of all later ones."""
        if self._size is not None:
            for slot in slots.tolist():
                part = self._canvas.parts[self._canvas.sequence[slot]]
                self._exact[self._block_of(slot, self._size).start : part.stop] = False

    def begin_step(self) -> None:
        """Find the rows that rest and those that settle in the next step, which makes them exact."""
        if self._size is None:
            return
        self.rests[:], self.settles[:] = True, False
        for b in np.flatnonzero(self._schedule.running).tolist():
            part = self._canvas.parts[b]
            masked = np.flatnonzero(self._canvas.masked[part])
            finished = self._block_of(part.start + int(masked[0]), self._size).start if len(masked) else part.stop
            self.rests[finished : self._block_of(int(self._schedule.starts[b]), self._size).stop] = False
            self.settles[part.start : finished] = ~self._exact[part.start : finished]
            self._exact[part.start : finished] = True

    def _block_of(self, slot: int, size: int) -> slice:
        part = self._canvas.parts[self._canvas.sequence[slot]]
        begin = part.start + (slot - part.start) // size * size
        return slice(begin, min(begin + size, part.stop))
