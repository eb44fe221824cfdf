"""The cells of a run, one per step and position, from steps or from a trace; and pandas tables of cells."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from surelock.decoding.compute import Both
from surelock.decoding.decoder import Decoder
from surelock.decoding.step import Ended, Flags, Step, Whole
from surelock.model.language_model import LanguageModel
from surelock.trace.format import (
    TraceError,
    bytes_to_kl,
    decode_bytes,
    decode_tokens,
    from_runs,
    load_document,
    masked_before,
    opening,
)
from surelock.trace.lanes import Lane, is_from_outside
from surelock.trace.pieces import Pieces
from surelock.values import Json, frozen

#: The states of a cell, as in assets/js/trace/trace.js. "masked" and "active" are computed in the step. A cell that is
#: not computed is "waiting" if it is masked, otherwise "locked" or "resting".
STATES = ("masked", "active", "locked", "resting", "waiting")
Run = str | Path | Json | Iterator[Step] | list[Step]
T = TypeVar("T", Step, Ended)


@frozen(eq=False)
class Cells:
    """The cells of a sequence. Arrays are [steps, N]."""

    sequence: int | str  # number of the sequence in the batch, or id of the lane in a trace
    steps: Whole  # [steps] int64, numbers of the steps
    tokens: Whole  # int64, tokens after the step; -1 at masks
    computed: Flags  # computed by the step
    locked: Flags  # locked after the step
    taken_back: Flags  # masked again by the policy before the step; the step may have written the position again
    kl: NDArray  # float64, in nats; NaN where the step has no KL
    confidence: NDArray  # float64; NaN where the step has no confidence
    guess: Whole  # int64, the most likely token of a computed position that was masked before the commit; -1 if unknown
    pieces: Json  # by token id as text, its piece, as traces have them

    @property
    def states(self) -> NDArray[np.uint8]:
        """The cells as indices of STATES. A position is active in a step that computes and locks it."""
        masked, active, locked, resting, waiting = range(len(STATES))
        written = np.where(self.computed, active, np.where(self.locked, locked, resting))
        unwritten = np.where(self.computed, masked, waiting)
        return np.where(self.tokens < 0, unwritten, written).astype(np.uint8)

    def frame(self) -> pd.DataFrame:
        """Return the cells as a table with the columns of `table`, and a column `guess`, <NA> where unknown."""
        count, size = self.tokens.shape
        place = "lane" if isinstance(self.sequence, str) else "sequence"
        token = self.tokens.ravel()
        guess = self.guess.ravel()
        texts = {
            token_id: text_of_piece(self.pieces.get(str(token_id)))
            for token_id in np.unique(token).tolist()
            if token_id >= 0
        }
        return pd.DataFrame(
            {
                "step": np.repeat(self.steps, size),
                place: self.sequence,
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
    """Return a run as a table with a row per step, sequence (in a trace: lane) and position.

    run: the steps of `surelock.decode`, or a trace (a path, or a parsed document).
    lm: the model of the steps, for the tokens' texts.

    The columns are:
    step: number of the step, from 0.
    sequence: number of the sequence in the batch, from 0. A trace has the column lane instead, the id of the lane.
    position: position in the sequence, from 0.
    token: token id after the step; <NA> at masks.
    text: the token's text.
    masked, locked: whether the position is masked or locked after the step.
    computed: whether the step computed the row.
    taken_back: whether the policy masked the position again before the step. The step may have written it again.
    kl: step-wise KL in nats; infinite if the row had no earlier posterior, NaN if unknown.
    confidence: the largest probability; NaN if unknown.
    Steps that were decoded with `observe=True` have kl and confidence of every computed row.

    Raises TraceError (a ValueError) for another format or a damaged trace, OSError if the file cannot be read, and
    ValueError for a run without a step.
    """
    every = cells_of(run, lm)
    if not any(cells.tokens.size for cells in every):
        raise ValueError("a table needs a run of at least one step")
    return pd.concat([cells.frame() for cells in every], ignore_index=True).drop(columns="guess")


def cells_of(run: Run, lm: LanguageModel | None = None) -> list[Cells]:
    """Return the cells by sequence or lane. Raises what `table` raises."""
    if isinstance(run, str | Path | dict):
        document = load_document(run)
        return [lane_cells(document, lane["id"]) for lane in document["header"]["lanes"]]
    steps = list(run)
    sizes: list[int] = []
    if steps:  # the first step computes every position that neither rests nor is a pad
        sizes = (steps[0].computed | steps[0].resting).sum(axis=1).tolist()
    runs = zip(*(split_step(step, sizes) for step in steps), strict=True)
    return [_step_cells(b, run, lm) for b, run in enumerate(runs)]


def split_step(step: Step, sizes: Sequence[int]) -> Iterator[Step]:
    """Yield, by sequence, a step that contains only the sequence, without pads and logits.

    sizes: [B], by sequence, its number of positions.
    """
    batch = len(step.tokens)
    step = replace(step, commit_logits=None)
    for b, size in enumerate(sizes):
        ended = None if step.ended is None else _alone(step.ended, b, size)
        shares = [share._replace(sequence=0) for share in step.shares if share.sequence == b]
        yield replace(
            _alone(step, b, size), seconds=step.seconds / batch, ended=ended, shares=shares
        )


def _alone(step: T, b: int, size: int) -> T:
    """Return a `Step` or an `Ended` whose arrays contain only sequence b. size: its number of positions."""
    arrays = {
        field.name: value
        for field in fields(step)
        if isinstance(value := getattr(step, field.name), np.ndarray)
    }
    rows = {name: value[b : b + 1] for name, value in arrays.items()}
    return replace(
        step,
        **{name: value[:, -size:] if value.ndim > 1 else value for name, value in rows.items()},
    )


def _step_cells(b: int, steps: tuple[Step, ...], lm: LanguageModel | None) -> Cells:
    """Return the cells of sequence b. steps: steps that contain only this sequence."""
    names = ("tokens", "masked", "computed", "locked", "taken_back", "kl", "confidence")
    parts = {name: np.stack([getattr(step, name)[0] for step in steps]) for name in names}
    tokens = np.where(parts.pop("masked"), -1, parts.pop("tokens"))
    unknown = np.full_like(tokens, -1)
    pieces = Pieces(lm and lm.tokenizer).look_up(np.unique(tokens[tokens >= 0]).tolist())
    return Cells(
        b, np.array([step.index for step in steps]), tokens, **parts, guess=unknown, pieces=pieces
    )


def lane_cells(document: Json, lane: str) -> Cells:
    """Return the cells of a lane of a trace document. lane: its id."""
    header = document["header"]
    size = document["header"]["length"]
    records = [record for record in document["records"] if record["lane"] == lane]
    shape = len(records), size
    token = opening(header)
    lock = np.zeros(size, dtype=bool)
    tokens = np.empty(shape, dtype=np.int64)
    guess = np.full(shape, -1)
    computed, locked, taken_back = np.zeros((3, *shape), dtype=bool)
    kl = np.full(shape, np.nan)
    confidence = np.full(shape, np.nan)
    for row, (record, masked) in enumerate(
        zip(records, masked_before(header, records), strict=True)
    ):
        token[masked] = -1
        for position, token_id in _written(record):
            token[position] = token_id
        taken_back[row, record.get("taken_back", [])] = True
        lock[record.get("unlocked", [])] = False
        lock[record["locked"]] = True
        tokens[row] = token
        locked[row] = lock
        where = from_runs(record["computed"], size)
        computed[row, where] = True
        if "guess" in record:
            masks = where[masked[where]]
            guess[row, masks] = decode_tokens(record["guess"], len(masks))
        kl[row, where], confidence[row, where] = _values(record)
    steps = np.array([record["step"] for record in records], dtype=np.int64)
    return Cells(
        lane, steps, tokens, computed, locked, taken_back, kl, confidence, guess, document["pieces"]
    )


def _written(record: Json) -> Iterator[list[int]]:
    """Yield [position, token id] of all tokens that a record writes, in the order in which they are written."""
    yield from record.get("written", ())
    yield from record["unmasked"]
    yield from record.get("filled", ())


def _values(record: Json) -> tuple[NDArray, NDArray]:
    """Return KLs and confidences of a record's computed positions, float64 each."""
    kl = record["kl"]
    confidence = record["confidence"]
    if isinstance(confidence, str):
        confidence = decode_bytes(confidence) / 255
    if isinstance(kl, str):
        return bytes_to_kl(decode_bytes(kl)), np.asarray(confidence, float)
    kls = [np.inf if value is None else value for value in kl]
    return np.asarray(kls, float), np.asarray(confidence, float)


def text_of_piece(piece: str | list[int] | None) -> str | None:
    """Return the text of a piece, with an escape for every byte that is not valid text."""
    return bytes(piece).decode("utf-8", "backslashreplace") if isinstance(piece, list) else piece


@frozen
class Trace:
    """The tables of one race. All tables have the column `lane`, the id of the lane.

    header: the header of the file, a dictionary: model, prompt, prompt_tokens, lanes, length N, steps.
    lanes: a row per lane: name, compute and unmask (kinds of the rule and the policy), parent (the lane from which it
    branched), decoder (a `surelock.Decoder`, to repeat the run; None if the module of its rule is not imported), engine
    (None if unknown), exact (see `read_trace`).
    steps: a row per lane and step: step, seconds, flops, baseline_flops, computed (number of rows), unmasked (number of
    committed tokens), taken_back (number of tokens that the policy masked again before the step), locked (number of
    locked positions after the step), regret (<NA> if unknown).
    positions: a row per lane and position, at the end of the run: position, prompt (whether it belongs to the prompt),
    token, piece (the token's text), unmask_step, lock_step, commit_error (nats). A value is <NA> if the event did not
    happen, was undone, or is unknown.
    values: a row per lane, step and computed position: step, position, kl (nats; infinite if there was no earlier
    posterior), confidence, guess (the most likely token of a position that was masked before the commit; <NA> if
    unknown).
    """

    header: Json
    lanes: pd.DataFrame
    steps: pd.DataFrame
    positions: pd.DataFrame
    values: pd.DataFrame


def read_trace(source: str | Path | Json) -> Trace:
    """Read a trace into DataFrames. source: the trace's path, or the parsed document.

    A trace that is exported while the server still keeps its run has exact KLs and confidences. In the recorded run,
    and in traces of runs that the server has dropped, a value is one byte: KLs are rounded to a scale with steps of
    14 %, confidences to multiples of 1/255, and `exact` is False for the lane.

    The modules of rules from outside are not needed. If such a module is not imported, the tables are complete, the
    lane's decoder is None, and a warning names the rule.

    Raises TraceError (a ValueError) for another format or a damaged trace, OSError if the file cannot be read.
    """
    document = load_document(source)
    header = document["header"]
    pieces = document["pieces"]
    records = document["records"]
    field = header["lanes"]
    decoders = [_decoder(lane) for lane in field]
    ids = [lane["id"] for lane in field]
    positions = []
    exact = []
    for lane in ids:
        lane_records = [record for record in records if record["lane"] == lane]
        positions.append(positions_of(header, pieces, lane_records, lane))
        stored = [record[key] for record in lane_records for key in ("kl", "confidence")]
        exact.append(not any(isinstance(numbers, str) for numbers in stored))  # str: base64 bytes
    lanes = pd.DataFrame(
        {
            "lane": ids,
            "name": [lane["name"] for lane in field],
            "compute": [_kinds(lane["compute"]) for lane in field],
            "unmask": [lane["unmask"]["kind"] for lane in field],
            "parent": [lane.get("parent") for lane in field],
            "decoder": pd.Series(decoders, dtype=object),
            "engine": [lane.get("engine", header.get("engine")) for lane in field],
            "exact": exact,
        }
    )
    cells = [lane_cells(document, lane).frame().query("computed") for lane in ids]
    values: Any = pd.concat(cells, ignore_index=True)
    values = values[["lane", "step", "position", "kl", "confidence", "guess"]]
    return Trace(header, lanes, steps_of(records), pd.concat(positions, ignore_index=True), values)


def _decoder(lane: Json) -> Decoder | None:
    """Return the decoder of a lane, or None with a warning if it has a rule from outside that is not known."""
    try:
        return Lane.from_plain(lane).decoder
    except ValueError as error:
        if not is_from_outside(lane):
            raise TraceError(f"The trace is damaged: {error}.") from error
        warnings.warn(f"the decoder of lane {lane['id']!r} is None: {error}", stacklevel=3)
        return None


def _kinds(compute: Json) -> str:
    """Return the kinds of a compute rule's JSON form, as `ComputeRule.kinds`."""
    if compute["kind"] == Both.kind:
        return f"{compute['lock']['kind']}+{compute['select']['kind']}"
    return compute["kind"]


def steps_of(records: list[Json]) -> pd.DataFrame:
    """Return `Trace.steps` of a trace's records."""
    columns = ["lane", "step", "seconds", "flops", "baseline_flops"]
    frame = pd.DataFrame(
        [{key: record[key] for key in columns} for record in records], columns=columns
    )
    frame["computed"] = [sum(record["computed"][1::2]) for record in records]
    frame["unmasked"] = [len(record["unmasked"]) for record in records]
    frame["taken_back"] = [len(record.get("taken_back", ())) for record in records]
    change = pd.Series(
        [len(r["locked"]) - len(r.get("unlocked", ())) for r in records], dtype="int64"
    )
    frame["locked"] = change.groupby(frame["lane"]).cumsum()
    frame["regret"] = pd.array([record.get("regret") for record in records], dtype="Float64")
    return frame


def positions_of(header: Json, pieces: Json, records: list[Json], lane: str) -> pd.DataFrame:
    """Return `Trace.positions` of one lane. records: the records of the lane."""
    n = header["length"]
    prompt = opening(header)
    token: list[Any] = [pd.NA if token_id < 0 else token_id for token_id in prompt.tolist()]
    unmasked: list[Any] = [pd.NA] * n
    locked: list[Any] = [pd.NA] * n
    error: list[Any] = [pd.NA] * n
    for record in records:  # events come before the step's own commits
        for position in (*record.get("masked", ()), *record.get("taken_back", ())):
            token[position] = unmasked[position] = error[position] = pd.NA
        for position, token_id in _written(record):
            if token[position] is pd.NA:
                unmasked[position] = record["step"]
            token[position] = token_id
            error[position] = pd.NA
        for (position, _), nats in zip(
            record["unmasked"], record.get("commit_error", ()), strict=False
        ):
            error[position] = pd.NA if nats is None else nats
        for position in record.get("unlocked", ()):
            locked[position] = pd.NA
        for position in record["locked"]:
            locked[position] = record["step"]
    return pd.DataFrame(
        {
            "lane": lane,
            "position": np.arange(n),
            "prompt": prompt >= 0,
            "token": pd.array(token, dtype="Int64"),
            "piece": [None if t is pd.NA else text_of_piece(pieces.get(str(t))) for t in token],
            "unmask_step": pd.array(unmasked, dtype="Int64"),
            "lock_step": pd.array(locked, dtype="Int64"),
            "commit_error": pd.array(error, dtype="Float64"),
        }
    )
