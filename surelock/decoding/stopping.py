"""Texts that are over (`stop_at_end`): an end stands behind the whole prompt, and nothing before it is masked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from surelock.decoding.state import NONE, Slots
from surelock.decoding.step import Ended

if TYPE_CHECKING:
    from surelock.decoding.algorithm import Run


def stop(run: Run) -> Ended | None:
    """End the sequences whose text is over, and fill what is masked behind the end. Called behind the last line of a
    step, when every schedule has advanced. Returns None where no text is over.
    """
    canvas = run.canvas
    schedule = run.schedule
    state = run.state
    running = np.flatnonzero(schedule.running).tolist()
    over = {b: end for b in running if (end := _end_of(run, b)) is not None}
    if not over:
        return None
    steps = np.zeros(canvas.batch, dtype=int)
    rows = np.zeros(canvas.total, dtype=int)
    filled = [NONE]
    for b, end in over.items():
        part = canvas.parts[b]
        for start, count in schedule.left(b):
            steps[b] += count
            rows[part if run.blocks is None else run.blocks.block_of(start)] += count
        masked = np.flatnonzero(state.masked[part]) + part.start
        state.commit(masked, np.full(len(masked), state.tokens[end]))
        filled.append(masked)
        schedule.stop(b)
    flops = np.bincount(canvas.sequence, run.row_flops * rows, canvas.batch)
    return Ended(filled=canvas.flags(*filled), steps=steps, rows=canvas.grid(rows, 0), flops=flops)


def _end_of(run: Run, b: int) -> int | None:
    """The slot of the end of a text that is over, else None."""
    canvas = run.canvas
    state = run.state
    part = canvas.parts[b]
    first = int(canvas.given_until[b])
    settled = int(run.schedule.starts[b]) if run.takes_back else part.stop
    ends: Slots = np.flatnonzero(np.isin(state.tokens[first:settled], run.shape.ends)) + first
    if not len(ends) or state.masked[part.start : ends[0]].any():
        return None
    return int(ends[0])
