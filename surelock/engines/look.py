"""What a step reads of its rows, in chunks of bounded size, known before anything is computed."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surelock.decoding.step import Plan
from surelock.engines.chunks import even

Whole = NDArray[np.int64]


@dataclass(slots=True, eq=False)
class Look:
    """The K read rows of a plan, in chunks.

    parts: those whose logits are made at once, and of each the chunks whose posteriors are read at once.
    groups: the prefixes of what follows: "observed " for KLs that no rule needs, "" for the others.
    arrays: for the device, int64 but for `uniform`. Rows count from the first of their chunk.
        chosen [C]: the rows that may be committed.
        banned_at, banned: tokens that candidates must not become; candidates count from the first of their chunk.
        compared, compared_slots: the rows that have a KL from a kept posterior, and their slots.
        uniform [C, W]: float64, the random numbers of `choose_by_span`, only where it is used.
        kept, kept_slots: the rows whose posteriors are kept, and their slots; kept_rows: these, counted from row 0.
    places: the rows, counted from row 0, that the numbers of an array are of; ascending.
    infinite: the rows that are compared while nothing is kept of them.
    """

    parts: list[tuple[slice, list[slice]]]
    groups: list[str]
    arrays: dict[str, NDArray]
    places: dict[str, Whole]
    infinite: Whole

    def of(self, name: str, chunk: slice) -> slice:
        """Return which numbers of an array are those of a chunk."""
        start, stop = np.searchsorted(self.places[name], (chunk.start, chunk.stop)).tolist()
        return slice(start, stop)


def look_at(plan: Plan, has: NDArray[np.bool_], made: int, read: int) -> Look:
    """Return what is read of a plan.

    has: [slots], whether a posterior is kept.
    made, read: the most rows whose logits are made at once, and whose posteriors are read at once.
    """
    rows, slots = plan.read, plan.slots[plan.read]
    parts = [(part, _within(part, read)) for part in even(len(rows), made)]
    chunks = [chunk for _, own in parts for chunk in own]
    first = np.repeat([chunk.start for chunk in chunks], [chunk.stop - chunk.start for chunk in chunks]).astype(
        np.int64
    )
    chosen = np.flatnonzero(plan.choice.read[rows])
    at, banned = plan.choice.barred if len(chosen) else plan.choice.barred[:, :0]
    places = {"chosen": chosen, "banned": chosen[at]}
    arrays: dict[str, NDArray] = {"chosen": chosen - first[chosen], "banned": banned}
    arrays["banned_at"] = at - np.searchsorted(chosen, first[chosen[at]])
    masks = {"observed ": (~plan.compares, ~plan.watches)} if plan.observe else {}
    masks[""] = plan.compares, plan.watches
    infinite = []
    for group, (compares, watches) in masks.items():
        compared, kept = np.flatnonzero(compares[rows]), np.flatnonzero((watches & ~plan.probed)[rows])
        known = has[slots[compared]]
        infinite.append(compared[~known])
        for name, own in ((f"{group}compared", compared[known]), (f"{group}kept", kept)):
            places[name] = own
            arrays |= {name: own - first[own], f"{name}_slots": slots[own]}
        arrays[f"{group}kept_rows"] = kept
    return Look(parts, list(masks), arrays, places, np.concatenate(infinite))


def _within(part: slice, most: int) -> list[slice]:
    return [slice(part.start + few.start, part.start + few.stop) for few in even(part.stop - part.start, most)]
