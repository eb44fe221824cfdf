"""The cells of a run: what each step did to each position, from steps or from a trace; and the table of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from surelock.decoding.step import Flags, Step, Whole
from surelock.model.language_model import LanguageModel
from surelock.trace.format import (
    bytes_to_kl,
    decode_bytes,
    decode_tokens,
    from_runs,
    load_document,
    masked_before,
    opening,
)
from surelock.trace.pieces import Pieces

#: As in assets/js/trace/trace.js: a cell is masked or not, computed in this step or not, locked or not.
STATES = ("masked", "active", "locked", "resting", "waiting")
Run = str | Path | dict[str, Any] | Iterator[Step] | list[Step]


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """The cells of a sequence. Arrays are [steps, N]."""

    sequence: int | str  # its number in the batch, or the id of the lane of a trace
    steps: Whole  # [steps] int64, their numbers
    tokens: Whole  # int64, after the step; -1 is masked
    computed: Flags
    locked: Flags
    taken_back: Flags  # masked again by the policy before the step, which may have written it anew
    kl: NDArray  # float64, NaN where the step has none
    confidence: NDArray  # float64, NaN where the step has none
    guess: Whole  # int64, the most likely token of a computed position that was masked before the commit; -1 if unknown
    pieces: dict[str, Any]  # the texts of the tokens, as a trace holds them

    @property
    def states(self) -> NDArray[np.uint8]:
        """The states of the positions, as indices of STATES."""
        masked, active, locked, resting, waiting = range(len(STATES))
        written = np.where(self.locked, locked, np.where(self.computed, active, resting))
        return np.where(self.tokens < 0, np.where(self.computed, masked, waiting), written).astype(np.uint8)

    def frame(self) -> pd.DataFrame:
        """Return the cells as a table, see `table`, with the guesses, <NA> where unknown."""
        count, size = self.tokens.shape
        token, guess = self.tokens.ravel(), self.guess.ravel()
        texts = {each: text_of_piece(self.pieces.get(str(each))) for each in np.unique(token).tolist() if each >= 0}
        return pd.DataFrame(
            {
                "step": np.repeat(self.steps, size),
                "sequence": self.sequence,
                "position": np.tile(np.arange(size), count),
                "token": pd.arrays.IntegerArray(token, token < 0),
                "text": pd.Series(token).map(texts).astype("category"),
                "masked": token < 0,
                "computed": self.computed.ravel(),
                "locked": self.locked.ravel(),
                "taken_back": self.taken_back.ravel(),
                "kl": self.kl.ravel(),
                "confidence": self.confidence.ravel(),
                "guess": pd.arrays.IntegerArray(guess, guess < 0),
            }
        )


def table(run: Run, lm: LanguageModel | None = None) -> pd.DataFrame:
    """Return a run as a table with a row for each step, sequence and position.

    run: the steps of `surelock.decode`, or a trace (a path, or a parsed document).
    lm: the model of steps, for their texts.

    The columns: step, sequence (the number in the batch from 0; the id of the lane of a trace), position, token (<NA>
    where masked), text, masked, computed, locked (after the step), taken_back (masked again by the policy before the
    step, which may have written it anew), kl (nats; infinite where a row had no earlier posterior, NaN where none is
    known), confidence. Steps decoded with `observe=True` have both of every computed row.
    Raises TraceError (a ValueError) for another format or a damaged trace, OSError if the file cannot be read, and
    ValueError without a step.
    """
    every = cells_of(run, lm)
    if not any(cells.tokens.size for cells in every):
        raise ValueError("a table needs a run of at least one step")
    return pd.concat([cells.frame() for cells in every], ignore_index=True).drop(columns="guess")


def cells_of(run: Run, lm: LanguageModel | None = None) -> list[Cells]:
    """Return the cells of each sequence or lane. Raises what `table` raises."""
    if isinstance(run, str | Path | dict):
        document = load_document(run)
        return [lane_cells(document, lane["id"]) for lane in document["header"]["lanes"]]
    steps = list(run)
    sizes = (steps[0].computed | steps[0].resting).sum(axis=1).tolist() if steps else []  # without pads
    runs = zip(*(split_step(step, sizes) for step in steps), strict=True)
    return [_step_cells(b, run, lm) for b, run in enumerate(runs)]


def split_step(step: Step, sizes: Sequence[int]) -> Iterator[Step]:
    """Yield the step of each sequence by itself, without pads and logits. sizes: [B], its positions."""
    batch, step = len(step.tokens), replace(step, commit_logits=None)
    part = {each.name: value for each in fields(Step) if isinstance(value := getattr(step, each.name), np.ndarray)}
    for b, size in enumerate(sizes):
        row = {name: value[b : b + 1] for name, value in part.items()}
        row = {name: value[:, -size:] if value.ndim > 1 else value for name, value in row.items()}
        yield replace(step, **row, seconds=step.seconds / batch)


def _step_cells(b: int, steps: tuple[Step, ...], lm: LanguageModel | None) -> Cells:
    names = ("tokens", "masked", "computed", "locked", "taken_back", "kl", "confidence")
    parts = {name: np.stack([getattr(step, name)[0] for step in steps]) for name in names}
    tokens = np.where(parts.pop("masked"), -1, parts.pop("tokens"))
    unknown = np.full_like(tokens, -1)
    pieces = Pieces(lm and lm.tokenizer).of(np.unique(tokens[tokens >= 0]).tolist())
    return Cells(b, np.array([step.index for step in steps]), tokens, **parts, guess=unknown, pieces=pieces)


def lane_cells(document: dict[str, Any], lane: str) -> Cells:
    header, size = document["header"], document["header"]["length"]
    records = [each for each in document["records"] if each["lane"] == lane]
    shape = len(records), size
    token, lock = opening(header), np.zeros(size, dtype=bool)
    tokens, guess = np.empty(shape, dtype=np.int64), np.full(shape, -1)
    computed, locked, taken_back = np.zeros((3, *shape), dtype=bool)
    kl, confidence = np.full(shape, np.nan), np.full(shape, np.nan)
    for row, (record, masked) in enumerate(zip(records, masked_before(header, records), strict=True)):
        token[masked] = -1
        for position, identity in (*record.get("written", ()), *record["unmasked"]):
            token[position] = identity
        taken_back[row, record.get("taken_back", [])] = True
        lock[record.get("unlocked", [])] = False
        lock[record["locked"]] = True
        tokens[row], locked[row] = token, lock
        where = from_runs(record["computed"], size)
        computed[row, where] = True
        if "guess" in record:
            masks = where[masked[where]]
            guess[row, masks] = decode_tokens(record["guess"], len(masks))
        kl[row, where], confidence[row, where] = _values(record)
    steps = np.array([record["step"] for record in records], dtype=np.int64)
    return Cells(lane, steps, tokens, computed, locked, taken_back, kl, confidence, guess, document["pieces"])


def _values(record: dict[str, Any]) -> tuple[NDArray, NDArray]:
    kl, confidence = record["kl"], record["confidence"]
    kls = bytes_to_kl(decode_bytes(kl)) if isinstance(kl, str) else [np.inf if v is None else v for v in kl]
    coded = isinstance(confidence, str)
    return np.asarray(kls, float), decode_bytes(confidence) / 255 if coded else np.asarray(confidence, float)


def text_of_piece(piece: str | list[int] | None) -> str | None:
    """Return the text of a piece, with an escape for each byte that is no text."""
    return bytes(piece).decode("utf-8", "backslashreplace") if isinstance(piece, list) else piece
