"""Weights in int8 against float32's: by hand, by KL, on a GPU of 12 GB, and where they cannot be had."""

from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints import write_dream, write_llada, write_qwen3
from storages import FlashAttention, LiveStorages
from torch import nn

import surelock
from surelock import DecodeSettings, LanguageModel, LockRule
from surelock.config import LLADA_8B
from surelock.engines import posterior
from surelock.engines.torch import TorchEngine
from surelock.model import int8
from surelock.model.network import Network, empty_network

SHAPE = {"layers": 3, "d_model": 64, "d_ff": 96, "vocab": 199, "seed": 3}
FAMILIES = {"llada": write_llada, "qwen3": partial(write_qwen3, head_dim=24), "dream": write_dream}


def products(network: Network) -> dict[str, nn.Linear]:
    return {
        name: each for name, each in network.blocks.named_modules() if isinstance(each, nn.Linear)
    }


def stored(network: Network) -> int:
    """Bytes of all tensors, those inside of torchao's included."""
    whole = 0
    for each in network.parameters():
        parts = [getattr(each, name, None) for name in ("qdata", "scale", "zero_point")]
        whole += sum(
            part.nbytes for part in (parts if parts[0] is not None else [each]) if part is not None
        )
    return whole


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_weights_are_rounded_row_by_row(tmp_path: Path, family: str, tied: bool) -> None:
    """The float32 network with products rounded by hand, to 255 values a row, gives the same logits."""
    FAMILIES[family](tmp_path, tied=tied, **SHAPE)
    exact = surelock.load(tmp_path, device="cpu", engine="torch")
    small = surelock.load(tmp_path, device="cpu", weights="int8")
    assert small.engine.name.endswith(", weights in int8") and small.dtype == "float32"
    tokens = torch.from_numpy(np.random.default_rng(0).integers(2, 199, (2, 20)))
    with torch.inference_mode():
        before = exact.network(tokens).log_softmax(-1)
        found = small.network(tokens)
        for each in products(exact.network).values():
            size = each.weight.abs().amax(1, keepdim=True) / 127.5
            each.weight.copy_((each.weight * (1 / size)).round().clamp(-128, 127) * size)
        torch.testing.assert_close(found, exact.network(tokens), rtol=0, atol=1e-4)
        kl = (before.exp() * (before - found.log_softmax(-1))).sum(-1)
    assert 1e-5 < kl.mean() < 1e-2
    assert stored(small.network) < 0.75 * stored(exact.network)


def test_a_locked_run_is_that_of_the_dense_network(tmp_path: Path) -> None:
    """Nothing locks, so that each step's posterior is that of a dense forward pass."""
    write_dream(tmp_path, **SHAPE)
    lm = surelock.load(tmp_path, device="cpu", weights="int8")
    settings = DecodeSettings(gen_length=8)
    assert isinstance(lm.engine, TorchEngine)
    canvas = torch.tensor([[5, 6, 7, *[lm.mask_id] * 8]])
    for step in surelock.decode(
        lm, [[5, 6, 7]], settings, compute=LockRule(epsilon=-1.0), observe=True
    ):
        with torch.inference_mode():
            confidence = lm.network(canvas).softmax(-1).amax(-1).numpy()
        np.testing.assert_allclose(step.confidence, confidence, rtol=1e-4)
        canvas = torch.from_numpy(step.tokens)


def test_llada_8b_fits_a_gpu_of_12_gb(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 512 generated positions, by storages without data: 10 GB."""
    monkeypatch.setitem(posterior._CHUNK_BYTES, "meta", posterior._CHUNK_BYTES["cuda"])
    network = empty_network(LLADA_8B).to(torch.bfloat16).requires_grad_(False)
    for name, _ in list(network.named_parameters()):
        if int8.is_product(network, name):
            int8.quantize(network, name)
    weights = stored(network)
    assert weights < 9.1e9
    lm = LanguageModel("LLaDA-8B", TorchEngine(network), None, mask_id=126336, pad_id=0, ends=(0,))
    settings = DecodeSettings(gen_length=512)
    with FlashAttention(), LiveStorages("meta") as live:
        for _ in islice(surelock.decode(lm, [list(range(64))], settings, compute=LockRule()), 2):
            pass
    assert weights + live.peak < 10.5e9


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"weights": "int4"}, r"weights must be 'int8' or None, not 'int4'"),
        ({"engine": "onnx"}, "engine 'onnx' computes no weights in int8: ask for engine 'torch'"),
        ({"dtype": torch.float64}, "not in float64"),
    ],
)
def test_what_cannot_be_had_is_refused(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    write_llada(tmp_path, tied=True, **SHAPE)
    with pytest.raises(ValueError, match=words):
        surelock.load(tmp_path, device="cpu", **{"weights": "int8"} | options)


def test_torchao_is_named_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(int8, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"weights in int8 need torchao: `pip install torchao`"):
        surelock.load(tmp_path, device="cpu", weights="int8")
