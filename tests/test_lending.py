"""Memories that engines lend to runs: what serves again, what is dropped, and that no run sees another's values."""

import gc
import tracemalloc
import weakref
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints import write_llada
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from storages import FlashAttention, LiveStorages
from test_decode import run, same
from test_gpu import PROMPTS, SHAPE, Captures, like_a_gpu
from test_oracle import ADDED, MODELS, Case, agree, make_model

import surelock
from surelock import DecodeSettings, Everything, LockRule
from surelock.bench.counts import meta_engine, plan_of
from surelock.config import LLADA_8B
from surelock.decoding.algorithm import Run
from surelock.decoding.decoder import Decoder
from surelock.decoding.step import Layout, lent
from surelock.engines import cuda_graph, inputs, lending, posterior
from surelock.engines import onnx as onnx_engine
from surelock.engines import torch as torch_engine
from surelock.engines.lending import Lender
from surelock.engines.torch import TorchEngine
from surelock.model import machine
from surelock.model.network import empty_network
from surelock.research.bench.schedule import stretch

CHOSEN = DecodeSettings(gen_length=24)


# --- the lender -------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Held:
    """A memory that only has a size."""

    key: str
    nbytes: int
    resets: int = 0

    def reset(self) -> None:
        self.resets += 1


@settings(max_examples=200, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), max_size=30), st.integers(0, 9)
)
def test_a_lender_keeps_idle_memories_in_the_order_of_their_use(
    wishes: list[tuple[str, int]], most: int
) -> None:
    """Against a model: one list, of which the keys used least recently go first. Keys have sizes of their own."""
    sizes = {"a": 1, "b": 2, "c": 4}
    taken = list[Held]()
    made = list[Held]()
    idle: list[Held] = []
    lender = Lender[Held](lambda _: most)

    def make(key: str) -> Held:
        made.append(Held(key, sizes[key]))
        return made[-1]

    def drop(coming: int) -> None:
        while idle and sum(each.nbytes for each in idle) + coming > most:
            idle.pop(0)

    for key, number in wishes:
        if taken and number < 3:
            back = taken.pop(number % len(taken))
            lender.take_back(back)
            idle.append(back)
            # stable: all of the key are used now
            idle.sort(key=lambda each, used=back.key: each.key == used)
            drop(0)
        else:
            equal = [each for each in idle if each.key == key]
            count = len(made)
            memory = lender.lend(key, sizes[key], partial(make, key))
            assert memory.key == key and memory not in taken
            assert (memory in equal) == bool(equal) and len(made) == count + (not equal)
            assert memory.resets == 0 or memory in equal
            taken.append(memory)
            if equal:
                idle.remove(memory)
                idle.sort(key=lambda each, used=key: each.key == used)
            else:
                drop(sizes[key])
        assert lender.nbytes == sum(each.nbytes for each in idle) <= most


def test_on_a_gpu_nine_tenths_may_be_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    free = {"cuda:0": 30, "cuda:1": 15}
    monkeypatch.setattr(torch_engine, "free_memory", lambda device: free[str(device)])
    monkeypatch.setattr(torch_engine, "total_memory", lambda _: 100)
    one, other = map(torch.device, free)
    assert torch_engine._most_on_gpus([one], 7) == 27
    assert torch_engine._most_on_gpus([one, other], 7) == 12, "the fuller one decides"
    free["cuda:0"] = 4
    assert torch_engine._most_on_gpus([one], 7) == 1, "six of the seven must go"
    monkeypatch.setenv("SPACES_ZERO_GPU", "1")
    assert torch_engine._most_on_gpus([one], 0) == 0


def test_what_graphs_hold_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    segments = [
        {"device": device, "segment_pool_id": pool, "total_size": 100, "allocated_size": 60}
        for device, pool in ((0, (0, 0)), (0, (0, 0)), (0, (0, 3)), (0, (2, 0)), (1, (0, 0)))
    ]
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: segments)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (7, 500))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    assert machine.free_memory(torch.device("cuda:0")) == 7 + 2 * 40
    assert machine.free_memory(torch.device("cuda")) == 7 + 40


# --- runs -------------------------------------------------------------------------------------------------------------


def decoded(
    lm: surelock.LanguageModel, prompts: Any = PROMPTS, chosen: DecodeSettings = CHOSEN
) -> list[surelock.Step]:
    return list(surelock.decode(lm, prompts, chosen, compute=LockRule(epsilon=0.05)))


@pytest.fixture
def small(tmp_path: Path) -> surelock.LanguageModel:
    write_llada(tmp_path, tied=False, max_length=1024, **SHAPE)
    return surelock.load(tmp_path, device="cpu", dtype=torch.float64)


def test_a_second_run_of_about_one_size_captures_nothing(
    small: surelock.LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And every run that fits a graph is launched as one. Other layouts have graphs of their own."""
    plain = decoded(small)
    capture = Captures()
    lm = like_a_gpu(small, monkeypatch, capture)
    assert all(map(same_numbers, plain, decoded(lm)))
    sizes = capture.captured
    # 82 positions are rounded up to 128
    assert sizes == 128 // 8 and capture.replayed == len(plain)
    assert all(map(same_numbers, plain, decoded(lm)))
    assert capture.captured == sizes
    longer = [[*prompt, 9] for prompt in PROMPTS]
    assert all(map(same_numbers, decoded(small, longer), decoded(lm, longer)))
    assert capture.captured == sizes, "prompts of about one length share their graphs"
    decoded(lm, PROMPTS[:2])
    assert capture.captured == sizes + 64 // 8, "another number of sequences"
    decoded(lm)
    decoded(lm, PROMPTS[:2])
    decoded(lm, chosen=replace(CHOSEN, cfg_scale=1.0))
    assert capture.captured == sizes + 64 // 8 + 256 // 8, "guidance computes every row twice"


def same_numbers(a: surelock.Step, b: surelock.Step) -> bool:
    """Graphs fill rows up, and sums of more numbers round differently."""
    np.testing.assert_allclose(a.kl, b.kl, atol=1e-12, rtol=1e-9)
    return same(a, b, ("seconds", "kl", "confidence"))


def test_two_lanes_have_a_memory_each_and_leave_two(
    small: surelock.LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = decoded(small)
    capture = Captures()
    lm = like_a_gpu(small, monkeypatch, capture)
    for _ in range(2):
        lanes = [
            surelock.decode(lm, PROMPTS, CHOSEN, compute=LockRule(epsilon=0.05)) for _ in range(2)
        ]
        for expected, *both in zip(plain, *lanes, strict=True):
            assert all(same_numbers(expected, step) for step in both)
        assert capture.captured == 2 * 128 // 8


def broken(engine: Any, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Reading step `at` fails as a full GPU does."""
    read = engine.read
    steps = []

    def fail(memory: Any, plan: Any) -> Any:
        steps.append(plan.step)
        if len(steps) == at:
            raise RuntimeError("CUDA out of memory")
        return read(memory, plan)

    monkeypatch.setattr(engine, "read", fail)


@pytest.mark.parametrize("engine", ["torch", "onnx"])
def test_a_run_that_fails_or_is_left_gives_its_memory_back(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_llada(tmp_path, tied=False, **SHAPE)
    lm = surelock.load(tmp_path, device="cpu", engine=engine)
    plain = decoded(lm)
    lender = lm.engine._lender
    kept = lender.nbytes
    assert kept > 0
    left = surelock.decode(lm, PROMPTS, CHOSEN)
    assert len(list(islice(left, 3))) == 3 and lender.nbytes == 0
    left.close()
    assert lender.nbytes == kept
    dropped = surelock.decode(lm, PROMPTS, CHOSEN)
    next(dropped)
    del dropped
    assert lender.nbytes == kept
    surelock.decode(lm, PROMPTS, CHOSEN)  # never begun
    with monkeypatch.context() as patched:
        broken(lm.engine, patched, at=4)
        with pytest.raises(RuntimeError, match="out of memory"):
            decoded(lm)
    assert lender.nbytes == kept
    assert all(map(same, plain, decoded(lm)))
    assert lender.nbytes == kept


# --- garbage ----------------------------------------------------------------------------------------------------------


def tables_of(memory: Any) -> list[Any]:
    """All that a run has written into a memory, but for what says which posteriors it holds."""
    if isinstance(memory, onnx_engine.Memory):
        caches = [each for caches in memory.caches for each in caches]
        states = [each._states for each in caches if each._states is not None]
        tables = [table for each in caches for table in each._tables]
        own = [memory.log_p, memory.table, *([] if memory.logits is None else [memory.logits])]
        return [*tables, *states, *own, memory.hidden]
    cache = memory.packed.cache
    reader = memory.reader
    graphs = [] if memory.captured is None else [*memory.captured._arrays.values()]
    own = [
        cache._hidden,
        reader._raw,
        reader._kept,
        reader._kept_lse,
        memory._logits,
        memory.hidden,
    ]
    return [*cache.keys, *cache.values, *graphs, *(table for table in own if table is not None)]


def poison(monkeypatch: pytest.MonkeyPatch, engine: Any) -> Counter[Any]:
    """Memories claim to hold every posterior when they come back: as they are, full of NaN, or of large numbers. Counts
    how often those of a key came back.
    """
    release = engine.release
    seen = Counter[Any]()

    def spoil(memory: Any) -> None:
        value = (None, float("nan"), 3e4)[seen[memory.key] % 3]
        for table in tables_of(memory) if value is not None else ():
            whole = table.dtype in (torch.int64, torch.int32)
            with torch.inference_mode():
                table[...] = 1 if whole else value
        has = memory.has if isinstance(memory, onnx_engine.Memory) else memory.reader._has
        has[:] = True
        seen[memory.key] += 1
        release(memory)

    monkeypatch.setattr(engine, "release", spoil)
    return seen


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, surelock.LanguageModel]]:
    """Of each kind the oracle's model, and the same weights under ONNX Runtime."""
    made = {}
    for kind in MODELS | ADDED:
        path = tmp_path_factory.mktemp(kind)
        exact = make_model(path, kind)
        made[kind] = exact, surelock.load(path, device="cpu", engine="onnx", tokenizer="")
    return made


@pytest.mark.parametrize("kind", [*MODELS, *ADDED])
@pytest.mark.parametrize("guided", [False, True], ids=["", "guided"])
def test_garbage_in_what_a_run_gives_back_changes_no_later_step(
    both: dict[str, tuple[Any, surelock.LanguageModel]],
    kind: str,
    guided: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Against the oracle in float64; under ONNX Runtime against a run on new memory."""
    exact, lm = both[kind]
    values = {
        "gen_length": 12,
        "steps": 12,
        "block_length": 12,
        "cfg_scale": 1.5 if guided else 0.0,
    }
    rule = "LockRule", {"epsilon": 0.05, "percentile": 60.0, "visible_steps": 1}
    case = Case(kind, [[5, 6, 7], [9, 8, 7, 6, 5, 4], [3]], values, [rule], observe=guided)
    exact = replace(exact, lm=replace(exact.lm, engine=TorchEngine(exact.lm.network)))
    seen = poison(monkeypatch, exact.lm.engine)
    for _ in range(4):
        agree(exact, case)
    assert max(seen.values()) >= 4 and exact.lm.engine._lender.nbytes

    def under_onnx() -> list[surelock.Step]:
        chosen = DecodeSettings(**values)
        options = {"observe": guided, "keep_logits": True}
        return list(
            surelock.decode(lm, case.prompts, chosen, compute=LockRule(epsilon=0.05), **options)
        )

    plain = under_onnx()
    seen = poison(monkeypatch, lm.engine)
    for _ in range(4):
        assert all(map(same, plain, under_onnx()))
    assert [*seen.values()] == [4] and lm.engine._lender.nbytes


@pytest.mark.parametrize("name", ["locked", "guided", "taken back", "events"])
def test_garbage_changes_nothing_on_the_paths_of_a_gpu(
    small: surelock.LanguageModel, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posterior, "_BY_TOKEN", set())
    plain = run(small, name)
    capture = Captures()
    lm = like_a_gpu(small, monkeypatch, capture)
    seen = poison(monkeypatch, lm.engine)
    for _ in range(4):
        assert all(map(same_numbers, plain, run(lm, name)))
    assert [*seen.values()] == [4] and capture.captured == (128 if name == "guided" else 64) // 8


@pytest.mark.parametrize("engine", ["torch", "onnx"])
def test_kept_logits_begin_at_zero(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_llada(tmp_path, tied=False, **SHAPE)
    lm = surelock.load(tmp_path, device="cpu", engine=engine)
    poison(monkeypatch, lm.engine)
    for _ in range(2):
        with lent(lm.engine, Layout((5, 7), 1), keep_logits=True) as memory:
            assert (
                not np.asarray(memory.logits).any()
                and not len(memory.rows)
                and not len(memory.hidden)
            )
            memory.logits[3] = 2.0  # as an adapter does


def test_an_adapter_gets_the_logits_of_its_canvas_from_a_larger_memory(
    small: surelock.LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    canvas = torch.tensor([[5, 6, 7, *[small.mask_id] * 9], [9, 8, 7, *[small.mask_id] * 9]])
    expected = surelock.adapter(small, Everything())(canvas).logits.clone()
    lm = like_a_gpu(small, monkeypatch, Captures())
    adapter = surelock.adapter(lm, Everything())
    for _ in range(3):
        torch.testing.assert_close(adapter(canvas).logits, expected)
        changed = canvas.clone()
        changed[:, 0] = 11
        adapter(changed)  # begins anew, in the same memory


# --- bytes ------------------------------------------------------------------------------------------------------------


def test_a_run_allocates_no_tables_that_the_last_one_left(small: surelock.LanguageModel) -> None:
    """In torch by storages, under ONNX Runtime by numpy's own account."""
    layout = Run(small.shape, PROMPTS, Decoder(settings=CHOSEN)).layout
    decoded(small)
    with LiveStorages() as live, lent(small.engine, layout):
        assert live.peak == 0


def test_neither_under_onnx_runtime(stories: surelock.LanguageModel) -> None:
    prompts = [stories.encode("Tom found a key. He")]
    layout = Run(stories.shape, prompts, Decoder(settings=CHOSEN)).layout
    decoded(stories, prompts)
    tables = stories.engine._lender.nbytes
    tracemalloc.start()
    try:
        with lent(stories.engine, layout):
            assert tracemalloc.get_traced_memory()[1] < 10_000 < tables
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("engine", ["torch", "onnx"])
def test_idle_memories_are_dropped_by_bytes(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The layout used least recently first. What is larger than the limit is not kept."""
    write_llada(tmp_path, tied=False, **SHAPE)
    lm = surelock.load(tmp_path, device="cpu", engine=engine)
    decoded(lm, [[5]])
    one = lm.engine._lender.nbytes
    monkeypatch.setattr(lending, "CPU_BYTES", int(2.5 * one))
    decoded(lm, [[5, 6]])
    decoded(lm, [[5]])
    decoded(lm, [[5, 6, 7]])
    assert 2 * one < lm.engine._lender.nbytes <= 2.5 * one
    lengths = [
        (memory.caches[0][0]._tables[0] if engine == "onnx" else memory.key.room.slots)
        for memory in idle(lm)
    ]
    assert [each if isinstance(each, int) else len(each) for each in lengths] == [25, 27]
    monkeypatch.setattr(lending, "CPU_BYTES", one - 1)
    decoded(lm, [[5]])
    assert not idle(lm)


def idle(lm: surelock.LanguageModel) -> list[Any]:
    return [memory for memories in lm.engine._lender._idle.values() for memory in memories]


@pytest.mark.parametrize("engine", ["torch", "onnx"])
def test_a_model_that_is_dropped_takes_its_memories_with_it(tmp_path: Path, engine: str) -> None:
    """At once, without a search for cycles."""
    write_llada(tmp_path, tied=False, **SHAPE)
    lm = surelock.load(tmp_path, device="cpu", engine=engine)
    decoded(lm)
    gone = [weakref.ref(memory) for memory in idle(lm)]
    assert gone
    gc.disable()
    try:
        del lm
        assert [each() for each in gone] == [None]
    finally:
        gc.enable()


def test_two_lanes_of_llada_8b_keep_at_most_1_2_gb(monkeypatch: pytest.MonkeyPatch) -> None:
    """By shapes, of 256 generated tokens: tables, kept posteriors, graphs. The bytes that a lender counts hold them."""
    monkeypatch.setitem(posterior._CHUNK_BYTES, "meta", posterior._CHUNK_BYTES["cuda"])
    network = empty_network(LLADA_8B).to(torch.bfloat16).requires_grad_(False)
    engine = TorchEngine(network, Captures())
    monkeypatch.setattr(lending, "CPU_BYTES", 10**12)
    layout, plan = plan_of(engine, 256, 1, locked=True)
    with FlashAttention(), LiveStorages("meta") as live:
        with lent(engine, layout) as first, lent(engine, layout) as second:
            for memory in (first, second):
                engine.read(memory, plan)
                assert memory.nbytes <= torch_engine.memory_bytes(network, memory.key) < 0.6e9
        del first, second, memory
        kept = live.now
        engine._lender._most = lambda _: 0
        engine._lender._make_room(0)
        assert 0.5e9 < kept - live.now <= 1.2e9
    assert 2 * torch_engine.memory_bytes(network, engine._kind(layout, keep_logits=True)) < 1.2e9


def test_the_document_says_what_memories_take() -> None:
    """Of LLaDA-8B on a GPU, and the limit on a CPU."""
    text = Path(__file__).parents[1].joinpath("docs", "gpu.md").read_text("utf-8")
    engine = meta_engine()
    sizes = {(256, 1): "most 0.39 GB", (1024, 1): "tokens 1.14 GB", (1024, 4): "four 3.8 GB"}
    for (generated, batch), says in sizes.items():
        layout, _ = plan_of(engine, generated, batch, locked=False)
        room = inputs.Room.for_layout(layout, rounded=True)
        kind = torch_engine.Kind(
            room, keep_logits=False, varlen=True, graphs=True, layers=True, reading=True
        )
        taken = torch_engine.memory_bytes(engine.network, kind) / 1e9
        assert says.endswith(
            f" {taken:.2f} GB" if taken < 2 else f" {taken:.1f} GB"
        ) and says in " ".join(text.split())
    assert f"{lending.CPU_BYTES / 1e6:.0f} MB" in text


# --- what is compiled -------------------------------------------------------------------------------------------------


def whole_run(
    lm: surelock.LanguageModel,
    monkeypatch: pytest.MonkeyPatch,
    generated: int,
    steps: int,
    capture: Captures | None,
) -> list[int]:
    """Of each graph that torch makes for a locked run of four texts and the baseline, how many sizes are variables."""
    graphs = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(sum(not isinstance(value, torch.Tensor) for value in inputs))
        return graph.forward

    monkeypatch.setattr(torch_engine, "can_fuse", lambda _: True)
    lm = like_a_gpu(lm, monkeypatch, capture, backend)
    monkeypatch.setattr(cuda_graph, "_STEP", 64)
    rng = np.random.default_rng(0)
    prompts = rng.integers(2, 199, (4, 64)).tolist()
    decoder = Decoder(
        settings=DecodeSettings(gen_length=generated, steps=steps), compute=LockRule()
    )
    locked = stretch(decoder, prompts, lm.config.vocab_size)
    for each in (locked, replace(locked, compute=Everything())):
        for _ in surelock.decode(lm, prompts, **each.keywords()):
            pass
    return graphs


@pytest.mark.parametrize("capture", [None, Captures()], ids=["one by one", "graphs"])
def test_a_whole_run_of_448_tokens_compiles_twice(
    small: surelock.LanguageModel, capture: Captures | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each elementwise function once for all numbers of rows. So few rows are not read by compiled functions."""
    torch.compiler.reset()
    assert whole_run(small, monkeypatch, 448, 12, capture) == [1, 1]


def test_many_rows_are_read_by_two_more(
    small: surelock.LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In parts of many sizes, with other numbers of slots and of compared rows in each."""
    torch.compiler.reset()
    monkeypatch.setitem(posterior._CHUNK_BYTES, "cpu", 265 * 199 * 8)
    assert whole_run(small, monkeypatch, 500, 8, None) == [1, 1, 1, 3]


def test_a_form_is_taken_where_it_was_measured_to_be_faster() -> None:
    """Of graphs, whose rows are filled up, and of what docs/gpu.md has measured."""
    assert [cuda_graph.bucket_of(rows, compiled=False) for rows in (1, 64, 65, 512, 513)] == [
        64,
        64,
        128,
        512,
        0,
    ]
    assert [cuda_graph.bucket_of(rows) for rows in (513, 667, 704, 705, 1049)] == [
        576,
        704,
        704,
        0,
        0,
    ]
    assert cuda_graph.buckets(320, compiled=True) == [320, 256, 192, 128, 64]
    assert (
        cuda_graph.buckets(2048, compiled=True)[0] == 704
        and cuda_graph.buckets(2048, compiled=False)[0] == 512
    )
