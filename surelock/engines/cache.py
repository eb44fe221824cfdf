"""The key/value cache, and the description of the rows that a step computes.

Sequences of a batch lie one behind the other in one flat axis of `sum(lengths)` slots: no padding exists.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from surelock.model.config import NetworkConfig

Pair = tuple[Tensor, Tensor]


class Rows:
    """The rows of one step, in the order of the flat axis.

    positions [R] int64: each row's position in its own sequence. slots [R] int64: its place on the flat axis.
    counts: rows of each sequence. lengths: slots of each sequence. written [W] int64: which of the R rows write their
    keys and values, None for all (a probed row reads the cache but leaves it as it is). read [K] int64, ascending:
    which of the R rows are read, None for all; read_counts: how many of each sequence.
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

    def targets(self, device: torch.device) -> tuple[Tensor | None, Tensor]:
        """`written`, and the slots that those rows write to, on `device` (copied there once per step)."""
        if device not in self._targets:
            written = None if self.written is None else self.written.to(device)
            slots = self.slots.to(device)
            self._targets[device] = written, slots if written is None else slots[written]
        return self._targets[device]


class KVCache:
    """Preallocated keys and values of every layer: [slots, n_kv_heads, head_size], on the layer's own device.

    A locked position costs nothing here: what its row wrote when it was last computed is simply still there. So is, in
    a shifted network, its hidden state, from which the position behind it is predicted.
    """

    def __init__(self, config: NetworkConfig, slots: int, dtype: torch.dtype, devices: Sequence[torch.device]) -> None:
        shape = (slots, config.n_kv_heads, config.head_size)
        self.keys, self.values = (
            [torch.empty(shape, dtype=dtype, device=device) for device in devices] for _ in range(2)
        )
        self._gqa = config.n_heads != config.n_kv_heads
        self._hidden: Tensor | None = None
        self._batches: dict[int, list[Pair]] = {}

    def attend(self, layer: int, rows: Rows, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Write k, v [R, n_kv_heads, head_size] of the rows, then attend: q [Q, n_heads, head_size] -> the same shape.

        q is of all rows, or of those that are read. Every row sees all slots of its own sequence, and no other.
        """
        keys, values = self.keys[layer], self.values[layer]
        written, slots = rows.targets(keys.device)
        if written is not None:
            k, v = k[written], v[written]
        keys.index_copy_(0, slots, k)
        values.index_copy_(0, slots, v)
        counts = rows.counts if len(q) == len(rows.slots) else rows.read_counts
        if rows.even and len(set(counts)) == 1:
            return _attention(q, *self._batch(len(counts))[layer], self._gqa)
        parts = zip(q.split(counts), keys.split(rows.lengths), values.split(rows.lengths), strict=True)
        return torch.cat([_attention(q, _by_head(k, 1), _by_head(v, 1), self._gqa) for q, k, v in parts if len(q)])

    def before(self, rows: Rows, hidden: Tensor) -> Tensor:
        """Keep the rows' hidden states [R, d_model], and return those of the positions before them, whenever they were
        computed; a sequence's first position has its own.
        """
        written, slots = rows.targets(hidden.device)
        if self._hidden is None:
            self._hidden = hidden.new_zeros(len(self.keys[0]), hidden.shape[1])
        self._hidden.index_copy_(0, slots, hidden if written is None else hidden[written])
        own, positions = rows.slots.to(hidden.device), rows.positions.to(hidden.device)
        return self._hidden[own - (positions > 0).long()]

    def _batch(self, size: int) -> list[Pair]:
        """Each layer's keys and values as those of `size` sequences of one length."""
        if size not in self._batches:
            pairs = zip(self.keys, self.values, strict=True)
            self._batches[size] = [(_by_head(keys, size), _by_head(values, size)) for keys, values in pairs]
        return self._batches[size]


def _attention(q: Tensor, keys: Tensor, values: Tensor, gqa: bool) -> Tensor:
    """q [batch * Q, n_heads, head_size], keys and values [batch, n_kv_heads, N, head_size] -> the shape of q.

    gqa: whether several heads share one of keys and values.
    """
    out = F.scaled_dot_product_attention(_by_head(q, keys.shape[0]), keys, values, enable_gqa=gqa)
    return out.transpose(1, 2).flatten(0, 1)


def _by_head(x: Tensor, batch: int) -> Tensor:
    """[batch * N, heads, head_size] -> [batch, heads, N, head_size], the same memory."""
    return x.view(batch, -1, *x.shape[1:]).transpose(1, 2)
