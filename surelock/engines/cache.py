"""The key/value cache of the torch engine, and the rows of a step.

The sequences of a batch lie one behind the other on a flat axis of `sum(lengths)` slots, without padding.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from surelock.model.config import NetworkConfig
from surelock.model.network import sight

Pair = tuple[Tensor, Tensor]


class Rows:
    """The rows of one step, in the order of the flat axis.

    positions: [R] int64, the position of each row in its sequence.
    slots: [R] int64, its place on the flat axis.
    counts: the number of rows of each sequence.
    lengths: the number of slots of each sequence.
    written: [W] int64, the row numbers that write keys and values; None for all. A probed row does not write.
    read: [K] int64, ascending, the row numbers whose posteriors are read; None for all.
    read_counts: the number of read rows of each sequence; None is `counts`.
    """

    def __init__(
        self,
        positions: Tensor,
        slots: Tensor,
        counts: Sequence[int],
        lengths: Sequence[int],
        written: Tensor | None = None,
        read: Tensor | None = None,
        read_counts: Sequence[int] | None = None,
    ) -> None:
        self.positions = positions
        self.slots = slots
        self.counts = list(counts)
        self.lengths = list(lengths)
        self.written = written
        self.read = read
        self.read_counts = self.counts if read_counts is None else list(read_counts)
        self.even = len(set(self.lengths)) == 1
        self._targets: dict[torch.device, tuple[Tensor | None, Tensor]] = {}
        self._sights: dict[tuple[torch.device, bool], Tensor | None] = {}

    def targets(self, device: torch.device) -> tuple[Tensor | None, Tensor]:
        """Return `written` and the slots of these rows, on `device`. They are copied there once a step."""
        if device not in self._targets:
            written = None if self.written is None else self.written.to(device)
            slots = self.slots.to(device)
            self._targets[device] = written, slots if written is None else slots[written]
        return self._targets[device]

    def sight(self, config: NetworkConfig, device: torch.device, read: bool) -> Tensor | None:
        """Return which positions the rows see, or the `read` ones alone: [R, max(lengths)] bool; None for all.

        It is made once a step for each device.
        """
        if (device, read) not in self._sights:
            positions = self.positions[self.read] if read and self.read is not None else self.positions
            self._sights[device, read] = sight(config, positions.to(device), max(self.lengths))
        return self._sights[device, read]


class KVCache:
    """Preallocated keys and values of every layer: [slots, n_kv_heads, head_size], on the device of the layer.

    A locked position keeps the keys and values of its last computation. In a shifted network it also keeps its hidden
    state, from which the next position is predicted.
    """

    def __init__(self, config: NetworkConfig, slots: int, dtype: torch.dtype, devices: Sequence[torch.device]) -> None:
        shape = (slots, config.n_kv_heads, config.head_size)
        self.keys, self.values = (
            [torch.zeros(shape, dtype=dtype, device=device) for device in devices] for _ in range(2)
        )  # not empty: what a block-causal row does not see has weight 0, and must be finite
        self._config, self._gqa = config, config.n_heads != config.n_kv_heads
        self._hidden: Tensor | None = None
        self._batches: dict[int, list[Pair]] = {}

    def attend(self, layer: int, rows: Rows, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Write the rows' keys and values into the cache, then attend. Returns the shape of q.

        q: [Q, n_heads, head_size], the queries of all rows or of the read ones.
        k, v: [R, n_kv_heads, head_size], of all rows.

        A row attends to all slots of its sequence, in a block-causal network to those up to the end of its block.
        """
        keys, values = self.keys[layer], self.values[layer]
        written, slots = rows.targets(keys.device)
        if written is not None:
            k, v = k[written], v[written]
        keys.index_copy_(0, slots, k)
        values.index_copy_(0, slots, v)
        whole = len(q) == len(rows.slots)
        counts = rows.counts if whole else rows.read_counts
        mask = rows.sight(self._config, keys.device, not whole)
        if rows.even and len(set(counts)) == 1:
            return _attention(q, *self._batch(len(counts))[layer], self._gqa, mask)
        masks = [None] * len(counts) if mask is None else mask.split(counts)
        parts = zip(q.split(counts), keys.split(rows.lengths), values.split(rows.lengths), masks, strict=True)
        return torch.cat(
            [_attention(q, _by_head(k, 1), _by_head(v, 1), self._gqa, seen) for q, k, v, seen in parts if len(q)]
        )

    def before(self, rows: Rows, hidden: Tensor) -> Tensor:
        """Keep the hidden states [R, d_model] of the rows, and return those of the positions before them.

        The first position of a sequence has its own.
        """
        written, slots = rows.targets(hidden.device)
        if self._hidden is None:
            self._hidden = hidden.new_zeros(len(self.keys[0]), hidden.shape[1])
        self._hidden.index_copy_(0, slots, hidden if written is None else hidden[written])
        own, positions = rows.slots.to(hidden.device), rows.positions.to(hidden.device)
        return self._hidden[own - (positions > 0).long()]

    def _batch(self, size: int) -> list[Pair]:
        """The keys and values of each layer, viewed as `size` sequences of one length."""
        if size not in self._batches:
            pairs = zip(self.keys, self.values, strict=True)
            self._batches[size] = [(_by_head(keys, size), _by_head(values, size)) for keys, values in pairs]
        return self._batches[size]


def _attention(q: Tensor, keys: Tensor, values: Tensor, gqa: bool, mask: Tensor | None) -> Tensor:
    """Attend: q [batch * Q, n_heads, head_size], keys and values [batch, n_kv_heads, N, head_size] -> the shape of q.

    gqa: whether n_kv_heads is less than n_heads.
    mask: [batch * Q, at least N] bool, the positions that each row sees; None for all.
    """
    batch, length = keys.shape[0], keys.shape[2]
    seen = None if mask is None else mask[:, :length].view(batch, 1, -1, length)
    out = F.scaled_dot_product_attention(_by_head(q, batch), keys, values, seen, enable_gqa=gqa)
    return out.transpose(1, 2).flatten(0, 1)


def _by_head(x: Tensor, batch: int) -> Tensor:
    """[batch * N, heads, head_size] -> [batch, heads, N, head_size], the same memory."""
    return x.view(batch, -1, *x.shape[1:]).transpose(1, 2)
