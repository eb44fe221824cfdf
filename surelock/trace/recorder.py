"""Turns the steps of a race into the records of a trace."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from surelock.decoding.step import Step
from surelock.decoding.word_lists import lists_of, plain_list
from surelock.model.language_model import LanguageModel
from surelock.model.machine import machine
from surelock.trace.format import (
    FORMAT,
    TOP_K,
    VERSION,
    compact_json,
    decode_bytes,
    decode_tokens,
    encode_bytes,
    encode_tokens,
    kl_to_bytes,
    to_runs,
    token_width,
    unit_to_bytes,
)
from surelock.trace.lanes import Lane, check_field
from surelock.trace.pieces import Pieces
from surelock.trace.race import Errors, LaneStep, Round
from surelock.values import Json

# keys of a record that are added after the steps are over
_LATER = ("commit_error", "changed", "regret")
_SHOWN = ("vocab_size", "n_layers", "d_model")  # fields of the network's shape that a header has
# (record, KLs, confidences): the KLs and confidences as float32, not quantised to bytes
Recorded = tuple[Json, np.ndarray, np.ndarray]
# The most likely tokens of a position are stored again if a token changes, or a probability by more than 2 / 255.
_TOP_TOLERANCE = 2


def make_header(
    lm: LanguageModel,
    prompt: str | None,
    prompt_tokens: list[int],
    lanes: Sequence[Lane],
    *,
    name: str | None = None,
    chat: bool | None = None,
) -> Json:
    """Return the header of a trace.

    Its `steps` is the most steps that any lane can take. Its `length` is the number of positions, prompt included.

    prompt: the text of the prompt; None if unknown.
    name: the model's name in the trace; None: `lm.name`, which may be a path.
    chat: whether the prompt is in the model's chat template; None if the model has none, or if this is unknown.

    Raises ValueError for more than four lanes, for two lanes with the same id, and for different lengths.
    """
    check_field(lanes)
    lengths = {lane.decoder.settings.gen_length for lane in lanes}
    if len(lengths) > 1:
        raise ValueError(
            f"gen_length must be the same for all lanes, not {' and '.join(map(str, sorted(lengths)))}"
        )
    model = {"name": name or lm.name} | {key: getattr(lm.config, key) for key in _SHOWN}
    if lm.weights:
        model["weights"] = lm.weights
    header: Json = {"model": model, "prompt": prompt}
    if chat is not None:
        header["chat"] = chat
    header["prompt_tokens"] = [int(token) for token in prompt_tokens]
    if lists := lists_of(prompt_tokens):
        header["lists"] = [plain_list(word_list) for word_list in lists]
    header |= {"mask_id": lm.mask_id, "eos_id": lm.eos_id}
    if len(lm.ends) > 1:
        header["ends"] = list(lm.ends)
    if lm.stop:
        header["stop"] = lm.stop
    return header | {
        "length": len(prompt_tokens) + lengths.pop(),
        "steps": max(lane.decoder.steps_of(prompt_tokens.count(lm.mask_id)) for lane in lanes),
        "lanes": [lane.to_plain() for lane in lanes],
        "engine": lm.engine.name,
        # in `race` the lanes take turns, so their times may be compared
        "timed_together": [{"lanes": [lane.id for lane in lanes], "machine": machine(lm.device)}],
        "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


class Recorder:
    """Records one race.

    tokenizer: the model's tokenizer, for pieces; None if it has none.

    `take` returns the compact form for the stream. It also keeps the data for an export: KLs and confidences as
    float32, not quantised to bytes, and the most likely tokens where they changed. `document` returns the whole trace
    so far, and `top` the most likely tokens of one position.
    """

    def __init__(self, header: Json, tokenizer: Any | None) -> None:
        self.header = header
        self._pieces = Pieces(tokenizer)
        self._width = token_width(header["model"]["vocab_size"])
        # tokens whose pieces the first message has
        self._opening = {*header["prompt_tokens"], header["mask_id"]}
        for word_list in header.get("lists", ()):
            self._opening.update(*word_list["words"])
        self._sent = self._opening.copy()  # tokens whose pieces the stream has
        self._records: list[Recorded] = []
        ids = [lane["id"] for lane in header["lanes"]]
        self._tops: dict[str, list[tuple[np.ndarray, np.ndarray, np.ndarray]]] = {
            lane: [] for lane in ids
        }
        self._last = {
            lane: np.full((header["length"], 2 * TOP_K), -1, dtype=np.int32) for lane in ids
        }

    def start(self) -> Json:
        """Return the first message of the stream.

        The message has format, version, header, and the pieces of the prompt, the mask and the listed words.
        """
        return {
            "format": FORMAT,
            "version": VERSION,
            "header": self.header,
            "pieces": self._pieces.look_up(self._opening),
        }

    def adopt(self, lane: str, other: Recorder, of: str, steps: int) -> None:
        """Add the first steps of a lane of another race. They are not sent to the stream, because the page has them.

        lane: the lane in this race. of: the lane in the other race. steps: the number of steps.
        """
        records = [record for record in list(other._records) if record[0]["lane"] == of][:steps]
        for record, kl, confidence in records:
            kept = {name: value for name, value in record.items() if name not in _LATER}
            self._records.append((kept | {"lane": lane}, kl, confidence))
        tops = other._tops[of][:steps]
        for rows, ids, probs in tops:
            self._last[lane][rows] = np.concatenate([ids, probs], axis=1)
        self._tops[lane] += tops

    def take(self, items: Round) -> Json:
        """Add a round of a race, and return the stream's message: {"records", "pieces"} or {"errors"}."""
        if errors := [self._add_errors(item) for item in items if isinstance(item, Errors)]:
            return {"errors": errors}
        records = [
            self.record(item.lane, item.step) for item in items if isinstance(item, LaneStep)
        ]
        fresh = {token for record in records for token in self._tokens_of(record)} - self._sent
        self._sent |= fresh
        return {"records": records, "pieces": self._pieces.look_up(fresh)}

    def record(self, lane: str, step: Step) -> Json:
        """Add a step of a lane, and return its record.

        The record has KLs and confidences as base64 bytes. Of the likely tokens it has only the first, at masks
        (`guess`).
        """
        computed = step.computed[0]
        kl, confidence = (
            values[0][computed].astype(np.float32) for values in (step.kl, step.confidence)
        )
        record: Json = {
            "lane": lane,
            "step": step.index,
            "unmasked": _commits(step, step.newly_unmasked),
            "locked": np.flatnonzero(step.newly_locked[0]).tolist(),
            "computed": to_runs(computed),
            "kl": encode_bytes(kl_to_bytes(kl)),
            "confidence": encode_bytes(unit_to_bytes(confidence)),
            "seconds": round(step.seconds, 7),
            "flops": float(step.flops[0]),
            "baseline_flops": float(step.baseline_flops[0]),
        }
        rare = {"masked": step.newly_masked, "unlocked": step.newly_unlocked, "probed": step.probed}
        rare["taken_back"] = step.taken_back
        record |= {
            name: np.flatnonzero(flags[0]).tolist() for name, flags in rare.items() if flags.any()
        }
        if step.shares:
            record["shares"] = [[share.position, *_rounded(share.shares)] for share in step.shares]
        if step.written.any():
            record["written"] = _commits(step, step.written)
        masks = computed & (step.masked | step.newly_unmasked)[0]
        if step.ended is not None:
            record |= {
                "filled": _commits(step, step.ended.filled),
                "spared": int(step.ended.steps[0]),
            }
            masks |= computed & step.ended.filled[0]
        if step.top_ids is not None:
            record["guess"] = encode_tokens(step.top_ids[0][masks, 0], self._width)
            if step.top_probs is not None and step.top_ids.shape[-1] == TOP_K:
                ids = step.top_ids[0][computed].astype(np.int32)
                probs = unit_to_bytes(step.top_probs[0][computed])
                self._keep_top(lane, np.flatnonzero(computed), ids, probs)
        # The record is added last, since another thread may make a document at the same time.
        self._records.append((record, kl, confidence))
        return record

    def _add_errors(self, errors: Errors) -> Json:
        """Add errors to every record of a lane, and return the stream's entry for the lane.

        A record gets the errors of its commits (in the order of `unmasked`), the positions of commits for which the
        shadow's most likely token is another (`changed`), and the step's regret.
        """
        commits = errors.commits
        records = [record for record, *_ in self._records if record["lane"] == errors.lane]
        for record in records:
            now = commits.step == record["step"]
            record["commit_error"] = short_numbers(commits.error[now])
            record["changed"] = commits.position[now & commits.changed].tolist()
            (record["regret"],) = short_numbers(commits.regret[now].sum(keepdims=True))
        return {"lane": errors.lane} | {
            name: [record[name] for record in records] for name in _LATER
        }

    def _keep_top(self, lane: str, rows: np.ndarray, ids: np.ndarray, probs: np.ndarray) -> None:
        """Keep the most likely tokens of a step, at positions where they changed. probs: bytes."""
        now = np.concatenate([ids, probs], axis=1)
        last = self._last[lane][rows]
        other_ids = (now != last)[:, :TOP_K]
        other_probs = np.abs(now - last)[:, TOP_K:] > _TOP_TOLERANCE
        changed = (other_ids | other_probs).any(axis=1)
        self._last[lane][rows[changed]] = now[changed]
        self._tops[lane].append((rows[changed].astype(np.int32), ids[changed], probs[changed]))

    def top(self, lane: str, step: int, position: int) -> list[list[Any]]:
        """Return the most likely tokens of a position, as they were last computed up to `step`.

        The result is [[token id, piece or None, probability], ...]; [] if the position was not computed.
        """
        for rows, ids, probs in reversed(self._tops.get(lane, [])[: step + 1]):
            at = int(np.searchsorted(rows, position))
            if at < len(rows) and rows[at] == position:
                tokens = ids[at].tolist()
                pieces = self._pieces.look_up(tokens)
                likely = zip(tokens, probs[at].tolist(), strict=True)
                return [[token, pieces.get(str(token)), round(p / 255, 4)] for token, p in likely]
        return []

    def document(self, *, exact: bool = True, steps: int | None = None) -> Json:
        """Return the trace so far.

        exact: KLs and confidences are numbers (null is infinite) instead of bytes.
        steps: only this many first steps, without commit errors; None: all steps.
        """
        records = self._recorded(steps)
        return {
            **self._beginning(records),
            "records": list(self._entries(records, exact, steps is None)),
        }

    def written(self, steps: int | None = None) -> Iterator[str]:
        """Yield the JSON text of `document` in parts, one per record, so that the whole text is never in memory."""
        records = self._recorded(steps)
        yield f'{compact_json(self._beginning(records))[:-1]},"records":['
        for number, entry in enumerate(self._entries(records, True, steps is None)):
            yield f"{',' if number else ''}{compact_json(entry)}"
        yield "]}"

    def _recorded(self, steps: int | None) -> list[Recorded]:
        """Return the records so far. steps: only this many first steps; None: all steps."""
        return [
            record for record in list(self._records) if steps is None or record[0]["step"] < steps
        ]

    def _beginning(self, records: list[Recorded]) -> Json:
        """Return `document` without its records, with the pieces of all tokens of the records."""
        used = set(self._opening)
        for record, *_ in records:
            used.update(self._tokens_of(record))
            used.update(self._likely(record))
        return self.start() | {"pieces": self._pieces.look_up(used)}

    def _likely(self, record: Json) -> list[int]:
        """Return the ids that `document` will list under `top` for this record."""
        tops = self._tops[record["lane"]]
        return tops[record["step"]][1].ravel().tolist() if tops else []

    def _entries(self, records: list[Recorded], exact: bool, errors: bool) -> Iterator[Json]:
        """Yield the records of `document`.

        exact: see `document`. errors: include commit errors. A lane's errors are left out if another thread has not
        added all of them yet.
        """
        # by lane, whether its last record has errors
        measured = {record["lane"]: errors and _LATER[-1] in record for record, *_ in records}
        for record, kl, confidence in records:
            entry = dict(record)
            tops = self._tops[record["lane"]]
            if not measured[record["lane"]]:
                for name in _LATER:
                    entry.pop(name, None)
            if exact:
                entry["kl"] = short_numbers(kl)
                entry["confidence"] = short_numbers(confidence)
            if tops:
                rows, ids, probs = tops[record["step"]]
                at = to_runs(np.isin(np.arange(self.header["length"]), rows))
                entry["top"] = {"at": at, "ids": ids.ravel().tolist(), "p": encode_bytes(probs)}
            yield entry

    def _tokens_of(self, record: Json) -> list[int]:
        """Return the token ids that a record writes or guesses."""
        guess = record.get("guess", "")
        written = [*record.get("written", ()), *record["unmasked"], *record.get("filled", ())]
        guesses = decode_tokens(guess, len(decode_bytes(guess)) // self._width).tolist()
        return [token for _, token in written] + guesses


def _rounded(shares: np.ndarray) -> list[float]:
    return [round(float(share), 4) for share in shares]


def _commits(step: Step, flags: np.ndarray) -> list[list[int]]:
    """Return [[position, token], ...] for the flagged positions of a step's first sequence. flags: [B, N] bool."""
    positions = np.flatnonzero(flags[0])
    return np.stack((positions, step.tokens[0, positions]), axis=1).tolist()


def short_numbers(values: np.ndarray) -> list[float | None]:
    """Return float32 numbers as Python floats with few digits, and None for numbers that are not finite.

    A float has the fewest digits that round to the float32 number.
    """
    floats = (float(text) for text in values.astype(np.float32).astype(str))
    return [value if math.isfinite(value) else None for value in floats]
