"""The key/value cache of the torch engine.

The sequences of a batch lie one behind the other on a flat axis of `sum(lengths)` slots, without padding.
Behind them lies a spare slot, to which no row attends: rows that must not change the cache write there.
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
    """Preallocated tables of keys and values of every layer, on its device: [slots + 1, n_kv_heads, head_size].

    A locked position keeps the keys and values of its last computation. In a shifted network it also keeps
    its hidden state, which predicts the next position. A layer that is a convolution has one table
    [slots + 2, 1, d_model] in place of two: its last row stays zero, the neighbour of a sequence's ends.

    slots: of all passes. devices: of the layers, then that of the last norm.
    once: whether every step computes all rows (`Layout`): the layers of a device then share their tables.
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

        def pair(device: torch.device, conv: bool) -> list[Tensor]:
            """Zeros, not empty: slots that a block-causal row does not see have weight 0, and must be finite."""
            shape = (
                (slots + 2, 1, config.d_model)
                if conv
                else (slots + 1, config.n_kv_heads, config.head_size)
            )
            tables = [
                torch.zeros(shape, dtype=dtype, device=device) for _ in range(1 if conv else 2)
            ]
            return [tables[0], tables[-1]]

        pair_of = cache(pair) if once else pair
        pairs = [
            pair_of(device, layer in config.conv_layers) for layer, device in enumerate(of_layers)
        ]
        self.keys, self.values = zip(*pairs, strict=True)
        self._config = config
        self._gqa = config.n_heads != config.n_kv_heads
        self._hidden: Tensor | None = None
        if config.shifted:
            self._hidden = torch.zeros(slots + 1, config.d_model, dtype=dtype, device=of_norm)

    @property
    def nbytes(self) -> int:
        tables = {id(table): table.nbytes for table in (*self.keys, *self.values)}
        return sum(tables.values()) + (0 if self._hidden is None else self._hidden.nbytes)

    def reset(self) -> None:
        """Zero the slots that a row may read before the run has written them."""
        if self._config.block_size is not None:
            for table in (*self.keys, *self.values):
                table.zero_()
        for layer in self._config.conv_layers:
            self.keys[layer][-1].zero_()

    @property
    def tables(self) -> list[Tensor]:
        """The different tables that keep a row for every slot from step to step."""
        tables = list({id(table): table for table in (*self.keys, *self.values)}.values())
        if self._hidden is not None:
            tables.append(self._hidden)
        return tables

    def attend(self, layer: int, rows: Rows, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Write the rows' keys and values into the cache, then attend. Returns a tensor in the shape of q.

        rows: on the device of the layer.
        q: [Q, n_heads, head_size], the queries of all rows or of the read rows.
        k, v: [R, n_kv_heads, head_size], of all rows.

        A row attends to all slots of its sequence; in a block-causal network, to those up to the end of its
        block.
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
        """Write the rows' vectors into the cache, then convolve its vectors. Returns a tensor in the shape of c.

        rows: on the device of the layer.
        c: [Q, 1, d_model], of all rows or of the read rows. kept: [R, 1, d_model], of all rows.
        weight: [d_model, 1, 3].
        """
        _write(kept, rows, self.keys[layer])
        around = rows.arrays["around"]
        if len(c) < len(kept):
            around = around[rows.arrays["read"]]
        return c * (self.keys[layer][around] * weight.permute(2, 1, 0)).sum(1)

    def before(self, rows: Rows, hidden: Tensor) -> Tensor:
        """Keep the hidden states [R, d_model] of the rows. Return those of the positions before them, [R, d_model]."""
        assert self._hidden is not None
        _write(hidden, rows, self._hidden)
        return self._hidden[rows.arrays["slots"] - (rows.arrays["positions"] > 0).long()]


def _write(values: Tensor, rows: Rows, table: Tensor) -> None:
    """Write values [R, ...] of rows into a table [slots + 1, ...] of the same device."""
    table.index_copy_(0, rows.arrays.get("written", rows.arrays["slots"]), values)
