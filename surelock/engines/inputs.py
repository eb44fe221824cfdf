"""What the layers of the torch engine get of a plan: arrays, which go to a device in one copy, and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from surelock.config import NetworkConfig
from surelock.decoding.step import Layout, Plan, Whole
from surelock.engines.attention import Segments, segment_arrays

_ALIGNED = 16  # bytes


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one step, for all passes, in the order of the flat axis.

    arrays: of numpy, or tensors of a device. int64, but for those of `Segments`:
        tokens, positions [R]: of each row, the position in its sequence; slots [R]: its place on the flat axis.
        written [R]: where each row writes: its slot, or the spare one if it is probed. Missing: in their slots.
        read [K]: ascending, the rows whose posteriors are read. Missing: all.
        around [R, 3]: the slots before, of and behind the row, for layers that convolve.
        rows, starts, seen: of `Segments`. Missing: sequences are attended to one after the other.
        read_rows, read_starts, read_seen: the same of the read rows, if both are given.
    """

    arrays: Mapping[str, Any]
    counts: list[int]  # the number of rows of each sequence
    lengths: list[int]  # the number of positions of each sequence
    read_counts: list[int] = field(default_factory=list)  # the number of read rows of each, if `read` is given
    bucket: int = 0  # the number of rows that they are filled up to; 0 if they are not

    def of(self, tensors: Mapping[str, Tensor]) -> Rows:
        """Return the same rows with tensors of the arrays' names."""
        return replace(self, arrays={name: tensors[name] for name in self.arrays})

    def to(self, device: torch.device) -> Rows:
        return self.of({name: tensor.to(device) for name, tensor in self.arrays.items()})

    def segments(self, read: bool) -> Segments | None:
        """Return the segments of all rows or of the read ones."""
        prefix, counts = ("read_", self.read_counts) if read else ("", self.counts)
        if f"{prefix}rows" not in self.arrays:
            return None
        edges, starts = (self.arrays[f"{prefix}{name}"] for name in ("rows", "starts"))
        return Segments(edges, starts, self.arrays.get(f"{prefix}seen"), self.bucket or max(counts), max(self.lengths))


def around(positions: Whole, slots: Whole, counts: Sequence[int], lengths: Sequence[int]) -> Whole:
    """Return `around` of `Rows`. Beside the first and the last position of a sequence lies the zero of the cache."""
    last, zero = np.repeat(lengths, counts) - 1, sum(lengths) + 1
    before, behind = np.where(positions > 0, slots - 1, zero), np.where(positions < last, slots + 1, zero)
    return np.stack((before, slots, behind), axis=1)


def rows_of(config: NetworkConfig, layout: Layout, plan: Plan, varlen: bool, bucket: int = 0) -> Rows:
    """Return the rows of a plan that has rows.

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
    return Rows(arrays, counts, lengths, read_counts, bucket)


def upload(arrays: Mapping[str, NDArray], device: torch.device) -> dict[str, Tensor]:
    """Copy arrays to a device, all of them at once. The host does not wait for the copy.

    Returns tensors of the arrays' names, dtypes and shapes. On a CPU they share the memory of the arrays.
    """
    if device.type == "cpu":
        return {name: torch.from_numpy(array) for name, array in arrays.items()}
    host, places = pack(arrays, pinned=device.type == "cuda")
    return unpack(host.to(device, non_blocking=True), arrays, places)


def pack(arrays: Mapping[str, NDArray], pinned: bool) -> tuple[Tensor, dict[str, slice]]:
    """Return the bytes of arrays behind one another, [bytes] uint8, and the place of each. pinned: page-locked."""
    places, stop = {}, 0
    for name, array in arrays.items():
        start = -(-stop // _ALIGNED) * _ALIGNED
        stop = start + array.nbytes
        places[name] = slice(start, stop)
    host = torch.empty(stop, dtype=torch.uint8, pin_memory=pinned)
    packed = host.numpy()
    for name, array in arrays.items():
        packed[places[name]] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return host, places


def unpack(packed: Tensor, arrays: Mapping[str, NDArray], places: Mapping[str, slice]) -> dict[str, Tensor]:
    dtypes = {name: torch.from_numpy(array[:0]).dtype for name, array in arrays.items()}
    return {name: packed[place].view(dtypes[name]).view(arrays[name].shape) for name, place in places.items()}
