"""End a sequence when its text is complete (`stop_at_end`).

A text is complete when it has an end after the whole prompt, and no position before that end is masked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from surelock.decoding.state import NONE, Slots
from surelock.decoding.step import Ended

if TYPE_CHECKING:
    from surelock.decoding.algorithm import Run


def stop(run: Run) -> Ended | None:
    """End the sequences whose text is complete, and fill their masked positions with the end token.

    Called after the last line of a step, when the schedules have advanced. Returns None if no text is complete.
    """
    canvas = run.canvas
    schedule = run.schedule
    state = run.state
    running = np.flatnonzero(schedule.running).tolist()
    over = {b: end for b in running if (end := _end_of(run, b)) is not None}  # slots of the ends
    if not over:
        return None
    steps = np.zeros(canvas.batch, dtype=int)
    rows = np.zeros(canvas.total, dtype=int)
    filled = [NONE]
    for b, end in over.items():
        part = canvas.parts[b]
        for start, count in schedule.left(b):
            steps[b] += count
            spared = part if run.blocks is None else run.blocks.block_of(start)
            rows[spared] += count
        masked = np.flatnonzero(state.masked[part]) + part.start
        state.commit(masked, np.full(len(masked), state.tokens[end]))
        filled.append(masked)
        schedule.stop(b)
    flops = np.bincount(canvas.sequence, run.row_flops * rows, canvas.batch)
    return Ended(filled=canvas.flags(*filled), steps=steps, rows=canvas.grid(rows, 0), flops=flops)


def _end_of(run: Run, b: int) -> int | None:
    """Return the slot of the end of sequence b if its text is complete, otherwise None."""
    canvas = run.canvas
    state = run.state
    part = canvas.parts[b]
    first = int(canvas.given_until[b])
    last = part.stop
    if run.takes_back:  # tokens of the present block may still be taken back
        last = int(run.schedule.starts[b])
    ends: Slots = np.flatnonzero(np.isin(state.tokens[first:last], run.shape.ends)) + first
    if not len(ends) or state.masked[part.start : ends[0]].any():
        return None
    return int(ends[0])
