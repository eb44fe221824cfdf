"""What a block-causal network adds to a run: blocks that are finished or have not begun need not be computed."""

import numpy as np

from surelock.decoding.state import Slots, State


class BlockCausal:
    """Which rows of a block-causal network rest, and which are computed a last time. Arrays have a value a slot.

    A row sees its block of the network and all blocks before it. When a block and all before it are written, its
    rows *settle*: the next step computes them once more, locked ones too. Their keys and values are then exact, since
    no later token changes them. Rows of later blocks rest until their block begins, since no row sees them.

    state: of the run, whose `rests` and `settles` are set before a step.
    size: positions of a block.
    """

    def __init__(self, state: State, size: int) -> None:
        self._state = state
        self._size = size
        self._exact = np.zeros(state.canvas.total, dtype=bool)

    def change(self, slots: Slots) -> None:
        """Changed tokens change the keys and values of their block and of all later ones."""
        canvas = self._state.canvas
        for slot in slots.tolist():
            part = canvas.parts[canvas.sequence[slot]]
            self._exact[self.block_of(slot).start : part.stop] = False

    def begin_step(self) -> None:
        """Find the rows that rest and those that settle in the next step, which makes them exact."""
        state = self._state
        canvas = self._state.canvas
        schedule = self._state.schedule
        state.rests[:] = True
        state.settles[:] = False
        for b in np.flatnonzero(schedule.running).tolist():
            part = canvas.parts[b]
            masked = np.flatnonzero(canvas.masked[part])
            finished = (
                self.block_of(part.start + int(masked[0])).start if len(masked) else part.stop
            )
            state.rests[finished : self.block_of(int(schedule.starts[b])).stop] = False
            state.settles[part.start : finished] = ~self._exact[part.start : finished]
            self._exact[part.start : finished] = True

    def block_of(self, slot: int) -> slice:
        """The slots of the network's block in which a slot lies."""
        part = self._state.canvas.parts[self._state.canvas.sequence[slot]]
        begin = part.start + (slot - part.start) // self._size * self._size
        return slice(begin, min(begin + self._size, part.stop))
