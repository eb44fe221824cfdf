"""The inputs of the torch engine's layers for a plan: arrays, which are copied to a device together, and counts."""

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
    """The size of a memory. Runs whose layouts have equal rooms may use the same memory, one after the other."""

    sequences: int  # number of sequences in a pass
    passes: int
    slots: int  # number of slots in a pass, at least the layout's
    longest: int  # upper bound of the number of positions of a sequence
    once: bool  # see `Layout`

    @classmethod
    def for_layout(cls, layout: Layout, rounded: bool) -> Room:
        """Return the room for a layout.

        rounded: whether to round the sizes up, so that prompts of about the same length have equal rooms.
        """
        slots = sum(layout.lengths)
        longest = max(layout.lengths)
        if rounded:
            slots = _round_up(slots)
            longest = _round_up(longest)
        return cls(len(layout.lengths), layout.passes, slots, longest, layout.once)

    @property
    def spare(self) -> int:
        """The index of the spare slot, which is after the slots of all passes."""
        return self.passes * self.slots


def _round_up(count: int) -> int:
    """Round up to a multiple of 64. A large count is rounded to a larger multiple, which adds at most an eighth."""
    step = max(_LEAST_STEP, 2 ** (count.bit_length() - 4))
    return -(-count // step) * step


@frozen
class Rows:
    """The rows of one step, for all passes, in the order of the flat axis.

    arrays: numpy arrays, or tensors on a device, by name. They are int64, except those of `Segments`:
        tokens, positions [R]: the row's token, and its position in the sequence.
        slots [R]: the row's slot on the flat axis.
        written [R]: the slot to which the row writes: its slot, or the spare slot if it is probed. Missing if equal to
            `slots`.
        read [K]: ascending, the rows whose posteriors are read. Missing if all rows are read.
        around [R, 3]: the slot before the row's slot, the row's slot, and the slot after it. For convolutions only.
        rows, starts, seen: see `Segments`. Missing if attention runs sequence by sequence.
        read_rows, read_starts, read_seen: the `Segments` of the read rows, if `rows` and `read` are there.
    """

    arrays: Fields
    counts: list[int]  # by sequence, its number of rows
    lengths: list[int]  # by sequence, its number of positions
    # by sequence, its number of read rows; empty without `read`
    read_counts: list[int] = field(default_factory=list)
    bucket: int = 0  # the number of rows after padding; 0 without padding
    longest: int = (
        0  # upper bound of the number of positions of a sequence; 0: the exact maximum of `lengths`
    )

    @property
    def most_seen(self) -> int:
        """Upper bound of the number of slots that a row attends to."""
        return self.longest or max(self.lengths)

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> Rows:
        """Return the same rows with the tensors of these names in place of the arrays."""
        return replace(self, arrays={name: tensors[name] for name in self.arrays})

    def to(self, device: torch.device) -> Rows:
        """Return the same rows with tensors on a device."""
        return self.with_tensors({name: tensor.to(device) for name, tensor in self.arrays.items()})

    def segments(self, read: bool) -> Segments | None:
        """Return the segments of all rows or, with `read`, of the read rows. None: attend sequence by sequence."""
        prefix, counts = "", self.counts
        if read:
            prefix, counts = "read_", self.read_counts
        if f"{prefix}rows" not in self.arrays:
            return None
        edges = self.arrays[f"{prefix}rows"]
        starts = self.arrays[f"{prefix}starts"]
        seen = self.arrays.get(f"{prefix}seen")
        return Segments(edges, starts, seen, self.bucket or max(counts), self.most_seen)


def around(
    positions: Whole, slots: Whole, counts: Sequence[int], lengths: Sequence[int], spare: int
) -> Whole:
    """Return `around` of `Rows`, [R, 3] int64.

    The missing neighbour of a sequence's first or last position is the cache's row of zeros, after the spare slot.
    """
    last = np.repeat(lengths, counts) - 1
    zero = spare + 1
    before = np.where(positions > 0, slots - 1, zero)
    after = np.where(positions < last, slots + 1, zero)
    return np.stack((before, slots, after), axis=1)


def rows_of(
    config: NetworkConfig, layout: Layout, room: Room, plan: Plan, varlen: bool, bucket: int = 0
) -> Rows:
    """Return the rows of a plan. There must be at least one row after padding.

    room: room of the memory, at least the room of the layout.
    varlen: whether rows attend in segments. Otherwise they attend sequence by sequence.
    bucket: the number of rows after padding, which needs segments. Padding rows write to the spare slot, and all rows
    pass all layers. With 0 there is no padding, and the last layer computes only the read rows.
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
        padding = bucket - passes * count
        fill = {"tokens": 0, "positions": 0, "slots": spare, "written": spare}
        arrays = {
            name: np.append(array, np.full(padding, fill[name])) for name, array in arrays.items()
        }
        counts = [*counts[:-1], counts[-1] + padding]
    elif 0 < len(plan.read) < count:
        arrays["read"] = (plan.read + count * offsets).ravel()
        edges = np.cumsum([0, *plan.counts])  # the first row of every sequence
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
    """Return `bucket` padding rows, for the capture of a graph."""
    none = np.zeros(0, dtype=bool)
    blind = NO_ROWS if room.passes == 2 else None
    counts = [0] * room.sequences
    plan = Plan(0, NO_ROWS, counts, NO_ROWS, NO_ROWS, none, none, none, Choice(none), blind)
    layout = Layout((1,) * room.sequences, room.passes)
    return rows_of(config, layout, room, plan, varlen=True, bucket=bucket)


def upload(arrays: Mapping[str, NDArray], device: torch.device) -> dict[str, Tensor]:
    """Copy arrays to a device, in one transfer. The host does not wait for it.

    Returns tensors with the arrays' names, dtypes and shapes. On a CPU the tensors share the arrays' memory.
    """
    if device.type == "cpu":
        return {name: torch.from_numpy(array) for name, array in arrays.items()}
    host, places = pack(arrays, pinned=device.type == "cuda")
    return unpack(host.to(device, non_blocking=True), arrays, places)


def pack(arrays: Mapping[str, NDArray], pinned: bool) -> tuple[Tensor, dict[str, slice]]:
    """Return the bytes of all arrays in one tensor, uint8, and by name the place of an array in the tensor.

    pinned: whether the memory is page-locked.
    """
    places = {}
    stop = 0
    for name, array in arrays.items():
        start = -(-stop // _ALIGNED) * _ALIGNED  # rounded up
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
    """Return the tensors in the bytes that `pack` returned. arrays: only their dtypes and shapes are used."""
    dtypes = {name: torch.from_numpy(array[:0]).dtype for name, array in arrays.items()}
    return {
        name: packed[place].view(dtypes[name]).view(arrays[name].shape)
        for name, place in places.items()
    }
