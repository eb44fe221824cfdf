"""The engine on a GPU, without one: what a step asks for, and the numbers of the paths that only a GPU takes."""

import json
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from checkpoints import write_hf, write_llada, write_qwen3
from test_decode import GEN, RUNS, same
from torch import Tensor

import surelock
from surelock import DecodeSettings, LockRule, Replay
from surelock.__main__ import main
from surelock.bench import counts
from surelock.config import LLADA_8B
from surelock.decoding.decoder import Decoder
from surelock.decoding.recommended import recommended
from surelock.engines import attention, break_even, cuda_graph, fused, posterior
from surelock.engines import torch as engine
from surelock.engines.inputs import pack, unpack
from surelock.model import network
from surelock.research.bench import schedule
from surelock.research.bench.schedule import OPENING, RECORDED, RecordedLocks

PROMPTS = [[5, 6, 7], [9, 8, 7, 6, 5, 4], [3]]
SHAPE = {"layers": 3, "d_model": 64, "d_ff": 96, "vocab": 199, "seed": 3}
WRITERS = {
    "llada": write_llada,
    "qwen3": partial(write_qwen3, head_dim=24),
    "dream": partial(write_hf, family="coda", head_dim=16),
    "sdar": partial(write_hf, family="sdar", block_size=4, head_dim=16),
}


def test_a_step_asks_for_few_kernels_one_upload_and_one_download() -> None:
    """At LLaDA-8B's shape; the same in each layer, whatever the batch is and what is locked."""
    lines = counts.table()
    sizes = [(line["gen"], line["batch"], line["locked"]) for line in lines]
    assert sizes == [
        (*size, locked) for size in ((64, 1), (256, 4), (1024, 8)) for locked in (False, True)
    ]
    assert len({line["kernels_a_layer"] for line in lines}) == 1
    assert lines[0]["kernels_a_layer"] <= 16
    assert {(line["uploads"], line["downloads"]) for line in lines} == {(1, 1)}
    assert max(line["kernels"] for line in lines[:4]) <= 620
    assert max(line["kernels"] for line in lines) <= 1050


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


@pytest.mark.parametrize(("name", "kind"), zip(RUNS, cycle(WRITERS), strict=False))
@pytest.mark.parametrize("path", ["varlen", "graphs", "compiled"])
def test_the_paths_of_a_gpu_decide_what_the_cpu_decides(
    tmp_path: Path, kind: str, name: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All decisions are the same, and the numbers but for rounding. What would be compiled is called as it is."""
    monkeypatch.setattr(posterior, "_BY_TOKEN", set())
    WRITERS[kind](tmp_path, **SHAPE)
    lm = surelock.load(tmp_path, device="cpu", dtype=torch.float64)
    changes, choices = RUNS[name]
    if kind == "sdar":
        fixed = ("block_length", "steps", "cfg_scale")
        changes = {key: value for key, value in changes.items() if key not in fixed}
    settings = DecodeSettings(gen_length=GEN, **changes)
    plain = list(surelock.decode(lm, PROMPTS, settings, **choices))

    used = Counter()

    def counted(function: Any) -> Any:
        return lambda *given: used.update([function.__name__]) or function(*given)

    capture = Captures()
    lm = like_a_gpu(lm, monkeypatch, capture if path == "graphs" else None)
    if path == "compiled":
        functions = network.Elementwise(*map(counted, network.PLAIN))
        reads = fused.Reads(counted(fused.read_posteriors), counted(fused.divergences))
        monkeypatch.setattr(engine, "can_fuse", lambda _: True)
        monkeypatch.setattr(engine, "compiled_elementwise", lambda *_: functions)
        monkeypatch.setattr(engine, "compiled_reading", lambda *_: reads)
        monkeypatch.setitem(break_even.FASTER, "compiled layers", (40, np.inf))
        monkeypatch.setitem(break_even.FASTER, "compiled reading", (0, np.inf))
    rows = []
    for mine, other in zip(plain, surelock.decode(lm, PROMPTS, settings, **choices), strict=True):
        assert same(mine, other, ("seconds", "kl", "confidence", "commit_logits"))
        tolerance = 1e-5 if path == "compiled" else 1e-9
        np.testing.assert_allclose(mine.kl, other.kl, atol=1e-12, rtol=tolerance)
        np.testing.assert_allclose(mine.confidence, other.confidence, rtol=1e-9)
        rows.append(int(other.computed.sum()))
    assert (capture.replayed > 0) == (path == "graphs" and kind != "sdar")
    if path == "compiled" and name in ("locked", "baseline"):
        many = sum(count >= 40 for count in rows)
        assert used["rotate"] == used["gated"] == many * lm.config.n_layers
        assert used["read_posteriors"] == len(rows)


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


def test_segments_are_what_each_row_attends_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uneven sequences, some without rows, grouped heads, blocks."""
    monkeypatch.setattr(attention, "varlen_attn", looped)
    for seed in range(100):
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
    """The functions before they are compiled."""
    for seed in range(100):
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


@pytest.mark.long
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_compiled_elementwise_functions_are_the_plain_ones_within_a_rounding() -> None:
    config = replace(LLADA_8B, n_heads=6, n_kv_heads=2, head_size=16, d_ff=48)
    assert_elementwise(
        fused.compiled_elementwise(config, torch.bfloat16, torch.device("cpu")), "cpu"
    )


def test_a_schedule_is_recorded_of_the_steps_of_commits_and_locks(
    stories: surelock.LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every position is committed once, in the step after which it is masked no more, and none locks before."""
    decoder = recommended(stories.generation, {"gen_length": 48, "steps": 48})
    monkeypatch.setattr(schedule, "recommended", lambda *_: decoder)
    found = schedule.record(stories)
    recorded = json.loads(RECORDED.read_text("utf-8"))
    assert found.keys() == recorded.keys()
    steps = list(surelock.decode(stories, [OPENING], **decoder.keywords()))
    masked = sum(step.masked[0].astype(int) for step in steps)
    unlocked = sum((~step.locked[0]).astype(int) for step in steps)
    assert found["unmask"] == masked[found["prompt_length"] :].tolist()
    assert found["lock"] == np.where(unlocked == len(steps), -1, unlocked).tolist()
    for each in (found, recorded):
        assert sorted(each["unmask"]) == list(range(each["steps"]))
        pairs = zip(each["unmask"], each["lock"][each["prompt_length"] :], strict=True)
        assert all(lock == -1 or lock >= commit for commit, lock in pairs)


def test_the_recorded_schedule_is_stretched_to_a_size() -> None:
    """Every position of each text is committed once, in the order of the recording, and none locks before that."""
    decoder = Decoder(settings=DecodeSettings(gen_length=48, steps=24), compute=LockRule())
    found = schedule.stretch(decoder, [[5] * 6, [7] * 9], vocab_size=50)
    assert isinstance(found.compute, RecordedLocks)
    assert isinstance(found.unmask, Replay)
    for count, commits, locks in zip((6, 9), found.unmask.replay, found.compute.at, strict=True):
        assert len(locks) == count + 48
        assert sorted(position for _, position, _ in commits) == list(range(48))
        assert np.bincount([step for step, _, _ in commits]).tolist() == [2] * 24
        assert all(locks[count + position] >= step for step, position, _ in commits)


def test_the_parts_of_bench_gpu_on_a_cpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is written as soon as it is measured, with the prediction beside it."""
    flags = "--shape tiny --device cpu --size 16x2 --repeats 2 --run-steps 16 --out"
    assert main(["bench", "gpu", *flags.split(), str(tmp_path)]) == 0
    lines = [json.loads(line) for line in (tmp_path / "gpu.jsonl").read_text().splitlines()]
    *printed, last = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert printed == lines
    assert last["parts"] == len(lines)
    names = "kernels 16x2 unlocked|step 16x2 unlocked|kernels 16x2 half locked|step 16x2 half locked|run 16x2|rounding"
    assert "|".join(line["part"].removesuffix(" plain") for line in lines) == names
    assert not any("failed" in line for line in lines)
    for line in (lines[1], lines[3]):
        assert line["predicted_ms"] > 0
        assert line["measured_ms"] > 0
        assert line["rows"] <= 160
    assert 0 < lines[-2]["rows"] < 1
    assert lines[-2]["predicted_speedup"] > 0
