"""Selection (the surrogate of the paper's Experiment 5): compute only a fraction of the active rows in a step."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from surelock.decoding.canvas import Canvas
from surelock.decoding.schedule import Schedule

#: A KL below this is rounding, which depends on the shape of the batch: such rows count as equally converged.
ZERO_KL = 1e-9


def select_rows(
    canvas: Canvas,
    schedule: Schedule,
    active: NDArray[np.int64],
    fraction: float,
    computed_at: NDArray[np.int64],
    last_kl: NDArray,
) -> NDArray[np.int64]:
    """The ceil(fraction * M) of each sequence's M active slots that are computed, and all masks of an ending block.

    The paper does not say which rows. Here the longest uncomputed come first, among equals the larger last KL, then the
    lowest position. computed_at, last_kl [total]: step and KL of each slot's last computation.
    """
    chosen = []
    for b, part in enumerate(canvas.split(active)):
        slots = active[part]
        count = math.ceil(fraction * len(slots) - 1e-9)
        order = np.lexsort((slots, -np.maximum(last_kl[slots], ZERO_KL), computed_at[slots]))
        picked = slots[order[:count]]
        if schedule.last_step(b):
            block = schedule.block(b)
            picked = np.union1d(picked, np.flatnonzero(canvas.masked[block]) + block.start)
        chosen.append(np.sort(picked))
    return np.concatenate(chosen)
