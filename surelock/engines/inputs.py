"""What the layers of the torch engine get of a plan: arrays for the device, and numbers that stay on the host."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from surelock.config import NetworkConfig
from surelock.decoding.step import Layout, Plan
from surelock.engines.attention import Segments, segment_arrays
from surelock.engines.cache import Rows


@dataclass(slots=True)
class Inputs:
    """Inputs of the packed forward of a step, for all passes."""

    arrays: dict[str, NDArray]  # `tokens` [R] int64, those of `Rows`, of `Segments`, and ("read_...") of read ones
    counts: list[int]  # as in `Rows`
    lengths: list[int]  # as in `Rows`
    read_counts: list[int]  # as in `Rows`
    bucket: int = 0  # the number of rows that they are filled up to; 0 if they are not

    def rows(self, tensors: Mapping[str, Tensor]) -> Rows:
        """Return the rows, of tensors of the arrays' names."""

        def segments(prefix: str, counts: list[int]) -> Segments | None:
            if f"{prefix}rows" not in tensors:
                return None
            edges, starts, seen = tensors[f"{prefix}rows"], tensors[f"{prefix}starts"], tensors.get(f"{prefix}seen")
            return Segments(edges, starts, seen, self.bucket or max(counts), max(self.lengths))

        return Rows(
            tensors["positions"],
            tensors["slots"],
            self.counts,
            self.lengths,
            tensors.get("written"),
            tensors.get("read"),
            self.read_counts,
            tensors.get("around"),
            segments("", self.counts),
            segments("read_", self.read_counts),
        )


def around(
    positions: NDArray[np.int64], slots: NDArray[np.int64], counts: Sequence[int], lengths: Sequence[int]
) -> NDArray[np.int64]:
    """Return `Rows.around`. Beside the first and the last position of a sequence lies the zero of the cache."""
    last, zero = np.repeat(lengths, counts) - 1, sum(lengths) + 1
    before, behind = np.where(positions > 0, slots - 1, zero), np.where(positions < last, slots + 1, zero)
    return np.stack((before, slots, behind), axis=1)


def inputs_of(config: NetworkConfig, layout: Layout, plan: Plan, varlen: bool, bucket: int = 0) -> Inputs:
    """Return the inputs of a plan that has rows.

    varlen: whether segments are attended to. Otherwise sequences are, one after the other where they differ.
    bucket: with segments, the number of rows to fill up with rows of no effect, which write to the spare slot; all rows
    then pass all layers. 0 fills up none, and the last layer computes the read rows alone.
    """
    passes, total, count = layout.passes, sum(layout.lengths), len(plan.slots)
    offsets = np.arange(passes)[:, None]
    tokens = plan.tokens if plan.blind is None else np.concatenate((plan.tokens, plan.blind))
    arrays = {
        "tokens": tokens,
        "positions": np.tile(plan.positions, passes),
        "slots": (plan.slots + total * offsets).ravel(),
    }
    spare, counts, lengths = passes * total, plan.counts * passes, [*layout.lengths] * passes
    if bucket or plan.probed.any():
        arrays["written"] = np.where(np.tile(plan.probed, passes), spare, arrays["slots"])
    read_counts = []
    if bucket:
        more = bucket - passes * count
        fill = {"tokens": 0, "positions": 0, "slots": spare, "written": spare}
        arrays = {name: np.append(array, np.full(more, fill[name])) for name, array in arrays.items()}
        counts = [*counts[:-1], counts[-1] + more]
    elif 0 < len(plan.read) < count:
        arrays["read"] = (plan.read + count * offsets).ravel()
        read_counts = np.diff(np.searchsorted(plan.read, np.cumsum([0, *plan.counts]))).tolist() * passes
    if config.conv_layers:
        arrays["around"] = around(arrays["positions"], arrays["slots"], counts, lengths)
    if varlen:
        arrays |= segment_arrays(config, arrays["positions"], counts, lengths)
    if varlen and read_counts:
        segments = segment_arrays(config, arrays["positions"][arrays["read"]], read_counts, lengths)
        arrays |= {f"read_{name}": array for name, array in segments.items()}
    return Inputs(arrays, counts, lengths, read_counts, bucket)
