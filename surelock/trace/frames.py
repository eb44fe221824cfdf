"""A trace as pandas DataFrames."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from surelock.trace.format import TraceError, load_document, opening
from surelock.trace.lanes import Lane
from surelock.trace.table import lane_cells, text_of_piece


@dataclass(frozen=True, slots=True)
class Trace:
    """The tables of one race. All of them have the column `lane`, the id of the lane.

    header: a dictionary as in the file: model, prompt, prompt_tokens, lanes, length N, steps.
    lanes: a row for each lane: name, compute and unmask (their kinds), parent (the lane that it branched from), decoder
    (a `surelock.Decoder`, to repeat the run), engine (None if unknown), exact (see `read_trace`).
    steps: a row for each lane and step: step, seconds, flops, baseline_flops, computed (rows), unmasked (tokens),
    taken_back (tokens that the policy masked again before), locked (positions so far), regret (<NA> if unknown).
    positions: a row for each lane and position at the end of the run: position, prompt, token, piece (its text),
    unmask_step, lock_step, commit_error (nats); <NA> if it never happened, was undone, or is unknown.
    values: a row for each lane, step and computed position: step, position, kl (nats; infinite if there was no earlier
    posterior), confidence, guess (the most likely token where masked before the commit; <NA> if unknown).
    """

    header: dict[str, Any]
    lanes: pd.DataFrame
    steps: pd.DataFrame
    positions: pd.DataFrame
    values: pd.DataFrame


def read_trace(source: str | Path | dict[str, Any]) -> Trace:
    """Read a trace into DataFrames.

    A trace exported while its run is still kept holds KLs and confidences as they were measured. In the recorded run,
    and in a trace of a run that is no longer kept, each is one byte: KLs are rounded to a scale with steps of 14 %,
    confidences to multiples of 1/255, and `exact` is False for the lane.

    Raises TraceError (a ValueError) for another format or a damaged trace, OSError if the file cannot be read.
    """
    document = load_document(source)
    header, pieces, records = document["header"], document["pieces"], document["records"]
    try:
        field = [Lane.from_plain(plain) for plain in header["lanes"]]
    except ValueError as error:
        raise TraceError(f"The trace is damaged: {error}.") from error
    of = {lane.id: [record for record in records if record["lane"] == lane.id] for lane in field}
    positions = [positions_of(header, pieces, of[lane.id], lane.id) for lane in field]
    coded = ("kl", "confidence")  # as bytes, which are texts
    lanes = pd.DataFrame(
        {
            "lane": [c.id for c in field],
            "name": [c.name for c in field],
            "compute": [c.decoder.compute.kinds for c in field],
            "unmask": [c.decoder.unmask.kind for c in field],
            "parent": [c.parent for c in field],
            "decoder": [c.decoder for c in field],
            "engine": [plain.get("engine", header.get("engine")) for plain in header["lanes"]],
            "exact": [not any(isinstance(r[key], str) for r in of[c.id] for key in coded) for c in field],
        }
    )
    cells = [lane_cells(document, lane.id).frame().query("computed") for lane in field]
    values: Any = pd.concat(cells, ignore_index=True).rename(columns={"sequence": "lane"})
    values = values[["lane", "step", "position", "kl", "confidence", "guess"]]
    return Trace(header, lanes, steps_of(records), pd.concat(positions, ignore_index=True), values)


def steps_of(records: list[dict[str, Any]]) -> pd.DataFrame:
    columns = ["lane", "step", "seconds", "flops", "baseline_flops"]
    frame = pd.DataFrame([{key: record[key] for key in columns} for record in records], columns=columns)
    frame["computed"] = [sum(record["computed"][1::2]) for record in records]
    frame["unmasked"] = [len(record["unmasked"]) for record in records]
    frame["taken_back"] = [len(record.get("taken_back", ())) for record in records]
    change = pd.Series([len(r["locked"]) - len(r.get("unlocked", ())) for r in records], dtype="int64")
    frame["locked"] = change.groupby(frame["lane"]).cumsum()
    frame["regret"] = pd.array([record.get("regret") for record in records], dtype="Float64")
    return frame


def positions_of(
    header: dict[str, Any], pieces: dict[str, Any], records: list[dict[str, Any]], lane: str
) -> pd.DataFrame:
    n, given = header["length"], opening(header)
    token: list[Any] = [pd.NA if each < 0 else each for each in given.tolist()]
    unmasked: list[Any] = [pd.NA] * n
    locked: list[Any] = [pd.NA] * n
    error: list[Any] = [pd.NA] * n
    for record in records:  # events come before the step's own commits
        for position in (*record.get("masked", ()), *record.get("taken_back", ())):
            token[position] = unmasked[position] = error[position] = pd.NA
        for position, identity in (*record.get("written", ()), *record["unmasked"]):
            unmasked[position] = record["step"] if token[position] is pd.NA else unmasked[position]
            token[position], error[position] = identity, pd.NA
        for (position, _), nats in zip(record["unmasked"], record.get("commit_error", ()), strict=False):
            error[position] = pd.NA if nats is None else nats
        for position in record.get("unlocked", ()):
            locked[position] = pd.NA
        for position in record["locked"]:
            locked[position] = record["step"]
    return pd.DataFrame(
        {
            "lane": lane,
            "position": np.arange(n),
            "prompt": given >= 0,
            "token": pd.array(token, dtype="Int64"),
            "piece": [None if t is pd.NA else text_of_piece(pieces.get(str(t))) for t in token],
            "unmask_step": pd.array(unmasked, dtype="Int64"),
            "lock_step": pd.array(locked, dtype="Int64"),
            "commit_error": pd.array(error, dtype="Float64"),
        }
    )
