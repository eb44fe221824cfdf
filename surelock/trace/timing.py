"""Which times may be compared. Times are comparable only if the lanes took turns in one race. A ratio of times is
reported only if it differs from 1 by more than its spread over the steps. assets/js/trace/timing.js has the same rule.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from surelock.values import Floats, Json

BLOCKS = 16  # of consecutive steps, for the jack-knife; with fewer steps no ratio is reported
ERRORS = 3  # standard errors that a ratio must be away from 1
LEAST = 1.05  # the smallest ratio that is reported: two equal runs on one machine differ by as much


def clocked(header: Json) -> list[str]:
    """Return the ids of lanes with comparable times: the largest group timed together, or the only lane."""
    ids = [lane["id"] for lane in header["lanes"]]
    groups = [group["lanes"] for group in header.get("timed_together", ())]
    most = max(groups, key=len, default=[])
    if len(most) > 1:
        return most
    return ids if len(ids) == 1 else []


def paces(document: Json) -> dict[str, str]:
    """Return by lane how its time compares with the reference's, in words; "" if the two are not comparable."""
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
    speed = speed_of(seconds, reference)
    if speed is None:
        return f"too close to tell which was faster, it or “{name}”"
    return (
        f"{speed:.1f} times as fast as “{name}”"
        if speed > 1
        else f"{1 / speed:.1f} times as long as “{name}”"
    )


def speed_of(seconds: Sequence[float], reference: Sequence[float]) -> float | None:
    """Return how many times as fast one lane is as another; None if the ratio is too close to 1.

    seconds, reference: the seconds of their steps.

    The standard error of the ratio's logarithm is the jack-knife's, over ratios that leave out one block of steps in
    both lanes.
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
    return speed if abs(math.log(speed)) > max(math.log(LEAST), ERRORS * error) else None


def _without_a_block(seconds: Sequence[float]) -> Floats:
    """The total seconds without block i of the steps: [BLOCKS]."""
    edges = [len(seconds) * block // BLOCKS for block in range(BLOCKS + 1)]
    blocks = [sum(seconds[start:end]) for start, end in pairwise(edges)]
    return sum(seconds) - np.array(blocks)
