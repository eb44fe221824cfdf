"""The experiments' figures: each beside what a hand computes, or code that shares nothing with it."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from labs import IdsLab
from numpy.typing import NDArray

import surelock
from surelock import DecodeSettings, Entropy, Everything, LockRule, Margin, SelectRule
from surelock.decoding.compute import Both
from surelock.decoding.decoder import Decoder
from surelock.decoding.locking import UnlockRule
from surelock.model.bound import conditional_bound
from surelock.research import estimates, theory
from surelock.research.compare import text_figures
from surelock.research.lab import Lab, decode_cell, decoder_of
from surelock.research.prompts import Prompt
from surelock.research.runner import DEFAULTS, Cell, grid
from surelock.research.theory import Drift

EVERY_SETTING: Cell = DEFAULTS | {
    "gen_length": 24,
    "steps": 12,
    "block_length": 8,
    "remasking": "margin",
    "temperature": 0.7,
    "no_repeat_ngram_size": 3,
    "epsilon": 0.02,
    "percentile": 35.0,
    "visible_steps": 2,
    "select_fraction": 0.6,
    "unlock_period": 5,
    "seed": 11,
}


def test_every_setting_of_a_cell_reaches_the_decoder():
    settings = DecodeSettings(
        gen_length=24, steps=12, block_length=8, temperature=0.7, no_repeat_ngram_size=3, seed=14
    )
    rule = LockRule(epsilon=0.02, percentile=35.0, visible_steps=2, unlock=UnlockRule(period=5))
    locked = Decoder(settings=settings, compute=Both(rule, SelectRule(0.6)), unmask=Margin())
    assert decoder_of(EVERY_SETTING, 3) == locked
    ungated = decoder_of(
        EVERY_SETTING | {"percentile": None, "unlock_period": None, "select_fraction": 1.0}
    )
    assert ungated.compute == LockRule(epsilon=0.02, percentile=None, visible_steps=2)
    assert decoder_of(EVERY_SETTING | {"epsilon": None, "select_fraction": 1.0}, 3) == replace(
        locked, compute=Everything()
    )


def row_cost(length: int) -> int:
    """FLOPs of a row of the tiny model (Sec. 2.4): d 32, two blocks, four heads of 8, two of keys, d_ff 48."""
    return 2 * (4 * length * 32 + 2 * 32 * 32 + 2 * 32 * 32 + 4 * 32 * 2 * 8 + 6 * 32 * 48)


def test_a_cells_figures_are_counted_from_its_steps(lm):
    """Three prompts in batches of two, beside runs of each prompt alone, counted position by position."""
    prompts = [[5, 6, 7, 8], [9, 3], [4, 4, 4]]
    cell = grid(
        prompts=3, batch=2, gen_length=8, steps=4, remasking="entropy", temperature=1.0, epsilon=5.0, percentile=80.0,
        visible_steps=0, seed=3,
    )[0]  # fmt: skip
    settings = DecodeSettings(gen_length=8, steps=4, temperature=1.0)
    rule = LockRule(epsilon=5.0, percentile=80.0, visible_steps=0)
    runs = [
        list(
            surelock.decode(
                lm, [ids], replace(settings, seed=3 + i), compute=rule, unmask=Entropy()
            )
        )
        for i, ids in enumerate(prompts)
    ]
    texts = [run[-1].tokens[0, -8:].tolist() for run in runs]
    # a token of the second text, so that something comes behind an end
    lm = replace(lm, ends=(texts[1][4],))
    ends = [text.index(lm.eos_id) if lm.eos_id in text else 8 for text in texts]
    lengths = [12, 10, 11]
    # up to the EOS and with it
    counted = [min(n, n - 8 + end + 1) for n, end in zip(lengths, ends, strict=True)]
    assert counted != lengths
    rows = [[int(step.computed.sum()) for step in run] for run in runs]
    rows_to_eos = [
        sum(int(step.computed[0, :n].sum()) for step in run)
        for run, n in zip(runs, counted, strict=True)
    ]
    costs = [row_cost(n) for n in lengths]
    spent = sum(sum(r) * c for r, c in zip(rows, costs, strict=True))
    baseline = sum(4 * n * c for n, c in zip(lengths, costs, strict=True))
    padded = 4 * (2 * 12 * row_cost(12) + 11 * row_cost(11))

    decoded = decode_cell(IdsLab(lm, ids=prompts), cell)
    assert decoded.tokens == texts
    assert decoded.figures == pytest.approx(
        {
            "active_ratio": sum(map(sum, rows)) / (4 * 33),
            "active_ratio_to_eos": sum(rows_to_eos) / (4 * sum(counted)),
            "f_base": baseline / 33,
            "f_base_padded": padded / (2 * 12 + 11),
            "f_locked": spent / 33,
            "flops_ratio": spent / baseline,
            "flops_ratio_padded": spent / padded,
            "locked": sum(int(run[-1].locked.sum()) for run in runs) / 33,
        }
    )
    assert 0.2 < decoded.figures["active_ratio"] < 0.9
    by_step = list(zip(*rows, strict=True))
    expected = [
        sum(r * c for r, c in zip(step, costs, strict=True)) / (baseline / 4) for step in by_step
    ]
    assert decoded.curve == pytest.approx(expected)


def test_text_figures_end_at_the_first_eos(stories):
    lm = stories
    own = Lab(stories)
    prompts = [Prompt(text, lm.encode(text)) for text in ("Tom had", "Mia saw", "A dog")]
    story = lm.encode(" a red ball. He had a red ball. He")
    assert lm.decode(story[:4]) == " a red ball." and len(story) == 11 and lm.eos_id == 0
    tokens = [[*story[:4], 0, *story[4:10]], story, [0, *story[:10]]]
    told = text_figures(own, prompts, tokens)
    assert told["ends"] == [4, 11, 0]
    assert told["characters"] == [len(" a red ball."), len(" a red ball. He had a red ball. He"), 0]
    assert told["repeats"] == [
        0.0,
        pytest.approx(1 - len({*zip(*(story[i:] for i in range(4)), strict=False)}) / 8),
        None,
    ]
    expected = [
        conditional_bound(
            lm.network, np.array([*prompt.ids, *ids]), len(prompt.ids), draws=16,
            rng=np.random.default_rng([0, number]), mask_id=lm.mask_id,
        ).mean()
        for number, (prompt, ids) in enumerate(zip(prompts, [tokens[0][:5], story, [0]], strict=True))
    ]  # fmt: skip
    assert told["nats"] == pytest.approx(expected)
    # The last one is EOS alone: -log p(EOS | prompt, one mask), exactly.
    logits = lm.network(torch.tensor([[*prompts[2].ids, lm.mask_id]]))[0, -1].double()
    assert told["nats"][2] == pytest.approx(float(logits.logsumexp(0) - logits[0]), rel=1e-5)
    other = [[*story[:4], 0, 0, 0, 7, 7, 7, 7], story, [0] * 11]
    assert text_figures(own, prompts, other) == told


def test_estimates_beside_the_jackknife():
    """The error of a mean with gaps, by hand; of a ratio, from leaving out each prompt in turn."""
    assert estimates.mean([1.0, None, 3.0]).error == pytest.approx(1)  # as of the two alone
    for p, freedom, expected in (
        (0.975, 29, 2.0452),
        (0.9995, 40, 3.5510),
        (1 - 0.05 / 177 / 2, 47, 3.9243),
    ):
        assert estimates.student_t(p, freedom) == pytest.approx(expected, abs=1e-4)
    paired = estimates.difference(estimates.mean([2.0, 6.0, 10.0]), estimates.mean([1.0, 5.0, 9.0]))
    assert paired[:2] == (1, 0)
    alone = estimates.mean([None, 3.0, None])
    assert alone.value == 3 and math.isnan(alone.error)
    assert math.isnan(estimates.difference(alone, estimates.mean([1.0, 2.0, 3.0])).error)
    rng = np.random.default_rng(1)
    under = rng.integers(80, 120, 400).astype(float)
    over = under * rng.normal(0.5, 0.1, 400)
    left_out = (over.sum() - over) / (under.sum() - under)
    error = math.sqrt(399 / 400 * ((left_out - left_out.mean()) ** 2).sum())
    found = estimates.ratio(over.tolist(), under.tolist())
    assert found.value == pytest.approx(over.sum() / under.sum())
    assert found.error == pytest.approx(error, rel=0.01)
    other = estimates.ratio((over + 10).tolist(), under.tolist())
    assert estimates.difference(found, other).value == pytest.approx(-4000 / under.sum())


def test_a_drift_is_the_unlocked_runs_own_kl(lm):
    """Against the dense network on the canvas of every step; the cell's lock rule plays no part."""
    prompts = [[5, 6, 7], [8, 9]]
    cell = grid(prompts=2, gen_length=6, temperature=1.0, seed=4, epsilon=10.0)[0]
    runs = list(theory.drifts(IdsLab(lm, ids=prompts), cell, jumps=True))
    for number, (ids, run) in enumerate(zip(prompts, runs, strict=True)):
        settings = DecodeSettings(gen_length=6, temperature=1.0, seed=4 + number)
        steps = list(surelock.decode(lm, [ids], settings, compute=surelock.Everything()))
        fed = [
            torch.tensor([ids + [lm.mask_id] * 6]),
            *(torch.from_numpy(step.tokens) for step in steps[:-1]),
        ]
        logits = [lm.network(tokens)[0] for tokens in fed]
        log_p = [z.log_softmax(-1) for z in logits]
        assert run.kl.shape == run.tail.shape == run.jump.shape == (6, len(ids) + 6)
        assert np.isinf(run.kl[0]).all() and np.isnan(run.jump[0]).all()
        for s in range(1, 6):
            kl = (log_p[s].exp() * (log_p[s] - log_p[s - 1])).sum(-1)
            assert run.kl[s] == pytest.approx(kl, rel=1e-6, abs=1e-14)
            assert run.jump[s] == pytest.approx(
                (logits[s] - logits[s - 1]).square().sum(-1).sqrt().numpy()
            )
        unmasked = {int(i): s.index for s in steps for i in s.newly_unmasked[0].nonzero()[0]}
        for i in range(len(ids) + 6):
            # unmasked in step u, first seen in u + 1, first compared with itself in u + 2: pairs from u + 3 on
            assert run.tail[:, i].tolist() == [s >= unmasked.get(i, 0) + 3 for s in range(6)]


def drift_of_three() -> Drift:
    """Twelve steps, tails from the third: one falls by half until it is below the floor, one by a fifth, one rises."""
    s = np.arange(12.0)
    kl = np.stack([1.5e-8 * 0.5**s, 0.2 * 0.8**s, 0.02 * 1.1**s], axis=1)
    return Drift(kl, np.broadcast_to(s[:, None] >= 3, kl.shape).copy(), np.full_like(kl, np.nan))


def test_contraction_by_hand(monkeypatch):
    run = drift_of_three()
    monkeypatch.setattr(theory, "drifts", lambda *_: iter([run]))
    told = theory.CONTRACTION.measure(Lab.__new__(Lab), DEFAULTS)
    curve = run.kl[1:].mean(axis=1)
    x = np.arange(11) - 5
    y = np.log(curve)
    assert told["rho_mean"] == pytest.approx(math.exp((x * y).sum() / (x * x).sum()))
    # what the third gains in a step, .002 (1.1)^s, is more than the second loses, .04 (.8)^s, from s = 9.4 on
    assert told["mean_rises"] == pytest.approx(1 / 10)
    # pairs above the floor: 3..8 of the first (1.5e-8 / 2^7 is the last above 1e-10), 3..11 of the others
    assert told["rises"] == pytest.approx(9 / 24)
    assert told["positions_ok"] == pytest.approx(2 / 3)
    # fits need eight points: the first has five
    assert told["rho"] == pytest.approx(0.95)
    assert told["rho_above_1"] == 0.5


def errors_of(lm: surelock.LanguageModel, rule: LockRule) -> dict[str, list[float]]:
    """Of each locked position, as `locked_positions` tells it, from two runs that report the whole vocabulary."""
    settings = DecodeSettings(gen_length=12)
    ids = [5, 6, 7, 8]
    steps = list(surelock.decode(lm, [ids], settings, compute=rule, top_k=41))
    commits = [
        (s.index, int(i) - 4, int(s.tokens[0, i]))
        for s in steps
        for i in s.newly_unmasked[0].nonzero()[0]
    ]
    every = surelock.Everything()
    forced = surelock.Replay([commits])
    alone = list(surelock.decode(lm, [ids], settings, compute=every, unmask=forced, top_k=41))

    def log_p(step: surelock.Step, i: int) -> NDArray[np.float64]:
        assert step.top_ids is not None and step.top_probs is not None
        return np.log(step.top_probs[0, i][step.top_ids[0, i].argsort()])

    out: dict[str, list[float]] = {name: [] for name in ("kl", "left", "error", "error_alone")}
    for t, step in enumerate(steps):
        for i in step.newly_locked[0].nonzero()[0].tolist():
            final = log_p(alone[-1], i)
            gap = np.abs(final - log_p(step, i))
            values = (
                float(step.kl[0, i]), 11 - t, gap.max(), np.abs(final - log_p(alone[t], i)).max(),
            )  # fmt: skip
            for name, value in zip(out, values, strict=True):
                out[name].append(float(value))
    return out


def test_locked_positions_beside_two_whole_runs(lm):
    cell = grid(prompts=1, gen_length=12, epsilon=0.3, percentile=50.0)[0]
    found = theory.locked_positions(Lab(lm), cell, 0, Prompt("", [5, 6, 7, 8]))
    expected = errors_of(lm, LockRule(epsilon=0.3, percentile=50.0))
    assert len(expected["kl"]) > 5 and found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name] == pytest.approx(values, rel=1e-5, abs=1e-9), name


def test_the_tails_constant_by_hand() -> None:
    """rho .49: roots of .7, so 1 + .7 + .49 for three steps and 1 / .3 for all."""
    assert theory.tail_constant(0.49, 2.0) == pytest.approx(math.sqrt(2) * 2 / 0.3)
    sums = theory.tail_constant(0.49, 2.0, np.array([0, 1, 3]))
    assert sums == pytest.approx(math.sqrt(2) * 2 * np.array([0, 1, 1 + 0.7 + 0.49]))
    assert theory.tail_constant(1.0, 3.0) == math.inf
    left = np.array([0, 1, 2])
    assert theory.tail_constant(4.0, 1.0, left) == pytest.approx(math.sqrt(2) * np.array([0, 1, 3]))
    assert theory.tail_constant(1.0, 1.0, left) == pytest.approx(math.sqrt(2) * left)


def test_the_bounds_constants_come_from_other_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    run = drift_of_three()
    run = replace(
        run, jump=np.sqrt(np.concatenate((np.ones((1, 3)), run.kl[:-1]))) * [3.0, 2.0, 5.0]
    )

    def drifts(own: Lab, cell: Cell, *, jumps: bool) -> Any:
        asked.append((cell["prompts"], cell["skip"], jumps))
        return iter([run])

    monkeypatch.setattr(theory, "drifts", drifts)
    monkeypatch.setattr(Lab, "prompts", lambda *_: [1, 2])
    monkeypatch.setattr(
        theory,
        "locked_positions",
        lambda own, cell, number, prompt: {"kl": np.array([prompt, 0.5])},
    )
    told = theory.BOUND.measure(Lab.__new__(Lab), DEFAULTS | {"prompts": 16, "fit_prompts": 4})
    assert asked == [(4, 16, True)]
    assert told["rho"] == pytest.approx(0.95) and told["rho_above_1"] == 0.5
    # |z_s - z_{s-1}| / sqrt(D_{s-1}): 3 six times, 2 and 5 nine times each
    assert told["smooth_max"] == pytest.approx(5)
    assert told["kl"] == [1, 0.5, 2, 0.5]
