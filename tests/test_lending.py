"""Memories that engines lend to runs: what serves again, what is dropped, and that no run sees another's values."""

import gc
import weakref
from collections import Counter, deque
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from checkpoints import write_llada
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from storages import FlashAttention, LiveStorages
from test_decode import run, same
from test_gpu import PROMPTS, SHAPE, Captures, like_a_gpu
from test_oracle import ADDED, MODELS, Case, agree, make_model, run_library

import surelock
from surelock import DecodeSettings, Everything, LockRule
from surelock.bench.counts import meta_engine, plan_of
from surelock.config import LLADA_8B
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
        for device, pool in ((0, (0, 0)), (0, (0, 3)), (0, (2, 0)), (1, (0, 0)), (1, (0, 0)))
    ]
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: segments)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (7, 500))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    free = [machine.free_memory(torch.device(name)) for name in ("cuda:0", "cuda")]
    assert free == [7 + 40, 7 + 2 * 40]


# --- runs -------------------------------------------------------------------------------------------------------------


def decoded(
    lm: surelock.LanguageModel, prompts: Any = PROMPTS, chosen: DecodeSettings = CHOSEN
) -> list[surelock.Step]:
    return list(surelock.decode(lm, prompts, chosen, compute=LockRule(epsilon=0.05)))


@pytest.fixture
def small(tmp_path: Path) -> surelock.LanguageModel:
    write_llada(tmp_path, max_length=1024, **SHAPE)
    return surelock.load(tmp_path, device="cpu", dtype=torch.float64)


@pytest.fixture(params=["torch", "onnx"])
def lm(request: pytest.FixtureRequest, tmp_path: Path) -> surelock.LanguageModel:
    write_llada(tmp_path, **SHAPE)
    return surelock.load(tmp_path, device="cpu", engine=request.param)


def test_a_second_run_of_about_one_size_captures_nothing(
    small: surelock.LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And every run that fits a graph is launched as one. Other layouts have graphs of their own."""
    capture = Captures()
    lm = like_a_gpu(small, monkeypatch, capture)
    longer = [[*prompt, 9] for prompt in PROMPTS]
    for prompts in (PROMPTS, PROMPTS, longer):
        plain = decoded(small, prompts)
        assert all(map(same_numbers, plain, decoded(lm, prompts)))
        # 82 positions are rounded up to 128
        assert capture.captured == 128 // 8
    assert capture.replayed == 3 * len(plain)
    decoded(lm, PROMPTS[:2])
    decoded(lm)
    decoded(lm, PROMPTS[:2])
    assert capture.captured == (128 + 64) // 8, "another number of sequences"
    decoded(lm, chosen=replace(CHOSEN, cfg_scale=1.0))
    assert capture.captured == (128 + 64 + 256) // 8, "guidance computes every row twice"


def same_numbers(a: surelock.Step, b: surelock.Step) -> bool:
    """Graphs fill rows up, and sums of more numbers round differently."""
    np.testing.assert_allclose(a.kl, b.kl, atol=1e-12, rtol=1e-9)
    return same(a, b, ("seconds", "kl", "confidence"))


def test_a_run_that_fails_or_is_left_gives_its_memory_back(
    lm: surelock.LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = decoded(lm)
    lender = lm.engine._lender
    kept = lender.nbytes
    assert kept > 0
    left = surelock.decode(lm, PROMPTS, CHOSEN)
    next(left)
    assert lender.nbytes == 0
    left.close()
    assert lender.nbytes == kept
    dropped = surelock.decode(lm, PROMPTS, CHOSEN)
    next(dropped)
    del dropped
    assert lender.nbytes == kept
    surelock.decode(lm, PROMPTS, CHOSEN)  # never begun
    full = RuntimeError("CUDA out of memory")
    with monkeypatch.context() as patched:
        patched.setattr(lm.engine, "read", Mock(side_effect=full))
        failing = surelock.decode(lm, PROMPTS, CHOSEN)
        with pytest.raises(RuntimeError, match="out of memory"):
            next(failing)
        assert lender.nbytes == kept, "though somebody holds the run"
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


@pytest.mark.parametrize("kind", [*MODELS, *ADDED])
def test_garbage_in_what_a_run_gives_back_changes_no_later_step(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against the oracle in float64; under ONNX Runtime against a run on new memory. Every second kind is guided."""
    exact = make_model(tmp_path / kind, kind)
    lm = surelock.load(tmp_path / kind, device="cpu", engine="onnx", tokenizer="")
    guided = len(kind) % 2 == 0
    values = {"gen_length": 8, "steps": 8, "block_length": 8, "cfg_scale": 1.5 * guided}
    rule = "LockRule", {"epsilon": 0.05, "percentile": 60.0, "visible_steps": 1}
    case = Case(kind, [[5, 6, 7], [9, 8, 7, 6, 5, 4], [3]], values, [rule], observe=guided)
    seen = poison(monkeypatch, exact.lm.engine)
    for _ in range(4):
        agree(exact, case)
    assert max(seen.values()) >= 4
    assert exact.lm.engine._lender.nbytes

    exact = replace(exact, lm=lm)
    plain = run_library(exact, case)
    seen = poison(monkeypatch, lm.engine)
    for _ in range(4):
        assert all(map(same, plain, run_library(exact, case)))
    assert [*seen.values()] == [4]
    assert lm.engine._lender.nbytes


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


def test_kept_logits_begin_at_zero(
    lm: surelock.LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison(monkeypatch, lm.engine)
    for _ in range(2):
        with lent(lm.engine, Layout((5, 7), 1), keep_logits=True) as memory:
            assert not np.asarray(memory.logits).any()
            assert not len(memory.rows)
            assert not len(memory.hidden)
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


def test_idle_memories_are_dropped_by_bytes(
    lm: surelock.LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is larger than the limit is not kept."""
    decoded(lm, [[5]])
    one = lm.engine._lender.nbytes
    monkeypatch.setattr(lending, "CPU_BYTES", int(2.5 * one))
    for prompt in ([5, 6], [5], [5, 6, 7]):
        decoded(lm, [prompt])
    assert 2 * one < lm.engine._lender.nbytes <= 2.5 * one
    monkeypatch.setattr(lending, "CPU_BYTES", one - 1)
    decoded(lm, [[5]])
    assert not idle(lm)


def idle(lm: surelock.LanguageModel) -> list[Any]:
    return [memory for memories in lm.engine._lender._idle.values() for memory in memories]


@pytest.mark.parametrize("engine", ["torch", "onnx"])
def test_a_model_that_is_dropped_takes_its_memories_with_it(tmp_path: Path, engine: str) -> None:
    """At once, without a search for cycles."""
    write_llada(tmp_path, **SHAPE)
    lm = surelock.load(tmp_path, device="cpu", engine=engine)
    decoded(lm)
    (gone,) = map(weakref.ref, idle(lm))
    gc.disable()
    try:
        del lm
        assert gone() is None
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


@pytest.mark.parametrize(
    ("generated", "batch", "says"),
    [(256, 1, "most {:.2f} GB"), (1024, 1, "tokens {:.2f} GB"), (1024, 4, "four {:.1f} GB")],
)
def test_the_document_says_what_memories_take(generated: int, batch: int, says: str) -> None:
    """Of LLaDA-8B on a GPU, and the limit on a CPU."""
    text = Path("docs/gpu.md").read_text("utf-8")
    engine = meta_engine()
    layout, _ = plan_of(engine, generated, batch, locked=False)
    room = inputs.Room.for_layout(layout, rounded=True)
    how = dict.fromkeys(("varlen", "graphs", "layers", "reading"), True)
    kind = torch_engine.Kind(room, keep_logits=False, **how)
    taken = torch_engine.memory_bytes(engine.network, kind) / 1e9
    assert says.format(taken) in " ".join(text.split())
    assert f"{lending.CPU_BYTES / 1e6:.0f} MB" in text


# --- what is compiled -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("generated", "steps", "capture", "graphs"),
    [
        (448, 12, None, [1, 1]),
        (448, 12, Captures(), [1, 1]),
        # rows are read in parts of many sizes, with other numbers of slots and of compared rows in each
        (500, 8, None, [1, 1, 1, 3]),
    ],
    ids=["one by one", "graphs", "many rows"],
)
def test_a_whole_run_compiles_few_functions(
    small: surelock.LanguageModel,
    generated: int,
    steps: int,
    capture: Captures | None,
    graphs: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a locked run of four texts and the baseline, for all numbers of rows: how many sizes are variables."""
    torch.compiler.reset()
    made = []

    def backend(graph: Any, inputs: Any) -> Any:
        made.append(sum(not isinstance(value, torch.Tensor) for value in inputs))
        return graph.forward

    if len(graphs) > 2:
        monkeypatch.setitem(posterior._CHUNK_BYTES, "cpu", 265 * 199 * 8)
    monkeypatch.setattr(torch_engine, "can_fuse", lambda _: True)
    lm = like_a_gpu(small, monkeypatch, capture, backend)
    monkeypatch.setattr(cuda_graph, "_STEP", 64)
    prompts = np.random.default_rng(0).integers(2, 199, (4, 64)).tolist()
    chosen = DecodeSettings(gen_length=generated, steps=steps)
    locked = stretch(Decoder(settings=chosen, compute=LockRule()), prompts, lm.config.vocab_size)
    for decoder in (locked, replace(locked, compute=Everything())):
        deque(surelock.decode(lm, prompts, **decoder.keywords()), maxlen=0)
    assert made == graphs


@pytest.mark.parametrize(
    ("rows", "plain", "compiled"),
    [
        (1, 64, 64), (64, 64, 64), (65, 128, 128), (512, 512, 512), (513, 0, 576), (704, 0, 704), (705, 0, 0),
    ],
)  # fmt: skip
def test_a_form_is_taken_where_it_was_measured_to_be_faster(
    rows: int, plain: int, compiled: int
) -> None:
    """Of graphs, whose rows are filled up, and of what docs/gpu.md has measured."""
    assert cuda_graph.bucket_of(rows, compiled=False) == plain
    assert cuda_graph.bucket_of(rows) == compiled
    assert cuda_graph.buckets(2048, compiled=False)[0] == 512
    assert cuda_graph.buckets(320, compiled=True) == [320, 256, 192, 128, 64]
