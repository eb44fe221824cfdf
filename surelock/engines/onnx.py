"""The engine for float32 on one CPU: ONNX Runtime computes the whole step, without torch.

The packed forward (Algorithm 1, lines 9-14) is one call per sequence and returns the hidden states of the read
rows. Logits and posteriors (line 15) of all sequences are then computed together, in chunks of rows of bounded size.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from tqdm import tqdm

from surelock.config import NetworkConfig
from surelock.decoding.step import NO_ROWS, Flags, Layout, Plan, Reading, Whole, even
from surelock.engines.lending import Lender
from surelock.engines.onnx_graph import head_graph, head_name, posterior_graph, step_graph
from surelock.engines.read_plan import chunk_rows, likeliest_of
from surelock.memory import trim_memory
from surelock.model.families import SHOW_PROGRESS_FROM
from surelock.model.stored import Stored, Tensors
from surelock.values import Floats32, Json, frozen

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto

    from surelock.model.network import Network

_CHUNK_BYTES = 2**21  # of one table of posteriors: of the embedded model's, 128 rows
# of weights in float32: a session holds its weights several times while it is made
_PART_BYTES = 2**27
_NOTHING = {  # inputs of `posterior_graph` that ask for no output
    **dict.fromkeys(("chosen", "scored", "shown"), NO_ROWS),
    "bias": np.zeros((1, 1), np.float32),
    "top_k": np.ones(1, dtype=np.int64),
}


class Cache:
    """Keys and values of one sequence. The step's graphs read and write them in place."""

    def __init__(self, parts: list[Part], config: NetworkConfig, length: int) -> None:
        self._parts = [(part.session, part.session.io_binding()) for part in parts]
        # In a shifted network also hidden states: the state before a position predicts it.
        self._states = np.zeros((length, config.d_model), np.float32) if config.shifted else None
        self._masks = config.block_size is not None
        self._tables: list[Floats32] = []  # whose memory the sessions read and write
        self._convs: list[Floats32] = []  # those of them with a row of zeros at both ends
        for part, (_, binding) in zip(parts, self._parts, strict=True):
            for name, value in part.shared_inputs.items():
                binding.bind_ortvalue_input(name, value)
            for layer in part.layers:
                conv = layer in config.conv_layers
                shape = (
                    (length + 2, config.d_model)
                    if conv
                    else (length, config.n_kv_heads * config.head_size)
                )
                for kind in ("keys",) if conv else ("keys", "values"):
                    table = np.zeros(shape, np.float32)
                    self._tables.append(table)
                    if conv:
                        self._convs.append(table)
                    value = onnxruntime.OrtValue.ortvalue_from_numpy(table)
                    binding.bind_ortvalue_input(f"past_{kind}.{layer}", value)
                    binding.bind_ortvalue_output(f"present_{kind}.{layer}", value)

    @property
    def tables(self) -> list[Floats32]:
        """What is kept from step to step: tables with a row per position."""
        return [*self._tables, *([] if self._states is None else [self._states])]

    @property
    def nbytes(self) -> int:
        return sum(table.nbytes for table in self._tables) + (
            0 if self._states is None else self._states.nbytes
        )

    def reset(self) -> None:
        """Zero what a row may read before the run has written it: what it does not see has weight 0."""
        for table in self._tables if self._masks else ():
            table[:] = 0
        for table in self._convs:
            table[[0, -1]] = 0

    def forward(self, tokens: Whole, positions: Whole, probed: Flags, read: Whole) -> Floats32:
        """Compute rows [R]. Returns the hidden states [K, d_model] that the logits of the rows `read` are of."""
        written = np.flatnonzero(~probed)
        inputs = {
            "tokens": tokens,
            "positions": positions,
            "written": written,
            "targets": positions[written],
        }
        inputs["read"] = read if self._states is None else np.arange(len(tokens))
        if not len(inputs["read"]):
            inputs["read"] = np.zeros(1, dtype=np.int64)  # the last layer's attention wants a row
        states = None
        for session, binding in self._parts:
            for name, rows in inputs.items():
                binding.bind_cpu_input(name, rows)
            if states is not None:
                binding.bind_ortvalue_input("states", states)
            # its shape may change
            binding.bind_output("hidden" if session is self._parts[-1][0] else "next_states")
            session.run_with_iobinding(binding)
            states = binding.get_outputs()[-1]
        assert states is not None
        hidden = states.numpy()
        if self._states is None:
            return hidden[: len(read)]
        self._states[positions[written]] = hidden[written]
        return self._states[np.maximum(positions[read] - 1, 0)]


class Memory:
    """The memory of one run: keys and values, watched posteriors, and the hidden states of the last step.

    rows: the most whose logits are made at once.
    """

    def __init__(
        self, parts: list[Part], config: NetworkConfig, layout: Layout, keep_logits: bool, rows: int
    ) -> None:
        slots = sum(layout.lengths)
        vocab_size = config.vocab_size
        self.key = layout, keep_logits, rows
        self.caches = [  # by pass, then by sequence
            [Cache(parts, config, length) for length in layout.lengths]
            for _ in range(layout.passes)
        ]
        # Empty tables take memory where they are written.
        self.log_p = np.empty((slots, vocab_size), np.float32)
        # whether `log_p` holds the slot's last posterior
        self.has: Flags = np.zeros(slots, dtype=bool)
        # of the logits made at once
        self.table = np.empty((min(rows, slots), vocab_size), np.float32)
        # see `Engine.memory`
        self.logits = np.zeros((slots, vocab_size), np.float32) if keep_logits else None
        self.rows: Whole = NO_ROWS  # [K], the rows of the plan that `hidden` is of
        self.hidden = np.empty((0, config.d_model), np.float32)  # [K, d_model], guidance applied

    @property
    def lengths(self) -> tuple[int, ...]:
        """The number of positions of every sequence."""
        return tuple(self.key[0].lengths)

    @property
    def nbytes(self) -> int:
        kept = sum(cache.nbytes for caches in self.caches for cache in caches)
        return (
            kept
            + self.log_p.nbytes
            + self.table.nbytes
            + (0 if self.logits is None else self.logits.nbytes)
        )

    def reset(self) -> None:
        for caches in self.caches:
            for sequence_cache in caches:
                sequence_cache.reset()
        self.has[:] = False
        if self.logits is not None:
            self.logits[:] = 0
        self.rows = NO_ROWS
        self.hidden = self.hidden[:0]


@frozen(eq=False)
class CopiedRows:
    """Rows of a memory's tables. slots: [K] int64. has: [K]. log_p: [M, V], of those that have one."""

    slots: Whole
    tables: list[Floats32]
    has: Flags
    log_p: Floats32

    @property
    def nbytes(self) -> int:
        return self.log_p.nbytes + sum(table.nbytes for table in self.tables)


@dataclass(slots=True)
class Chunk:
    """A chunk of the read rows. rows: [K] int64, ascending, their numbers in the plan. logits: [K, V]."""

    memory: Memory
    plan: Plan
    reading: Reading
    rows: Whole
    logits: Floats32


class OnnxEngine:
    """Computes rows in float32 on one CPU. load_network: is called on the first use of `network`."""

    name = f"onnxruntime {onnxruntime.__version__}"
    device = "cpu"
    dtype = "float32"

    def __init__(
        self,
        config: NetworkConfig,
        tensors: Tensors,
        threads: int,
        load_network: Callable[[], Network],
    ) -> None:
        self.config = config
        self.tensors = tensors
        # The hub's cache has links, which ONNX Runtime does not follow out of a folder.
        real = {
            parameter: tuple(
                (name, tensor.resolved() if isinstance(tensor, Stored) else tensor)
                for name, tensor in parts
            )
            for parameter, parts in tensors.items()
        }
        stored: Json = {name: real[name][0][1] for name in ("embed.weight", head_name(config))}
        # ONNX Runtime packs weights for speed. A large head stays as it is, so that a tied embedding is its memory.
        head = head_name(config)
        folder = stored["embed.weight"].file.parent
        large = 4 * config.vocab_size * config.d_model > _PART_BYTES
        self._shared_inputs = {head: stored[head].wide(np.float32)} if large else {}
        self._head = Session(
            head_graph(config, real, weights_as_input=large), threads, folder, shared=large
        )
        self._parts = _parts(config, real, threads, folder, self._shared_inputs)
        self._posterior = Session(posterior_graph(), threads, folder, shared=large)
        self._rows, self._few = chunk_rows(_CHUNK_BYTES, 4 * config.vocab_size)
        self._lender = Lender[Memory]()
        self._load_network = load_network
        self._network = None
        self._loading = Lock()

    @property
    def network(self) -> Network:
        with self._loading:
            if self._network is None:
                self._network = self._load_network()
            return self._network

    def memory(self, layout: Layout, keep_logits: bool = False) -> Memory:
        config = self.config
        slots = sum(layout.lengths)
        width = 2 * config.n_layers * config.n_kv_heads * config.head_size
        tables = (1 + keep_logits) * slots + min(self._rows, slots)
        nbytes = 4 * (layout.passes * slots * width + tables * config.vocab_size)
        key = layout, keep_logits, self._rows
        return self._lender.lend(key, nbytes, partial(Memory, self._parts, config, *key))

    def release(self, memory: Memory) -> None:
        self._lender.take_back(memory)

    def read(self, memory: Memory, plan: Plan) -> Reading:
        begun = time.perf_counter()
        beside = 0.0
        reading = Reading.empty(plan)
        every = np.arange(len(plan.slots))
        rows = plan.read
        memory.has[plan.outdated] = False
        memory.rows = rows if len(rows) else every
        memory.hidden = self._forward(memory, plan, memory.rows)
        for part in even(len(rows), self._rows):
            some = rows[part]
            logits = memory.table[: part.stop - part.start]
            self._put_logits(memory.hidden[part], logits)
            if memory.logits is not None:
                candidates = plan.choice.rows[some]
                memory.logits[plan.slots[some[candidates]]] = logits[candidates]
            for few in even(len(some), self._few):
                chunk = Chunk(memory, plan, reading, some[few], logits[few])
                if plan.observe:  # before what is kept becomes another
                    paused = time.perf_counter()
                    self._observe(chunk)
                    beside += time.perf_counter() - paused
                self._choose(chunk)
        if plan.choice.quotas is not None:
            self._draw(memory, plan, reading, memory.table if len(rows) <= self._rows else None)
        reading.find_likeliest = partial(self._likeliest, memory, plan)
        reading.seconds = time.perf_counter() - begun - beside
        return reading

    def copy_rows(self, memory: Memory, slots: Whole) -> CopiedRows:
        has = memory.has[slots]
        tables = [table[at] for table, at in _places(memory, slots)]
        return CopiedRows(slots, tables, has, memory.log_p[slots[has]])

    def put_rows(self, memory: Memory, rows: CopiedRows) -> None:
        for (table, at), copied in zip(_places(memory, rows.slots), rows.tables, strict=True):
            table[at] = copied
        memory.has[rows.slots] = rows.has
        memory.log_p[rows.slots[rows.has]] = rows.log_p

    def logits(self, memory: Memory, rows: Whole) -> Floats32:
        has_hidden = np.isin(rows, memory.rows)
        table = np.full((len(rows), self.config.vocab_size), np.nan, np.float32)
        if has_hidden.any():
            logits = np.empty((int(has_hidden.sum()), self.config.vocab_size), np.float32)
            self._put_logits(memory.hidden[np.searchsorted(memory.rows, rows[has_hidden])], logits)
            table[has_hidden] = logits
        return table

    def _likeliest(self, memory: Memory, plan: Plan) -> Whole:
        """See `Reading.likeliest`."""

        def of_kept(slots: Whole) -> Whole:
            parts = even(len(slots), self._rows)
            return np.concatenate(
                [NO_ROWS, *(memory.log_p[slots[part]].argmax(axis=1) for part in parts)]
            )

        return likeliest_of(plan, of_kept, lambda rows: self.logits(memory, rows))

    def _forward(self, memory: Memory, plan: Plan, read: Whole) -> Floats32:
        """The hidden states [K, d_model] of the rows `read` after the last norm: the packed forward, by sequence."""
        passes = []
        for caches, tokens in zip(memory.caches, (plan.tokens, plan.blind), strict=False):
            assert tokens is not None
            hidden_parts = [np.empty((0, self.config.d_model), np.float32)]
            stop = 0
            for held, count in zip(caches, plan.counts, strict=True):
                start = stop
                stop = stop + count
                part = slice(start, stop)
                rows = read[slice(*np.searchsorted(read, (start, stop)))] - start
                if count:
                    hidden_parts.append(
                        held.forward(tokens[part], plan.positions[part], plan.probed[part], rows)
                    )
            passes.append(np.concatenate(hidden_parts))
        if plan.blind is None:
            return passes[0]
        hidden, blind = passes  # combined here, since the head is linear
        return (blind + (plan.cfg_scale + 1) * (hidden - blind)).astype(np.float32, copy=False)

    def _put_logits(self, hidden: Floats32, out: Floats32) -> None:
        """Write the logits of hidden states [K, d_model] to `out` [K, V], without a copy of them."""
        binding = self._head.io_binding()
        for name, value in {"hidden": hidden, **self._shared_inputs}.items():
            binding.bind_cpu_input(name, value)
        binding.bind_output("logits", "cpu", 0, np.float32, out.shape, out.ctypes.data)
        self._head.run_with_iobinding(binding)

    def _choose(self, chunk: Chunk) -> None:
        """Read confidences, candidates (their tokens only if any may be committed), and the KLs that rules need."""
        plan = chunk.plan
        reading = chunk.reading
        rows = chunk.rows
        chosen = np.flatnonzero(plan.choice.read[rows])
        score = plan.choice.scores if plan.choice.scores in ("entropy", "margin") else "own"
        first = 0
        named = [name for name in plan.choice.measures if name != "input"]
        scored = chosen if named or score != "own" else NO_ROWS
        inputs: dict[str, NDArray] = {"chosen": chosen, "scored": scored}
        if len(chosen):
            first = int(plan.choice.rows[: rows[chosen[0]]].sum())
        candidates = np.arange(first, first + len(chosen))
        if plan.choice.quotas is not None:
            inputs["chosen"] = NO_ROWS
        elif len(chosen):
            inputs["bias"] = _bias(plan, candidates, chunk.logits.shape[1])
        outputs = ["confidence", "total", "token", score, *named]
        followed = plan.compares[rows], plan.watches[rows] & ~plan.probed[rows]
        confidence, total, tokens, scores, *measures = self._follow(
            chunk, *followed, outputs, inputs
        )
        reading.confidence[rows] = confidence[:, 0]
        reading.finite &= bool(np.isfinite(total).all())
        reading.score[candidates] = scores
        for name, values in zip(named, measures, strict=True):
            reading.measures[name][candidates] = values
        if "input" in plan.choice.measures:
            logits = chunk.logits[chosen]
            standing = logits[np.arange(len(chosen)), plan.tokens[rows[chosen]]]
            share = np.exp(standing - logits.max(axis=1))  # of the largest probability
            reading.measures["input"][candidates] = confidence[chosen, 0] * share
        if plan.choice.quotas is None:
            reading.tokens[candidates] = tokens

    def _draw(self, memory: Memory, plan: Plan, reading: Reading, logits: Floats32 | None) -> None:
        """Draw the tokens that `Choice.quotas` lets be committed. logits: of all rows read, if they were kept."""
        best = plan.choice.best(reading.score, plan.counts)
        rows = np.flatnonzero(plan.choice.rows)
        for part in even(len(best), self._few):
            some = best[part]
            z = (
                self.logits(memory, rows[some])
                if logits is None
                else logits[np.searchsorted(plan.read, rows[some])]
            )
            reading.tokens[some] = (z + _bias(plan, some, z.shape[1])).argmax(axis=1)

    def _observe(self, chunk: Chunk) -> None:
        """Read the KLs that no rule needs, and likely tokens."""
        plan = chunk.plan
        reading = chunk.reading
        rows = chunk.rows
        inputs = {}
        outputs = []
        if plan.top_k:
            inputs = {"shown": np.arange(len(rows)), "top_k": np.array([plan.top_k])}
            outputs = ["top_ids", "top_probs"]
        followed = ~plan.compares[rows], ~(plan.watches[rows] | plan.probed[rows])
        likely = self._follow(chunk, *followed, outputs, inputs)
        if plan.top_k:
            reading.top_ids[rows], reading.top_probs[rows] = likely

    def _follow(
        self,
        chunk: Chunk,
        compares: Flags,
        keeps: Flags,
        outputs: list[str],
        inputs: dict[str, NDArray],
    ) -> list[Any]:
        """Run `posterior_graph`: compute KLs where `compares`, keep posteriors where `keeps`, and return `outputs`."""
        memory = chunk.memory
        slots = chunk.plan.slots[chunk.rows]
        compared = np.flatnonzero(compares)
        watched = np.flatnonzero(keeps)
        has_posterior = memory.has[slots[compared]]
        kept, last = (
            (memory.log_p, slots[compared]) if has_posterior.any() else (chunk.logits, compared)
        )
        rows = {
            "logits": chunk.logits,
            "watched": watched,
            "compared": compared,
            "kept": kept,
            "last": last,
        }
        results: Any = self._posterior.run(
            ["kl", "log_p", *outputs], {**_NOTHING, **inputs, **rows}
        )
        kl, log_p, *others = results
        chunk.reading.kl[chunk.rows[compared]] = np.where(has_posterior, kl, np.inf)
        if len(watched):
            memory.log_p[slots[watched]] = log_p
            memory.has[slots[watched]] = True
        return others


def _places(memory: Memory, slots: Whole) -> Iterator[tuple[Floats32, Whole]]:
    """Every table of all sequences and passes, with the rows of it that ascending slots are."""
    for caches in memory.caches:
        start = 0
        for held, length in zip(caches, memory.lengths, strict=True):
            table_rows = slots[(slots >= start) & (slots < start + length)] - start
            start += length
            for table in held.tables:
                yield table, table_rows


def _bias(plan: Plan, candidates: Whole, size: int) -> Floats32:
    """What is added to the logits of candidates [K]: noise as of `choose_tokens`, -inf if banned; [K, V] or [1, V]."""
    bias = _banned(tuple(plan.choice.banned), size)
    if plan.choice.draws is not None and plan.choice.temperature > 0:
        with np.errstate(divide="ignore"):
            noise = -plan.choice.temperature * np.log(
                -np.log(plan.choice.draws.gumbel(candidates, size))
            )
        bias = noise.astype(np.float32)
        bias[:, plan.choice.banned] = -np.inf
    if plan.choice.barred.size:
        at, forbidden = plan.choice.barred[:, np.isin(plan.choice.barred[0], candidates)]
        bias = np.array(np.broadcast_to(bias, (len(candidates), size)))
        bias[np.searchsorted(candidates, at), forbidden] = -np.inf
    return bias


@lru_cache
def _banned(tokens: tuple[int, ...], size: int) -> Floats32:
    bias = np.zeros((1, size), np.float32)
    bias[:, tokens] = -np.inf
    return bias


@frozen(eq=False)
class Part:
    """Some layers of the step's graph. shared_inputs: the same in every step."""

    session: Session
    layers: range
    shared_inputs: dict[str, onnxruntime.OrtValue]


def _parts(
    config: NetworkConfig,
    tensors: Tensors,
    threads: int,
    folder: Path,
    shared_inputs: dict[str, Floats32],
) -> list[Part]:
    """The step's graph in as many parts as keep the memory low while sessions are made; one for a small network."""
    sizes = {
        name: sum(math.prod(tensor.shape) for _, tensor in parts) for name, parts in tensors.items()
    }
    layers_a_part = max(
        1,
        int(
            config.n_layers
            * _PART_BYTES
            / (4 * sum(sizes[name] for name in sizes if "blocks" in name))
        ),
    )
    starts = range(0, config.n_layers, layers_a_part)
    progress = tqdm(
        starts, desc="loading", unit="part", disable=sum(sizes.values()) < SHOW_PROGRESS_FROM
    )
    step_parts = []
    for start in progress:
        layers = range(start, min(start + layers_a_part, config.n_layers))
        embed = "embed.weight" in shared_inputs and start == 0
        session = Session(
            step_graph(config, tensors, layers, embed), threads, folder, shared=len(starts) > 1
        )
        values = (
            {
                "embed.weight": onnxruntime.OrtValue.ortvalue_from_numpy(
                    shared_inputs["embed.weight"]
                )
            }
            if embed
            else {}
        )
        step_parts.append(Part(session, layers, values))
        trim_memory()
    return step_parts


@cache
def _register_arena() -> None:
    kind = onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    place = onnxruntime.OrtMemoryInfo("Cpu", kind, 0, onnxruntime.OrtMemType.DEFAULT)
    onnxruntime.create_and_register_allocator(
        place, onnxruntime.OrtArenaCfg({"arena_extend_strategy": 1})
    )


class Session(onnxruntime.InferenceSession):
    """A session of a graph, whose weights are read from a folder.

    shared: take memory from one arena. Otherwise every session would keep an arena. Without arenas glibc scatters what
    they take.
    """

    def __init__(self, graph: ModelProto, threads: int, folder: Path, shared: bool = False) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        # A waiting thread spins for so long: it bridges two operators, and hardly keeps other processes waiting.
        options.add_session_config_entry("session.intra_op.spin_duration_us", "50")
        options.log_severity_level = 3  # errors
        options.enable_mem_pattern = False  # they are kept for every number of rows
        if shared:
            _register_arena()
            options.add_session_config_entry("session.use_env_allocators", "1")
            options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", str(folder)
        )
        # The weights of products are packed, all others would be read where they lie, in files that may be overwritten.
        gathered = {node.input[0] for node in graph.graph.node if node.op_type == "Gather"}
        outside = [tensor for tensor in graph.graph.initializer if tensor.external_data]
        held = [tensor for tensor in outside if len(tensor.dims) == 1 or tensor.name in gathered]
        values = [_read(tensor, folder) for tensor in held]  # the options keep none of them
        options.add_external_initializers([tensor.name for tensor in held], values)
        super().__init__(graph.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _read(tensor: TensorProto, folder: Path) -> onnxruntime.OrtValue:
    where = {entry.key: entry.value for entry in tensor.external_data}
    kind = {2: np.uint16, 4: np.float32, 8: np.float64}[
        int(where["length"]) // math.prod(tensor.dims)
    ]
    values = np.fromfile(
        folder / where["location"], kind, math.prod(tensor.dims), offset=int(where["offset"])
    )
    shaped = values.reshape(tensor.dims)
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(shaped, tensor.data_type)
