"""The plan of reading posteriors: which rows are read, in chunks of bounded size. Made before rows are computed."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surelock.decoding.step import Plan, Whole, even

_LEAST_READ = (
    4  # smallest number of rows whose posteriors are read at once, however large the vocabulary
)
# Smallest number of rows whose logits are computed at once. At 150,000 tokens they take 32 MiB. Every computation reads
# all weights of the head, so a smaller number would be slow.
_LEAST_ROWS = 55


def chunk_rows(table_bytes: int, row_bytes: int) -> tuple[int, int]:
    """Return (number of rows whose logits are computed at once, number of rows whose posteriors are read at once).

    table_bytes: wanted size of a table [rows, V] in bytes. row_bytes: size of a row.
    """
    few = table_bytes // row_bytes
    return max(_LEAST_ROWS, few), max(_LEAST_READ, few)


@dataclass(slots=True, eq=False)
class ReadPlan:
    """The K read rows of a plan, in chunks.

    arrays: arrays for the device, by name. They are int64, except `uniform`. A row number counts from the first row of
    its chunk.
        chosen [C]: row numbers of the candidates.
        inputs [C]: the candidates' input tokens. Only there if the plan measures "input".
        banned_at, banned: pairs of a candidate and a token that the candidate must not become. A candidate's number
            counts from the first candidate of its chunk.
        compared, compared_slots: row numbers and slots of rows with a KL from a kept posterior.
        uniform [C, W]: float64, the random numbers for `choose_by_span`. Only there if that function is used.
        kept, kept_slots: row numbers and slots of rows whose posteriors are kept. kept_rows: their numbers among all K.
    """

    # (rows whose logits are computed at once, their chunks: rows whose posteriors are read at once)
    parts: list[tuple[slice, list[slice]]]
    # prefixes of the names compared..., kept... in `arrays`: "observed " for KLs that no rule needs, otherwise ""
    groups: list[str]
    arrays: dict[str, NDArray]
    # by name of an array, the row of every entry, numbered among all K, ascending
    places: dict[str, Whole]
    infinite: Whole  # rows that should be compared, but have no kept posterior

    def in_chunk(self, name: str, chunk: slice) -> slice:
        """Return the part of an array that belongs to a chunk."""
        start, stop = np.searchsorted(self.places[name], (chunk.start, chunk.stop)).tolist()
        return slice(start, stop)


def plan_reading(plan: Plan, has: NDArray[np.bool_], made: int, read: int) -> ReadPlan:
    """Return the plan of reading.

    has: [slots] bool, whether a posterior of the slot is kept.
    made: the largest number of rows whose logits are computed at once.
    read: the largest number of rows whose posteriors are read at once.
    """
    rows = plan.read
    slots = plan.slots[plan.read]
    parts = []
    first = np.zeros(len(rows), dtype=np.int64)  # by row, the first row of its chunk
    for part in even(len(rows), made):
        few = even(part.stop - part.start, read)
        chunks = [slice(part.start + chunk.start, part.start + chunk.stop) for chunk in few]
        parts.append((part, chunks))
        for chunk in chunks:
            first[chunk] = chunk.start
    chosen = np.flatnonzero(plan.choice.read[rows])
    at, banned = plan.choice.barred if len(chosen) else plan.choice.barred[:, :0]
    places = {"chosen": chosen, "banned": chosen[at]}
    arrays: dict[str, NDArray] = {"chosen": chosen - first[chosen], "banned": banned}
    if "input" in plan.choice.measures:
        arrays["inputs"] = plan.tokens[rows[chosen]]
    arrays["banned_at"] = at - np.searchsorted(chosen, first[chosen[at]])
    masks = {"observed ": (~plan.compares, ~plan.watches)} if plan.observe else {}
    masks[""] = plan.compares, plan.watches
    infinite = []
    for group, (compares, watches) in masks.items():
        compared = np.flatnonzero(compares[rows])
        kept = np.flatnonzero((watches & ~plan.probed)[rows])
        has_posterior = has[slots[compared]]
        infinite.append(compared[~has_posterior])
        for name, read_rows in (
            (f"{group}compared", compared[has_posterior]),
            (f"{group}kept", kept),
        ):
            places[name] = read_rows
            arrays |= {name: read_rows - first[read_rows], f"{name}_slots": slots[read_rows]}
        arrays[f"{group}kept_rows"] = kept
    return ReadPlan(parts, list(masks), arrays, places, np.concatenate(infinite))


def likeliest_of(
    plan: Plan, of_kept: Callable[[Whole], Whole], logits: Callable[[Whole], NDArray]
) -> Whole:
    """Return `Reading.likeliest` for a plan.

    of_kept: a function from slots [K] to the most likely tokens [K] of their kept posteriors.
    logits: a function from rows [K] of the plan to their logits [K, V]. Probed rows need it, because the kept posterior
    of a probed row is of an earlier step.
    """
    tokens = np.full(len(plan.slots), -1)
    kept = plan.watches & ~plan.probed
    tokens[kept] = of_kept(plan.slots[kept])
    probed = np.flatnonzero(plan.watches & plan.probed)
    if len(probed):
        tokens[probed] = logits(probed).argmax(axis=1)
    return tokens
