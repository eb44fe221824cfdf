"""What is told of times. Those of lanes that took turns in one race can be compared, no others; and a ratio of
them is told where it is further from 1 than its spread over the steps. assets/js/trace/timing.js has the same rule.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCKS = 16  # that each lane's steps are cut into, in their order; of fewer steps nothing is told
ERRORS = 3  # the spread, in standard errors
LEAST = 1.05  # and at least this ratio: a machine is no closer to itself


def clocked(header: dict[str, Any]) -> list[str]:
    """The ids of a checked header's lanes that have a clock: the most that were timed together. One that is
    alone has its own; else none may have.
    """
    ids = [lane["id"] for lane in header["lanes"]]
    groups = [group["lanes"] for group in header.get("timed_together", ())]
    most = max(groups, key=len, default=[])
    return most if len(most) > 1 else ids if len(ids) == 1 else []


def speed_of(own: Sequence[float], other: Sequence[float]) -> float | None:
    """How many times as fast ``own`` is as ``other``, both the seconds of a lane's steps; None where that is too
    close to tell.

    The standard error of the ratio's logarithm is the jack-knife's: from the ratios with a block of both left out.
    """
    if min(len(own), len(other)) < BLOCKS:
        return None
    mine, theirs = _without_each(own), _without_each(other)
    if not (np.all(mine > 0) and np.all(theirs > 0)):
        return None
    logs = np.log(theirs / mine)
    error = math.sqrt((BLOCKS - 1) / BLOCKS * float(((logs - logs.mean()) ** 2).sum()))
    speed = sum(other) / sum(own)
    return speed if abs(math.log(speed)) > max(math.log(LEAST), ERRORS * error) else None


def _without_each(seconds: Sequence[float]) -> NDArray[np.float64]:
    """The seconds of all steps but each block's, [BLOCKS]."""
    edges = [len(seconds) * block // BLOCKS for block in range(BLOCKS + 1)]
    blocks = [sum(seconds[start:end]) for start, end in pairwise(edges)]
    return sum(seconds) - np.array(blocks)
