"""The engine for GPUs, several devices, bfloat16 and float64: the packed forward (Algorithm 1, lines 9-15) in torch."""

from collections.abc import Iterable
from functools import partial
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from surelock.decoding.step import Layout, Plan, Reading
from surelock.engines.cache import KVCache, Rows
from surelock.engines.posterior import Reader, as_index
from surelock.engines.stopwatch import Stopwatch
from surelock.model.network import Block, Network, Rotary, rotary_table


class PackedForward:
    """The packed forward pass of a run, with its cache."""

    def __init__(self, network: Network, slots: int, once: bool = False) -> None:
        devices = [block.ff_out.weight.device for block in cast("Iterable[Block]", network.blocks)]
        self._network, self.cache = network, KVCache(network.config, slots, network.dtype, devices, once)

    def __call__(self, tokens: Tensor, rows: Rows) -> Tensor:
        """Compute the rows of tokens [R] int64. Returns the hidden states [K, d_model] of the read rows.

        They are the states after the last norm, from which the head makes logits; in a shifted network those of the
        positions before the rows, from the cache. Each layer writes the keys and values of the rows into the cache (not
        those of probed rows), and each row attends to all positions of its sequence. For rows that are not read the
        last layer computes keys and values alone.
        """
        network, cache = self._network, self.cache

        def rotary(device: torch.device) -> Rotary:
            cos, sin = rotary_table(network.config, max(rows.lengths), network.dtype, device)
            positions = rows.positions.to(device)
            return cos[positions], sin[positions]

        read = rows.read
        only = None if read is None else lambda x: x[read.to(x.device)]
        through = partial(network.run, tokens, rotary, lambda layer: partial(cache.attend, layer, rows))
        if not network.config.shifted:
            return through(only)
        hidden = cache.before(rows, through())
        return hidden if only is None else only(hidden)


class Memory:
    """The memory of one run: keys and values, watched posteriors, and the hidden states of the last step."""

    def __init__(self, network: Network, layout: Layout, tell: bool) -> None:
        device = network.head_weight.device
        slots = sum(layout.lengths)
        self.told = network.head_weight.new_zeros(slots, network.config.vocab_size) if tell else None
        self.layout, self.watch = layout, Stopwatch(device)
        self.packed = PackedForward(network, slots * layout.passes, layout.once)
        self.reader = Reader(slots, network.config.vocab_size, network.dtype, device, self.watch)
        self.rows: NDArray[np.int64] = np.empty(0, dtype=np.int64)  # [K], the rows of the plan that `hidden` is of
        self.hidden = torch.empty(0)  # [K, d_model], guidance applied


class TorchEngine:
    """Computes rows in torch, on the devices and in the dtype of the network.

    network: the network with its weights; its blocks may lie on several devices.
    """

    name = f"torch {torch.__version__}"

    def __init__(self, network: Network) -> None:
        self.network, self.config = network, network.config

    @property
    def device(self) -> torch.device:
        """The device of the head and of the logits. Blocks may lie on other devices."""
        return self.network.head_weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.network.dtype

    def memory(self, layout: Layout, tell: bool = False) -> Memory:
        """Allocate the memory of a run, see `Engine.memory`."""
        return Memory(self.network, layout, tell)

    @torch.inference_mode()
    def read(self, memory: Memory, plan: Plan) -> Reading:
        """Compute the rows of a plan, see `Engine.read`."""
        memory.watch.start()
        reading, rows = Reading.empty(plan), plan.read
        self._forward(memory, plan, rows)

        def logits(start: int, stop: int, out: Tensor) -> Tensor:
            found = self.network.logits(memory.hidden[start:stop], out)
            if memory.told is not None:
                own = rows[start:stop]
                candidates = np.flatnonzero(plan.chooses[own])
                slots = as_index(plan.slots[own[candidates]], found.device)
                memory.told[slots] = found[as_index(candidates, found.device)]
            return found

        memory.reader.read(logits, rows, plan, reading)
        reading.seconds = memory.watch.seconds()
        return reading

    @torch.inference_mode()
    def logits(self, memory: Memory, rows: NDArray[np.int64]) -> NDArray:
        """Return the logits [K, V] of rows of the last plan, see `Engine.logits`.

        They are in the dtype of the network, or in float32 if that is wider.
        """
        wide = torch.promote_types(self.network.dtype, torch.float32)
        found = torch.full((len(rows), self.network.config.vocab_size), torch.nan, dtype=wide)
        known = np.isin(rows, memory.rows)
        if known.any():
            hidden = memory.hidden[as_index(np.searchsorted(memory.rows, rows[known]), memory.hidden.device)]
            found[torch.from_numpy(known)] = self.network.logits(hidden).to("cpu", wide)
        return found.numpy()

    def _forward(self, memory: Memory, plan: Plan, read: NDArray[np.int64]) -> None:
        """Run the packed forward of all passes, and keep the hidden states of the rows `read` [K]."""
        passes, total = memory.layout.passes, sum(memory.layout.lengths)
        memory.rows = read if len(read) else np.arange(len(plan.slots))
        if not len(plan.slots):
            return
        tokens = plan.tokens if plan.blind is None else np.concatenate((plan.tokens, plan.blind))
        offsets, count = np.arange(passes)[:, None], len(plan.slots)
        written = np.flatnonzero(np.tile(~plan.probed, passes)) if plan.probed.any() else None
        asked, read_counts = None, []
        if len(memory.rows) < count:
            asked = (read + count * offsets).ravel()
            read_counts = np.diff(np.searchsorted(read, np.cumsum([0, *plan.counts]))).tolist() * passes
        device = self.network.head_weight.device
        upload = np.tile(plan.positions, passes), (plan.slots + total * offsets).ravel(), tokens
        positions, slots, tokens = (torch.from_numpy(each).to(device) for each in upload)
        rows = Rows(
            positions,
            slots,
            counts=plan.counts * passes,
            lengths=[*memory.layout.lengths] * passes,
            written=None if written is None else torch.from_numpy(written).to(device),
            read=None if asked is None else torch.from_numpy(asked).to(device),
            read_counts=read_counts,
        )
        both = memory.packed(tokens, rows).unflatten(0, (passes, -1))
        memory.hidden = both[0]
        if passes == 2:  # the head is linear, so guided states make guided logits
            wide, blind = both.to(torch.promote_types(both.dtype, torch.float32))
            memory.hidden = torch.add(blind, wide - blind, alpha=plan.cfg_scale + 1).to(both.dtype)
