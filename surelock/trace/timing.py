"""Which times may be compared. Only lanes that took turns in one race have comparable times, and a ratio is reported
only if it is further from 1 than its spread over the steps. assets/js/trace/timing.js has the same rule.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from surelock.values import Floats, Json

BLOCKS = 16  # of consecutive steps, for the jack-knife; with fewer steps no ratio is reported
ERRORS = 3  # standard errors that a ratio must be away from 1
LEAST = 1.05  # the smallest ratio that is reported: the same machine repeats itself no better


def clocked(header: Json) -> list[str]:
    """Return the lanes whose times may be compared: the largest group that was timed together, or a single lane."""
    ids = [lane["id"] for lane in header["lanes"]]
    groups = [group["lanes"] for group in header.get("timed_together", ())]
    most = max(groups, key=len, default=[])
    return most if len(most) > 1 else ids if len(ids) == 1 else []


def paces(document: Json) -> dict[str, str]:
    """Return how the time of each lane compares with the reference's, in words; "" where it cannot be compared."""
    header, timed = document["header"], clocked(document["header"])
    names = {lane["id"]: lane["name"] for lane in header["lanes"]}
    seconds = {lane: [each["seconds"] for each in document["records"] if each["lane"] == lane] for lane in names}
    reference = header.get("reference", next(iter(names)))
    compared = {lane for lane in timed if lane != reference and reference in timed and seconds[lane]}
    other, name = seconds[reference], names[reference]
    return {lane: _words(seconds[lane], other, name) if lane in compared else "" for lane in names}


def _words(seconds: list[float], reference: list[float], name: str) -> str:
    speed = speed_of(seconds, reference)
    if speed is None:
        return f"too close to tell which was faster, it or “{name}”"
    return f"{speed:.1f} times as fast as “{name}”" if speed > 1 else f"{1 / speed:.1f} times as long as “{name}”"


def speed_of(seconds: Sequence[float], reference: Sequence[float]) -> float | None:
    """Return how many times as fast one lane is as another; None if the ratio is too close to 1.

    seconds, reference: the seconds of the steps of each.

    The standard error of the ratio's logarithm is the jack-knife's: of the ratios without one block of both lanes.
    """
    if min(len(seconds), len(reference)) < BLOCKS:
        return None
    mine, theirs = _without_each(seconds), _without_each(reference)
    if not (np.all(mine > 0) and np.all(theirs > 0)):
        return None
    logs = np.log(theirs / mine)
    error = math.sqrt((BLOCKS - 1) / BLOCKS * float(((logs - logs.mean()) ** 2).sum()))
    speed = sum(reference) / sum(seconds)
    return speed if abs(math.log(speed)) > max(math.log(LEAST), ERRORS * error) else None


def _without_each(seconds: Sequence[float]) -> Floats:
    """The total seconds without one block of steps, for each block: [BLOCKS]."""
    edges = [len(seconds) * block // BLOCKS for block in range(BLOCKS + 1)]
    blocks = [sum(seconds[start:end]) for start, end in pairwise(edges)]
    return sum(seconds) - np.array(blocks)
