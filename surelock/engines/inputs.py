"""What the layers of the torch engine get of a plan: arrays, which go to a device in one copy, and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from surelock.config import NetworkConfig
from surelock.decoding.step import NO_ROWS, Choice, Layout, Plan, Whole
from surelock.engines.attention import Segments, segment_arrays
from surelock.values import Fields, frozen

_ALIGNED = 16  # bytes
_LEAST_STEP = 64  # slots


class Room(NamedTuple):
    """How much a memory holds: layouts of equal rooms may use it one after the other."""

    sequences: int  # of one pass
    passes: int
    slots: int  # of one pass, at least those of the layout
    longest: int  # at least the positions of its longest sequence
    once: bool  # see `Layout`

    @classmethod
    def for_layout(cls, layout: Layout, rounded: bool) -> Room:
        """Return the room for a layout. rounded: up, so that prompts of about one length share it."""
        slots, longest = sum(layout.lengths), max(layout.lengths)
        if rounded:
            slots, longest = _round_up(slots), _round_up(longest)
        return cls(len(layout.lengths), layout.passes, slots, longest, layout.once)

    @property
    def spare(self) -> int:
        """The spare slot, behind those of all passes."""
        return self.passes * self.slots


def _round_up(count: int) -> int:
    """Round up to a multiple of 64, a larger count by at most an eighth."""
    step = max(_LEAST_STEP, 2 ** (count.bit_length() - 4))
    return -(-count // step) * step


@frozen
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

    arrays: Fields
    counts: list[int]  # the number of rows of each sequence
    lengths: list[int]  # the number of positions of each sequence
    read_counts: list[int] = field(default_factory=list)  # the number of read rows of each, if `read` is given
    bucket: int = 0  # the number of rows that they are filled up to; 0 if they are not
    longest: int = 0  # at least the positions of the longest sequence; 0 for these exactly

    @property
    def most_seen(self) -> int:
        """At least the number of slots that any row attends to."""
        return self.longest or max(self.lengths)

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> Rows:
        """Return the same rows with tensors of the arrays' names."""
        return replace(self, arrays={name: tensors[name] for name in self.arrays})

    def to(self, device: torch.device) -> Rows:
        return self.with_tensors({name: tensor.to(device) for name, tensor in self.arrays.items()})

    def segments(self, read: bool) -> Segments | None:
        """Return the segments of all rows or of the read ones."""
        prefix, counts = ("read_", self.read_counts) if read else ("", self.counts)
        if f"{prefix}rows" not in self.arrays:
            return None
        edges, starts = (self.arrays[f"{prefix}{name}"] for name in ("rows", "starts"))
        return Segments(edges, starts, self.arrays.get(f"{prefix}seen"), self.bucket or max(counts), self.most_seen)


def around(positions: Whole, slots: Whole, counts: Sequence[int], lengths: Sequence[int], spare: int) -> Whole:
    """Return `around` of `Rows`. Beside the first and the last position of a sequence lies the zero of the cache, which
    follows the spare slot.
    """
    last, zero = np.repeat(lengths, counts) - 1, spare + 1
    before, behind = np.where(positions > 0, slots - 1, zero), np.where(positions < last, slots + 1, zero)
    return np.stack((before, slots, behind), axis=1)


def rows_of(config: NetworkConfig, layout: Layout, room: Room, plan: Plan, varlen: bool, bucket: int = 0) -> Rows:
    """Return the rows of a plan that has rows, or is filled up.

    room: that of the memory, which the layout fits.
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
    spare, counts, lengths = room.spare, plan.counts * passes, [*layout.lengths] * passes
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
        arrays["around"] = around(arrays["positions"], arrays["slots"], counts, lengths, spare)
    if varlen:
        arrays |= segment_arrays(config, arrays["positions"], counts, lengths)
    if varlen and read_counts:
        segments = segment_arrays(config, arrays["positions"][arrays["read"]], read_counts, lengths)
        arrays |= {f"read_{name}": array for name, array in segments.items()}
    return Rows(arrays, counts, lengths, read_counts, bucket, room.longest)


def fillers(config: NetworkConfig, room: Room, bucket: int) -> Rows:
    """Return rows of no effect alone, as many as a graph has."""
    none = np.zeros(0, dtype=bool)
    blind = NO_ROWS if room.passes == 2 else None
    counts = [0] * room.sequences
    plan = Plan(0, NO_ROWS, counts, NO_ROWS, NO_ROWS, none, none, none, Choice(none), blind)
    layout = Layout((1,) * room.sequences, room.passes)
    return rows_of(config, layout, room, plan, varlen=True, bucket=bucket)


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
