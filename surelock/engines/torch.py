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

_LEFT = 10  # idle memories leave a tenth of a GPU free


class PackedForward:
    """The packed forward pass of a network, with its cache of `slots` slots.

    once: see `Layout`.
    elementwise: compiled functions, taken where they are faster.
    """

    def __init__(
        self, network: Network, slots: int, once: bool = False, elementwise: Elementwise = PLAIN
    ) -> None:
        self.network = network
        self._elementwise = elementwise
        self.devices = [
            block.ff_out.weight.device for block in cast("Iterable[Block]", network.blocks)
        ]
        self._tables: dict[torch.device, Rotary] = {}  # held, since captured graphs read them
        devices = [*self.devices, network.norm.weight.device]
        self.cache = KVCache(network.config, slots, network.dtype, devices, once)

    def __call__(self, rows: Rows) -> Tensor:
        """Compute rows. Returns the hidden states [K, d_model] of the read rows.

        They are the states after the last norm, from which the head makes logits; in a shifted network those of the
        positions before the rows, from the cache. Every layer writes the keys and values of the rows into the cache,
        but not those of probed rows. A row attends to all positions of its sequence. For rows that are not read the
        last layer computes keys and values alone.
        """
        network = self.network
        cache = self.cache
        devices = self.devices
        tokens = rows.arrays["tokens"]
        there = {device: rows.to(device) for device in dict.fromkeys(devices)}
        elementwise = self._elementwise if is_faster("compiled layers", len(tokens)) else PLAIN

        def rotary(device: torch.device) -> Rotary:
            if device not in self._tables:
                self._tables[device] = rotary_table(
                    network.config, rows.most_seen, network.dtype, device
                )
            cos, sin = self._tables[device]
            positions = there[device].arrays["positions"]
            return cos[positions], sin[positions]

        def attend(layer: int) -> Attend:
            mix = cache.convolve if layer in network.config.conv_layers else cache.attend
            return partial(mix, layer, there[devices[layer]])

        if network.config.shifted:
            hidden = network.run(tokens, rotary, attend, None, elementwise)
            local_rows = rows.to(hidden.device)
            hidden = cache.before(local_rows, hidden)
            return hidden[local_rows.arrays["read"]] if "read" in local_rows.arrays else hidden
        read = there[devices[-1]].arrays.get("read")
        only = None if read is None else lambda x: x[read]
        return network.run(tokens, rotary, attend, only, elementwise)


@frozen
class Kind:
    """What runs need a memory to be equal in.

    room: how much it holds.
    keep_logits: see `Engine.memory`.
    varlen: whether sequences with different numbers of rows are attended to at once.
    graphs: whether few rows are launched as graphs.
    layers: whether layers take compiled functions.
    reading: whether many posteriors are read by them.
    """

    room: Room
    keep_logits: bool
    varlen: bool
    graphs: bool
    layers: bool
    reading: bool


class Memory:
    """The memory of one run: keys and values, watched posteriors, and the hidden states of the last step.

    With its graphs, which read and write its tables, it serves one run after another.
    """

    def __init__(
        self, network: Network, kind: Kind, capture: Capture | None, backend: Backend
    ) -> None:
        device = network.head_weight.device
        room = kind.room
        config = network.config
        self.key = kind
        self.watch = Stopwatch(device)
        self._logits: Tensor | None = None  # of all slots
        if kind.keep_logits:
            with torch.inference_mode(False):  # callers change them
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
        """Serve a run of a layout, which fits the room."""
        self.layout = layout
        with torch.inference_mode(False):
            self.logits = None if self._logits is None else self._logits[: sum(layout.lengths)]
        # [K], the rows of the plan that `hidden` is of
        self.rows: Whole = np.empty(0, dtype=np.int64)
        self.hidden = torch.empty(0)  # [K, d_model], guidance applied

    @property
    def nbytes(self) -> int:
        """What it keeps: its tables, and of graphs what their largest takes between its layers."""
        table_bytes = self.packed.cache.nbytes + self.reader.nbytes
        logits = 0 if self._logits is None else self._logits.nbytes
        graphs = (
            0
            if self.captured is None
            else self.captured.nbytes + _graph_bytes(self.packed.network, self.key)
        )
        return table_bytes + logits + graphs

    @torch.inference_mode()
    def reset(self) -> None:
        self.packed.cache.reset()
        self.reader.reset()
        if self._logits is not None:
            self._logits.zero_()

    def places(self, slots: Whole) -> Iterator[tuple[Tensor, Tensor]]:
        """Each table of the cache, and the rows of it that slots are, in every pass."""
        length = sum(self.layout.lengths)
        rows = from_numpy(
            np.concatenate([slots + length * number for number in range(self.layout.passes)])
        )
        return ((table, rows.to(table.device)) for table in self.packed.cache.tables)

    def inputs(self, plan: Plan) -> Rows:
        kind = self.key
        bucket = 0
        if self.captured is not None:
            bucket = bucket_of(kind.room.passes * len(plan.slots), kind.layers)
        return rows_of(
            self.packed.network.config, self.layout, kind.room, plan, kind.varlen, bucket
        )


def memory_bytes(network: Network, kind: Kind) -> int:
    """Return what a memory of a kind takes at most, once it keeps the posteriors of all slots."""
    config = network.config
    room = kind.room
    size = network.dtype.itemsize
    layers = 1 if room.once else config.n_layers
    of_slot = 2 * layers * config.n_kv_heads * config.head_size + config.shifted * config.d_model
    made, _ = rows_at_once(config.vocab_size, network.dtype, network.head_weight.device)
    rows = (1 + kind.keep_logits) * room.slots + min(made, room.slots)  # of posteriors and logits
    slots = room.spare + 2  # with spare and zero ones, in which the arrays of numbers are lost
    return size * (of_slot * slots + config.vocab_size * rows) + _graph_bytes(network, kind)


def _graph_bytes(network: Network, kind: Kind) -> int:
    """What graphs keep between their layers, and of their results."""
    if not kind.graphs:
        return 0
    config = network.config
    sizes = buckets(kind.room.spare, kind.layers)
    width = 12 * config.d_model + 4 * config.d_ff
    return network.dtype.itemsize * (sizes[0] * width + sum(sizes) * config.d_model)


@frozen(eq=False)
class CopiedRows:
    """Rows of a memory's tables, on their devices. slots: [K] int64. kept: what the reader holds of them."""

    slots: Whole
    tables: list[Tensor]
    kept: KeptRows

    @property
    def nbytes(self) -> int:
        return self.kept.nbytes + sum(table.numel() * table.element_size() for table in self.tables)


class TorchEngine:
    """Computes rows in torch, on the devices and in the dtype of the network.

    capture: what captures graphs. None is CUDA graphs where the devices can.
    backend: what compiles, see `torch.compile`.

    graphs, fused: whether a GPU that can do so captures graphs, and takes compiled functions in its layers and to read
    many posteriors.
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
        """The device of the head and of the logits. Blocks may lie on other devices."""
        return self.network.head_weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.network.dtype

    def prepare(self) -> None:
        """Compile what layers take, if the GPU can. It takes seconds, and a terminal shows them."""
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
        """See `Engine.logits`. They are in the dtype of the network, or in float32 if that is wider."""
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
        """Whether layers take compiled functions."""
        can = self.fused and len(self._devices) == 1 and can_fuse(self.device)
        return can and has_varlen(self.config, self.dtype, self.device)

    def _kind(self, layout: Layout, keep_logits: bool) -> Kind:
        varlen = has_varlen(self.config, self.dtype, self.device)
        graphs = self.graphs and self._capture is not None and varlen
        graphs = graphs and self.config.block_size is None and not layout.once
        slots = sum(layout.lengths)
        reading = self.fused and slots >= FASTER["compiled reading"][0] and can_fuse(self.device)
        return Kind(
            Room.for_layout(layout, rounded=graphs),
            keep_logits,
            varlen,
            graphs,
            self._compiles(),
            reading,
        )

    def _forward(
        self, memory: Memory, plan: Plan, inputs: Rows, tensors: Mapping[str, Tensor]
    ) -> None:
        """Run the packed forward of all passes, and keep the hidden states of the rows that are read."""
        if not len(plan.slots):
            return
        passes = memory.layout.passes
        if memory.captured is not None and inputs.bucket:
            hidden = memory.captured(inputs, tensors)[: passes * len(plan.slots)]
            both = hidden.unflatten(0, (passes, -1))[:, tensors["rows read"]]
        else:
            both = memory.packed(inputs.with_tensors(tensors)).unflatten(0, (passes, -1))
        memory.hidden = both[0]
        if passes == 2:  # the head is linear, so guided states make guided logits
            wide, blind = both.to(torch.promote_types(both.dtype, torch.float32))
            memory.hidden = torch.add(blind, wide - blind, alpha=plan.cfg_scale + 1).to(both.dtype)


def _most_on_gpus(devices: list[torch.device], taken: int) -> int:
    """Return the bytes that idle memories may take, of which they take `taken`: 0 on ZeroGPU, which lends for seconds.

    No GPU is to be filled by them to more than nine tenths.
    """
    if value_of("SPACES_ZERO_GPU"):
        return 0
    spare = [free_memory(device) - total_memory(device) // _LEFT for device in devices]
    return taken + min(spare)
