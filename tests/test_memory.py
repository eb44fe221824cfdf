"""Peak memory of a run: beyond weights and cache, one [rows, V] table in the network's dtype and bounded chunks."""

from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoints import write_hf
from storages import FlashAttention, LiveStorages

import surelock
from surelock import ComputeRule, DecodeSettings, Entropy, Everything, LanguageModel, LockRule
from surelock.config import LLADA_8B, NetworkConfig
from surelock.engines import posterior
from surelock.engines.torch import TorchEngine
from surelock.model.network import Network, empty_network
from surelock.quality import commit_error
from surelock.quality.commit_error import Shadow

VOCAB = 50_000
LENGTH = 800
TABLE = LENGTH * VOCAB * 2  # bytes, in bfloat16: 76 MiB, against which a few chunks are small


@pytest.fixture(scope="module")
def wide() -> LanguageModel:
    """A tiny bf16 network with a wide vocabulary."""
    config = NetworkConfig(VOCAB, 16, 1, 2, 1, 8, 16, LENGTH, 1e4, 1e-5, True)
    network = Network(config).to(torch.bfloat16).requires_grad_(False)
    return LanguageModel("wide", TorchEngine(network), None, mask_id=1, pad_id=0, ends=(0,))


def peak(lm: LanguageModel, rule: ComputeRule, unmask: Entropy | None = None, **changes) -> int:
    settings = DecodeSettings(gen_length=LENGTH - 8, steps=2, **changes)
    with LiveStorages() as live:
        steps = list(
            surelock.decode(lm, [list(range(2, 10))], settings, compute=rule, unmask=unmask)
        )
    assert len(steps) == 2
    return live.peak


def test_a_locked_run_keeps_one_table_in_the_networks_dtype(wide: LanguageModel) -> None:
    assert TABLE <= peak(wide, LockRule()) < 1.75 * TABLE


def test_a_baseline_keeps_no_table(wide: LanguageModel) -> None:
    assert peak(wide, Everything()) < 0.75 * TABLE


LARGE = 150_000  # a vocabulary, and positions
READ = 100


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny network with the vocabulary of Qwen3."""
    path = tmp_path_factory.mktemp("large")
    shape = {"layers": 1, "d_model": 8, "heads": 1, "kv_heads": 1, "d_ff": 8, "tied": True}
    write_hf(path, "a2d-qwen3", **shape, vocab=LARGE, max_length=128)
    return path


@pytest.mark.parametrize("changes", [{}, {"temperature": 0.8}], ids=["greedy", "sampled"])
def test_posteriors_of_a_large_vocabulary_are_read_a_few_rows_at_a_time(
    large: Path, changes: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In ONNX Runtime: about ten tables of a part's size exist at once, the logits are one of many rows."""
    lm = surelock.load(large, device="cpu", engine="onnx")
    rows = []
    made = []
    posterior = lm.engine._posterior
    head = lm.engine._head
    run = posterior.run
    put = head.run_with_iobinding

    def noted(names, given):
        rows.append(len(given["logits"]))
        return run(names, given)

    monkeypatch.setattr(posterior, "run", noted)
    monkeypatch.setattr(head, "run_with_iobinding", lambda binding: made.append(1) or put(binding))
    settings = DecodeSettings(gen_length=READ - 8, steps=2, **changes)
    prompts = [list(range(2, 10))]
    rule = LockRule(epsilon=-1.0)
    steps = list(surelock.decode(lm, prompts, settings, compute=rule))
    assert max(rows) <= 4 and sum(rows) >= 2 * READ
    assert len(made) <= 2 * 2 + 2, "the whole head was read for a few rows"
    again = surelock.decode(
        surelock.load(large, device="cpu", engine="torch"), prompts, settings, compute=rule
    )
    for mine, theirs in zip(steps, again, strict=True):
        assert mine.tokens.tolist() == theirs.tokens.tolist()
        np.testing.assert_allclose(mine.kl, theirs.kl, rtol=1e-3, atol=1e-6)


def test_in_torch_too(large: Path) -> None:
    lm = surelock.load(large, device="cpu", engine="torch")
    settings = DecodeSettings(gen_length=READ - 8, steps=2)
    with LiveStorages() as live:
        list(surelock.decode(lm, [list(range(2, 10))], settings, compute=LockRule(epsilon=-1.0)))
    row = 4 * LARGE
    assert live.peak <= (READ + 55 + 8 * 8) * row, (
        "kept posteriors, logits of 55 rows, and eight tables of eight"
    )


def test_commit_errors_of_llada_8b_fit_a_gpu_of_24_gb(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside its weights and a run that keeps every posterior, by storages without data: thousands of rows at once."""
    monkeypatch.setitem(posterior._CHUNK_BYTES, "meta", posterior._CHUNK_BYTES["cuda"])
    network = empty_network(LLADA_8B).to(torch.bfloat16).requires_grad_(False)
    weights = sum(each.nbytes for each in network.parameters())
    lm = LanguageModel("LLaDA-8B", TorchEngine(network), None, mask_id=126336, pad_id=0, ends=(0,))
    settings = DecodeSettings(gen_length=256)
    read = lm.engine.read
    rows = []
    monkeypatch.setattr(
        lm.engine, "read", lambda memory, plan: rows.append(len(plan.slots)) or read(memory, plan)
    )
    shadow = Shadow(lm, settings)
    with FlashAttention(), LiveStorages("meta") as live:
        monkeypatch.setattr(commit_error, "free_memory", lambda _: 24 * 10**9 - weights - live.now)
        run = surelock.decode(
            lm, [list(range(64))] * 4, settings, compute=LockRule(), keep_logits=True
        )
        for step in islice(run, 4096 // (64 + 256) + 2):
            # of whole steps the error is 0
            shadow.add(replace(step, computed=step.computed & (step.index == 0)))
        shadow.result()
    # 20 with keys and values of all layers
    assert max(rows) > 4096 and weights + live.peak < 18.5e9
