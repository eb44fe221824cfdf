"""What a step reads of its rows, in chunks of bounded size, known before anything is computed."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surelock.decoding.step import Plan, Whole, even

_LEAST_READ = 4  # rows whose posteriors are read at once, however large the vocabulary
_LEAST_ROWS = 55  # whose logits are made at once, at most 32 MiB at 150,000 tokens: every time reads the whole head


def chunk_rows(table_bytes: int, row_bytes: int) -> tuple[int, int]:
    """Return for how many rows at once logits are made, and posteriors read: about ten tables of `table_bytes`."""
    few = table_bytes // row_bytes
    return max(_LEAST_ROWS, few), max(_LEAST_READ, few)


@dataclass(slots=True, eq=False)
class ReadPlan:
    """The K read rows of a plan, in chunks.

    arrays: for the device, int64 but for `uniform`. Rows count from the first of their chunk.
        chosen [C]: the rows that may be committed.
        inputs [C]: the tokens that stand there, only where they are measured.
        banned_at, banned: tokens that candidates must not become; candidates count from the first of their chunk.
        compared, compared_slots: the rows that have a KL from a kept posterior, and their slots.
        uniform [C, W]: float64, the random numbers of `choose_by_span`, only where it is used.
        kept, kept_slots: the rows whose posteriors are kept, and their slots; kept_rows: these, counted from row 0.
    """

    # whose logits are made at once, and the chunks that are read at once
    parts: list[tuple[slice, list[slice]]]
    # the prefixes of what follows: "observed " for KLs that no rule needs, "" for the others
    groups: list[str]
    arrays: dict[str, NDArray]
    # the rows, counted from row 0, that the numbers of an array are of; ascending
    places: dict[str, Whole]
    infinite: Whole  # the rows that are compared while nothing is kept of them

    def in_chunk(self, name: str, chunk: slice) -> slice:
        """Return which numbers of an array are those of a chunk."""
        start, stop = np.searchsorted(self.places[name], (chunk.start, chunk.stop)).tolist()
        return slice(start, stop)


def plan_reading(plan: Plan, has: NDArray[np.bool_], made: int, read: int) -> ReadPlan:
    """Return what is read of a plan. has: [slots], whether a posterior is kept. made, read: the most rows at once."""
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
    """Return `Reading.likeliest` of a plan.

    of_kept: slots whose posteriors the step has kept -> their likeliest tokens.
    logits: rows of the plan -> theirs, [K, V]. A probed row keeps the posterior of its last step as an active row.
    """
    tokens = np.full(len(plan.slots), -1)
    kept = plan.watches & ~plan.probed
    tokens[kept] = of_kept(plan.slots[kept])
    probed = np.flatnonzero(plan.watches & plan.probed)
    if len(probed):
        tokens[probed] = logits(probed).argmax(axis=1)
    return tokens
