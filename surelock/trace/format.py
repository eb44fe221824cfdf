"""The trace format: constants, the byte scales of the stream, and the check of a document from outside.

``schema.json`` describes the fields. KLs and confidences are base64 of bytes in the stream and in the recorded run, and
plain numbers in an export.
"""

import base64
import json
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import numpy as np

from surelock.values import Json

FORMAT = "surelock-trace"
VERSION = 4
TOP_K = 5

KL_LOW = 1e-12  # nats, the value of byte 1
KL_HIGH = 1e2  # nats, the value of byte 254
KL_INFINITE = 255  # byte for an infinite KL: the row had no earlier posterior
_DECADES = float(np.log10(KL_HIGH / KL_LOW))


def compact_json(value: Any) -> str:
    """Return a trace, or a message of one, as JSON text without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class TraceError(ValueError):
    """Raised for a document that is not a trace. The message is one sentence."""


def kl_to_bytes(kl: np.ndarray) -> np.ndarray:
    """Quantise KLs [...] in nats to uint8: 0 is below 1e-12, 1 to 254 are log-spaced up to 100, 255 is infinite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        level = 1 + np.rint((np.log10(kl / KL_LOW) / _DECADES) * 253)
    level = np.where(kl < KL_LOW, 0, np.clip(level, 1, 254))
    return np.where(np.isfinite(kl), level, KL_INFINITE).astype(np.uint8)


def bytes_to_kl(level: np.ndarray) -> np.ndarray:
    """Return the KLs of bytes, float64 in nats: 0.0 for byte 0, infinite for byte 255."""
    values = KL_LOW * 10.0 ** (_DECADES * (level.astype(np.float64) - 1) / 253)
    values[level == 0] = 0.0
    values[level == KL_INFINITE] = np.inf
    return values


def unit_to_bytes(p: np.ndarray) -> np.ndarray:
    """Quantise probabilities [...] to uint8, linearly."""
    return np.rint(np.clip(p, 0.0, 1.0) * 255).astype(np.uint8)


def encode_bytes(levels: np.ndarray) -> str:
    """Return the base64 text of a uint8 array."""
    return base64.b64encode(levels.tobytes()).decode("ascii")


def decode_bytes(text: str) -> np.ndarray:
    """Return the uint8 array of a base64 text. Raises TraceError if it is not base64."""
    try:
        return np.frombuffer(base64.b64decode(text, validate=True), dtype=np.uint8)
    except ValueError as error:
        raise TraceError("The trace is damaged: a row of bytes is not base64.") from error


def token_width(vocab_size: int) -> int:
    """Return the number of bytes of a token id in the stream."""
    return 2 if vocab_size <= 2**16 else 3


def encode_tokens(ids: np.ndarray, width: int) -> str:
    """Return the base64 text of token ids, with `width` bytes per id, in little-endian order."""
    return encode_bytes(ids.astype("<u4")[:, None].view(np.uint8)[:, :width])


def decode_tokens(text: str, count: int) -> np.ndarray:
    """Return the token ids of a text that `encode_tokens` returned, [count] int64.

    Raises TraceError for another number of bytes.
    """
    levels = decode_bytes(text)
    width = 3 if len(levels) == 3 * count else 2
    if len(levels) != width * count:
        raise TraceError(
            "The trace is damaged: a step has another number of guesses than computed masks."
        )
    return levels.reshape(count, width).astype(np.int64) @ 256 ** np.arange(width)


def opening(header: Json) -> np.ndarray:
    """Return the tokens before the first step, [N] int64, -1 at masks."""
    tokens = np.full(header["length"], -1)
    prompt = np.array(header["prompt_tokens"], dtype=np.int64)
    tokens[: len(prompt)] = np.where(prompt == header["mask_id"], -1, prompt)
    return tokens


def masked_before(header: Json, records: Iterable[Json]) -> Iterator[np.ndarray]:
    """Yield, by record of a lane, which positions are masked before the step commits, [N] bool."""
    masked = opening(header) < 0
    for record in records:
        masked[[*record.get("masked", ()), *record.get("taken_back", ())]] = True
        masked[[position for position, _ in record.get("written", ())]] = False
        yield masked.copy()
        commits = (*record["unmasked"], *record.get("filled", ()))
        masked[[position for position, _ in commits]] = False


def to_runs(mask: np.ndarray) -> list[int]:
    """Return [start, length, start, length, ...] of the True runs of a bool vector [N]."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).astype(np.int8)))
    edges[1::2] -= edges[::2]
    return edges.tolist()


def from_runs(runs: list[int], length: int) -> np.ndarray:
    """Return the positions of runs [start, length, ...], int64, ascending.

    length: number of positions of the sequence. Raises TraceError for a position outside the sequence.
    """
    if len(runs) % 2:
        raise TraceError("The trace is damaged: a list of positions is incomplete.")
    pairs = np.asarray(runs, dtype=np.int64).reshape(-1, 2)
    ends = pairs.sum(axis=1)
    if len(pairs) and (pairs.min() < 0 or ends.max() > length or np.any(pairs[1:, 0] < ends[:-1])):
        raise TraceError(
            "The trace is damaged: a record names positions out of order or outside the sequence."
        )
    positions = [np.empty(0, np.int64)]
    positions += [np.arange(a, b) for a, b in zip(pairs[:, 0], ends, strict=True)]
    return np.concatenate(positions)


def load_document(source: str | Path | Json) -> Json:
    """Return a checked trace document. source: its path, or the parsed document.

    Raises TraceError for another format or a damaged trace, and OSError if the file cannot be read.
    """
    document: Any = source
    if isinstance(source, str | Path):
        try:
            document = json.loads(Path(source).read_bytes())
        except (ValueError, RecursionError) as error:
            raise TraceError("This file is not JSON, so it is not a trace.") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise TraceError("This file is not a SureLock trace.")
    if document.get("version") != VERSION:
        version = f"{document.get('version')!r:.20}"
        raise TraceError(f"This trace has version {version}; this program reads version {VERSION}.")
    check_document(document)
    return document


@cache
def _validator() -> Any:
    schema = json.loads(Path(__file__).with_name("schema.json").read_bytes())
    return jsonschema_rs.validator_for(schema, mask="this")


def check_document(document: Json) -> None:
    """Raise TraceError unless a document follows the schema, its sizes and positions agree, and steps are in order."""
    try:
        errors = list(_validator().iter_errors(document))
    except UnicodeEncodeError:
        raise TraceError(
            "The trace is damaged: it holds half of a character (a lone surrogate)."
        ) from None
    except ValueError:  # only lists that are nested too deeply are left
        raise TraceError("The trace is damaged: its values are nested too deeply.") from None
    for error in errors:
        where = "/".join(map(str, error.instance_path))[:80]
        raise TraceError(f"The trace is damaged at {where or 'its top'}: {error.message}.")
    header = document["header"]
    ids = [lane["id"] for lane in header["lanes"]]
    if len(set(ids)) < len(ids):
        raise TraceError("The trace is damaged: two lanes have the same id.")
    named_lanes = [header.get("reference", ids[0])]
    named_lanes += [lane.get("parent") or ids[0] for lane in header["lanes"]]
    for named in named_lanes:
        if named not in ids:
            raise TraceError(
                f"The trace is damaged: it speaks of a lane {named!r} that is not there."
            )
    timed = []
    for group in header.get("timed_together", ()):
        timed += group["lanes"]
    if unknown := set(timed) - set(ids):
        raise TraceError(
            f"The trace is damaged: it timed a lane {min(unknown)!r} that is not there."
        )
    if len(set(timed)) < len(timed):
        raise TraceError("The trace is damaged: a lane stands in two of its timing groups.")
    if len(header["prompt_tokens"]) > header["length"]:
        raise TraceError("The trace is damaged: its prompt is longer than its sequence.")
    next_steps = dict.fromkeys(ids, 0)
    for record in document["records"]:
        lane = record["lane"]
        expected = next_steps.get(lane)
        if expected is None or record["step"] != expected or expected >= header["steps"]:
            raise TraceError(
                "The trace is damaged: its records are not one per step and lane, in order."
            )
        next_steps[lane] += 1
        _check_record(record, header["length"])
    for lane in ids:
        records = [record for record in document["records"] if record["lane"] == lane]
        for record, masked in zip(records, masked_before(header, records), strict=True):
            if "guess" in record:
                computed = from_runs(record["computed"], header["length"])
                decode_tokens(record["guess"], int(masked[computed].sum()))


def _check_record(record: Json, length: int) -> None:
    """Raise TraceError unless the positions and sizes of a record are possible. length: positions of the sequence."""
    where = f"step {record['step']} of {record['lane']!r}"
    rows = len(from_runs(record["computed"], length))
    positions = []
    for key in ("locked", "unlocked", "probed", "masked", "taken_back", "changed"):
        positions += record.get(key, ())
    for key in ("unmasked", "written", "filled"):
        positions += [position for position, _ in record.get(key, ())]
    if any(position >= length for position in positions):
        raise TraceError(f"The trace is damaged: {where} names a position outside the sequence.")
    for key in ("kl", "confidence"):
        values = record[key]
        if isinstance(values, str):
            values = decode_bytes(values)
        if len(values) != rows:
            many = f"another number of {key} values than computed positions"
            raise TraceError(f"The trace is damaged: {where} has {many}.")
    if len(record.get("commit_error", record["unmasked"])) != len(record["unmasked"]):
        raise TraceError(
            f"The trace is damaged: {where} has another number of commit errors than commits."
        )
    if "top" in record:
        listed = TOP_K * len(from_runs(record["top"]["at"], length))
        if len(record["top"]["ids"]) != listed or len(decode_bytes(record["top"]["p"])) != listed:
            wanted = (
                f"{TOP_K} likely tokens and {TOP_K} probabilities for every position that it names"
            )
            raise TraceError(f"The trace is damaged: {where} must list {wanted}.")
