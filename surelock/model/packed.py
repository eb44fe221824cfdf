"""The packed forward (Algorithm 1, lines 9-14): it computes the rows it is given, whatever the batch looks like."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from surelock.model.cache import KVCache, Rows
from surelock.model.network import Network, Rotary, rotary_table


class PackedForward:
    """A run's way through the network: the cache of its slots, and the network's layers as they were at its start.

    buckets: how many rows of a sequence a step may compute, if not any number. Each sequence's rows are filled up to
    the smallest bucket that holds those of all (beyond the largest, to the largest count), with rows that write to a
    scratch slot and nobody reads. So few shapes occur, and unlike counts of a batch are attended in one call: what a
    GPU's captured graphs need. It computes more rows for it, and skips nothing in the last layer.
    """

    def __init__(self, network: Network, slots: int, buckets: Sequence[int] = ()) -> None:
        self._network, self._layers, self._buckets = network, network.layers, sorted(buckets)
        devices = [layer.ff_out.device for layer in self._layers]
        self._scratch = slots
        self.cache = KVCache(network.config, slots, network.dtype, devices, scratch=bool(buckets))

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
