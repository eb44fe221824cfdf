"""The key/value cache of the torch engine, and the rows of a step.

The sequences of a batch lie one behind the other on a flat axis of `sum(lengths)` slots, without padding.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from surelock.model.config import NetworkConfig
from surelock.model.network import sight


@dataclass(slots=True)
class Rows:
    """The rows of one step, in the order of the flat axis.

    positions: [R] int64, the position of each row in its sequence.
    slots: [R] int64, its place on the flat axis.
    counts: the number of rows of each sequence.
    lengths: the number of slots of each sequence.
    written: [W] int64, the row numbers that write keys and values; None for all. A probed row does not write.
    read: [K] int64, ascending, the row numbers whose posteriors are read; None for all.
    read_counts: the number of read rows of each sequence, if `read` is given.
    """

    positions: Tensor
    slots: Tensor
    counts: list[int]
    lengths: list[int]
    written: Tensor | None = None
    read: Tensor | None = None
    read_counts: list[int] = field(default_factory=list)

    def write(self, values: Tensor, table: Tensor) -> None:
        """Write those of the values [R, ...] whose rows write into a table [slots, ...], on its device."""
        slots = self.slots.to(table.device)
        if self.written is not None:
            written = self.written.to(table.device)
            slots, values = slots[written], values[written]
        table.index_copy_(0, slots, values)


class KVCache:
    """Preallocated keys and values of every layer: [slots, n_kv_heads, head_size], on the device of the layer.

    A locked position keeps the keys and values of its last computation. In a shifted network it also keeps its hidden
    state, from which the next position is predicted.

    once: every step computes all rows, see `Layout`: the layers of a device then share one table.
    """

    def __init__(
        self, config: NetworkConfig, slots: int, dtype: torch.dtype, devices: Sequence[torch.device], once: bool
    ) -> None:
        shape = (slots, config.n_kv_heads, config.head_size)

        def pair(device: torch.device) -> list[Tensor]:
            """Not empty: what a block-causal row does not see has weight 0, and must be finite."""
            return [torch.zeros(shape, dtype=dtype, device=device) for _ in range(2)]

        self.keys, self.values = zip(*map(cache(pair) if once else pair, devices), strict=True)
        self._config, self._gqa = config, config.n_heads != config.n_kv_heads
        self._hidden: Tensor | None = None

    def attend(self, layer: int, rows: Rows, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Write the rows' keys and values into the cache, then attend. Returns the shape of q.

        q: [Q, n_heads, head_size], the queries of all rows or of the read ones.
        k, v: [R, n_kv_heads, head_size], of all rows.

        A row attends to all slots of its sequence, in a block-causal network to those up to the end of its block.
        """
        keys, values = self.keys[layer], self.values[layer]
        rows.write(k, keys)
        rows.write(v, values)
        read = None if len(q) == len(rows.slots) else rows.read
        counts, positions = (rows.counts, rows.positions) if read is None else (rows.read_counts, rows.positions[read])
        mask = sight(self._config, positions.to(keys.device), max(rows.lengths))
        if len(set(counts)) == len(set(rows.lengths)) == 1:
            return _attention(q, keys, values, len(counts), self._gqa, mask)
        masks = [None] * len(counts) if mask is None else mask.split(counts)
        parts = zip(q.split(counts), keys.split(rows.lengths), values.split(rows.lengths), masks, strict=True)
        return torch.cat([_attention(q, k, v, 1, self._gqa, seen) for q, k, v, seen in parts if len(q)])

    def before(self, rows: Rows, hidden: Tensor) -> Tensor:
        """Keep the hidden states [R, d_model] of the rows, and return those of the positions before them.

        The first position of a sequence has its own.
        """
        if self._hidden is None:
            self._hidden = hidden.new_zeros(len(self.keys[0]), hidden.shape[1])
        rows.write(hidden, self._hidden)
        own, positions = rows.slots.to(hidden.device), rows.positions.to(hidden.device)
        return self._hidden[own - (positions > 0).long()]


def _attention(q: Tensor, keys: Tensor, values: Tensor, batch: int, gqa: bool, mask: Tensor | None) -> Tensor:
    """Attend within each of `batch` sequences of one length, which lie behind one another. Returns the shape of q.

    q: [batch * Q, n_heads, head_size]. keys, values: [batch * N, n_kv_heads, head_size].
    gqa: whether n_kv_heads is less than n_heads.
    mask: [batch * Q, at least N] bool, the positions that each row sees; None for all.
    """
    seen = None if mask is None else mask[:, : len(keys) // batch].view(batch, 1, -1, len(keys) // batch)
    q, keys, values = (x.view(batch, -1, *x.shape[1:]).transpose(1, 2) for x in (q, keys, values))
    return F.scaled_dot_product_attention(q, keys, values, seen, enable_gqa=gqa).transpose(1, 2).flatten(0, 1)
