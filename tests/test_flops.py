"""Algorithmic FLOPs against the paper's table and against formulas written out here."""

import numpy as np
import pytest
from test_decode import RUNS

import surelock
from surelock import DecodeSettings
from surelock.config import NetworkConfig
from surelock.decoding.flops import baseline_flops, row_flops
from surelock.decoding.totals import TotalsCounter

LLADA_8B = NetworkConfig(
    vocab_size=126464, d_model=4096, n_layers=32, n_heads=32, n_kv_heads=32, head_size=128, d_ff=12288,
    max_length=4096, rope_theta=500000.0, norm_eps=1e-5, tied=False,
)  # fmt: skip
PAPER_F_BASE = {  # (N_gen, steps) of the paper's LLaDA-8B-Base table; its prompts have 64 tokens
    (64, 32): 4.488e11, (64, 64): 8.976e11, (128, 64): 8.997e11, (128, 128): 1.799e12,
    (256, 128): 1.808e12, (256, 256): 3.616e12, (512, 256): 3.650e12, (512, 512): 7.301e12,
}  # fmt: skip


@pytest.mark.parametrize(("shape", "expected"), PAPER_F_BASE.items())
def test_the_papers_baseline(shape: tuple[int, int], expected: float) -> None:
    gen_length, steps = shape
    length = 64 + gen_length
    assert baseline_flops(LLADA_8B, length, steps) / length == pytest.approx(expected, rel=5e-4)


def test_a_row_by_hand() -> None:
    """Grouped heads, and a head size that is not d / H: every matrix product of one row, two FLOPs per weight."""
    config = NetworkConfig(
        vocab_size=9, d_model=24, n_layers=3, n_heads=4, n_kv_heads=2, head_size=8, d_ff=40,
        max_length=64, rope_theta=1e4, norm_eps=1e-6, tied=True, qk_norm=True,
    )  # fmt: skip
    q = out = 2 * 24 * (4 * 8)
    k = v = 2 * 24 * (2 * 8)
    feed_forward = 3 * (2 * 24 * 40)
    attention = 2 * (2 * 10 * (4 * 8))  # scores and mixture over 10 positions
    assert row_flops(config, 10) == 3 * (q + k + v + out + feed_forward + attention)
    assert row_flops(config, 10, probed=True) == 3 * (q + out + feed_forward + attention)
    assert baseline_flops(config, 10, 5) == 5 * 10 * row_flops(config, 10)


@pytest.mark.parametrize("name", ["baseline", "unlocking", "guided", "threshold", "prefix"])
def test_totals_are_those_of_the_steps(lm: surelock.LanguageModel, name: str) -> None:
    """Whose FLOPs are the oracle's."""
    changes, choices = RUNS[name]
    settings = DecodeSettings(gen_length=12, **changes)
    prompts = [[1] * 2, list(range(2, 10)), [9] * 5]
    lengths = np.array([14.0, 20.0, 17.0])
    steps = list(surelock.decode(lm, prompts, settings, **choices))
    counter = TotalsCounter(lm.config, lm.ends, guided=settings.cfg_scale > 0)
    for step in steps:
        counter.add(step)
    totals = counter.totals()
    running = np.array([step.baseline_flops > 0 for step in steps]).sum(axis=0)
    computed = sum(step.computed for step in steps)
    passes = 2 if settings.cfg_scale else 1
    baseline = sum(step.baseline_flops.sum() for step in steps)
    assert (totals.steps, totals.tokens) == (len(steps), 38)
    assert totals.seconds == pytest.approx(sum(step.seconds for step in steps))
    assert totals.flops == pytest.approx(float(sum(step.flops.sum() for step in steps)))
    assert totals.baseline_flops == pytest.approx(float(baseline))
    assert totals.flops_ratio == totals.flops / totals.baseline_flops
    padded = passes * baseline_flops(lm.config, 20, int(running.sum()))
    assert totals.padded_baseline_flops == pytest.approx(padded)
    assert totals.active_ratio == pytest.approx(computed.sum() / (lengths * running).sum())
    assert totals.locked == int(steps[-1].locked.sum()) / 51
    to_end = 0
    rows = 0
    for sequence, (begin, first) in enumerate(((6, 6), (0, 8), (3, 8))):
        ids = steps[-1].tokens[sequence].tolist()
        stop = next((at + 1 for at in range(first, 20) if ids[at] in lm.ends), 20)
        to_end += computed[sequence, begin:stop].sum()
        rows += (stop - begin) * running[sequence]
    assert totals.active_ratio_to_eos == pytest.approx(to_end / rows)
    if name == "baseline":
        assert totals.flops_ratio == totals.active_ratio == totals.active_ratio_to_eos == 1
