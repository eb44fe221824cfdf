"""The outcome of a lane: the state of every position in every step, its totals and its text."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surelock.decoding.ends import cut_at_end
from surelock.trace.format import from_runs
from surelock.trace.frames import positions_of, steps_of
from surelock.trace.pieces import running_text
from surelock.trace.timing import clocked, speed_of

#: As in assets/js/trace/trace.js: a cell is masked or not, computed in this step or not, locked or not.
STATES = ("masked", "active", "locked", "resting", "waiting")
MASKED, ACTIVE, LOCKED, RESTING, WAITING = range(len(STATES))


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The outcome of one lane.

    name: the lane's name.
    states: [N, steps] uint8, indices of STATES.
    locked: the number of locked positions after each step.
    rows: the share of rows that were computed; NaN without steps.
    flops: FLOPs divided by those of computing every row; NaN without steps.
    seconds: the time of its steps; None if it was not timed together with the other lanes.
    text: the generated text up to EOS, with a gap for masks.
    pace: how its time compares with the reference's, in words; "" if it cannot be compared.
    """

    name: str
    states: NDArray[np.uint8]
    locked: list[int]
    rows: float
    flops: float
    seconds: float | None
    text: str
    pace: str = ""


def outcomes_of(document: dict[str, Any]) -> list[Outcome]:
    """Return the outcomes of the lanes of a checked document, in order."""
    header, lanes = document["header"], document["header"]["lanes"]
    records: dict[str, list[dict[str, Any]]] = {lane["id"]: [] for lane in lanes}
    for record in document["records"]:
        records[record["lane"]].append(record)
    names, timed = {lane["id"]: lane["name"] for lane in lanes}, clocked(header)
    reference = header.get("reference", next(iter(names)))
    found = []
    for own, name in names.items():
        lane = _outcome(header, document["pieces"], name, records[own])
        if own not in timed:
            lane = replace(lane, seconds=None)
        elif own != reference and reference in timed and records[own]:
            lane = replace(lane, pace=_pace(records[own], records[reference], names[reference]))
        found.append(lane)
    return found


def _pace(own: list[dict[str, Any]], other: list[dict[str, Any]], name: str) -> str:
    speed = speed_of([record["seconds"] for record in own], [record["seconds"] for record in other])
    if speed is None:
        return f"too close to tell which was faster, it or “{name}”"
    return f"{speed:.1f} times as fast as “{name}”" if speed > 1 else f"{1 / speed:.1f} times as long as “{name}”"


def _outcome(header: dict[str, Any], pieces: dict[str, Any], name: str, records: list[dict[str, Any]]) -> Outcome:
    steps, prompt_length = steps_of(records), len(header["prompt_tokens"])
    tokens = positions_of(header, pieces, records, name)["token"].fillna(-1).tolist()
    names = ("computed", "flops", "baseline_flops", "seconds")
    computed, flops, baseline, seconds = (float(steps[name].to_numpy().sum()) for name in names)
    return Outcome(
        name=name,
        states=states(records, header["length"], prompt_length),
        locked=steps["locked"].tolist(),
        rows=_share(computed, header["length"] * len(steps)),
        flops=_share(flops, baseline),
        seconds=seconds,
        text=running_text(pieces, cut_at_end(tokens[prompt_length:], {header.get("eos_id", -1)})).strip(),
    )


def _share(part: float, whole: float) -> float:
    return float(part / whole) if whole else float("nan")


def states(records: list[dict[str, Any]], length: int, prompt_length: int) -> NDArray[np.uint8]:
    """Return the states [length, steps] after each of a lane's records, as indices of STATES."""
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
