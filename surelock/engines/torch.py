"""The engine for GPUs, several devices, bfloat16 and float64: the packed forward (Algorithm 1, lines 9-15) in torch."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, from_numpy

from surelock.decoding.step import Layout, Plan, Reading
from surelock.engines.attention import has_varlen
from surelock.engines.break_even import FASTER, is_faster
from surelock.engines.cache import KVCache
from surelock.engines.cuda_graph import (
    Capture,
    CapturedForward,
    CapturedGraph,
    bucket_of,
    buckets,
    captures,
)
from surelock.engines.fused import Backend, can_fuse, compiled_elementwise, compiled_reading
from surelock.engines.inputs import Room, Rows, fillers, rows_of, upload
from surelock.engines.lending import Lender, at_most_on_a_cpu
from surelock.engines.posterior import KeptRows, Reader, rows_at_once
from surelock.engines.read_plan import likeliest_of
from surelock.engines.stopwatch import Stopwatch
from surelock.environment import value_of
from surelock.model.machine import free_memory, total_memory
from surelock.model.network import PLAIN, Attend, Block, Elementwise, Network, Rotary, rotary_table
from surelock.values import Whole, frozen

_LEFT = 10  # idle memories leave 1 / 10 of a GPU's memory free


class PackedForward:
    """The packed forward pass of a network, with its cache of `slots` slots.

    once: see `Layout`.
    elementwise: compiled functions, which are used if they are faster.
    """

    def __init__(
        self, network: Network, slots: int, once: bool = False, elementwise: Elementwise = PLAIN
    ) -> None:
        self.network = network
        self._elementwise = elementwise
        self.devices = [
            block.ff_out.weight.device for block in cast("Iterable[Block]", network.blocks)
        ]
        # kept for the lifetime of the memory, since captured graphs read these tables
        self._tables: dict[torch.device, Rotary] = {}
        devices = [*self.devices, network.norm.weight.device]
        self.cache = KVCache(network.config, slots, network.dtype, devices, once)

    def __call__(self, rows: Rows) -> Tensor:
        """Compute rows. Returns the hidden states [K, d_model] of the read rows after the last norm.

        The head computes logits from these states. In a shifted network they are the states of the positions before the
        rows, from the cache. Every layer writes the keys and values of the rows into the cache, except for probed rows.
        A row attends to all positions of its sequence, in a block-causal network to the end of its block. For rows that
        are not read the last layer computes only keys and values.
        """
        network = self.network
        cache = self.cache
        devices = self.devices
        tokens = rows.arrays["tokens"]
        rows_on = {device: rows.to(device) for device in dict.fromkeys(devices)}
        elementwise = self._elementwise if is_faster("compiled layers", len(tokens)) else PLAIN

        def rotary(device: torch.device) -> Rotary:
            if device not in self._tables:
                self._tables[device] = rotary_table(
                    network.config, rows.most_seen, network.dtype, device
                )
            cos, sin = self._tables[device]
            positions = rows_on[device].arrays["positions"]
            return cos[positions], sin[positions]

        def attend(layer: int) -> Attend:
            mix = cache.convolve if layer in network.config.conv_layers else cache.attend
            return partial(mix, layer, rows_on[devices[layer]])

        if network.config.shifted:
            hidden = network.run(tokens, rotary, attend, None, elementwise)
            local_rows = rows.to(hidden.device)
            hidden = cache.before(local_rows, hidden)
            return hidden[local_rows.arrays["read"]] if "read" in local_rows.arrays else hidden
        read = rows_on[devices[-1]].arrays.get("read")
        only_read = None if read is None else lambda x: x[read]
        return network.run(tokens, rotary, attend, only_read, elementwise)


@frozen
class Kind:
    """The properties of a memory. Runs that require equal kinds may use the same memory.

    room: the size of the memory.
    keep_logits: see `Engine.memory`.
    varlen: whether one kernel attends for sequences with different numbers of rows.
    graphs: whether steps with few rows are launched as graphs.
    layers: whether layers use compiled functions.
    reading: whether compiled functions read posteriors in steps with many rows.
    """

    room: Room
    keep_logits: bool
    varlen: bool
    graphs: bool
    layers: bool
    reading: bool


class Memory:
    """The memory of one run: keys and values, watched posteriors, and the hidden states of the last step.

    The memory also has the captured graphs, which read and write its tables. One run after another may use it.
    """

    def __init__(
        self, network: Network, kind: Kind, capture: Capture | None, backend: Backend
    ) -> None:
        device = network.head_weight.device
        room = kind.room
        config = network.config
        self.key = kind
        self.watch = Stopwatch(device)
        self._logits: Tensor | None = None  # [slots, V]
        if kind.keep_logits:
            with torch.inference_mode(False):  # callers may change these logits
                self._logits = network.head_weight.new_zeros(room.slots, config.vocab_size)
        elementwise = PLAIN
        reads = None
        if kind.layers:
            elementwise = compiled_elementwise(config, network.dtype, device, backend)
        if kind.reading:
            reads = compiled_reading(config.vocab_size, network.dtype, device, backend)
        self.packed = PackedForward(network, room.spare, room.once, elementwise)
        self.reader = Reader(
            room.slots, config.vocab_size, network.dtype, device, self.watch, reads
        )
        self.captured: CapturedForward | None = None
        if capture is not None:
            sizes = buckets(room.spare, kind.layers)
            self.captured = CapturedForward(
                self.packed, partial(fillers, config, room), sizes, device, capture
            )

    def begin(self, layout: Layout) -> None:
        """Prepare for a run with a layout that fits into the room."""
        self.layout = layout
        with torch.inference_mode(False):
            self.logits = None if self._logits is None else self._logits[: sum(layout.lengths)]
        # [K], the rows of the plan whose states are in `hidden`
        self.rows: Whole = np.empty(0, dtype=np.int64)
        self.hidden = torch.empty(0)  # [K, d_model], guidance applied

    @property
    def nbytes(self) -> int:
        """Bytes of the memory's tables and of its graphs."""
        total = self.packed.cache.nbytes + self.reader.nbytes
        if self._logits is not None:
            total += self._logits.nbytes
        if self.captured is not None:
            total += self.captured.nbytes + _graph_bytes(self.packed.network, self.key)
        return total

    @torch.inference_mode()
    def reset(self) -> None:
        self.packed.cache.reset()
        self.reader.reset()
        if self._logits is not None:
            self._logits.zero_()

    def places(self, slots: Whole) -> Iterator[tuple[Tensor, Tensor]]:
        """Return (table, rows of the table) for all tables of the cache. The rows are the slots in every pass."""
        offsets = sum(self.layout.lengths) * np.arange(self.layout.passes)
        rows = from_numpy((slots + offsets[:, None]).ravel())
        return ((table, rows.to(table.device)) for table in self.packed.cache.tables)

    def inputs(self, plan: Plan) -> Rows:
        """Return the inputs of the layers for a plan, padded to the size of a graph if there is one."""
        kind = self.key
        bucket = 0
        if self.captured is not None:
            bucket = bucket_of(kind.room.passes * len(plan.slots), kind.layers)
        return rows_of(
            self.packed.network.config, self.layout, kind.room, plan, kind.varlen, bucket
        )


def memory_bytes(network: Network, kind: Kind) -> int:
    """Return the largest size of a memory in bytes, which it has after it has kept posteriors of all slots.

    Small arrays, such as log-sum-exps, are left out.
    """
    config = network.config
    room = kind.room
    size = network.dtype.itemsize
    layers = 1 if room.once else config.n_layers
    slot_width = 2 * layers * config.n_kv_heads * config.head_size
    if config.shifted:
        slot_width += config.d_model
    logits_at_once, _ = rows_at_once(config.vocab_size, network.dtype, network.head_weight.device)
    vocab_rows = (1 + kind.keep_logits) * room.slots + min(logits_at_once, room.slots)
    slots = room.spare + 2  # with the spare slot and the row of zeros
    values = slot_width * slots + config.vocab_size * vocab_rows
    return size * values + _graph_bytes(network, kind)


def _graph_bytes(network: Network, kind: Kind) -> int:
    """Return the bytes that graphs take: the largest graph's values between layers, and the results of all graphs."""
    if not kind.graphs:
        return 0
    config = network.config
    sizes = buckets(kind.room.spare, kind.layers)
    width = 12 * config.d_model + 4 * config.d_ff
    return network.dtype.itemsize * (sizes[0] * width + sum(sizes) * config.d_model)


@frozen(eq=False)
class CopiedRows:
    """A copy of the data of slots [K] in a memory, on the devices of the tables.

    tables: copies of the cache's tables. kept: a copy of the kept posteriors.
    """

    slots: Whole
    tables: list[Tensor]
    kept: KeptRows

    @property
    def nbytes(self) -> int:
        return self.kept.nbytes + sum(table.numel() * table.element_size() for table in self.tables)


class TorchEngine:
    """Computes rows in torch, on the devices and in the dtype of the network.

    capture: a function that captures graphs. None: CUDA graphs, if the devices can capture them.
    backend: the compiler, see `torch.compile`.

    Attributes that may be set to False:
    graphs: whether graphs are captured, if the device can.
    fused: whether compiled functions are used in layers and for reading posteriors, if the device can.
    """

    name = f"torch {torch.__version__}"

    def __init__(
        self, network: Network, capture: Capture | None = None, backend: Backend = "inductor"
    ) -> None:
        self.network, self.config = network, network.config
        self.graphs = self.fused = True
        self._devices = {parameter.device for parameter in network.parameters()}
        self._capture = capture
        self._backend = backend
        if capture is None and captures(self._devices):
            self._capture = CapturedGraph
        gpus = sorted((device for device in self._devices if device.type == "cuda"), key=str)
        most = partial(_most_on_gpus, gpus) if gpus else at_most_on_a_cpu
        trim = torch.cuda.empty_cache if gpus else lambda: None
        self._lender = Lender[Memory](most, trim)

    @property
    def device(self) -> torch.device:
        """The device of the head and of the logits. Layers may be on other devices."""
        return self.network.head_weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.network.dtype

    def prepare(self) -> None:
        """Compile the functions of the layers, if the device can. It takes seconds; a terminal shows its progress."""
        if self._compiles():
            compiled_elementwise(self.config, self.network.dtype, self.device, self._backend)

    @torch.inference_mode()
    def memory(self, layout: Layout, keep_logits: bool = False) -> Memory:
        kind = self._kind(layout, keep_logits)
        capture = self._capture if kind.graphs else None
        make = partial(Memory, self.network, kind, capture, self._backend)
        memory = self._lender.lend(kind, memory_bytes(self.network, kind), make)
        memory.begin(layout)
        return memory

    def release(self, memory: Memory) -> None:
        self._lender.take_back(memory)

    @torch.inference_mode()
    def read(self, memory: Memory, plan: Plan) -> Reading:
        memory.watch.start()
        reading = Reading.empty(plan)
        inputs = memory.inputs(plan)
        read_plan = memory.reader.plan(plan)
        memory.rows = plan.read if len(plan.read) else np.arange(len(plan.slots))
        tensors = upload(
            {**inputs.arrays, **read_plan.arrays, "rows read": memory.rows}, self.device
        )
        self._forward(memory, plan, inputs, tensors)

        def logits(start: int, stop: int, out: Tensor) -> Tensor:
            values = self.network.logits(memory.hidden[start:stop], out)
            if memory.logits is not None:
                rows = plan.read[start:stop]
                candidates = np.flatnonzero(plan.choice.rows[rows])
                slots = from_numpy(plan.slots[rows[candidates]]).to(values.device)
                memory.logits[slots] = values[from_numpy(candidates).to(values.device)]
            return values

        memory.reader.read(logits, read_plan, tensors, plan, reading)
        reading.find_likeliest = partial(self._likeliest, memory, plan)
        reading.seconds = memory.watch.seconds()
        return reading

    @torch.inference_mode()
    def copy_rows(self, memory: Memory, slots: Whole) -> CopiedRows:
        tables = [table[at] for table, at in memory.places(slots)]
        return CopiedRows(slots, tables, memory.reader.copy_rows(slots))

    @torch.inference_mode()
    def put_rows(self, memory: Memory, rows: CopiedRows) -> None:
        for (table, at), copied in zip(memory.places(rows.slots), rows.tables, strict=True):
            table[at] = copied
        memory.reader.put_rows(rows.kept)

    @torch.inference_mode()
    def logits(self, memory: Memory, rows: Whole) -> NDArray:
        """See `Engine.logits`. The dtype is the wider of the network's dtype and float32."""
        wide = torch.promote_types(self.network.dtype, torch.float32)
        table = torch.full((len(rows), self.network.config.vocab_size), torch.nan, dtype=wide)
        has_hidden = np.isin(rows, memory.rows)
        if has_hidden.any():
            places = from_numpy(np.searchsorted(memory.rows, rows[has_hidden]))
            hidden = memory.hidden[places.to(memory.hidden.device)]
            table[from_numpy(has_hidden)] = self.network.logits(hidden).to("cpu", wide)
        return table.numpy()

    @torch.inference_mode()
    def _likeliest(self, memory: Memory, plan: Plan) -> Whole:
        """See `Reading.likeliest`."""
        return likeliest_of(plan, memory.reader.likeliest, lambda rows: self.logits(memory, rows))

    def _compiles(self) -> bool:
        """Return whether layers use compiled functions."""
        can = self.fused and len(self._devices) == 1 and can_fuse(self.device)
        return can and has_varlen(self.config, self.dtype, self.device)

    def _kind(self, layout: Layout, keep_logits: bool) -> Kind:
        varlen = has_varlen(self.config, self.dtype, self.device)
        graphs = self.graphs and self._capture is not None and varlen
        graphs = graphs and self.config.block_size is None and not layout.once
        slots = sum(layout.lengths)
        reading = self.fused and slots >= FASTER["compiled reading"][0] and can_fuse(self.device)
        room = Room.for_layout(layout, rounded=graphs)
        return Kind(room, keep_logits, varlen, graphs, self._compiles(), reading)

    def _forward(
        self, memory: Memory, plan: Plan, inputs: Rows, tensors: Mapping[str, Tensor]
    ) -> None:
        """Run the packed forward of all passes. Sets `memory.hidden`, the hidden states of the read rows."""
        if not len(plan.slots):
            return
        passes = memory.layout.passes
        if memory.captured is not None and inputs.bucket:
            hidden = memory.captured(inputs, tensors)[: passes * len(plan.slots)]
            both = hidden.unflatten(0, (passes, -1))[:, tensors["rows read"]]
        else:
            both = memory.packed(inputs.with_tensors(tensors)).unflatten(0, (passes, -1))
        memory.hidden = both[0]
        if passes == 2:  # the head is linear, so guided states give guided logits
            hidden, blind = both.to(torch.promote_types(both.dtype, torch.float32))
            guided = torch.add(blind, hidden - blind, alpha=plan.cfg_scale + 1)
            memory.hidden = guided.to(both.dtype)


def _most_on_gpus(devices: list[torch.device], taken: int) -> int:
    """Return the bytes that idle memories may take: as many as leave a tenth of every GPU's memory free.

    taken: the bytes that idle memories take now. The result is 0 on ZeroGPU, which lends a GPU only for seconds.
    """
    if value_of("SPACES_ZERO_GPU"):
        return 0
    spare = [free_memory(device) - total_memory(device) // _LEFT for device in devices]
    return taken + min(spare)
