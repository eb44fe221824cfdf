"""The inputs that a plan gives the layers of the torch engine: arrays, which go to a device in one copy, and counts."""

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
    """The size of a memory. Layouts of equal rooms may use the memory one after the other."""

    sequences: int  # of one pass
    passes: int
    slots: int  # of one pass, at least as many as the layout has
    longest: int  # at least the positions of the layout's longest sequence
    once: bool  # see `Layout`

    @classmethod
    def for_layout(cls, layout: Layout, rounded: bool) -> Room:
        """Return the room for a layout. rounded: whether to round up, so that prompts of about one length share it."""
        slots = sum(layout.lengths)
        longest = max(layout.lengths)
        if rounded:
            slots = _round_up(slots)
            longest = _round_up(longest)
        return cls(len(layout.lengths), layout.passes, slots, longest, layout.once)

    @property
    def spare(self) -> int:
        """The index of the spare slot, behind the slots of all passes."""
        return self.passes * self.slots


def _round_up(count: int) -> int:
    """Round up to a multiple of 64, or of more for a large count, by at most an eighth of it."""
    step = max(_LEAST_STEP, 2 ** (count.bit_length() - 4))
    return -(-count // step) * step


@frozen
class Rows:
    """The rows of one step, for all passes, in the order of the flat axis.

    arrays: of numpy, or tensors of a device. int64, but for those of `Segments`:
        tokens, positions [R]: the token of a row, and its position in the sequence.
        slots [R]: the place of a row on the flat axis.
        written [R]: where a row writes, its slot or, if it is probed, the spare one. Missing: as slots.
        read [K]: ascending, the rows whose posteriors are read. Missing: all.
        around [R, 3]: the slots before, of and behind a row, for layers that convolve.
        rows, starts, seen: see `Segments`. Missing: sequences are attended to one after the other.
        read_rows, read_starts, read_seen: the same for the read rows, if there are segments and `read`.
    """

    arrays: Fields
    counts: list[int]  # rows, by sequence
    lengths: list[int]  # positions, by sequence
    # read rows, by sequence; empty without `read`
    read_counts: list[int] = field(default_factory=list)
    bucket: int = 0  # the number of rows after filling up; 0 without filling up
    longest: int = 0  # at least the positions of the longest sequence; 0 for exactly as many

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
        """Return the segments of all rows or of the read rows; None if rows attend in sequences."""
        prefix, counts = ("read_", self.read_counts) if read else ("", self.counts)
        if f"{prefix}rows" not in self.arrays:
            return None
        edges = self.arrays[f"{prefix}rows"]
        starts = self.arrays[f"{prefix}starts"]
        seen = self.arrays.get(f"{prefix}seen")
        return Segments(edges, starts, seen, self.bucket or max(counts), self.most_seen)


def around(
    positions: Whole, slots: Whole, counts: Sequence[int], lengths: Sequence[int], spare: int
) -> Whole:
    """Return `around` of `Rows`. The first and the last position of a sequence have the cache's row of zeros, behind
    the spare slot, as a neighbour.
    """
    last = np.repeat(lengths, counts) - 1
    zero = spare + 1
    before = np.where(positions > 0, slots - 1, zero)
    behind = np.where(positions < last, slots + 1, zero)
    return np.stack((before, slots, behind), axis=1)


def rows_of(
    config: NetworkConfig, layout: Layout, room: Room, plan: Plan, varlen: bool, bucket: int = 0
) -> Rows:
    """Return the rows of a plan, which has some or is filled up.

    room: of the memory, at least the room of the layout.
    varlen: whether rows attend in segments. Otherwise in sequences, one after the other where they differ.
    bucket: with segments, the number of rows after filling up with rows of no effect, which write to the spare
    slot; all rows then pass all layers. 0 fills up none, and the last layer computes the read rows alone.
    """
    passes = layout.passes
    total = sum(layout.lengths)
    count = len(plan.slots)
    offsets = np.arange(passes)[:, None]
    tokens = plan.tokens if plan.blind is None else np.concatenate((plan.tokens, plan.blind))
    arrays = {
        "tokens": tokens,
        "positions": np.tile(plan.positions, passes),
        "slots": (plan.slots + total * offsets).ravel(),
    }
    spare = room.spare
    counts = plan.counts * passes
    lengths = [*layout.lengths] * passes
    if bucket or plan.probed.any():
        arrays["written"] = np.where(np.tile(plan.probed, passes), spare, arrays["slots"])
    read_counts = []
    if bucket:
        more = bucket - passes * count
        fill = {"tokens": 0, "positions": 0, "slots": spare, "written": spare}
        arrays = {
            name: np.append(array, np.full(more, fill[name])) for name, array in arrays.items()
        }
        counts = [*counts[:-1], counts[-1] + more]
    elif 0 < len(plan.read) < count:
        arrays["read"] = (plan.read + count * offsets).ravel()
        edges = np.cumsum([0, *plan.counts])  # of the sequences, among the rows
        read_counts = np.diff(np.searchsorted(plan.read, edges)).tolist() * passes
    if config.conv_layers:
        arrays["around"] = around(arrays["positions"], arrays["slots"], counts, lengths, spare)
    if varlen:
        arrays |= segment_arrays(config, arrays["positions"], counts, lengths)
    if varlen and read_counts:
        positions = arrays["positions"][arrays["read"]]
        segments = segment_arrays(config, positions, read_counts, lengths)
        arrays |= {f"read_{name}": array for name, array in segments.items()}
    return Rows(arrays, counts, lengths, read_counts, bucket, room.longest)


def fillers(config: NetworkConfig, room: Room, bucket: int) -> Rows:
    """Return `bucket` rows of no effect, for the capture of a graph."""
    none = np.zeros(0, dtype=bool)
    blind = NO_ROWS if room.passes == 2 else None
    counts = [0] * room.sequences
    plan = Plan(0, NO_ROWS, counts, NO_ROWS, NO_ROWS, none, none, none, Choice(none), blind)
    layout = Layout((1,) * room.sequences, room.passes)
    return rows_of(config, layout, room, plan, varlen=True, bucket=bucket)


def upload(arrays: Mapping[str, NDArray], device: torch.device) -> dict[str, Tensor]:
    """Copy arrays to a device, all at once. The host does not wait for the copy.

    Returns tensors of the arrays' names, dtypes and shapes. On a CPU they share the arrays' memory.
    """
    if device.type == "cpu":
        return {name: torch.from_numpy(array) for name, array in arrays.items()}
    host, places = pack(arrays, pinned=device.type == "cuda")
    return unpack(host.to(device, non_blocking=True), arrays, places)


def pack(arrays: Mapping[str, NDArray], pinned: bool) -> tuple[Tensor, dict[str, slice]]:
    """Return the bytes of arrays behind one another, [bytes] uint8, and their places in it by name.

    pinned: whether the memory is page-locked.
    """
    places = {}
    stop = 0
    for name, array in arrays.items():
        start = -(-stop // _ALIGNED) * _ALIGNED
        stop = start + array.nbytes
        places[name] = slice(start, stop)
    host = torch.empty(stop, dtype=torch.uint8, pin_memory=pinned)
    packed = host.numpy()
    for name, array in arrays.items():
        packed[places[name]] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return host, places


def unpack(
    packed: Tensor, arrays: Mapping[str, NDArray], places: Mapping[str, slice]
) -> dict[str, Tensor]:
    """Return the tensors in the bytes that `pack` returned; of `arrays` the dtypes and shapes count."""
    dtypes = {name: torch.from_numpy(array[:0]).dtype for name, array in arrays.items()}
    return {
        name: packed[place].view(dtypes[name]).view(arrays[name].shape)
        for name, place in places.items()
    }
