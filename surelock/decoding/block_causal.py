"""Block-causal networks: a step need not compute blocks that are finished or have not begun."""

import numpy as np

from surelock.decoding.state import Slots, State


class BlockCausal:
    """Sets, before a step, which rows of a block-causal network rest and which are computed a last time.

    A row sees its block of the network and all earlier blocks. When a block and all earlier blocks are written, its
    rows *settle*: the next step computes them a last time, locked rows too. Their keys and values are then exact, since
    no later token changes them. Rows of later blocks rest until their block begins, since no row sees them.

    state: the run's state, whose `rests` and `settles` are set.
    size: number of positions of a block.
    """

    def __init__(self, state: State, size: int) -> None:
        self._state = state
        self._size = size
        self._exact = np.zeros(state.canvas.total, dtype=bool)

    def change(self, slots: Slots) -> None:
        """Take note of changed tokens: keys and values of their block and of all later blocks are not exact now."""
        canvas = self._state.canvas
        for slot in slots.tolist():
            part = canvas.parts[canvas.sequence[slot]]
            self._exact[self.block_of(slot).start : part.stop] = False

    def begin_step(self) -> None:
        """Set the rows that rest and the rows that settle in the next step. That step makes the latter exact."""
        state = self._state
        canvas = self._state.canvas
        schedule = self._state.schedule
        state.rests[:] = True
        state.settles[:] = False
        for b in np.flatnonzero(schedule.running).tolist():
            part = canvas.parts[b]
            masked = np.flatnonzero(canvas.masked[part])
            finished = part.stop  # the slot after the finished blocks
            if len(masked):
                finished = self.block_of(part.start + int(masked[0])).start
            present = self.block_of(int(schedule.starts[b]))
            state.rests[finished : present.stop] = False
            state.settles[part.start : finished] = ~self._exact[part.start : finished]
            self._exact[part.start : finished] = True

    def block_of(self, slot: int) -> slice:
        """Return the slots of the network's block that contains a slot."""
        part = self._state.canvas.parts[self._state.canvas.sequence[slot]]
        begin = part.start + (slot - part.start) // self._size * self._size
        return slice(begin, min(begin + self._size, part.stop))
