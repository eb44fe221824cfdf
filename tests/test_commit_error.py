"""The commit error: by hand, without locks, beside others in a batch, of a trace. The oracle's tests hold it, too."""

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import surelock
from surelock import DecodeSettings, Everything, LanguageModel, LockByAge, LockRule, SelectRule
from surelock.decoding.compute import ComputeRule
from surelock.decoding.decoder import Decoder
from surelock.quality import commit_error as module
from surelock.quality.commit_error import CommitError, Shadow, commit_error
from surelock.record import record_run
from surelock.trace.lanes import Lane

PROMPTS = [[5, 9, 3], [4, 4, 8, 7, 2, 11, 3], [6]]
SETTINGS = DecodeSettings(gen_length=12, block_length=6, temperature=0.7, seed=5)
LOOSE = LockRule(epsilon=0.5, percentile=None)


def errors(
    lm: LanguageModel, settings: DecodeSettings = SETTINGS, prompts: Any = PROMPTS, **decoder: Any
) -> CommitError:
    asked = {"compute": Everything(), "unmask": surelock.LowConfidence()} | decoder
    return commit_error(
        lm, surelock.decode(lm, prompts, settings, keep_logits=True, **asked), settings
    )


@dataclass(frozen=True)
class Steals(ComputeRule):
    """Computes everything, but for one slot in one step."""

    step: int = 0
    slot: int = 0

    def rows(self, state, active):
        return active[active != self.slot] if state.step == self.step else active


def test_the_first_step_computes_all_whatever_a_rule_says(lm: LanguageModel) -> None:
    first, *_ = surelock.decode(lm, PROMPTS, SETTINGS, compute=Steals(0, 4))
    whole, *_ = surelock.decode(lm, PROMPTS, SETTINGS)
    assert (
        np.array_equal(first.computed, whole.computed)
        and int(first.computed.sum()) == 3 + 7 + 1 + 3 * 12
    )


def test_a_regret_is_told_where_it_is_defined_and_asked_for(
    lm: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert np.isnan(errors(lm, compute=LOOSE, unmask=surelock.Random()).regret).all()
    settings = DecodeSettings(gen_length=12)
    steps = list(surelock.decode(lm, [[5]], settings, compute=SelectRule(0.4), keep_logits=True))
    whole = commit_error(lm, steps, settings, regret=True)
    assert whole.regret.max() > 1e-4
    # asked for, the vocabulary less one that is told by itself, whether it is told
    for asked, beyond, told in (
        (None, 0, True),
        (None, 1, False),
        (True, 1, True),
        (False, 0, False),
    ):
        monkeypatch.setattr(module, "_MOST_WORDS", lm.config.vocab_size - beyond)
        found = commit_error(lm, steps, settings, regret=asked)
        assert np.isfinite(found.regret).all() if told else np.isnan(found.regret).all()
        np.testing.assert_allclose(found.error, whole.error, rtol=0, atol=1e-12)


def test_rounding_in_float32_is_as_the_docs_say(stories: LanguageModel) -> None:
    """The same tokens in float64, where an error is exact to a billionth of that."""
    settings = DecodeSettings(gen_length=32, temperature=1.0, seed=1)
    rule = SelectRule(0.1)
    prompt = ["Once upon a time"]
    *_, last = surelock.decode(
        stories, prompt, settings, compute=rule, unmask=surelock.LowConfidence()
    )
    found = errors(stories, settings, prompt, compute=rule)
    places = found.position - (last.tokens.shape[1] - 32)
    replay = zip(
        found.step.tolist(), places.tolist(), last.tokens[0, found.position].tolist(), strict=True
    )
    exact = surelock.load("stories", device="cpu", dtype=torch.float64)
    true = errors(
        exact, settings, prompt, compute=rule, unmask=surelock.Replay([tuple(replay)])
    ).error
    off = np.abs(found.error - true)
    assert true.max() > 1 and (true < 0.01).any()
    assert off[true < 0.01].max() < 1e-6 < off.max() < 2e-5


def test_the_sizes_of_the_shadows_batches_change_nothing(
    lm: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = errors(lm, compute=LOOSE)
    monkeypatch.setattr(module, "_ROWS", {"cpu": 1})
    monkeypatch.setattr(module, "_HELD_BYTES", 1)
    np.testing.assert_allclose(errors(lm, compute=LOOSE).error, whole.error, rtol=0, atol=1e-12)


def test_under_guidance_a_prompt_has_the_errors_that_it_has_alone(lm: LanguageModel) -> None:
    """Prompts of several lengths: guidance masks the tokens of the prompt, which lie at other places in a batch."""
    seeds = [5, 6, 7]
    settings = dataclasses.replace(SETTINGS, cfg_scale=0.7, seed=seeds)
    together = errors(lm, settings, compute=LOOSE)
    for number, (prompt, seed) in enumerate(zip(PROMPTS, seeds, strict=True)):
        alone = errors(lm, dataclasses.replace(settings, seed=seed), [prompt], compute=LOOSE)
        of_prompt = together.error[together.sequence == number]
        np.testing.assert_allclose(of_prompt, alone.error, rtol=0, atol=1e-9)


@pytest.mark.parametrize("cfg_scale", [0.0, 0.7])
def test_on_a_gpu_free_memory_bounds_the_rows(
    lm: LanguageModel, monkeypatch: pytest.MonkeyPatch, cfg_scale: float
):
    """Half of it, by the tables of a layer: at 12 d_model + 4 d_ff numbers of 8 bytes, of both passes."""
    monkeypatch.setattr(LanguageModel, "device", torch.device("cuda"))
    shadow = Shadow(lm, dataclasses.replace(SETTINGS, cfg_scale=cfg_scale))
    row = (2 if cfg_scale else 1) * 8 * (12 * lm.config.d_model + 4 * lm.config.d_ff)
    for free, rows in ((2**60, 2**13), (2 * 100 * row, 100), (0, 1)):
        monkeypatch.setattr(module, "free_memory", lambda _, free=free: free)
        assert shadow._most_rows() == rows


def test_what_cannot_be_measured_is_refused(lm: LanguageModel) -> None:
    with pytest.raises(ValueError, match="keep_logits"):
        commit_error(lm, surelock.decode(lm, PROMPTS, SETTINGS))
    with pytest.raises(ValueError, match="begin with the first, not with step 2"):
        commit_error(lm, list(surelock.decode(lm, PROMPTS, SETTINGS, keep_logits=True))[2:])
    assert len(commit_error(lm, []).error) == 0


def test_of_a_trace(stories: LanguageModel) -> None:
    settings = DecodeSettings(gen_length=16, block_length=8, seed=3)
    decoders = {
        "Random": Decoder(settings=settings, unmask=surelock.Random()),
        "All": Decoder(settings=settings, compute=Everything()),
        "Age": Decoder(settings=settings, compute=LockByAge(1)),
    }
    field = [Lane(id=name.lower(), name=name, decoder=each) for name, each in decoders.items()]
    document = json.loads(json.dumps(record_run(stories, "Once upon a time", field)))
    found = commit_error(stories, document)
    own = errors(stories, settings, ["Once upon a time"], compute=LockByAge(1), observe=True)
    np.testing.assert_array_equal(found.of_sequence(1).error, np.zeros(16))
    np.testing.assert_array_equal(found.of_sequence(2).error, own.error)
    np.testing.assert_array_equal(found.of_sequence(2).regret, own.regret)
    assert own.error.mean() > 1e-4
    records = [record for record in document["records"] if record["lane"] == "age"]
    nats = [each for record in records for each in record["commit_error"]]
    np.testing.assert_allclose(nats, own.error, rtol=1e-6)
    changed = [position for record in records for position in record["changed"]]
    assert changed == own.position[own.changed].tolist()
    trace = surelock.read_trace(document)
    assert trace.lanes.exact.all(), "unless asked for less"
    regrets = trace.steps.query("lane == 'age'").regret.astype(float)
    np.testing.assert_allclose(regrets, np.bincount(own.step, own.regret), rtol=1e-6)
    assert trace.steps.query("lane == 'random'").regret.isna().all()
    column = trace.positions.query("lane == 'age' and not prompt").commit_error
    np.testing.assert_allclose(column.astype(float), own.error[np.argsort(own.position)], rtol=1e-6)
    last = document["records"][-1]
    last["unmasked"][0][1] += 1
    with pytest.raises(ValueError, match="step 16 of 'Age' is another one"):
        commit_error(stories, document)
    document["header"]["steps"] = 17
    document["records"].append(last | {"step": 16, "guess": ""})
    with pytest.raises(ValueError, match="of 'Age' is another one"):
        commit_error(stories, document)
    with pytest.raises(ValueError, match="reads version 4"):
        commit_error(stories, document | {"version": 2})
