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

_CHUNK_BYTES = 2**21  # size of a table of posteriors, 128 rows of the embedded model's vocabulary
# Size of the float32 weights of a session. While a session is made, it needs several times its weights in memory.
_PART_BYTES = 2**27
_NOTHING = {  # inputs of `posterior_graph` for which it computes no optional outputs
    **dict.fromkeys(("chosen", "scored", "shown"), NO_ROWS),
    "bias": np.zeros((1, 1), np.float32),
    "top_k": np.ones(1, dtype=np.int64),
}


class Cache:
    """Keys and values of one sequence. The step's graphs read and write them in place."""

    def __init__(self, parts: list[Part], config: NetworkConfig, length: int) -> None:
        self._parts = [(part.session, part.session.io_binding()) for part in parts]
        # A shifted network also needs hidden states: the state before a position predicts the position.
        self._states = np.zeros((length, config.d_model), np.float32) if config.shifted else None
        self._masks = config.block_size is not None
        self._tables: list[Floats32] = []  # the sessions read and write their memory
        self._convs: list[
            Floats32
        ] = []  # the tables of convolutions, with a row of zeros at both ends
        for part, (_, binding) in zip(parts, self._parts, strict=True):
            for name, value in part.shared_inputs.items():
                binding.bind_ortvalue_input(name, value)
            for layer in part.layers:
                kinds = ["keys", "values"]
                shape = length, config.n_kv_heads * config.head_size
                if layer in config.conv_layers:
                    kinds = ["keys"]
                    shape = length + 2, config.d_model
                for kind in kinds:
                    table = np.zeros(shape, np.float32)
                    self._tables.append(table)
                    value = onnxruntime.OrtValue.ortvalue_from_numpy(table)
                    binding.bind_ortvalue_input(f"past_{kind}.{layer}", value)
                    binding.bind_ortvalue_output(f"present_{kind}.{layer}", value)
                if layer in config.conv_layers:
                    self._convs.append(self._tables[-1])

    @property
    def tables(self) -> list[Floats32]:
        """The tables that are kept between steps, with a row per position."""
        return self._tables if self._states is None else [*self._tables, self._states]

    @property
    def nbytes(self) -> int:
        return sum(table.nbytes for table in self.tables)

    def reset(self) -> None:
        """Set values to zero that a row may read before the run writes them.

        Positions that a row does not see have weight 0 in its attention, so their values must be finite.
        """
        if self._masks:
            for table in self._tables:
                table[:] = 0
        for table in self._convs:
            table[[0, -1]] = 0

    def forward(self, tokens: Whole, positions: Whole, probed: Flags, read: Whole) -> Floats32:
        """Compute rows [R]. Returns the hidden states [K, d_model] from which the head predicts the rows `read`."""
        written = np.flatnonzero(~probed)
        inputs = {
            "tokens": tokens,
            "positions": positions,
            "written": written,
            "targets": positions[written],
        }
        inputs["read"] = read if self._states is None else np.arange(len(tokens))
        if not len(inputs["read"]):
            inputs["read"] = np.zeros(1, dtype=np.int64)  # the last layer's attention needs a row
        states = None
        for session, binding in self._parts:
            for name, rows in inputs.items():
                binding.bind_cpu_input(name, rows)
            if states is not None:
                binding.bind_ortvalue_input("states", states)
            # bound before every run, because the number of rows may change
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

    rows: the largest number of rows whose logits are computed at once.
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
        # kept log posteriors; np.empty takes memory only for rows that are written
        self.log_p = np.empty((slots, vocab_size), np.float32)
        # whether `log_p` has a posterior of the slot
        self.has: Flags = np.zeros(slots, dtype=bool)
        # logits of the rows that are computed together
        self.table = np.empty((min(rows, slots), vocab_size), np.float32)
        # see `Engine.memory`
        self.logits = np.zeros((slots, vocab_size), np.float32) if keep_logits else None
        self.rows: Whole = NO_ROWS  # [K], the rows of the plan whose states are in `hidden`
        self.hidden = np.empty((0, config.d_model), np.float32)  # [K, d_model], guidance applied

    @property
    def lengths(self) -> tuple[int, ...]:
        """The number of positions of every sequence."""
        return tuple(self.key[0].lengths)

    @property
    def nbytes(self) -> int:
        tables = [self.log_p, self.table]
        if self.logits is not None:
            tables.append(self.logits)
        for caches in self.caches:
            for sequence_cache in caches:
                tables += sequence_cache.tables
        return sum(table.nbytes for table in tables)

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
    """A copy of the data of slots [K] in a memory.

    tables: copies of the cache's tables. has: [K] bool, whether a posterior of the slot is kept. log_p: [M, V], the M
    kept log posteriors.
    """

    slots: Whole
    tables: list[Floats32]
    has: Flags
    log_p: Floats32

    @property
    def nbytes(self) -> int:
        return self.log_p.nbytes + sum(table.nbytes for table in self.tables)


@dataclass(slots=True)
class Chunk:
    """A chunk of the read rows. rows: [K] int64, ascending, row numbers in the plan. logits: [K, V], of these rows."""

    memory: Memory
    plan: Plan
    reading: Reading
    rows: Whole
    logits: Floats32


class OnnxEngine:
    """Computes rows in float32 on one CPU.

    tensors: the weights, see `Stored`. threads: number of threads of ONNX Runtime.
    load_network: returns the torch network of the same weights; called at the first access to `network`.
    """

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
        # The hub's cache has links to files in other folders, which ONNX Runtime does not follow.
        real = {
            parameter: tuple(
                (name, tensor.resolved() if isinstance(tensor, Stored) else tensor)
                for name, tensor in parts
            )
            for parameter, parts in tensors.items()
        }
        stored: Json = {name: real[name][0][1] for name in ("embed.weight", head_name(config))}
        # ONNX Runtime copies weights into a faster layout. A large head is an input instead, which is not copied, so
        # that it shares its memory with a tied embedding.
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
        excluded = 0.0  # seconds of readings that no rule needs
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
                if plan.observe:  # before `_choose` overwrites kept posteriors
                    paused = time.perf_counter()
                    self._observe(chunk)
                    excluded += time.perf_counter() - paused
                self._choose(chunk)
        if plan.choice.quotas is not None:
            has_all_logits = len(rows) <= self._rows
            self._draw(memory, plan, reading, memory.table if has_all_logits else None)
        reading.find_likeliest = partial(self._likeliest, memory, plan)
        reading.seconds = time.perf_counter() - begun - excluded
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

        def likeliest_kept(slots: Whole) -> Whole:
            tokens = [NO_ROWS]
            for part in even(len(slots), self._rows):
                tokens.append(memory.log_p[slots[part]].argmax(axis=1))
            return np.concatenate(tokens)

        return likeliest_of(plan, likeliest_kept, lambda rows: self.logits(memory, rows))

    def _forward(self, memory: Memory, plan: Plan, read: Whole) -> Floats32:
        """Run the packed forward, sequence by sequence. Returns the last hidden states [K, d_model] of rows `read`."""
        passes = []
        for caches, tokens in zip(memory.caches, (plan.tokens, plan.blind), strict=False):
            assert tokens is not None
            hidden_parts = [np.empty((0, self.config.d_model), np.float32)]
            stop = 0
            for sequence_cache, count in zip(caches, plan.counts, strict=True):
                start = stop
                stop = stop + count
                part = slice(start, stop)
                rows = read[slice(*np.searchsorted(read, (start, stop)))] - start
                if count:
                    hidden_parts.append(
                        sequence_cache.forward(
                            tokens[part], plan.positions[part], plan.probed[part], rows
                        )
                    )
            passes.append(np.concatenate(hidden_parts))
        if plan.blind is None:
            return passes[0]
        hidden, blind = passes  # the head is linear, so guided states give guided logits
        return (blind + (plan.cfg_scale + 1) * (hidden - blind)).astype(np.float32, copy=False)

    def _put_logits(self, hidden: Floats32, out: Floats32) -> None:
        """Write the logits of hidden states [K, d_model] into `out` [K, V]."""
        binding = self._head.io_binding()
        for name, value in {"hidden": hidden, **self._shared_inputs}.items():
            binding.bind_cpu_input(name, value)
        binding.bind_output("logits", "cpu", 0, np.float32, out.shape, out.ctypes.data)
        self._head.run_with_iobinding(binding)

    def _choose(self, chunk: Chunk) -> None:
        """Read confidences, scores and measures of candidates, and the KLs that rules need.

        Candidate tokens are chosen here too, unless `Choice.quotas` is set, see `_draw`.
        """
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
        candidates = np.arange(first, first + len(chosen))  # numbers among all candidates
        if plan.choice.quotas is not None:
            inputs["chosen"] = NO_ROWS
        elif len(chosen):
            inputs["bias"] = _bias(plan, candidates, chunk.logits.shape[1])
        outputs = ["confidence", "total", "token", score, *named]
        keeps = plan.watches[rows] & ~plan.probed[rows]
        confidence, total, tokens, scores, *measures = self._follow(
            chunk, plan.compares[rows], keeps, outputs, inputs
        )
        reading.confidence[rows] = confidence[:, 0]
        reading.finite &= bool(np.isfinite(total).all())
        reading.score[candidates] = scores
        for name, values in zip(named, measures, strict=True):
            reading.measures[name][candidates] = values
        if "input" in plan.choice.measures:
            logits = chunk.logits[chosen]
            input_logits = logits[np.arange(len(chosen)), plan.tokens[rows[chosen]]]
            ratio = np.exp(input_logits - logits.max(axis=1))  # to the largest probability
            reading.measures["input"][candidates] = confidence[chosen, 0] * ratio
        if plan.choice.quotas is None:
            reading.tokens[candidates] = tokens

    def _draw(self, memory: Memory, plan: Plan, reading: Reading, logits: Floats32 | None) -> None:
        """Draw the tokens of the candidates that may be committed under `Choice.quotas`.

        logits: [K, V], the logits of all read rows; None: they are computed again.
        """
        best = plan.choice.best(reading.score, plan.counts)
        rows = np.flatnonzero(plan.choice.rows)
        places = np.searchsorted(plan.read, rows)
        for part in even(len(best), self._few):
            some = best[part]
            z = self.logits(memory, rows[some]) if logits is None else logits[places[some]]
            reading.tokens[some] = (z + _bias(plan, some, z.shape[1])).argmax(axis=1)

    def _observe(self, chunk: Chunk) -> None:
        """Read the KLs that no rule needs, and the most likely tokens."""
        plan = chunk.plan
        reading = chunk.reading
        rows = chunk.rows
        inputs = {}
        outputs = []
        if plan.top_k:
            inputs = {"shown": np.arange(len(rows)), "top_k": np.array([plan.top_k])}
            outputs = ["top_ids", "top_probs"]
        keeps = ~(plan.watches[rows] | plan.probed[rows])
        likely = self._follow(chunk, ~plan.compares[rows], keeps, outputs, inputs)
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
        """Run `posterior_graph`, set KLs in the reading, keep posteriors, and return the named outputs.

        compares: [K] bool, rows whose KL is computed. keeps: [K] bool, rows whose posterior is kept.
        """
        memory = chunk.memory
        slots = chunk.plan.slots[chunk.rows]
        compared = np.flatnonzero(compares)
        watched = np.flatnonzero(keeps)
        has_posterior = memory.has[slots[compared]]
        kept, last = chunk.logits, compared  # any table will do if no row has a kept posterior
        if has_posterior.any():
            kept, last = memory.log_p, slots[compared]
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
    """Yield (table, rows of the table) for all tables of all sequences and passes. slots: ascending."""
    for caches in memory.caches:
        start = 0
        for sequence_cache, length in zip(caches, memory.lengths, strict=True):
            table_rows = slots[(slots >= start) & (slots < start + length)] - start
            start += length
            for table in sequence_cache.tables:
                yield table, table_rows


def _bias(plan: Plan, candidates: Whole, size: int) -> Floats32:
    """Return the numbers to add to the logits of candidates [K], [K, V] or [1, V] float32.

    They are the Gumbel noise of the draws, as in `choose_tokens`, and -inf at banned and barred tokens.
    """
    bias = _banned(tuple(plan.choice.banned), size)
    if plan.choice.draws is not None and plan.choice.temperature > 0:
        uniform = plan.choice.draws.gumbel(candidates, size)
        with np.errstate(divide="ignore"):
            noise = -plan.choice.temperature * np.log(-np.log(uniform))
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
    """Some layers of the step's graph. shared_inputs: inputs that are the same in every step, by name."""

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
    """Return the step's graph in parts, so that making sessions takes less memory. A small network has one part."""
    sizes = {
        name: sum(math.prod(tensor.shape) for _, tensor in parts) for name, parts in tensors.items()
    }
    layer_bytes = 4 * sum(sizes[name] for name in sizes if "blocks" in name) / config.n_layers
    layers_per_part = max(1, int(_PART_BYTES / layer_bytes))
    starts = range(0, config.n_layers, layers_per_part)
    is_small = sum(sizes.values()) < SHOW_PROGRESS_FROM
    progress = tqdm(starts, desc="loading", unit="part", disable=is_small)
    step_parts = []
    for start in progress:
        layers = range(start, min(start + layers_per_part, config.n_layers))
        embed = "embed.weight" in shared_inputs and start == 0
        graph = step_graph(config, tensors, layers, embed)
        session = Session(graph, threads, folder, shared=len(starts) > 1)
        values = {}
        if embed:
            weight = shared_inputs["embed.weight"]
            values["embed.weight"] = onnxruntime.OrtValue.ortvalue_from_numpy(weight)
        step_parts.append(Part(session, layers, values))
        trim_memory()
    return step_parts


@cache
def _register_arena() -> None:
    """Register the arena, an allocator, that shared sessions take memory from. Done once per process."""
    kind = onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    place = onnxruntime.OrtMemoryInfo("Cpu", kind, 0, onnxruntime.OrtMemType.DEFAULT)
    onnxruntime.create_and_register_allocator(
        place, onnxruntime.OrtArenaCfg({"arena_extend_strategy": 1})
    )


class Session(onnxruntime.InferenceSession):
    """A session of a graph. The weights are read from files in a folder.

    shared: whether the session takes memory from one arena that sessions share. Otherwise it has its own arena, and
    many sessions would keep much unused memory. Without any arena, glibc's memory would become fragmented.
    """

    def __init__(self, graph: ModelProto, threads: int, folder: Path, shared: bool = False) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        # Idle threads spin for 50 µs. This bridges the gap between operators, and hardly delays other processes.
        options.add_session_config_entry("session.intra_op.spin_duration_us", "50")
        options.log_severity_level = 3  # errors
        options.enable_mem_pattern = (
            False  # a session would keep a pattern for every number of rows
        )
        if shared:
            _register_arena()
            options.add_session_config_entry("session.use_env_allocators", "1")
            options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", str(folder)
        )
        # ONNX Runtime copies the weights of products. It would read all other weights from their files during a run,
        # and these files may be overwritten. So the other weights are read into memory here.
        gathered = {node.input[0] for node in graph.graph.node if node.op_type == "Gather"}
        outside = [tensor for tensor in graph.graph.initializer if tensor.external_data]
        kept = [tensor for tensor in outside if len(tensor.dims) == 1 or tensor.name in gathered]
        # `values` must live until the session is made: the options keep no reference.
        values = [_read(tensor, folder) for tensor in kept]
        options.add_external_initializers([tensor.name for tensor in kept], values)
        super().__init__(graph.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _read(tensor: TensorProto, folder: Path) -> onnxruntime.OrtValue:
    """Return the values of a tensor that a graph refers to in a file."""
    where = {entry.key: entry.value for entry in tensor.external_data}
    count = math.prod(tensor.dims)
    kind = {2: np.uint16, 4: np.float32, 8: np.float64}[int(where["length"]) // count]
    file = folder / where["location"]
    values = np.fromfile(file, kind, count, offset=int(where["offset"]))
    shaped = values.reshape(tensor.dims)
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(shaped, tensor.data_type)
