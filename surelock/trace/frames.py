"""A trace as pandas DataFrames."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from surelock.trace.format import DECODERS, bytes_to_kl, decode_bytes, from_runs, load_document


@dataclass(frozen=True, slots=True)
class Trace:
    """One run of both decoders.

    Attributes:
        header: as in the file (model, prompt, settings, lock rule, length N, steps).
        steps: one row per decoder and step: seconds, flops, baseline_flops, and the numbers of rows computed, tokens
            unmasked, locked so far.
        positions: one row per decoder and position: token, piece, prompt, unmask_step and lock_step (the last one;
            <NA> if never).
        values: one row per decoder, step and computed position: kl (nats; inf where there was nothing to compare with)
            and confidence.
    """

    header: dict[str, Any]
    steps: pd.DataFrame
    positions: pd.DataFrame
    values: pd.DataFrame


def read_trace(source: str | Path | dict[str, Any]) -> Trace:
    """Read a trace (a path or a parsed object) into DataFrames.

    Raises:
        TraceError: not a trace of this version, or damaged (a ValueError).
        OSError: the file cannot be read.
    """
    document = load_document(source)
    header, pieces, records = document["header"], document["pieces"], document["records"]
    positions = [_positions(header, pieces, [r for r in records if r["decoder"] == name], name) for name in DECODERS]
    return Trace(header, _steps(records), pd.concat(positions, ignore_index=True), _values(header["length"], records))


def _steps(records: list[dict[str, Any]]) -> pd.DataFrame:
    columns = ["decoder", "step", "seconds", "flops", "baseline_flops"]
    frame = pd.DataFrame([{key: record[key] for key in columns} for record in records], columns=columns)
    frame["computed"] = [sum(record["computed"][1::2]) for record in records]
    frame["unmasked"] = [len(record["unmasked"]) for record in records]
    change = pd.Series([len(r["locked"]) - len(r.get("unlocked", ())) for r in records], dtype="int64")
    frame["locked"] = change.groupby(frame["decoder"]).cumsum()
    return frame


def _positions(
    header: dict[str, Any], pieces: dict[str, Any], records: list[dict[str, Any]], decoder: str
) -> pd.DataFrame:
    n, prompt = header["length"], header["prompt_tokens"]
    token: list[Any] = [*prompt, *[pd.NA] * (n - len(prompt))]
    unmasked: list[Any] = [pd.NA] * n
    locked: list[Any] = [pd.NA] * n
    for record in records:
        for position, identity in record["unmasked"]:
            token[position], unmasked[position] = identity, record["step"]
        for position in record["locked"]:
            locked[position] = record["step"]
        for position in record.get("unlocked", ()):
            locked[position] = pd.NA
    return pd.DataFrame(
        {
            "decoder": decoder,
            "position": np.arange(n),
            "prompt": np.arange(n) < len(prompt),
            "token": pd.array(token, dtype="Int64"),
            "piece": [None if t is pd.NA else _text(pieces.get(str(t))) for t in token],
            "unmask_step": pd.array(unmasked, dtype="Int64"),
            "lock_step": pd.array(locked, dtype="Int64"),
        }
    )


def _text(piece: str | list[int] | None) -> str | None:
    return bytes(piece).decode("utf-8", "backslashreplace") if isinstance(piece, list) else piece


def _values(length: int, records: list[dict[str, Any]]) -> pd.DataFrame:
    parts: dict[str, list[Any]] = {"decoder": [], "step": [], "position": [], "kl": [], "confidence": []}
    for record in records:
        where = from_runs(record["computed"], length)
        kl, confidence = record["kl"], record["confidence"]
        parts["decoder"].append(np.full(len(where), record["decoder"], dtype=object))
        parts["step"].append(np.full(len(where), record["step"]))
        parts["position"].append(where)
        parts["kl"].append(
            bytes_to_kl(decode_bytes(kl)) if isinstance(kl, str) else np.array([np.inf if v is None else v for v in kl])
        )
        parts["confidence"].append(
            decode_bytes(confidence) / 255 if isinstance(confidence, str) else np.array(confidence)
        )
    return pd.DataFrame({key: np.concatenate(part) if part else [] for key, part in parts.items()})
