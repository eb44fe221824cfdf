"""The engine for GPUs, several devices, bfloat16 and float64: the packed forward (Algorithm 1, lines 9-15) in torch."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, from_numpy

from surelock.decoding.step import Layout, Plan, Reading
from surelock.engines.attention import has_varlen
from surelock.engines.cache import KVCache
from surelock.engines.captured import CapturedForward, bucket_of, captures
from surelock.engines.fused import can_fuse, compiled_elementwise
from surelock.engines.inputs import Rows, rows_of, upload
from surelock.engines.posterior import KeptRows, Reader
from surelock.engines.stopwatch import Stopwatch
from surelock.model.network import PLAIN, Attend, Block, Elementwise, Network, Rotary, rotary_table


class PackedForward:
    def __init__(self, network: Network, slots: int, once: bool = False, elementwise: Elementwise = PLAIN) -> None:
        self.network, self._elementwise = network, elementwise
        self.devices = [block.ff_out.weight.device for block in cast("Iterable[Block]", network.blocks)]
        self._tables: dict[torch.device, Rotary] = {}  # held, since captured graphs read them
        self.cache = KVCache(network.config, slots, network.dtype, self.devices, once)

    def __call__(self, rows: Rows) -> Tensor:
        """Compute rows. Returns the hidden states [K, d_model] of the read rows.

        They are the states after the last norm, from which the head makes logits; in a shifted network those of the
        positions before the rows, from the cache. Each layer writes the keys and values of the rows into the cache (not
        those of probed rows), and each row attends to all positions of its sequence. For rows that are not read the
        last layer computes keys and values alone.
        """
        network, cache, devices, tokens = self.network, self.cache, self.devices, rows.arrays["tokens"]
        there = {device: rows.to(device) for device in dict.fromkeys(devices)}

        def rotary(device: torch.device) -> Rotary:
            if device not in self._tables:
                self._tables[device] = rotary_table(network.config, max(rows.lengths), network.dtype, device)
            cos, sin = self._tables[device]
            positions = there[device].arrays["positions"]
            return cos[positions], sin[positions]

        def attend(layer: int) -> Attend:
            mix = cache.convolve if layer in network.config.conv_layers else cache.attend
            return partial(mix, layer, there[devices[layer]])

        if network.config.shifted:
            hidden = network.run(tokens, rotary, attend, None, self._elementwise)
            rows = rows.to(hidden.device)
            hidden = cache.before(rows, hidden)
            return hidden[rows.arrays["read"]] if "read" in rows.arrays else hidden
        read = there[devices[-1]].arrays.get("read")
        only = None if read is None else lambda x: x[read]
        return network.run(tokens, rotary, attend, only, self._elementwise)


class Memory:
    """The memory of one run: keys and values, watched posteriors, and the hidden states of the last step."""

    def __init__(self, network: Network, layout: Layout, keep_logits: bool, graphs: bool, fused: bool) -> None:
        device = network.head_weight.device
        slots = sum(layout.lengths)
        self.logits = network.head_weight.new_zeros(slots, network.config.vocab_size) if keep_logits else None
        self.layout, self.watch = layout, Stopwatch(device)
        self._varlen = has_varlen(network.config, network.dtype, device)
        devices = {parameter.device for parameter in network.parameters()}
        compiles = fused and self._varlen and len(devices) == 1 and can_fuse(device)
        elementwise = compiled_elementwise() if compiles else PLAIN
        self.packed = PackedForward(network, slots * layout.passes, layout.once, elementwise)
        graphs = graphs and self._varlen and network.config.block_size is None and captures(devices)
        self.captured = CapturedForward(self.packed) if graphs else None
        self.reader = Reader(slots, network.config.vocab_size, network.dtype, device, self.watch, fused)
        self.rows: NDArray[np.int64] = np.empty(0, dtype=np.int64)  # [K], the rows of the plan that `hidden` is of
        self.hidden = torch.empty(0)  # [K, d_model], guidance applied

    def places(self, slots: NDArray[np.int64]) -> Iterator[tuple[Tensor, Tensor]]:
        """Each table of the cache, and the rows of it that slots are, in every pass."""
        length = sum(self.layout.lengths)
        rows = from_numpy(np.concatenate([slots + length * number for number in range(self.layout.passes)]))
        return ((table, rows.to(table.device)) for table in self.packed.cache.tables)

    def inputs(self, plan: Plan) -> Rows:
        bucket = 0 if self.captured is None else bucket_of(self.layout.passes * len(plan.slots))
        return rows_of(self.packed.network.config, self.layout, plan, self._varlen, bucket)


@dataclass(frozen=True, slots=True, eq=False)
class CopiedRows:
    """Rows of a memory's tables, on their devices. slots: [K] int64. kept: what the reader holds of them."""

    slots: NDArray[np.int64]
    tables: list[Tensor]
    kept: KeptRows

    @property
    def nbytes(self) -> int:
        return self.kept.nbytes + sum(table.numel() * table.element_size() for table in self.tables)


class TorchEngine:
    """Computes rows in torch, on the devices and in the dtype of the network.

    graphs, fused: whether a GPU that can do so captures graphs, and takes compiled functions in its layers and to read
    many posteriors.
    """

    name = f"torch {torch.__version__}"

    def __init__(self, network: Network) -> None:
        self.network, self.config = network, network.config
        self.graphs = self.fused = True

    @property
    def device(self) -> torch.device:
        """The device of the head and of the logits. Blocks may lie on other devices."""
        return self.network.head_weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.network.dtype

    def memory(self, layout: Layout, keep_logits: bool = False) -> Memory:
        return Memory(self.network, layout, keep_logits, self.graphs, self.fused)

    @torch.inference_mode()
    def read(self, memory: Memory, plan: Plan) -> Reading:
        memory.watch.start()
        reading, inputs, look = Reading.empty(plan), memory.inputs(plan), memory.reader.look(plan)
        memory.rows = plan.read if len(plan.read) else np.arange(len(plan.slots))
        tensors = upload({**inputs.arrays, **look.arrays, "rows read": memory.rows}, self.device)
        self._forward(memory, plan, inputs, tensors)

        def logits(start: int, stop: int, out: Tensor) -> Tensor:
            found = self.network.logits(memory.hidden[start:stop], out)
            if memory.logits is not None:
                rows = plan.read[start:stop]
                candidates = np.flatnonzero(plan.choice.rows[rows])
                slots = from_numpy(plan.slots[rows[candidates]]).to(found.device)
                memory.logits[slots] = found[from_numpy(candidates).to(found.device)]
            return found

        memory.reader.read(logits, look, tensors, plan, reading)
        reading.seconds = memory.watch.seconds()
        return reading

    @torch.inference_mode()
    def copy_rows(self, memory: Memory, slots: NDArray[np.int64]) -> CopiedRows:
        tables = [table[at] for table, at in memory.places(slots)]
        return CopiedRows(slots, tables, memory.reader.copy_rows(slots))

    @torch.inference_mode()
    def put_rows(self, memory: Memory, rows: CopiedRows) -> None:
        for (table, at), copied in zip(memory.places(rows.slots), rows.tables, strict=True):
            table[at] = copied
        memory.reader.put_rows(rows.kept)

    @torch.inference_mode()
    def logits(self, memory: Memory, rows: NDArray[np.int64]) -> NDArray:
        """See `Engine.logits`. They are in the dtype of the network, or in float32 if that is wider."""
        wide = torch.promote_types(self.network.dtype, torch.float32)
        found = torch.full((len(rows), self.network.config.vocab_size), torch.nan, dtype=wide)
        known = np.isin(rows, memory.rows)
        if known.any():
            places = from_numpy(np.searchsorted(memory.rows, rows[known]))
            hidden = memory.hidden[places.to(memory.hidden.device)]
            found[from_numpy(known)] = self.network.logits(hidden).to("cpu", wide)
        return found.numpy()

    def _forward(self, memory: Memory, plan: Plan, inputs: Rows, tensors: Mapping[str, Tensor]) -> None:
        """Run the packed forward of all passes, and keep the hidden states of the rows that are read."""
        if not len(plan.slots):
            return
        passes = memory.layout.passes
        if memory.captured is not None and inputs.bucket:
            found = memory.captured(inputs, tensors)[: passes * len(plan.slots)]
            both = found.unflatten(0, (passes, -1))[:, tensors["rows read"]]
        else:
            both = memory.packed(inputs.of(tensors)).unflatten(0, (passes, -1))
        memory.hidden = both[0]
        if passes == 2:  # the head is linear, so guided states make guided logits
            wide, blind = both.to(torch.promote_types(both.dtype, torch.float32))
            memory.hidden = torch.add(blind, wide - blind, alpha=plan.cfg_scale + 1).to(both.dtype)
