"""The network's forwards, which the oracle's tests compare with its dense one: what else is asked of them."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from test_decode import same
from test_oracle import ADDED, MODELS, make_model

import surelock
from surelock.config import LLADA_8B
from surelock.model.bound import conditional_bound
from surelock.model.network import Network

TOKENS = [2, 16, 1, 1, 4, 11, 12, 1, 6]


def test_the_bound_of_a_shifted_network_looks_one_row_back(tmp_path: Path) -> None:
    model = make_model(tmp_path / "dream", "dream")
    rng = np.random.default_rng(0)
    found = conditional_bound(
        model.lm.network, np.array(TOKENS), len(TOKENS) - 1, draws=2, rng=rng, mask_id=1
    )
    logits = model.network.forward([*TOKENS[:-1], 1], {}, set(range(len(TOKENS))))
    expected = -float(logits[-1].log_softmax(-1)[TOKENS[-1]])
    assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("kind", MODELS | ADDED)
def test_what_a_position_attends_to_is_the_mean_of_all_heads(tmp_path: Path, kind: str) -> None:
    model = make_model(tmp_path / kind, kind)
    model.network.forward(TOKENS, {}, set(range(len(TOKENS))))
    shares = torch.cat(model.network.shares)
    network = model.lm.network
    for position in (0, 4, 8):
        found = network.attention(torch.tensor([TOKENS]), position)
        row = max(0, position - network.config.shifted)  # what predicts it
        torch.testing.assert_close(found, shares[:, row].mean(0), check_dtype=False)


@pytest.mark.parametrize("kind", ["llada", "dream", "mdlm", "lfm2"])
def test_rows_that_nobody_reads_stop_at_the_last_keys_and_values(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the rows of the feed-forward. A row of a shifted network is read for the position behind it."""
    lm = make_model(tmp_path / kind, kind).lm
    seen: list[int] = []
    for name in ("silu", "gelu"):
        act = partial(lambda act, x, **how: seen.append(len(x)) or act(x, **how), getattr(F, name))
        monkeypatch.setattr(F, name, act)
    expected = []
    read = lm.engine.read

    def note(memory, plan):
        rows = len(plan.slots)
        last = rows if lm.config.shifted else len(plan.read)
        expected.extend([*[rows] * (lm.config.n_layers - 1), last])
        return read(memory, plan)

    monkeypatch.setattr(lm.engine, "read", note)
    settings = surelock.DecodeSettings(gen_length=8, block_length=4)
    rule = surelock.LockRule(epsilon=0.1)
    list(surelock.decode(lm, [TOKENS[:4], [5]], settings, compute=rule))
    assert seen == expected
    assert lm.config.shifted or sum(seen) < max(seen) * len(seen)


def test_the_dense_forward_is_differentiable(lm) -> None:
    network = Network(lm.config)
    network(torch.tensor([[3, 1, 4]])).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


def test_blocks_on_two_device_objects(lm, llada: Path) -> None:
    places = dict.fromkeys(("embed", "blocks.1", "head"), "cpu:0")
    places |= dict.fromkeys(("blocks.0", "norm"), "cpu")
    spread = surelock.load(llada, dtype=torch.float64, device_map=places)
    settings = surelock.DecodeSettings(gen_length=8, temperature=0.5)
    rule = surelock.LockRule(epsilon=1e-2, unlock=surelock.UnlockRule(period=2, min_interval=0))
    runs = [surelock.decode(m, [[5, 3, 9], [5]], settings, compute=rule) for m in (lm, spread)]
    for one, other in zip(*runs, strict=True):
        assert same(one, other, ("seconds",))


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
