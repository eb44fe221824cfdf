"""The engine on a GPU, without one: what a step asks for, and the numbers of the paths that only a GPU takes."""

import json
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from checkpoints import write_hf, write_llada, write_qwen3
from test_decode import GEN, RUNS, run, same
from torch import Tensor

import surelock
from surelock import DecodeSettings, LockRule, Replay
from surelock.__main__ import _parser, main
from surelock.bench import counts
from surelock.config import LLADA_8B
from surelock.decoding.decoder import Decoder
from surelock.decoding.recommended import recommended
from surelock.engines import attention, break_even, cuda_graph, fused, posterior
from surelock.engines import torch as engine
from surelock.engines.inputs import pack, unpack
from surelock.model import network
from surelock.research.bench.schedule import OPENING, RECORDED, RecordedLocks, record, stretch

PROMPTS = [[5, 6, 7], [9, 8, 7, 6, 5, 4], [3]]
SHAPE = {"layers": 3, "d_model": 64, "heads": 4, "kv_heads": 2, "d_ff": 96, "vocab": 199, "seed": 3}
WRITERS = {
    "llada": write_llada,
    "qwen3": partial(write_qwen3, head_dim=24),
    "dream": partial(write_hf, family="coda", head_dim=16),
    "sdar": partial(write_hf, family="sdar", block_size=4, head_dim=16),
}


def test_a_step_asks_for_few_kernels_one_upload_and_one_download() -> None:
    """At LLaDA-8B's shape; the same in each layer, whatever the batch is and what is locked."""
    lines = counts.table()
    assert [(line["gen"], line["batch"], line["locked"]) for line in lines] == [
        (gen, batch, locked)
        for gen, batch in ((64, 1), (256, 4), (1024, 8))
        for locked in (False, True)
    ]
    assert (
        len({line["kernels_a_layer"] for line in lines}) == 1 and lines[0]["kernels_a_layer"] <= 16
    )
    assert {(line["uploads"], line["downloads"]) for line in lines} == {(1, 1)}
    assert (
        max(line["kernels"] for line in lines[:4]) <= 620
        and max(line["kernels"] for line in lines[4:]) <= 1050
    )


def looped(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rows: Tensor,
    starts: Tensor,
    most_q: int,
    most_k: int,
    **more: Any,
) -> Tensor:
    """What torch's varlen_attn computes, one segment after the other."""
    out = torch.full_like(q, torch.nan)
    seen = more.get("seqused_k")
    assert rows.dtype == starts.dtype == torch.int32 and int(rows[-1]) == len(q)
    for s in range(len(rows) - 1):
        own = slice(int(rows[s]), int(rows[s + 1]))
        stop = int(starts[s + 1]) if seen is None else int(starts[s] + seen[s])
        keys, values = (each[int(starts[s]) : stop].transpose(0, 1)[None] for each in (k, v))
        assert own.stop - own.start <= most_q and keys.shape[2] <= most_k
        found = F.scaled_dot_product_attention(
            q[own].transpose(0, 1)[None], keys, values, enable_gqa=True
        )
        out[own] = found[0].transpose(0, 1)
    return out


class Captures:
    """Stands for what captures graphs: a graph's function runs on what it was captured with, its result stays put."""

    def __init__(self) -> None:
        self.captured = self.replayed = 0

    def __call__(self, function: cuda_graph.Function, sibling: Any) -> cuda_graph.Function:
        self.captured += 1
        result = function()

        def replay() -> Tensor:
            self.replayed += 1
            return result.copy_(function())

        return replay


def packed_upload(arrays: Mapping[str, np.ndarray], device: torch.device) -> dict[str, Tensor]:
    host, places = pack(arrays, pinned=False)
    return unpack(host.clone(), arrays, places)


def like_a_gpu(
    lm: surelock.LanguageModel,
    monkeypatch: pytest.MonkeyPatch,
    capture: Captures | None = None,
    backend: Any = "eager",
) -> surelock.LanguageModel:
    """The model on a CPU that takes the paths of a GPU: its uploads and attention, and rows filled up for graphs."""
    monkeypatch.setattr(engine, "has_varlen", lambda *_: True)
    monkeypatch.setattr(engine, "upload", packed_upload)
    monkeypatch.setattr(attention, "varlen_attn", looped)
    monkeypatch.setattr(cuda_graph, "_STEP", 8)
    return replace(lm, engine=engine.TorchEngine(lm.network, capture, backend))


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("graphs", [False, True], ids=["varlen", "graphs"])
@pytest.mark.parametrize("write", WRITERS.values(), ids=list(WRITERS))
def test_the_paths_of_a_gpu_decide_what_the_cpu_decides(
    tmp_path: Path, write: Any, name: str, graphs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posterior, "_BY_TOKEN", set())
    write(tmp_path, tied=False, **SHAPE)
    lm = surelock.load(tmp_path, device="cpu", dtype=torch.float64)
    changes, choices = RUNS[name]
    if lm.config.block_size is not None:
        changes = {
            key: value
            for key, value in changes.items()
            if key not in ("block_length", "steps", "cfg_scale")
        }

    def decoded() -> list[surelock.Step]:
        return list(
            surelock.decode(lm, PROMPTS, DecodeSettings(gen_length=GEN, **changes), **choices)
        )

    plain = decoded()
    capture = Captures()
    lm = like_a_gpu(lm, monkeypatch, capture if graphs else None)
    for mine, theirs in zip(plain, decoded(), strict=True):
        for field in ("tokens", "masked", "locked", "computed", "probed"):
            assert np.array_equal(getattr(mine, field), getattr(theirs, field)), (field, mine.index)
        np.testing.assert_allclose(mine.kl, theirs.kl, atol=1e-12, rtol=1e-9)
        np.testing.assert_allclose(mine.confidence, theirs.confidence, rtol=1e-9)
    assert (capture.replayed > 0) == (graphs and lm.config.block_size is None)


def segment_case(seed: int) -> tuple[Tensor, Tensor, Tensor, dict[str, Tensor | None], Tensor]:
    """A random case: q, keys, values in float64, the arrays of `Segments`, and what dense attention returns."""
    rng = np.random.default_rng(seed)
    batch = int(rng.integers(1, 5))
    kv_heads = int(rng.integers(1, 3))
    size = int(rng.choice([8, 16, 32]))
    heads = kv_heads * int(rng.integers(1, 4))
    block = int(rng.integers(2, 6)) if seed % 2 else None
    lengths = rng.integers(1, 40, batch).tolist()
    counts = [int(rng.integers(0, length + 1)) for length in lengths]
    counts[-1] = max(1, counts[-1])
    positions = np.concatenate(
        [np.sort(rng.permutation(n)[:c]) for n, c in zip(lengths, counts, strict=True)]
    )
    config = replace(LLADA_8B, n_heads=heads, n_kv_heads=kv_heads, head_size=size, block_size=block)
    found = attention.segment_arrays(config, positions, counts, lengths)
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(len(positions), heads, size, dtype=torch.float64, generator=generator)
    shape = (2, sum(lengths) + 1, kv_heads, size)
    keys, values = torch.randn(shape, dtype=torch.float64, generator=generator)
    out = torch.empty_like(q)
    at = 0
    starts = np.cumsum([0, *lengths])
    for b, count in enumerate(counts):
        for row in range(at, at + count):
            stop = (
                lengths[b]
                if block is None
                else min(lengths[b], (int(positions[row]) // block + 1) * block)
            )
            own = slice(int(starts[b]), int(starts[b]) + stop)
            k, v = (
                each[own].repeat_interleave(heads // kv_heads, dim=1) for each in (keys, values)
            )
            weights = (torch.einsum("hd,nhd->hn", q[row], k) / size**0.5).softmax(-1)
            out[row] = torch.einsum("hn,nhd->hd", weights, v)
        at += count
    names = ("rows", "starts", "seen")
    arrays = {name: torch.from_numpy(found[name]) if name in found else None for name in names}
    return q, keys, values, arrays, out


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_segments_are_what_each_row_attends_to(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three hundred cases: uneven sequences, some without rows, grouped heads, blocks."""
    monkeypatch.setattr(attention, "varlen_attn", looped)
    for seed in range(first, first + 50):
        q, keys, values, arrays, expected = segment_case(seed)
        segments = attention.Segments(**arrays, most_rows=len(q), most_seen=len(keys))  # type: ignore[arg-type]
        found = attention.attend_segments(q, keys, values, segments)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def fused_case(seed: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]:
    """Random logits, kept ones near them, which tokens are banned, and in float64 what is read of them."""
    generator = torch.Generator().manual_seed(seed)
    count = 3 + seed % 5
    vocab = 100 + 37 * (seed % 20)
    logits = torch.randn(count, vocab, generator=generator).mul(1 + seed % 6).to(dtype)
    kept = (logits + torch.randn(count, vocab, generator=generator) * 10.0 ** -(seed % 4)).to(dtype)
    banned = torch.zeros(vocab)
    banned[torch.randint(vocab, (2,), generator=generator)] = -torch.inf
    exact = logits.double()
    log_q = kept.double().log_softmax(-1)
    log_p = exact.log_softmax(-1)
    tokens = (exact + banned).argmax(-1)
    return logits, kept, banned, {
        "confidence": log_p.exp().amax(-1),
        "lse": exact.logsumexp(-1),
        "tokens": tokens,
        "scores": log_p.exp().gather(1, tokens[:, None])[:, 0],
        "kl": (log_p.exp() * (log_p - log_q)).sum(-1),
    }  # fmt: skip


def assert_read(functions: tuple[Any, Any], seed: int, dtype: torch.dtype, device: str) -> None:
    logits, kept, banned, exact = fused_case(seed, dtype)
    logits = logits.to(device)
    kept = kept.to(device)
    banned = banned.to(device)
    total, confidence, lse, tokens, scores = functions[0](logits, banned)
    rows = torch.arange(0, len(logits), 2, device=device)
    kl = functions[1](logits, lse, rows, kept, rows, kept[rows].float().logsumexp(-1))
    assert tokens.tolist() == exact["tokens"].tolist() and bool(total.isfinite().all())
    for name, value in (("confidence", confidence), ("lse", lse), ("scores", scores)):
        torch.testing.assert_close(value.cpu().double(), exact[name], rtol=3e-6, atol=3e-6)
    torch.testing.assert_close(kl.cpu().double(), exact["kl"][rows.cpu()], rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_what_is_compiled_reads_posteriors_exactly(dtype: torch.dtype) -> None:
    """The functions before they are compiled, in 300 cases."""
    for seed in range(300):
        assert_read((fused.read_posteriors, fused.divergences), seed, dtype, "cpu")


def assert_elementwise(functions: network.Elementwise, device: str) -> None:
    """In bfloat16, for several numbers of rows: a compiled function rounds once, a plain one where it stores."""
    generator = torch.Generator().manual_seed(0)
    for rows in (64, 5, 1, 320, 128):
        # strided, as q and k are
        x = torch.randn(rows, 12, 16, generator=generator).bfloat16().to(device)[:, :8]
        rotary = [each.to(device) for each in torch.randn(2, rows, 1, 16, generator=generator)]
        gate_up = torch.randn(rows, 96, generator=generator).bfloat16().to(device)
        with torch.inference_mode():
            for found, expected in (
                (functions.rotate(x, *rotary), network.rotate(x, *rotary)),
                (functions.gated(gate_up), network.gated(gate_up)),
            ):
                torch.testing.assert_close(found, expected, rtol=2**-7, atol=1e-5)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_compiled_elementwise_functions_are_the_plain_ones_within_a_rounding() -> None:
    config = replace(LLADA_8B, n_heads=6, n_kv_heads=2, head_size=16, d_ff=48)
    assert_elementwise(
        fused.compiled_elementwise(config, torch.bfloat16, torch.device("cpu")), "cpu"
    )


@pytest.mark.parametrize("graphs", [False, True], ids=["varlen", "graphs"])
def test_a_gpu_takes_compiled_elementwise_functions_in_each_layer(
    lm: surelock.LanguageModel, graphs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = run(lm, "locked")
    used = Counter()

    def counted(function: Any) -> Any:
        return lambda *given: used.update([function.__name__]) or function(*given)

    lm = like_a_gpu(lm, monkeypatch, Captures() if graphs else None)
    monkeypatch.setattr(engine, "can_fuse", lambda _: True)
    monkeypatch.setattr(
        engine, "compiled_elementwise", lambda *_: network.Elementwise(*map(counted, network.PLAIN))
    )
    monkeypatch.setitem(break_even.FASTER, "compiled layers", (40, np.inf))
    run(lm, "locked")  # with graphs the first captures
    used.clear()
    found = run(lm, "locked")
    rows = list[int]()
    for mine, theirs in zip(plain, found, strict=True):
        assert np.array_equal(mine.tokens, theirs.tokens) and np.array_equal(
            mine.locked, theirs.locked
        )
        np.testing.assert_allclose(mine.kl, theirs.kl, atol=1e-12, rtol=1e-9)
        rows.append(int(theirs.computed.sum()))
    rows = [cuda_graph.bucket_of(count) for count in rows] if graphs else rows
    steps = sum(count >= 40 for count in rows)
    assert min(rows) < 40 and used == dict.fromkeys(("rotate", "gated"), steps * lm.config.n_layers)


@pytest.mark.parametrize("name", ["locked", "unlocking", "budget", "baseline"])
def test_a_run_read_by_the_compiled_functions_is_the_same(
    lm: surelock.LanguageModel, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = run(lm, name)
    used = []

    def read(*given: Tensor) -> Any:
        used.append(1)
        return fused.read_posteriors(*given)

    monkeypatch.setattr(engine, "can_fuse", lambda _: True)
    monkeypatch.setitem(break_even.FASTER, "compiled reading", (0, np.inf))
    monkeypatch.setattr(engine, "compiled_reading", lambda *_: fused.Reads(read, fused.divergences))
    lm = replace(lm, engine=engine.TorchEngine(lm.network))
    for mine, theirs in zip(plain, run(lm, name), strict=True):
        assert same(mine, theirs, ("seconds", "kl", "confidence"))
        np.testing.assert_allclose(mine.kl, theirs.kl, rtol=1e-5, atol=1e-12)
        np.testing.assert_allclose(mine.confidence, theirs.confidence, rtol=1e-12)
    assert bool(used) == (name != "unlocking")  # on a CPU its numbers are drawn for each token


def test_the_recorded_schedule_commits_every_position_once_and_locks_none_before() -> None:
    recorded = json.loads(RECORDED.read_text("utf-8"))
    commits = recorded["unmask"]
    assert sorted(commits) == list(range(recorded["steps"]))
    locks = recorded["lock"][recorded["prompt_length"] :]
    pairs = zip(commits, locks, strict=True)
    assert all(lock == -1 or lock >= commit for commit, lock in pairs)


def test_a_schedule_is_recorded_of_the_steps_in_which_each_position_stops_being_masked_and_unlocked() -> (
    None
):
    lm = surelock.load("stories")
    found = record(lm)
    decoder = recommended(lm.generation, {"gen_length": found["steps"]})
    steps = list(surelock.decode(lm, [OPENING], **decoder.keywords()))
    masked = np.array([step.masked[0] for step in steps]).sum(axis=0)
    unlocked = np.array([~step.locked[0] for step in steps]).sum(axis=0)
    assert found["unmask"] == masked[found["prompt_length"] :].tolist()
    assert found["lock"] == np.where(unlocked == len(steps), -1, unlocked).tolist()
    assert found.keys() == json.loads(RECORDED.read_text("utf-8")).keys()


def test_the_recorded_schedule_is_stretched_to_a_size() -> None:
    """Every position of each text is committed once, in the order of the recording, and none locks before that."""
    decoder = Decoder(settings=DecodeSettings(gen_length=48, steps=24), compute=LockRule())
    found = stretch(decoder, [[5] * 6, [7] * 9], vocab_size=50)
    assert isinstance(found.compute, RecordedLocks) and isinstance(found.unmask, Replay)
    assert [len(steps) for steps in found.compute.at] == [54, 57]
    for commits, locks in zip(found.unmask.replay, found.compute.at, strict=True):
        assert sorted(position for _, position, _ in commits) == list(range(48))
        assert np.bincount([step for step, _, _ in commits]).tolist() == [2] * 24
        assert all(locks[len(locks) - 48 + position] >= step for step, position, _ in commits)


def test_the_parts_of_bench_gpu_on_a_cpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is written as soon as it is measured, with the prediction beside it."""
    flags = [
        "--shape",
        "tiny",
        "--device",
        "cpu",
        "--size",
        "16x2",
        "--repeats",
        "2",
        "--run-steps",
        "16",
    ]
    assert main(["bench", "gpu", *flags, "--out", str(tmp_path)]) == 0
    lines = [json.loads(line) for line in (tmp_path / "gpu.jsonl").read_text().splitlines()]
    *printed, last = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert printed == lines and last["parts"] == len(lines)
    assert _parser().parse_args(["bench", "gpu"]).out is None, "only what is named is written"
    names = [
        f"{kind} 16x2 {rows}"
        for rows in ("unlocked", "half locked")
        for kind in ("kernels", "step")
    ]
    assert [line["part"].removesuffix(" plain") for line in lines] == [
        *names,
        "run 16x2",
        "rounding",
    ]
    assert not any("failed" in line for line in lines)
    for line in lines:
        if line["part"].startswith("step"):
            assert line["predicted_ms"] > 0 and line["measured_ms"] > 0 and line["rows"] <= 160
    assert 0 < lines[-2]["rows"] < 1 and lines[-2]["predicted_speedup"] > 0
