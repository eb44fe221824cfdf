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


@pytest.mark.parametrize("run", ["baseline", "unlocking", "guided", "threshold", "prefix"])
def test_steps_and_totals(lm: surelock.LanguageModel, run: str) -> None:
    changes, choices = RUNS[run]
    settings = DecodeSettings(gen_length=12, **changes)
    lengths = np.array([14.0, 20.0, 17.0])
    prompts = [[1] * 2, list(range(2, 10)), [9] * 5]
    steps = list(surelock.decode(lm, prompts, settings, **choices))
    counter = TotalsCounter(lm.config, lm.ends, guided=settings.cfg_scale > 0)
    for step in steps:
        counter.add(step)
    totals = counter.totals()
    passes = 2 if settings.cfg_scale else 1
    c = lm.config
    fixed = 4 * c.d_model**2 + 4 * c.d_model * c.n_kv_heads * c.head_size + 6 * c.d_model * c.d_ff
    row = passes * c.n_layers * (4 * lengths * c.d_model + fixed)
    padded_row = passes * c.n_layers * (4 * 20 * c.d_model + fixed)
    probe = row - passes * c.n_layers * 4 * c.d_model * c.n_kv_heads * c.head_size
    running = [np.ones(3)]  # a sequence runs while it has masks left
    running += [(step.masked.sum(1) > 0).astype(float) for step in steps[:-1]]
    for step, runs in zip(steps, running, strict=True):
        assert np.array_equal(step.flops, row * step.computed.sum(1) + probe * step.probed.sum(1))
        assert np.array_equal(step.baseline_flops, row * lengths * runs)
    if run == "unlocking":
        assert sum(int(step.probed.sum()) for step in steps) > 3
    assert totals.steps == len(steps)
    assert totals.tokens == 38
    assert totals.seconds == pytest.approx(sum(step.seconds for step in steps))
    assert totals.flops == pytest.approx(float(sum(step.flops.sum() for step in steps)))
    assert totals.baseline_flops == pytest.approx(
        float(sum(step.baseline_flops.sum() for step in steps))
    )
    assert totals.flops_ratio == totals.flops / totals.baseline_flops
    padded = float(sum(runs.sum() for runs in running)) * padded_row * 20
    assert totals.padded_baseline_flops == pytest.approx(padded)
    computable = sum(float((lengths * runs).sum()) for runs in running)
    assert totals.active_ratio == pytest.approx(
        sum(int(step.computed.sum()) for step in steps) / computable
    )
    assert totals.locked == int(steps[-1].locked.sum()) / 51
    counted = np.zeros((3, 20), dtype=bool)
    for row, begin, after, ids in zip(
        counted, (6, 0, 3), (6, 8, 8), steps[-1].tokens.tolist(), strict=True
    ):
        row[begin : next((at + 1 for at in range(after, 20) if ids[at] in lm.ends), 20)] = True
    to_eos = sum(float((counted.sum(1) * runs).sum()) for runs in running)
    assert totals.active_ratio_to_eos == pytest.approx(
        sum(int((step.computed & counted).sum()) for step in steps) / to_eos
    )
    if run == "baseline":
        assert totals.flops_ratio == totals.active_ratio == totals.active_ratio_to_eos == 1
