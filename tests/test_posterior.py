"""KL, the reading of posteriors in chunks, and the sampler's noise."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from surelock import DecodeSettings, Entropy, LanguageModel, LockRule, LowConfidence, Random, UnmaskPolicy
from surelock.decoding import posterior
from surelock.decoding.canvas import Canvas
from surelock.decoding.choosing import Chooser
from surelock.decoding.noise import BatchNoise, StepNoise
from surelock.decoding.posterior import Gate, PosteriorReader, Reading, StepRows
from surelock.decoding.schedule import Schedule
from surelock.decoding.stopwatch import Stopwatch
from surelock.model.config import NetworkConfig
from surelock.model.network import Network

VOCAB = 4096
CPU = torch.device("cpu")


def model(vocab_size: int = VOCAB, dtype: torch.dtype = torch.float32) -> LanguageModel:
    """A model that is only asked for its vocabulary, dtype and special tokens."""
    config = NetworkConfig(vocab_size, 8, 1, 1, 1, 8, 8, 64, 1e4, 1e-5, True)
    return LanguageModel("test", Network(config).to(dtype), None, mask_id=1, eos_id=0, eot_id=None, pad_id=0)


class Reads:
    """A PosteriorReader and a Chooser fed with ready-made logits: one prompt token and the rest masks."""

    def __init__(self, rows: int, lm: LanguageModel, unmask: UnmaskPolicy | None = None, **changes: Any) -> None:
        self.settings, self.policy = DecodeSettings(gen_length=rows - 1, **changes), unmask or LowConfidence()
        self.canvas = Canvas([[2]], self.settings, 1, 0)
        self.lm, self.step = lm, 0
        watch = Stopwatch(lm.device)
        self.reader = PosteriorReader(lm, rows, remember=True, observe=False, top_k=3, watch=watch)
        self.chooser = Chooser(lm, self.settings, self.policy)

    def read(
        self,
        logits: Tensor,
        slots: Sequence[int] | None = None,
        probed: Sequence[int] = (),
        compared: Sequence[int] | None = None,
        kept: Sequence[int] | None = None,
        sequences: int = 1,
        gate: Gate | None = None,
    ) -> Reading:
        slots = np.arange(self.canvas.total) if slots is None else np.array(slots)
        choosers = np.flatnonzero((slots > 0) & ~np.isin(slots, probed))
        told = (np.isin(slots, slots if which is None else which) for which in (compared, kept))
        sequence = slots * sequences // self.canvas.total
        rows = StepRows(slots, np.isin(slots, probed), choosers, *told, sequence, gate)
        schedule = Schedule(self.canvas, self.settings, self.policy.early)
        noise = BatchNoise(self.canvas, schedule, self.settings, self.step, self.lm, self.policy.scores == "noise")
        self.step += 1

        def choose(z: Tensor, p: Tensor, start: int) -> Tensor:
            return self.chooser.choose(z, p, start, rows, np.empty((2, 0), dtype=np.int64), noise)

        return self.reader.read(lambda start, stop, out: out.copy_(logits[start:stop]), rows, choose)


def true_kl(a: Tensor, b: Tensor) -> Tensor:
    """KL(softmax(a) || softmax(b)) in float64 of the very same logits."""
    log_p, log_q = a.double().log_softmax(-1), b.double().log_softmax(-1)
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def drifted(logits: Tensor, target: float, dtype: torch.dtype = torch.float32) -> Tensor:
    """Logits at a KL of `target` nats from the given ones: random changes of a size found by bisection."""
    change = torch.randn(logits.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    low, high = torch.full((2, len(logits), 1), 1e-6, dtype=torch.float64)
    high += 4
    for _ in range(30):
        middle = (low * high).sqrt()
        above = true_kl(logits + middle * change, logits)[:, None] > target
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    return (logits + low * change).to(dtype)


@pytest.mark.parametrize("spread", [0.5, 2.0, 4.0, "peaked"])
@pytest.mark.parametrize("target", [1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8])
def test_float32_kl_keeps_its_digits(target: float, spread: float | str) -> None:
    logits = torch.randn(8, VOCAB, generator=torch.Generator().manual_seed(0))
    logits *= 2.0 if spread == "peaked" else spread
    if spread == "peaked":  # from max p = 0.1 to 1 - max p = 6e-5
        logits[torch.arange(8), torch.arange(8) * 200] = torch.linspace(8, 20, 8)
    moved, reads = drifted(logits, target), Reads(8, model())
    reads.read(logits)
    kl, exact = reads.read(moved).kl, true_kl(moved, logits).numpy()
    np.testing.assert_allclose(exact, target, rtol=0.1)
    # Where few tokens carry 1e-3 nats, expm1's own rounding in float32 (delta near 0.05) is 2e-9: nothing averages it.
    few = target == 1e-3 and spread in (4.0, "peaked")
    np.testing.assert_allclose(kl, exact, rtol=0, atol=4e-9 if few else 1e-9)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_equal_logits_have_a_kl_of_exactly_zero(dtype: torch.dtype) -> None:
    logits = (torch.randn(8, VOCAB, dtype=torch.float64) * 5).to(dtype)
    reads = Reads(8, model(dtype=dtype))
    assert np.isposinf(reads.read(logits).kl).all()
    assert (reads.read(logits).kl == 0).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_logits_are_kept_without_loss(dtype: torch.dtype) -> None:
    logits = torch.randn(8, VOCAB, generator=torch.Generator().manual_seed(2)).mul(4).to(dtype)
    moved, reads = drifted(logits, 1e-4, dtype), Reads(8, model(dtype=dtype))
    reads.read(logits)
    np.testing.assert_allclose(reads.read(moved).kl, true_kl(moved, logits).numpy(), rtol=0, atol=1e-9)


def test_the_last_posterior_is_that_of_the_last_computation() -> None:
    """Rows not computed keep theirs, probes replace nothing, and a forgotten row has none."""
    a, b, c = torch.randn(3, 4, VOCAB, generator=torch.Generator().manual_seed(3))
    reads = Reads(4, model())
    reads.read(a)
    reads.read(b[[0, 1, 2]], [0, 1, 2], probed=[2])
    reads.reader.forget(np.array([1]))
    kl = reads.read(c).kl
    expected = [*true_kl(c[:1], b[:1]).tolist(), np.inf, *true_kl(c[2:], a[2:]).tolist()]
    np.testing.assert_allclose(kl, expected, rtol=1e-5)


@pytest.mark.parametrize("observe", [False, True])
def test_only_the_kl_that_somebody_decides_by_is_computed(observe: bool) -> None:
    """Compared are the rows that are asked for, with what was kept of them; whoever observes sees all."""
    a, b = torch.randn(2, 4, VOCAB, generator=torch.Generator().manual_seed(5))
    reads = Reads(4, model())
    reads.reader = PosteriorReader(reads.lm, 4, remember=True, observe=observe, top_k=0, watch=Stopwatch(CPU))
    first = reads.read(a, compared=[], kept=[0, 1, 2])
    assert np.isposinf(first.kl).all() if observe else np.isnan(first.kl).all()
    exact = true_kl(b, a).numpy()
    kl = reads.read(b, compared=[1, 2, 3], kept=[]).kl
    expected = exact if observe else [np.nan, exact[1], exact[2], np.inf]
    np.testing.assert_allclose(kl, expected, rtol=1e-5)


@pytest.mark.parametrize("changes", [{}, {"unmask": Entropy(), "temperature": 0.7}, {"unmask": Random()}])
def test_chunks_do_not_change_results(monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]) -> None:
    logits, some = torch.randn(3, 90, 50, generator=torch.Generator().manual_seed(4)), [0, *range(5, 90, 2)]
    readings: list[list[Reading]] = []
    for rows in (32, 40, 100):
        monkeypatch.setattr(posterior, "_CHUNK_BYTES", {"cpu": rows * 50 * 4})
        reads = Reads(90, model(50), **changes)
        assert reads.reader._chunk == min(rows, 90)
        first, second = reads.read(logits[0]), reads.read(logits[1, some], some, probed=[9, 45])
        readings.append([first, second, reads.read(logits[2])])
    for others in readings[1:]:
        for mine, theirs in zip(readings[0], others, strict=True):
            for field in fields(Reading):
                np.testing.assert_array_equal(getattr(mine, field.name), getattr(theirs, field.name), field.name)


@pytest.mark.parametrize("chunk", [32, 50, 100])
def test_behind_the_confidence_gate_no_kl_is_made(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    """Three sequences of 30: of each one's compared rows the fifth that is most certain, wherever chunks cut them."""
    monkeypatch.setattr(posterior, "_CHUNK_BYTES", {"cpu": chunk * 50 * 4})
    a, b = torch.randn(2, 90, 50, generator=torch.Generator().manual_seed(6))
    b *= torch.linspace(0.2, 2, 90)[torch.randperm(90, generator=torch.Generator().manual_seed(7)), None]
    b[[5, 6, 33]] = b[40].clone()  # as certain as one another
    reads, compared = Reads(90, model(50)), [*range(3, 29), *range(31, 57, 2), 70]
    reads.read(a)
    made = []
    own = posterior.kl_divergence
    monkeypatch.setattr(posterior, "kl_divergence", lambda p, *rest: made.append(len(p)) or own(p, *rest))
    reading = reads.read(b, compared=compared, sequences=3, gate=LockRule(percentile=20.0).kl_gate)
    expected = np.full(90, np.nan)
    for first in (0, 30, 60):
        z = np.array([i for i in compared if first <= i < first + 30])
        u = np.sort(reading.uncertainty[z])
        z = z[reading.uncertainty[z] <= u[(len(z) - 1) // 5]]
        expected[z] = true_kl(b[z], a[z])
    np.testing.assert_allclose(reading.kl, expected, rtol=1e-4)
    exact = int(np.isfinite(expected).sum())
    assert 6 + 3 + 1 <= exact <= sum(made) < (len(compared) if chunk < 90 else exact + 1)
    whole = reads.read(a, compared=[3, 4], kept=[], sequences=3)
    assert np.isfinite(whole.kl).sum() == 2 and reads.reader._stored.all()


def test_a_chunk_is_bounded_but_never_a_few_rows() -> None:
    """Every chunk reads the whole output head: at 150,000 tokens a few rows at a time would cost several forwards."""
    chunk = Reads(64, model(150_000)).reader._chunk
    assert chunk >= 16
    assert chunk * 150_000 * 4 <= 2**25


def test_tables_lie_where_the_logits_come_out() -> None:
    """A device map may put the head on another device than the embedding."""
    lm = model()
    lm.network.head = torch.nn.Linear(8, VOCAB, bias=False, device="meta")
    reader = Reads(2, lm).reader
    assert reader._tables.device.type == reader._previous.device.type == "meta"


def test_reading_by_hand() -> None:
    logits = torch.tensor([[0.0, 9.0, 3.0, 1.0], [2.0, 4.0, 2.0, 1.0]], dtype=torch.float64)
    reading = Reads(2, model(4, torch.float64)).read(logits)
    p = logits.softmax(-1).numpy()
    np.testing.assert_allclose(reading.confidence, p.max(-1), rtol=1e-14)
    np.testing.assert_allclose(reading.top_probs, np.sort(p)[:, :0:-1], rtol=1e-14)
    assert reading.top_ids[:, 0].tolist() == [1, 1]  # the posterior is raw: the mask token takes part
    assert reading.tokens.tolist() == [0]  # the candidate is not the mask, and the lowest id among equals
    assert reading.score.tolist() == pytest.approx([p[1, 0]], rel=1e-14)
    assert reading.finite


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("at", [(0, 0), (3, 49), (7, 20)])
def test_one_bad_logit_is_found(value: float, at: tuple[int, int]) -> None:
    logits = torch.randn(8, 50)
    logits[at] = value
    assert not Reads(8, model(50)).read(logits).finite


# --- noise ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("uniforms", [False, True])
@pytest.mark.parametrize("positions", [[0], [5], [0, 1, 2], [1, 4, 5], list(range(6))])
def test_rows_drawn_alone_are_those_of_the_block(positions: list[int], uniforms: bool) -> None:
    whole, stream = (StepNoise((3, 9), 17, torch.device("cpu")) for _ in range(2))
    if uniforms:
        assert torch.equal(stream.uniforms(6), whole.uniforms(6))
    noise = whole.gumbel(range(6))
    halves = positions[: len(positions) // 2], positions[len(positions) // 2 :]
    assert torch.equal(torch.cat([stream.gumbel(half) for half in halves]), noise[positions])


def test_noise_depends_on_its_key_alone() -> None:
    def draw(*key: int) -> tuple[Tensor, Tensor]:
        stream = StepNoise(key, 9, torch.device("cpu"))
        return stream.uniforms(4), stream.gumbel(range(4))

    draws = [draw(seed, step, *before) for seed in (0, 1) for step in (0, 1) for before in ((), (1,))]
    again = draw(0, 0)
    assert all(map(torch.equal, draws[0], again))
    assert len({float(noise[0, 0]) for _, noise in draws}) == 8
    assert all(x.dtype == torch.float64 and ((x >= 0) & (x < 1)).all() for x in again)


def test_noise_is_numpys() -> None:
    """The layout that a run is reproduced from: uniforms first where there are any, then a row per position."""
    stream, generator = StepNoise((5, 2), 9, torch.device("cpu")), np.random.default_rng(np.random.SeedSequence((5, 2)))
    np.testing.assert_array_equal(stream.uniforms(4), generator.random(4))
    np.testing.assert_array_equal(stream.gumbel(range(4)), generator.random((4, 9)))
