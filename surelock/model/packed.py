"""The packed forward (Algorithm 1, lines 9-14): it computes the rows it is given, whatever the batch looks like."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial

import torch
import torch.nn.functional as F
from torch import Tensor

from surelock.model.cache import KVCache, Pair, Rows, attention, by_head
from surelock.model.network import Layer, Network, Rotary, rms_norm, rotary_table


class PackedForward:
    """A run's way through the network: the cache of its slots, and the network's layers as they were at its start.

    buckets: how many rows of a sequence a step may compute, if not any number. Each sequence's rows are filled up to
    the smallest bucket that holds those of all (beyond the largest, to the largest count), with rows that write to a
    scratch slot and nobody reads. So few shapes occur, and unlike counts of a batch are attended in one call: what a
    GPU's captured graphs need. It computes more rows for it, and skips nothing in the last layer.
    compiled: by torch.compile, once for all numbers of rows, where rows are of sequences of one length, as many of
    each, none of them a probe, and the network is not shifted; other steps run as ever.
    """

    def __init__(self, network: Network, slots: int, buckets: Sequence[int] = (), compiled: bool = False) -> None:
        self._network, self._layers, self._buckets = network, network.layers, sorted(buckets)
        self._compiled = compiled and not network.config.shifted
        devices = [layer.ff_out.device for layer in self._layers]
        self._scratch = slots
        self.cache = KVCache(network.config, slots, network.dtype, devices, scratch=bool(buckets))
        if self._compiled:
            _of_any_length(*(store for pair in self.cache.stores for store in pair))

    def __call__(self, tokens: Tensor, rows: Rows) -> Tensor:
        """tokens [R] int64 -> what the logits of the rows that are read come from, [K, d_model].

        These are their hidden states after the last norm, or, in a shifted network, those that the cache has of the
        positions before them. In each layer the rows' keys and values are written into the cache at the rows' own
        slots (rows that only probe write nothing), and each row attends to all positions of its own sequence. Of rows
        that are not read the last layer computes little more than that.
        """
        if not self._buckets:
            return self._run(tokens, rows)
        places, filled = self._filled(rows)
        hidden = self._run(torch.zeros_like(filled.slots).index_copy_(0, places, tokens), filled)
        places = places if rows.read is None else places[rows.read]
        return hidden[places.to(hidden.device)]

    def _filled(self, rows: Rows) -> tuple[Tensor, Rows]:
        """Where the rows lie among those that fill their sequences' bucket, [R], and all of these."""
        most, device = max(rows.counts), rows.slots.device
        size = next((bucket for bucket in self._buckets if bucket >= most), most)
        places = torch.cat([torch.arange(b * size, b * size + count) for b, count in enumerate(rows.counts)]).to(device)
        shape, sequences = (size * len(rows.counts),), [size] * len(rows.counts)
        positions = rows.positions.new_zeros(shape).index_copy_(0, places, rows.positions)
        slots = rows.slots.new_full(shape, self._scratch).index_copy_(0, places, rows.slots)
        written = None if rows.written is None else places[rows.written]
        return places, Rows(positions, slots, sequences, rows.lengths, written)

    def _run(self, tokens: Tensor, rows: Rows) -> Tensor:
        network, cache = self._network, self.cache
        if self._compiled and _is_plain(rows):
            table = rotary_table(network.config, max(rows.lengths), network.dtype, tokens.device)
            rowwise = tokens, rows.positions, rows.slots, rows.read
            _of_any_length(*rowwise, *table)
            ends = network.embed.weight, network.norm.weight
            forward = _compiled(len(rows.counts), bool(self._buckets))
            return forward(*rowwise, table, *ends, self._layers, cache.stores)

        def rotary(device: torch.device) -> Rotary:
            cos, sin = rotary_table(network.config, max(rows.lengths), network.dtype, device)
            positions = rows.positions.to(device)
            return cos[positions], sin[positions]

        def pick(x: Tensor) -> Tensor:
            assert rows.read is not None
            return x[rows.read.to(x.device)]

        only = None if rows.read is None else pick
        through = partial(network.run, tokens, rotary, lambda layer: partial(cache.attend, layer, rows))
        if not network.config.shifted:
            return through(only, self._layers)
        hidden = cache.before(rows, through(None, self._layers))
        return hidden if only is None else only(hidden)


def _is_plain(rows: Rows) -> bool:
    """What is compiled. Of one row a sequence it would be compiled again."""
    counts, read = {*rows.counts}, {*rows.read_counts}
    return rows.even and rows.written is None and len(counts) == len(read) == 1 and min(counts | read) > 1


def _of_any_length(*tensors: Tensor | None) -> None:
    """One compilation serves all numbers of rows and of slots."""
    for tensor in tensors:
        if tensor is not None:
            torch._dynamo.maybe_mark_dynamic(tensor, 0)


@cache
def _compiled(batch: int, scratch: bool) -> Callable[..., Tensor]:
    """`PackedForward` of `batch` sequences, compiled on its first call."""

    def attend(store: Pair, slots: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        for all_slots, own in zip(store, (k, v), strict=True):
            all_slots.index_copy_(0, slots, own)
        keys, values = (by_head(x[:-1] if scratch else x, batch) for x in store)
        return attention(q, keys, values, q.shape[1] != k.shape[1])

    def forward(
        tokens: Tensor,
        positions: Tensor,
        slots: Tensor,
        read: Tensor | None,
        table: Rotary,
        embed: Tensor,
        norm: Tensor,
        layers: list[Layer],
        stores: list[Pair],
    ) -> Tensor:
        x, rotary = F.embedding(tokens, embed), (table[0][positions], table[1][positions])
        for number, (layer, store) in enumerate(zip(layers, stores, strict=True)):
            only = None if read is None or number + 1 < len(layers) else lambda x: x[read]
            x = layer(x, rotary, partial(attend, store, slots), only)
        return rms_norm(x, norm, layers[0].eps)

    return torch.compile(forward, dynamic=False, fullgraph=True, options={"cpp_wrapper": True})
