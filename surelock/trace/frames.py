"""A trace as pandas DataFrames."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from surelock.trace.contestants import Contestant
from surelock.trace.format import TraceError, bytes_to_kl, decode_bytes, from_runs, load_document


@dataclass(frozen=True, slots=True)
class Trace:
    """One race.

    Attributes:
        header: as in the file (model, prompt, contestants, length N, steps).
        contestants: one row per contestant: contestant (its id), name, compute and unmask (their kinds), parent, and
            decoder (a `surelock.Decoder`, with which the run can be repeated).
        steps: one row per contestant and step: seconds, flops, baseline_flops, and the numbers of rows computed, tokens
            unmasked, locked so far.
        positions: one row per contestant and position: token, piece, prompt, unmask_step, lock_step and commit_error
            (nats), as they are at the end (<NA> if never, not any more, or not known).
        values: one row per contestant, step and computed position: kl (nats; inf where there was nothing to compare
            with) and confidence.
    """

    header: dict[str, Any]
    contestants: pd.DataFrame
    steps: pd.DataFrame
    positions: pd.DataFrame
    values: pd.DataFrame


def read_trace(source: str | Path | dict[str, Any]) -> Trace:
    """Read a trace (a path or a parsed object, of version 1 or 2) into DataFrames.

    Raises:
        TraceError: not a trace of these versions, or damaged (a ValueError).
        OSError: the file cannot be read.
    """
    document = load_document(source)
    header, pieces, records = document["header"], document["pieces"], document["records"]
    field = contestants_of(header)
    positions = [positions_of(header, pieces, [r for r in records if r["contestant"] == c.id], c.id) for c in field]
    told = pd.DataFrame(
        {
            "contestant": [c.id for c in field],
            "name": [c.name for c in field],
            "compute": [c.decoder.compute.kinds for c in field],
            "unmask": [c.decoder.unmask.kind for c in field],
            "parent": [c.parent for c in field],
            "decoder": [c.decoder for c in field],
        }
    )
    values = _values(header["length"], records)
    return Trace(header, told, steps_of(records), pd.concat(positions, ignore_index=True), values)


def contestants_of(header: dict[str, Any]) -> list[Contestant]:
    """The contestants of a checked header. Raises TraceError where one cannot be."""
    try:
        return [Contestant.from_plain(plain) for plain in header["contestants"]]
    except ValueError as error:
        raise TraceError(f"The trace is damaged: {error}.") from error


def steps_of(records: list[dict[str, Any]]) -> pd.DataFrame:
    """`Trace.steps` of these records."""
    columns = ["contestant", "step", "seconds", "flops", "baseline_flops"]
    frame = pd.DataFrame([{key: record[key] for key in columns} for record in records], columns=columns)
    frame["computed"] = [sum(record["computed"][1::2]) for record in records]
    frame["unmasked"] = [len(record["unmasked"]) for record in records]
    change = pd.Series([len(r["locked"]) - len(r.get("unlocked", ())) for r in records], dtype="int64")
    frame["locked"] = change.groupby(frame["contestant"]).cumsum()
    return frame


def positions_of(
    header: dict[str, Any], pieces: dict[str, Any], records: list[dict[str, Any]], contestant: str
) -> pd.DataFrame:
    """`Trace.positions` of a contestant with these records."""
    n, prompt = header["length"], header["prompt_tokens"]
    token: list[Any] = [*prompt, *[pd.NA] * (n - len(prompt))]
    unmasked: list[Any] = [pd.NA] * n
    locked: list[Any] = [pd.NA] * n
    error: list[Any] = [pd.NA] * n
    for record in records:  # what events did comes before what the step did
        for position in record.get("masked", ()):
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
            "contestant": contestant,
            "position": np.arange(n),
            "prompt": np.arange(n) < len(prompt),
            "token": pd.array(token, dtype="Int64"),
            "piece": [None if t is pd.NA else _text(pieces.get(str(t))) for t in token],
            "unmask_step": pd.array(unmasked, dtype="Int64"),
            "lock_step": pd.array(locked, dtype="Int64"),
            "commit_error": pd.array(error, dtype="Float64"),
        }
    )


def _text(piece: str | list[int] | None) -> str | None:
    return bytes(piece).decode("utf-8", "backslashreplace") if isinstance(piece, list) else piece


def _values(length: int, records: list[dict[str, Any]]) -> pd.DataFrame:
    parts: dict[str, list[Any]] = {"contestant": [], "step": [], "position": [], "kl": [], "confidence": []}
    for record in records:
        where = from_runs(record["computed"], length)
        kl, confidence = record["kl"], record["confidence"]
        parts["contestant"].append(np.full(len(where), record["contestant"], dtype=object))
        parts["step"].append(np.full(len(where), record["step"]))
        parts["position"].append(where)
        parts["kl"].append(
            bytes_to_kl(decode_bytes(kl)) if isinstance(kl, str) else np.array([np.inf if v is None else v for v in kl])
        )
        parts["confidence"].append(
            decode_bytes(confidence) / 255 if isinstance(confidence, str) else np.array(confidence)
        )
    return pd.DataFrame({key: np.concatenate(part) if part else [] for key, part in parts.items()})
