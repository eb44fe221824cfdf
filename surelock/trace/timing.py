"""Comparison of the times of lanes.

Times are comparable only if the lanes took turns in one race. A ratio of times is reported only if it differs from 1 by
more than its spread over the steps. assets/js/trace/timing.js has the same rule.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from surelock.values import Floats, Json

BLOCKS = 16  # number of blocks of consecutive steps, for the jack-knife; with fewer steps no ratio is reported
ERRORS = 3  # smallest distance of a reported ratio from 1, in standard errors
LEAST = 1.05  # smallest reported ratio, because two equal runs on one machine differ by this much


def clocked(header: Json) -> list[str]:
    """Return the ids of lanes with comparable times: the largest group that was timed together, or a single lane."""
    ids = [lane["id"] for lane in header["lanes"]]
    groups = [group["lanes"] for group in header.get("timed_together", ())]
    most = max(groups, key=len, default=[])
    if len(most) > 1:
        return most
    return ids if len(ids) == 1 else []


def paces(document: Json) -> dict[str, str]:
    """Return, by lane, a comparison of its time with the reference's in words; "" if they are not comparable."""
    header = document["header"]
    timed = clocked(document["header"])
    names = {lane["id"]: lane["name"] for lane in header["lanes"]}
    seconds: dict[str, list[float]] = {lane: [] for lane in names}
    for record in document["records"]:
        if record["lane"] in seconds:
            seconds[record["lane"]].append(record["seconds"])
    reference = header.get("reference", next(iter(names)))
    compared = {
        lane for lane in timed if lane != reference and reference in timed and seconds[lane]
    }
    words = dict.fromkeys(names, "")
    for lane in compared:
        words[lane] = _words(seconds[lane], seconds[reference], names[reference])
    return words


def _words(seconds: list[float], reference: list[float], name: str) -> str:
    """Return the comparison with a reference of this name, in words."""
    speed = speed_of(seconds, reference)
    if speed is None:
        return f"too close to tell which was faster, it or “{name}”"
    if speed > 1:
        return f"{speed:.1f} times as fast as “{name}”"
    return f"{1 / speed:.1f} times as long as “{name}”"


def speed_of(seconds: Sequence[float], reference: Sequence[float]) -> float | None:
    """Return the reference's time divided by a lane's time; None if the ratio is too close to 1.

    seconds, reference: the seconds of the steps of the lane and of the reference.

    The standard error of the ratio's logarithm is estimated by the jack-knife: from ratios that leave out one block of
    steps in both lanes.
    """
    if min(len(seconds), len(reference)) < BLOCKS:
        return None
    mine = _without_a_block(seconds)
    theirs = _without_a_block(reference)
    if not (np.all(mine > 0) and np.all(theirs > 0)):
        return None
    logs = np.log(theirs / mine)
    squares = ((logs - logs.mean()) ** 2).sum()
    error = math.sqrt((BLOCKS - 1) / BLOCKS * float(squares))
    speed = sum(reference) / sum(seconds)
    least = max(math.log(LEAST), ERRORS * error)
    return speed if abs(math.log(speed)) > least else None


def _without_a_block(seconds: Sequence[float]) -> Floats:
    """Return [BLOCKS] float64: number i is the total seconds without block i of the steps."""
    edges = [len(seconds) * block // BLOCKS for block in range(BLOCKS + 1)]
    blocks = [sum(seconds[start:end]) for start, end in pairwise(edges)]
    return sum(seconds) - np.array(blocks)
