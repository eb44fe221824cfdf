"""The trace format: constants, the byte scales of the stream, and the check of a document read from outside.

A trace is a JSON object (see ``schema.json``) with a header, the vocabulary pieces used and one record per step and
decoder. Per-position
numbers are listed for the computed positions only, in order of position; ``computed`` says which those are as [start,
length, start, length, ...].
They are either base64 of one byte each (the stream, the recorded run) or plain numbers (the export).
"""

from __future__ import annotations

import base64
import binascii
import json
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

FORMAT = "surelock-trace"
VERSION = 1
DECODERS = ("baseline", "surelock")
TOP_K = 5
MAX_LENGTH = 8192  # positions a reader accepts: a damaged header must not ask for gigabytes

KL_LOW, KL_HIGH = 1e-12, 1e2  # what bytes 1 and 254 stand for
KL_INFINITE = 255  # the row had no posterior of its own to compare with
_DECADES = float(np.log10(KL_HIGH / KL_LOW))


class TraceError(ValueError):
    """A document is not a trace of this format; the message is one sentence for a reader."""


def kl_to_bytes(kl: np.ndarray) -> np.ndarray:
    """Quantise KL values [...] (nats, float) to uint8: 0 is at most 1e-12, 1..254 are log-spaced up to 100, 255 is
    infinite.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        level = 1 + np.rint((np.log10(kl / KL_LOW) / _DECADES) * 253)
    level = np.where(kl < KL_LOW, 0, np.clip(level, 1, 254))
    return np.where(np.isfinite(kl), level, KL_INFINITE).astype(np.uint8)


def bytes_to_kl(level: np.ndarray) -> np.ndarray:
    """The float64 KL values that bytes stand for; 0.0 for byte 0, inf for byte 255."""
    values = KL_LOW * 10.0 ** (_DECADES * (level.astype(np.float64) - 1) / 253)
    values[level == 0] = 0.0
    values[level == KL_INFINITE] = np.inf
    return values


def unit_to_bytes(p: np.ndarray) -> np.ndarray:
    """Quantise probabilities [...] to uint8, linearly."""
    return np.rint(np.clip(p, 0.0, 1.0) * 255).astype(np.uint8)


def encode_bytes(levels: np.ndarray) -> str:
    """Base64 text of a uint8 array."""
    return base64.b64encode(levels.tobytes()).decode("ascii")


def decode_bytes(text: str) -> np.ndarray:
    """The uint8 array of base64 text. Raises TraceError if it is no base64."""
    try:
        return np.frombuffer(base64.b64decode(text, validate=True), dtype=np.uint8)
    except (binascii.Error, ValueError) as error:
        raise TraceError("The trace is damaged: a row of bytes is not base64.") from error


def to_runs(mask: np.ndarray) -> list[int]:
    """[start, length, ...] of the True stretches of a bool vector [N]."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).astype(np.int8)))
    edges[1::2] -= edges[::2]
    return edges.tolist()


def from_runs(runs: list[int], length: int) -> np.ndarray:
    """Positions (int64, ascending) of [start, length, ...]. Raises TraceError if they leave 0..length-1."""
    pairs = np.asarray(runs, dtype=np.int64).reshape(-1, 2)
    ends = pairs.sum(axis=1)
    if len(pairs) and (pairs.min() < 0 or ends.max() > length or np.any(pairs[1:, 0] < ends[:-1])):
        raise TraceError("The trace is damaged: a record names a position outside the sequence.")
    return np.concatenate([np.arange(a, b) for a, b in zip(pairs[:, 0], ends, strict=True)] or [np.empty(0, np.int64)])


def load_document(source: str | Path | dict[str, Any]) -> dict[str, Any]:
    """Read a trace from a path (or take an already parsed object) and check it.

    Raises:
        TraceError: it is not JSON, not a trace, of a newer version, or damaged.
        OSError: the file cannot be read.
    """
    document = source
    if not isinstance(source, dict):
        try:
            document = json.loads(Path(source).read_bytes())
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise TraceError("This file is not JSON, so it is not a trace.") from error
    check_document(document)
    return document  # type: ignore[return-value]


def check_document(document: Any) -> None:
    """Raise TraceError unless the document can be played: right version, sizes that agree, positions inside the
    sequence, steps in order.
    """
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise TraceError("This file is not a SureLock trace.")
    if document.get("version") != VERSION:
        raise TraceError(f"This trace has version {document.get('version')!r}; this program reads version {VERSION}.")
    header, pieces, records = (document.get(key) for key in ("header", "pieces", "records"))
    if not (isinstance(header, dict) and isinstance(pieces, dict) and isinstance(records, list)):
        raise TraceError("The trace is damaged: its header, pieces or records are missing.")
    length, steps, prompt = (header.get(key) for key in ("length", "steps", "prompt_tokens"))
    if not (
        _is_count(length, MAX_LENGTH)
        and _is_count(steps, MAX_LENGTH)
        and isinstance(prompt, list)
        and len(prompt) <= length
    ):
        raise TraceError("The trace is damaged: its header gives no usable length, number of steps or prompt.")
    if not (isinstance(header.get("settings"), dict) and isinstance(header.get("lock"), dict | None)):
        raise TraceError("The trace is damaged: its header has no settings.")
    following = dict.fromkeys(DECODERS, 0)
    for record in records:
        decoder = record.get("decoder") if isinstance(record, dict) else None
        if decoder not in following or record.get("step") != following[decoder] or following[decoder] >= steps:
            raise TraceError("The trace is damaged: its records are not one per step and decoder, in order.")
        following[decoder] += 1
        _check_record(record, length)


def _is_count(value: Any, most: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= most


def _check_record(record: dict[str, Any], length: int) -> None:
    where = f"step {record['step']} of {record['decoder']}"
    try:
        rows = len(from_runs(record["computed"], length))
        events = [p for p, _ in record["unmasked"]] + [
            p for key in ("locked", "unlocked", "probed") for p in record.get(key, ())
        ]
        if not all(isinstance(p, int) and 0 <= p < length for p in events):
            raise TraceError(f"The trace is damaged: {where} names a position outside the sequence.")
        for key in ("kl", "confidence"):
            values = record[key]
            if (len(decode_bytes(values)) if isinstance(values, str) else len(values)) != rows:
                raise TraceError(
                    f"The trace is damaged: {where} has another number of {key} values than computed positions."
                )
        if not all(isinstance(record[key], int | float) for key in ("seconds", "flops", "baseline_flops")):
            raise TraceError(f"The trace is damaged: {where} has a time or a FLOPs count that is no number.")
        if "top" in record:
            listed = len(from_runs(record["top"]["at"], length))
            if len(record["top"]["ids"]) != TOP_K * listed or len(decode_bytes(record["top"]["p"])) != TOP_K * listed:
                raise TraceError(f"The trace is damaged: {where} lists another number of likely tokens than it says.")
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, TraceError):
            raise
        raise TraceError(f"The trace is damaged at {where}.") from error
