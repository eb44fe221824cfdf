"""Block-causal networks (SDAR, OPDLM, bd3lm): what the oracle's cases do not hold of them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoints import write_hf
from test_adapter import windows_loop

import surelock
from surelock.model.bound import conditional_bound

SIZE = 4
PROMPTS = [[5, 9, 3, 7, 2], [4, 4, 8, 7, 2, 11, 3, 9], [6]]
SETTINGS = surelock.DecodeSettings(gen_length=12)


@pytest.fixture(scope="module")
def sdar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sdar")
    write_hf(path, "sdar", layers=3, d_model=24, head_dim=8, vocab=29, seed=12, block_size=SIZE)
    return path


@pytest.fixture(scope="module")
def exact(sdar: Path) -> surelock.LanguageModel:
    return surelock.load(sdar, dtype=torch.float64)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"gen_length": 12, "block_length": 3}, r"block_length \(3\) must divide the 4 positions"),
        (
            {"gen_length": 8, "steps": 2, "block_length": 4},
            r"steps \(2\) are too few: the masks of prompt 1 lie in 3 blocks",
        ),
    ],
)
def test_blocks_across_those_of_the_network_are_refused(exact, values, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        surelock.decode(exact, PROMPTS, surelock.DecodeSettings(**values))


@pytest.mark.parametrize(
    "rule", [surelock.Everything(), surelock.LockRule(epsilon=0.1)], ids=["everything", "lock"]
)
def test_the_adapter_under_windows_that_grow_writes_what_decode_writes(sdar: Path, rule) -> None:
    """As diffusers' LLaDA2Pipeline calls a block-causal model, with its mask of attention."""
    lm = surelock.load(sdar, device="cpu")
    prompt = PROMPTS[1]
    *_, last = surelock.decode(lm, [prompt], SETTINGS, compute=rule)
    asked = prompt, 12, SIZE, lm.mask_id
    assert windows_loop(surelock.adapter(lm, rule), *asked, hides=True) == last.tokens[0].tolist()
    with pytest.raises(ValueError, match="attention_mask does not show"):
        windows_loop(surelock.adapter(lm, rule), prompt, 12, 2 * SIZE, lm.mask_id, hides=True)


def test_likelihoods_are_of_one_block_after_another(exact: surelock.LanguageModel) -> None:
    """Of one position of each of two blocks nothing is left to chance."""
    tokens = np.array(PROMPTS[1] + [12])
    found = conditional_bound(
        exact.network, tokens, 7, draws=2, rng=np.random.default_rng(0), mask_id=exact.mask_id
    )
    nats = 0.0
    for at in (7, 8):
        masked = torch.tensor([[*tokens[:at].tolist(), exact.mask_id]])
        nats -= float(exact.network(masked)[0, at].log_softmax(-1)[tokens[at]])
    np.testing.assert_allclose(found, nats, rtol=0, atol=1e-12)
