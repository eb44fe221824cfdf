"""The same run on a GPU: skipped where there is none."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoints import write_hf, write_llada, write_qwen3
from test_decode import GEN, RUNS
from test_gpu import PROMPTS, SHAPE, assert_elementwise, assert_read, segment_case
from test_lending import tables_of
from test_training import options, write_corpora

import surelock
from surelock import DecodeSettings, Everything, LockRule, SelectRule
from surelock.bench.counts import plan_of
from surelock.config import LLADA_8B
from surelock.decoding.algorithm import Run
from surelock.decoding.decoder import Decoder
from surelock.engines import attention, fused, posterior
from surelock.engines import torch as torch_engine
from surelock.engines.cuda_graph import CapturedGraph
from surelock.engines.torch import TorchEngine
from surelock.model import machine
from surelock.quality import commit_error
from surelock.research.bench.gpu import kernels_of
from surelock.research.training import Trainer

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

GPU = "cuda"


@pytest.mark.parametrize("write", [write_llada, partial(write_qwen3, head_dim=24)])
@pytest.mark.parametrize("name", RUNS)
def test_a_gpu_decides_what_the_cpu_decides(
    tmp_path: Path, write, name: str, monkeypatch: pytest.MonkeyPatch
):
    """The CPU draws tokens as the GPU does, from the same numbers."""
    monkeypatch.setattr(posterior, "_BY_TOKEN", set())
    write(tmp_path, tied=False, **SHAPE)
    changes, choices = RUNS[name]
    settings = DecodeSettings(gen_length=GEN, **changes)
    runs = [
        list(surelock.decode(lm, PROMPTS, settings, **choices, observe=True))
        for lm in (
            surelock.load(tmp_path, device=device, dtype=torch.float64)
            for device in ("cpu", "cuda")
        )
    ]
    for ours, theirs in zip(*runs, strict=True):
        for told in ("tokens", "masked", "locked", "computed", "probed"):
            assert np.array_equal(getattr(ours, told), getattr(theirs, told)), (told, ours.index)
        np.testing.assert_allclose(ours.kl, theirs.kl, atol=1e-9, rtol=0)


def test_noise_and_commit_errors_are_the_cpus_whatever_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Tokens are drawn from the same numbers; a shadow of few rows at a time finds what one of many rows does."""
    monkeypatch.setattr(posterior, "_BY_TOKEN", set())
    write_llada(tmp_path, tied=False, **SHAPE)
    settings = DecodeSettings(gen_length=24, temperature=0.8, seed=4)
    found = []
    for device, chunk_bytes, free in (("cpu", 2**20, 0), (GPU, 2**27, 2**60), (GPU, 2**12, 2**18)):
        monkeypatch.setattr(posterior, "_CHUNK_BYTES", dict.fromkeys(("cpu", "cuda"), chunk_bytes))
        monkeypatch.setattr(commit_error, "free_memory", lambda _, free=free: free)
        lm = surelock.load(tmp_path, device=device, dtype=torch.float64)
        steps = list(
            surelock.decode(lm, PROMPTS, settings, compute=SelectRule(0.4), keep_logits=True)
        )
        found.append((steps[-1].tokens, commit_error.commit_error(lm, steps, settings)))
    (tokens, errors), *others = found
    assert errors.error.max() > 1e-4
    for other_tokens, other in others:
        assert np.array_equal(other_tokens, tokens)
        np.testing.assert_allclose(other.error, errors.error, rtol=0, atol=1e-9)
        np.testing.assert_allclose(other.regret, errors.regret, rtol=0, atol=1e-9)


def test_weights_in_int8_take_half_the_memory_and_decode(tmp_path: Path):
    pytest.importorskip("torchao")
    write_llada(tmp_path, tied=False, **(SHAPE | {"d_model": 512, "d_ff": 2048}))
    taken = []
    logits = []
    tokens = torch.arange(2, 42, device=GPU)[None]
    for weights in (None, "int8"):
        before = torch.cuda.memory_allocated()
        lm = surelock.load(tmp_path, device=GPU, dtype=torch.bfloat16, weights=weights)
        taken.append(torch.cuda.memory_allocated() - before)
        with torch.inference_mode():
            logits.append(lm.network(tokens).double().log_softmax(-1))
        runs = [list(surelock.decode(lm, PROMPTS, DecodeSettings(gen_length=16))) for _ in range(2)]
        assert (
            np.array_equal(runs[0][-1].tokens, runs[1][-1].tokens) and not runs[0][-1].masked.any()
        )
        del lm
    assert taken[1] < 0.6 * taken[0]
    assert (logits[0].exp() * (logits[0] - logits[1])).sum(-1).mean() < 0.05


def test_free_memory_counts_what_torch_holds_and_does_not_use():
    device = torch.device("cuda")
    before = machine.free_memory(device)
    size = 2**28
    assert size < before <= machine.total_memory(device)
    table = torch.empty(size, dtype=torch.uint8, device=device)
    assert abs(before - machine.free_memory(device) - size) < 2**25
    del table
    assert abs(before - machine.free_memory(device)) < 2**25


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_flash_attention_of_segments_is_dense_attention(dtype: torch.dtype):
    for seed in range(60):
        q, keys, values, arrays, expected = segment_case(seed)
        if arrays["seen"] is not None and "seqused_k" not in attention.parameters():
            continue
        q, keys, values = (each.to("cuda", dtype) for each in (q, keys, values))
        there = {name: None if each is None else each.cuda() for name, each in arrays.items()}
        segments = attention.Segments(**there, most_rows=64, most_seen=64)  # type: ignore[arg-type]
        found = attention.attend_segments(q, keys, values, segments)
        torch.testing.assert_close(found.cpu().double(), expected, rtol=0.05, atol=0.02)


@pytest.mark.parametrize(
    "write", [write_llada, partial(write_hf, family="sdar", block_size=4, head_dim=16)]
)
def test_graphs_and_segments_compute_what_sequences_one_after_the_other_do(
    tmp_path: Path, write, monkeypatch: pytest.MonkeyPatch
):
    """In bfloat16, step by step: the states of a run under locks, with graphs, without, and by sequences."""
    write(tmp_path, tied=False, **SHAPE)
    lm = surelock.load(tmp_path, device="cuda", dtype=torch.bfloat16)
    if lm.config.block_size is not None and "seqused_k" not in attention.parameters():
        pytest.skip("this torch has no varlen attention to the beginning of a sequence")
    decoder = Decoder(settings=DecodeSettings(gen_length=24), compute=LockRule(epsilon=0.05))
    made = Run(lm.shape, PROMPTS, decoder)
    captured = lm.engine.memory(made.layout)
    lm.engine.graphs = False
    plain = lm.engine.memory(made.layout)
    monkeypatch.setattr(torch_engine, "has_varlen", lambda *_: False)
    looped = lm.engine.memory(made.layout)
    assert plain.key.varlen and not looped.key.varlen
    assert (captured.captured is None) == (lm.config.block_size is not None)
    while (plan := made.plan()) is not None:
        reading = lm.engine.read(plain, plan)
        for other in (captured, looped):
            lm.engine.read(other, plan)
            torch.testing.assert_close(other.hidden, plain.hidden, rtol=0.05, atol=0.1)
        made.take(reading)


def counted(path: Path) -> tuple[surelock.LanguageModel, list[int]]:
    """A model, and a list to which each capture of a graph adds."""
    write_llada(path, tied=False, **SHAPE)
    lm = surelock.load(path, device=GPU, dtype=torch.bfloat16)
    captures = list[int]()

    def capture(function, sibling):
        captures.append(1)
        return CapturedGraph(function, sibling)

    return replace(lm, engine=TorchEngine(lm.network, capture)), captures


def test_a_second_run_captures_no_graph_and_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Also of another prompt of about that length, after a run that was left, and with garbage in what came back."""
    lm, captures = counted(tmp_path)
    settings = DecodeSettings(gen_length=32)

    def decoded(prompts: list[list[int]] = PROMPTS) -> np.ndarray:
        *_, last = surelock.decode(lm, prompts, settings, compute=LockRule(epsilon=0.05))
        return last.tokens

    first = decoded()
    count = len(captures)
    assert count == 2, "of 128 and of 64 rows"
    release = lm.engine.release

    def spoil(memory) -> None:
        for table in tables_of(memory):
            with torch.inference_mode():
                table.fill_(1 if not table.is_floating_point() else float("nan"))
        memory.reader._has[:] = True
        release(memory)

    monkeypatch.setattr(lm.engine, "release", spoil)
    assert np.array_equal(decoded(), first) and np.array_equal(decoded(), first)
    left = surelock.decode(lm, PROMPTS, settings)
    next(left)
    left.close()
    assert np.array_equal(decoded(), first)
    decoded([[*prompt, 9] for prompt in PROMPTS])
    assert len(captures) == count


def test_two_lanes_in_turn_have_graphs_of_their_own(tmp_path: Path):
    lm, captures = counted(tmp_path)
    settings = DecodeSettings(gen_length=32)
    rules = (Everything(), LockRule(epsilon=0.05))
    alone = [list(surelock.decode(lm, PROMPTS, settings, compute=rule)) for rule in rules]
    for _ in range(2):
        lanes = [surelock.decode(lm, PROMPTS, settings, compute=rule) for rule in rules]
        together = [list(steps) for steps in zip(*zip(*lanes, strict=True), strict=True)]
        for expected, found in zip(alone, together, strict=True):
            assert np.array_equal(expected[-1].tokens, found[-1].tokens)
    assert len(captures) == 4


def test_a_model_that_is_dropped_frees_its_memories_and_graphs(tmp_path: Path):
    write_llada(tmp_path, tied=False, **SHAPE)
    held = []
    for _ in range(4):
        lm = surelock.load(tmp_path, device=GPU, dtype=torch.bfloat16)
        list(surelock.decode(lm, PROMPTS, DecodeSettings(gen_length=32)))
        assert lm.engine._lender.nbytes > 0
        del lm
        torch.cuda.empty_cache()
        held.append((torch.cuda.memory_allocated(), torch.cuda.memory_reserved()))
    assert held[3] == held[2], "the first fills what cuBLAS and tables of angles keep"


compiles = pytest.mark.skipif(
    not fused.can_fuse(torch.device("cuda")), reason="no Triton or no C compiler"
)


@compiles
def test_compiled_elementwise_functions_are_the_plain_ones():
    torch.compiler.reset()
    config = replace(LLADA_8B, n_heads=6, n_kv_heads=2, head_size=16, d_ff=48)
    assert_elementwise(fused.compiled_elementwise(config, torch.bfloat16, torch.device(GPU)), GPU)


@compiles
@pytest.mark.parametrize("batch", [3, 12], ids=["graph", "one by one"])
def test_compiled_elementwise_functions_save_launches_in_each_layer(tmp_path: Path, batch: int):
    torch.compiler.reset()  # of many shapes torch compiles eight
    write_llada(tmp_path, tied=False, **SHAPE)
    engine = surelock.load(tmp_path, device="cuda", dtype=torch.bfloat16).engine
    plan = plan_of(engine, 64, batch, locked=False)
    plain, compiled = (
        kernels_of(engine, plan, mode)["kernels_launched"] for mode in ("graphs", "compiled")
    )
    assert plain - compiled >= 3 * engine.config.n_layers


@compiles
def test_compiled_reading_is_exact():
    for seed in (0, 1, 20, 21, 40):  # one vocabulary for two seeds, so that few kernels are made
        vocab_size = 100 + 37 * (seed % 20)
        assert_read(
            fused.compiled_reading(vocab_size, torch.bfloat16, torch.device(GPU)),
            seed,
            torch.bfloat16,
            GPU,
        )


@compiles
def test_nothing_is_compiled_after_load_and_before_many_rows(tmp_path: Path):
    """Neither for another number of rows nor for another prompt."""
    torch.compiler.reset()
    fused.compiled_elementwise.cache_clear()
    write_llada(tmp_path, tied=False, **SHAPE)
    lm = surelock.load(tmp_path, device=GPU, dtype=torch.bfloat16)
    torch.compiler.set_stance("fail_on_recompile")
    try:
        for prompts in (PROMPTS, PROMPTS[:2], [[5] * 30] * 12):
            list(
                surelock.decode(
                    lm,
                    prompts,
                    DecodeSettings(gen_length=32, steps=8),
                    compute=LockRule(epsilon=0.05),
                )
            )
    finally:
        torch.compiler.set_stance("default")


def test_a_layer_does_not_wait_for_the_device(tmp_path: Path):
    write_llada(tmp_path, tied=False, **SHAPE)
    engine = surelock.load(tmp_path, device="cuda", dtype=torch.bfloat16).engine
    found = kernels_of(engine, plan_of(engine, 64, 3, locked=True))
    assert (
        found["flash"] == engine.config.n_layers
        and sum("DtoH" in name for name in found["copies"]) == 1
    )


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one CUDA device")
def test_blocks_spread_over_devices(tmp_path: Path):
    write_llada(tmp_path, tied=False, **SHAPE)
    one = surelock.load(tmp_path, device="cuda:0", dtype=torch.float32)
    spread = {"embed": 0, "blocks.0": 0, "blocks.1": 1, "blocks.2": 1, "norm": 1, "head": 1}
    two = surelock.load(tmp_path, device_map=spread, dtype=torch.float32)
    runs = [
        list(surelock.decode(lm, PROMPTS, DecodeSettings(gen_length=16), compute=LockRule()))
        for lm in (one, two)
    ]
    assert np.array_equal(runs[0][-1].tokens, runs[1][-1].tokens)


def test_a_model_is_trained_in_compiled_steps_and_resumed(tmp_path: Path):
    write_corpora(tmp_path)
    words = ["--device", GPU, "--also", str(tmp_path / "also.txt.xz")]
    first = Trainer(options(tmp_path, "out", *words, "--steps", "40"))
    losses = []
    for _ in range(20):
        first._train_step()
        losses.append(float(first.losses[-1]))
    assert np.mean(losses[-5:]) < 0.95 * np.mean(losses[:5])
    first._validate()
    first._save()
    resumed = Trainer(options(tmp_path, "out", *words, "--steps", "40", "--resume"))
    assert resumed.step == 20 and resumed.run()["bits_per_character"] < first.best
