"""The packed forward (Algorithm 1, lines 9-14): it computes the rows it is given, whatever the batch looks like."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from surelock.model.cache import KVCache, Rows
from surelock.model.network import Network, Rotary, rotary_table


class PackedForward:
    """A run's way through the network: the cache of its slots, and the network's layers as they were at its start."""

    def __init__(self, network: Network, slots: int) -> None:
        self._network, self._layers = network, network.layers
        self.cache = KVCache(network.config, slots, network.dtype, [layer.ff_out.device for layer in self._layers])

    def __call__(self, tokens: Tensor, rows: Rows) -> Tensor:
        """tokens [R] int64 -> what the logits of the rows that are read come from, [K, d_model].

        These are their hidden states after the last norm, or, in a shifted network, those that the cache has of the
        positions before them. In each layer the rows' keys and values are written into the cache at the rows' own
        slots (rows that only probe write nothing), and each row attends to all positions of its own sequence. Of rows
        that are not read the last layer computes little more than that.
        """
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
