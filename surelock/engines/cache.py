"""The key/value cache of the torch engine.

The sequences of a batch lie one after the other on a flat axis of `sum(lengths)` slots, without padding. The last slot
of the tables is spare: no row attends to it, and rows that must not change the cache write there.
"""

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from surelock.config import NetworkConfig
from surelock.engines.attention import attend_segments, attend_sequences
from surelock.engines.inputs import Rows
from surelock.model.network import sight


class KVCache:
    """Preallocated tables of keys and values for every layer, on the layer's device.

    A layer has two tables [slots + 1, n_kv_heads, head_size] in the dtype of the network. A layer that is a convolution
    has one table [slots + 2, 1, d_model]. The last row of that table stays zero: it is the neighbour of the first and
    the last position of a sequence.

    A locked position keeps its last keys and values. In a shifted network it also keeps its hidden state, which
    predicts the next position.

    slots: number of slots of all passes together.
    devices: the devices of the layers, then the device of the last norm.
    once: whether every step computes all rows (`Layout`). The layers of a device then share their tables.
    """

    def __init__(
        self,
        config: NetworkConfig,
        slots: int,
        dtype: torch.dtype,
        devices: Sequence[torch.device],
        once: bool,
    ) -> None:
        *of_layers, of_norm = devices

        def new_tables(device: torch.device, conv: bool) -> tuple[Tensor, Tensor]:
            """Return tables of zeros: unwritten slots have weight 0 in attention, so their values must be finite."""
            if conv:
                table = torch.zeros(slots + 2, 1, config.d_model, dtype=dtype, device=device)
                return table, table
            shape = slots + 1, config.n_kv_heads, config.head_size
            keys, values = (torch.zeros(shape, dtype=dtype, device=device) for _ in range(2))
            return keys, values

        tables_of = cache(new_tables) if once else new_tables
        pairs = [
            tables_of(device, layer in config.conv_layers) for layer, device in enumerate(of_layers)
        ]
        self.keys, self.values = zip(*pairs, strict=True)
        self._config = config
        self._gqa = config.n_heads != config.n_kv_heads
        self._hidden: Tensor | None = None
        if config.shifted:
            self._hidden = torch.zeros(slots + 1, config.d_model, dtype=dtype, device=of_norm)

    @property
    def nbytes(self) -> int:
        return sum(table.nbytes for table in self.tables)

    def reset(self) -> None:
        """Set slots to zero that a row may read before the run writes them."""
        if self._config.block_size is not None:
            for table in (*self.keys, *self.values):
                table.zero_()
        for layer in self._config.conv_layers:
            self.keys[layer][-1].zero_()

    @property
    def tables(self) -> list[Tensor]:
        """The tables that keep a row per slot between steps, without repetition."""
        tables = list({id(table): table for table in (*self.keys, *self.values)}.values())
        if self._hidden is not None:
            tables.append(self._hidden)
        return tables

    def attend(self, layer: int, rows: Rows, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Write the rows' keys and values into the cache (Algorithm 1, line 11), then attend.

        rows: the rows, with tensors on the device of the layer.
        q: [Q, n_heads, head_size], queries of all rows or of the read rows.
        k, v: [R, n_kv_heads, head_size], keys and values of all rows.

        A row attends to all slots of its sequence; in a block-causal network, to the slots up to the end of its block.
        Returns a tensor in the shape of q.
        """
        keys = self.keys[layer]
        values = self.values[layer]
        _write(k, rows, keys)
        _write(v, rows, values)
        only_read = len(q) < len(k)
        if (segments := rows.segments(only_read)) is not None:
            return attend_segments(q, keys, values, segments)
        keys, values = (table[: sum(rows.lengths)] for table in (keys, values))
        counts = rows.counts
        positions = rows.arrays["positions"]
        if only_read:
            counts = rows.read_counts
            positions = positions[rows.arrays["read"]]
        mask = sight(self._config, positions, max(rows.lengths))
        if len(set(counts)) == len(set(rows.lengths)) == 1:
            return attend_sequences(q, keys, values, len(counts), self._gqa, mask)
        masks = [None] * len(counts) if mask is None else mask.split(counts)
        parts = zip(
            q.split(counts),
            keys.split(rows.lengths),
            values.split(rows.lengths),
            masks,
            strict=True,
        )
        attended = [
            attend_sequences(q, k, v, 1, self._gqa, seen) for q, k, v, seen in parts if len(q)
        ]
        return torch.cat(attended)

    def convolve(self, layer: int, rows: Rows, c: Tensor, kept: Tensor, weight: Tensor) -> Tensor:
        """Write the rows' vectors into the cache, then return c times the convolution of the cached vectors.

        rows: the rows, with tensors on the device of the layer.
        c: [Q, 1, d_model], factors of all rows or of the read rows.
        kept: [R, 1, d_model], vectors of all rows, which the cache keeps.
        weight: [d_model, 1, 3], over a position, its left and its right neighbour.

        Returns a tensor in the shape of c.
        """
        _write(kept, rows, self.keys[layer])
        around = rows.arrays["around"]
        if len(c) < len(kept):
            around = around[rows.arrays["read"]]
        return c * (self.keys[layer][around] * weight.permute(2, 1, 0)).sum(1)

    def before(self, rows: Rows, hidden: Tensor) -> Tensor:
        """Keep the hidden states [R, d_model] of the rows. Return the states of the positions before them.

        The first position of a sequence gets its own state. The result is [R, d_model].
        """
        assert self._hidden is not None
        _write(hidden, rows, self._hidden)
        return self._hidden[rows.arrays["slots"] - (rows.arrays["positions"] > 0).long()]


def _write(values: Tensor, rows: Rows, table: Tensor) -> None:
    """Write values [R, ...] of rows into a table [slots + 1, ...] on the same device."""
    table.index_copy_(0, rows.arrays.get("written", rows.arrays["slots"]), values)
