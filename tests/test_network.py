"""The network's two forwards against the oracle's dense one, written from the layouts' description alone."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from checkpoints import write_dream, write_hf, write_lfm2, write_llada, write_mdlm, write_qwen3
from oracle import OracleNetwork
from torch import Tensor

import surelock
from surelock.config import LLADA_8B
from surelock.engines.inputs import Rows, around
from surelock.engines.torch import PackedForward
from surelock.model.bound import conditional_bound
from surelock.model.network import Network

LLADA = {"layers": 2, "d_model": 32, "heads": 4, "kv_heads": 4, "d_ff": 40, "vocab": 37, "seed": 1}
QWEN3 = {
    "layers": 2,
    "d_model": 24,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 8,
    "d_ff": 40,
    "vocab": 37,
    "seed": 2,
}
MDLM = {"layers": 2, "d_model": 24, "heads": 4, "vocab": 37, "seed": 3}
LFM2 = {"layers": 3, "d_model": 24, "heads": 4, "kv_heads": 2, "vocab": 37, "seed": 4}
LAYOUTS = {
    "llada": (write_llada, LLADA | {"tied": False}),
    "llada-tied": (write_llada, LLADA | {"tied": True}),
    "llada-qkv-bias": (write_llada, LLADA | {"tied": False, "qkv_bias": True}),
    "llada-grouped-sharded": (write_llada, LLADA | {"tied": False, "kv_heads": 2, "shards": 3}),
    "llada-all": (
        write_llada,
        LLADA | {"tied": True, "kv_heads": 1, "qkv_bias": True, "shards": 2},
    ),
    "qwen3": (write_qwen3, QWEN3 | {"tied": False}),
    "qwen3-tied-sharded": (write_qwen3, QWEN3 | {"tied": True, "shards": 3}),
    "qwen3-one-kv-head": (write_qwen3, QWEN3 | {"tied": True, "kv_heads": 1, "head_dim": 16}),
    "dream": (write_dream, LLADA | {"tied": False, "kv_heads": 2}),
    **{
        family: (partial(write_hf, family=family), QWEN3 | {"tied": True, "head_dim": 6})
        for family in ("a2d-qwen3", "a2d-qwen2")
    },
    "coda": (partial(write_hf, family="coda"), QWEN3 | {"tied": False}),
    "illada": (partial(write_hf, family="illada"), LLADA | {"tied": True, "kv_heads": 2}),
    "sdar": (partial(write_hf, family="sdar"), QWEN3 | {"tied": False, "block_size": 3}),
    "mdlm": (write_mdlm, MDLM),
    "bd3lm-owt": (write_mdlm, MDLM | {"block_size": 3, "shards": 2}),
    "bd3lm-owt-without-time": (write_mdlm, MDLM | {"block_size": 4, "adaln": False}),
    "lfm2": (write_lfm2, LFM2 | {"convs": (0, 1)}),
    "lfm2-conv-last": (write_lfm2, LFM2 | {"convs": (0, 2), "shards": 2}),
    "dream-tied-sharded": (write_dream, LLADA | {"tied": True, "shards": 2}),
}
PROMPTS = [[5, 3, 9, 1, 1, 7], [8, 8, 30], [2, 36, 1, 1, 4, 11, 20, 1, 6]]


def dense_twin(path: Path, tensors: dict[str, Tensor]) -> OracleNetwork:
    """The oracle's network of a checkpoint, in float64, which tests/test_oracle.py holds beside transformers' own."""
    return OracleNetwork.from_config(tensors, json.loads((path / "config.json").read_text()))


def dense(twin: OracleNetwork, tokens: Sequence[int]) -> Tensor:
    """[N, V] logits, all rows computed."""
    return twin.forward(list(tokens), {}, set(range(len(tokens))))


def test_the_bound_of_a_shifted_network_looks_one_row_back(tmp_path: Path) -> None:
    shape = LAYOUTS["dream"][1]
    twin = dense_twin(tmp_path, write_dream(tmp_path, **shape))
    network = surelock.load(tmp_path, device="cpu", dtype=torch.float64).network
    tokens = PROMPTS[2]
    found = conditional_bound(
        network, np.array(tokens), len(tokens) - 1, draws=2, rng=np.random.default_rng(0), mask_id=1
    )
    row = dense(twin, [*tokens[:-1], 1])[-1]
    assert found == pytest.approx(-float(row.log_softmax(-1)[tokens[-1]]), abs=1e-9)


class Packed:
    """Sequences behind one another in one cache; `run` computes some positions of each."""

    def __init__(self, network: Network, lengths: Sequence[int]) -> None:
        self.network = network
        self.lengths = list(lengths)
        self.forward = PackedForward(network, sum(lengths))
        self.cache = self.forward.cache

    def run(
        self,
        sequences: Sequence[Sequence[int]],
        positions: Sequence[Sequence[int]] | None = None,
        written: list[int] | None = None,
        read: Sequence[Sequence[int]] | None = None,
    ) -> list[Tensor]:
        """Logits of the chosen positions (default: all) of each sequence; written: rows that write, default all; read:
        of each sequence's chosen positions, by their order, those that are read, default all.
        """
        positions = positions or [range(n) for n in self.lengths]
        starts = [sum(self.lengths[:b]) for b in range(len(self.lengths))]
        arrays = {
            "tokens": [
                ids[p] for ids, chosen in zip(sequences, positions, strict=True) for p in chosen
            ],
            "positions": [p for chosen in positions for p in chosen],
            "slots": [
                start + p for start, chosen in zip(starts, positions, strict=True) for p in chosen
            ],
        }
        counts = [len(chosen) for chosen in positions]
        read_counts = []
        if self.network.config.conv_layers:
            arrays["around"] = around(
                np.array(arrays["positions"]),
                np.array(arrays["slots"]),
                counts,
                self.lengths,
                sum(self.lengths),
            )
        if written is not None:
            arrays["written"] = [
                slot if row in written else sum(self.lengths)
                for row, slot in enumerate(arrays["slots"])
            ]
        if read is not None:
            firsts = accumulate(counts, initial=0)
            arrays["read"] = [
                first + i for first, chosen in zip(firsts, read, strict=False) for i in chosen
            ]
            read_counts = [len(chosen) for chosen in read]
        tensors = {
            name: torch.as_tensor(array, dtype=torch.int64) for name, array in arrays.items()
        }
        logits = self.network.logits(self.forward(Rows(tensors, counts, self.lengths, read_counts)))
        return list(logits.split(read_counts or counts))


@pytest.fixture(params=sorted(LAYOUTS))
def layout(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Network, OracleNetwork]:
    """A float32 network and its dense twin in float64."""
    write, shape = LAYOUTS[request.param]
    twin = dense_twin(tmp_path, write(tmp_path, **shape))
    return surelock.load(tmp_path, device="cpu", tokenizer="").network, twin


NEAR = 1e-5  # of the truth, in float32


def assert_near(found: Tensor, expected: Tensor, tolerance: float = NEAR) -> None:
    torch.testing.assert_close(found.double(), expected.double(), rtol=0, atol=tolerance)


def test_both_forwards_equal_the_dense_layout(layout) -> None:
    network, twin = layout
    batch = torch.randint(37, (3, 8), generator=torch.Generator().manual_seed(0))
    logits = network(batch)
    assert logits.shape == (3, 8, 37)
    assert logits.dtype == torch.float32
    packed = Packed(network, [8, 8, 8]).run(batch.tolist())
    ragged = Packed(network, [len(ids) for ids in PROMPTS]).run(PROMPTS)
    for ids, whole, part in zip(batch.tolist(), logits, packed, strict=True):
        assert_near(whole, dense(twin, ids))
        assert_near(part, dense(twin, ids))
    for ids, part in zip(PROMPTS, ragged, strict=True):
        assert_near(part, dense(twin, ids))


@pytest.mark.parametrize(
    "read", [[[2, 5], [0, 1, 2, 3, 4, 5, 6, 7], [7]], [[0], [3], [6]], [[], [4], []]]
)
def test_rows_that_nobody_reads_stop_at_the_last_keys_and_values(
    layout, read: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows that are read have the same logits, alone or not; what the others leave behind is the same."""
    network, _ = layout
    before, after = torch.randint(
        1, 37, (2, 3, 8), generator=torch.Generator().manual_seed(0)
    ).tolist()
    whole = Packed(network, [8, 8, 8])
    part = Packed(network, [8, 8, 8])
    seen: list[int] = []
    for name in ("silu", "gelu"):
        act = partial(lambda act, x, **how: seen.append(len(x)) or act(x, **how), getattr(F, name))
        monkeypatch.setattr(F, name, act)
    for sequences in (before, after):
        expected = whole.run(sequences)
        seen.clear()
        found = part.run(sequences, read=read)
        for b, chosen in enumerate(read):
            assert_near(found[b], expected[b][chosen])
        last = 24 if network.config.shifted else sum(map(len, read))
        assert seen == [24] * (network.config.n_layers - 1) + [last]
    for mine, theirs in (
        (part.cache.keys, whole.cache.keys),
        (part.cache.values, whole.cache.values),
    ):
        for a, b in zip(mine, theirs, strict=True):
            assert_near(a, b)
    changed = [[4, *ids[1:]] for ids in after]
    for a, b in zip(
        part.run(changed, [[0], [0], [0]]), whole.run(changed, [[0], [0], [0]]), strict=True
    ):
        assert_near(a, b)


def test_what_a_position_attends_to_is_the_mean_of_all_heads(layout) -> None:
    network, twin = layout
    dense(twin, PROMPTS[2])
    for position in (0, 4, 8):
        found = network.attention(torch.tensor([PROMPTS[2]]), position)
        row = max(0, position - network.config.shifted)  # what predicts it
        assert_near(found, torch.cat(twin.shares)[:, row].mean(0))


def test_the_dense_forward_is_differentiable(lm) -> None:
    network = Network(lm.config)
    network(torch.tensor([[3, 1, 4]])).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


def test_blocks_on_two_device_objects(lm, llada: Path) -> None:
    places = {
        "embed": "cpu:0",
        "blocks.0": "cpu",
        "blocks.1": "cpu:0",
        "norm": "cpu",
        "head": "cpu",
    }
    spread = surelock.load(llada, dtype=torch.float64, device_map=places)
    ids = PROMPTS[2]
    assert torch.equal(spread.network(torch.tensor([ids])), lm.network(torch.tensor([ids])))
    assert_near(
        Packed(spread.network, [9]).run([ids])[0], lm.network(torch.tensor([ids]))[0], 1e-12
    )
    settings = surelock.DecodeSettings(gen_length=8, temperature=0.5)
    rule = surelock.LockRule(epsilon=1e-2, unlock=surelock.UnlockRule(period=2, min_interval=0))
    runs = zip(
        *(surelock.decode(m, [[5, 3, 9], [5]], settings, compute=rule) for m in (lm, spread)),
        strict=True,
    )
    assert all(
        np.array_equal(a.tokens, b.tokens) and np.array_equal(a.locked, b.locked) for a, b in runs
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"max_length": 0}, "max_length must be a whole number from 1 to 16777216, not 0"),
        ({"vocab_size": 2**24 + 1}, "vocab_size must be"),
        ({"n_layers": True}, "n_layers must be"),
        ({"d_ff": "x" * 50}, f"d_ff must be .*, not '{'x' * 39}$"),
        ({"n_kv_heads": 5}, r"n_kv_heads \(5\) must divide n_heads \(32\)"),
        ({"head_size": 127}, "head_size must be even for rotary embeddings, not 127"),
        ({"block_size": 0}, "block_size must be a whole number from 1 to 16777216, not 0"),
        ({"block_size": "x" * 50}, f"block_size must be .*, not '{'x' * 39}$"),
        ({"block_size": 4, "shifted": True}, "block_size cannot be set in a shifted network"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(change: dict, said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}"):
        replace(LLADA_8B, **change)
