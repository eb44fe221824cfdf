"""What a contestant's records come to: the state of every position in every step, its totals and its text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surelock.decoding.ends import cut_at_eos
from surelock.trace.format import from_runs
from surelock.trace.frames import positions_of, steps_of
from surelock.trace.pieces import running_text

#: As in assets/js/trace.js: what a cell is follows from masked or not, computed in this step or not, locked or not.
STATES = ("masked", "active", "locked", "resting", "waiting")
MASKED, ACTIVE, LOCKED, RESTING, WAITING = range(len(STATES))


@dataclass(frozen=True, slots=True, eq=False)
class Lane:
    """One contestant at its end.

    states: [N, steps] uint8, indices of STATES. locked: how many positions are locked after each step. rows: share of
    the steps' rows that were computed; flops: of computing every row; both NaN where there is nothing to share.
    seconds: of its own clock. text: what it wrote, up to the EOS, with a gap for what is masked.
    """

    name: str
    states: NDArray[np.uint8]
    locked: list[int]
    rows: float
    flops: float
    seconds: float
    text: str


def lanes_of(document: dict[str, Any]) -> list[Lane]:
    """The contestants of a checked document, in their order."""
    header, records = document["header"], document["records"]
    return [
        _lane(header, document["pieces"], contestant, [r for r in records if r["contestant"] == contestant["id"]])
        for contestant in header["contestants"]
    ]


def _lane(
    header: dict[str, Any], pieces: dict[str, Any], contestant: dict[str, Any], records: list[dict[str, Any]]
) -> Lane:
    steps, prompt_length = steps_of(records), len(header["prompt_tokens"])
    tokens = positions_of(header, pieces, records, contestant["id"])["token"].fillna(-1).tolist()
    names = ("computed", "flops", "baseline_flops", "seconds")
    computed, flops, baseline, seconds = (float(steps[name].to_numpy().sum()) for name in names)
    return Lane(
        name=contestant["name"],
        states=states(records, header["length"], prompt_length),
        locked=steps["locked"].tolist(),
        rows=_share(computed, header["length"] * len(steps)),
        flops=_share(flops, baseline),
        seconds=seconds,
        text=running_text(pieces, cut_at_eos(tokens[prompt_length:], header.get("eos_id"))).strip(),
    )


def _share(part: float, whole: float) -> float:
    return float(part / whole) if whole else float("nan")


def states(records: list[dict[str, Any]], length: int, prompt_length: int) -> NDArray[np.uint8]:
    """The states [length, steps] after each of a contestant's records."""
    masked, locked = np.arange(length) >= prompt_length, np.zeros(length, dtype=bool)
    found = np.empty((length, len(records)), dtype=np.uint8)
    for step, record in enumerate(records):
        masked[record.get("masked", [])] = True
        masked[[position for position, _ in (*record.get("written", ()), *record["unmasked"])]] = False
        locked[record.get("unlocked", [])] = False
        locked[record["locked"]] = True
        computed = np.zeros(length, dtype=bool)
        computed[from_runs(record["computed"], length)] = True
        written = np.where(locked, LOCKED, np.where(computed, ACTIVE, RESTING))
        found[:, step] = np.where(masked, np.where(computed, MASKED, WAITING), written)
    return found
