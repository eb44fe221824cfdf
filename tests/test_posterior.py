"""KL, the reading of posteriors in chunks, and the sampler's noise."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from surelock.bench import counts
from surelock.decoding.noise import Draws
from surelock.decoding.step import Choice, Plan, Reading
from surelock.engines import posterior
from surelock.engines.inputs import upload
from surelock.engines.posterior import Reader
from surelock.engines.stopwatch import Stopwatch

VOCAB = 4096
CPU = torch.device("cpu")


class Reads:
    """A Reader fed with ready-made logits, whose rows are all watched and may all be committed."""

    def __init__(self, rows: int, dtype: torch.dtype = torch.float32) -> None:
        every = np.ones(rows, dtype=bool)
        slots = np.arange(rows)
        draws = Draws([(0, 1)], [rows], np.zeros_like(slots), slots, False)
        choice = Choice(every, banned=[1], draws=draws, scores="confidence", temperature=0.0)
        self.plan = Plan(1, slots, [rows], slots, slots, ~every, every, every, choice)
        self.reader = Reader(rows, VOCAB, dtype, CPU, Stopwatch(CPU))

    def kl(self, logits: Tensor) -> np.ndarray:
        reading = Reading.empty(self.plan)
        read_plan = self.reader.plan(self.plan)
        self.reader.read(
            lambda start, stop, out: out.copy_(logits[start:stop]),
            read_plan,
            upload(read_plan.arrays, CPU),
            self.plan,
            reading,
        )
        return reading.kl


def true_kl(a: Tensor, b: Tensor) -> Tensor:
    """KL(softmax(a) || softmax(b)) in float64 of the very same logits."""
    log_p = a.double().log_softmax(-1)
    log_q = b.double().log_softmax(-1)
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def drifted(logits: Tensor, target: float, dtype: torch.dtype = torch.float32) -> Tensor:
    """Logits at a KL of `target` nats from the given ones: random changes of a size found by bisection."""
    change = torch.randn(
        logits.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    low, high = torch.full((2, len(logits), 1), 1e-6, dtype=torch.float64)
    high += 4
    for _ in range(30):
        middle = (low * high).sqrt()
        above = true_kl(logits + middle * change, logits)[:, None] > target
        low = torch.where(above, low, middle)
        high = torch.where(above, middle, high)
    return (logits + low * change).to(dtype)


@pytest.mark.parametrize("spread", [0.5, 2.0, 4.0, "peaked"])
@pytest.mark.parametrize("target", [1e-3, 1e-5, 1e-8])
def test_float32_kl_keeps_its_digits(target: float, spread: float | str) -> None:
    logits = torch.randn(8, VOCAB, generator=torch.Generator().manual_seed(0))
    logits *= 2.0 if spread == "peaked" else spread
    if spread == "peaked":  # from max p = 0.1 to 1 - max p = 6e-5
        logits[torch.arange(8), torch.arange(8) * 200] = torch.linspace(8, 20, 8)
    moved = drifted(logits, target)
    reads = Reads(8)
    reads.kl(logits)
    kl = reads.kl(moved)
    exact = true_kl(moved, logits).numpy()
    np.testing.assert_allclose(exact, target, rtol=0.1)
    # Where few tokens carry 1e-3 nats, expm1's own rounding in float32 (delta near 0.05) is 2e-9: nothing averages it.
    few = target == 1e-3 and spread in (4.0, "peaked")
    np.testing.assert_allclose(kl, exact, rtol=0, atol=4e-9 if few else 1e-9)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_logits_of_any_dtype_are_kept_without_loss(dtype: torch.dtype) -> None:
    """Equal ones have a KL of exactly zero."""
    logits = torch.randn(8, VOCAB, generator=torch.Generator().manual_seed(2)).mul(4).to(dtype)
    moved = drifted(logits, 1e-4, dtype)
    reads = Reads(8, dtype=dtype)
    assert np.isposinf(reads.kl(logits)).all()
    assert (reads.kl(logits) == 0).all()
    np.testing.assert_allclose(reads.kl(moved), true_kl(moved, logits).numpy(), rtol=0, atol=1e-9)


def draws(
    key: tuple[int, ...], rows: Sequence[int], scored: bool = False, length: int = 6
) -> Draws:
    return Draws([key], [length], np.zeros(len(rows), dtype=int), np.array(rows, dtype=int), scored)


def test_tokens_drawn_by_span_have_the_posteriors_distribution() -> None:
    """At a temperature, of 37 tokens, of which two are never chosen: by chi-square of 100,000 draws, 34 degrees."""
    logits = torch.randn(37, generator=torch.Generator().manual_seed(1)).mul(2)
    count = 100_000
    banned = [3, 36]
    numbers = draws((3, 9), range(count), length=count).gumbel(
        np.arange(count), sum(posterior.spans(37))
    )
    found = posterior.choose_by_span(
        logits.repeat(count, 1), banned, 0.7, torch.from_numpy(numbers)
    ).numpy()
    weights = (logits.double() / 0.7).exp().numpy()
    weights[banned] = 0
    expected = count * weights / weights.sum()
    times = np.bincount(found, minlength=37)
    assert times[banned].sum() == 0
    kept = expected > 0
    # one in a thousand is below or above
    assert 12 < ((times - expected)[kept] ** 2 / expected[kept]).sum() < 66


@pytest.mark.parametrize("temperature", [1e-300, 1e-40, 1e-9, 1e300])
def test_a_span_is_drawn_at_any_temperature(temperature: float) -> None:
    logits = torch.randn(64, 100, generator=torch.Generator().manual_seed(1))
    numbers = torch.from_numpy(
        draws((3, 9), range(64), length=64).gumbel(np.arange(64), sum(posterior.spans(100)))
    )
    found = posterior.choose_by_span(logits.clone(), [0], temperature, numbers)
    best = logits[:, 1:].argmax(dim=-1) + 1
    assert 0 not in found
    if temperature > 1:
        assert len(set(found.tolist())) > 30
    else:
        assert torch.equal(found, best)


def test_a_step_on_a_gpu_draws_its_noise_at_once() -> None:
    """At most 50 MB for 8 sequences of 1,024 tokens, in the step's one upload, whatever is read at once."""
    engine = counts.meta_engine()
    layout, plan = counts.plan_of(engine, 1024, 8, locked=False)
    rows = np.tile(np.arange(512), 8)
    streams = np.repeat(np.arange(8), 512)
    drawn = Draws([(b, 3) for b in range(8)], [1024] * 8, streams, rows, False)
    plan = replace(plan, choice=replace(plan.choice, temperature=0.8, draws=drawn))
    numbers = engine.memory(layout).reader.plan(plan).arrays["uniform"]
    assert numbers.shape == (4096, 494 + 256) and 2 * numbers.nbytes < 50e6
    assert counts.count_step(engine, layout, plan).uploads == 1
