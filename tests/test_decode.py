"""The decode loop from outside: its errors, what holds of every Step, and LLaDA's reference sampler."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints import write_llada
from conftest import TINY
from torch import Tensor

import surelock
from surelock import (
    BlockCache,
    BudgetRule,
    ComputeRule,
    DecodeSettings,
    DelayedCache,
    Entropy,
    EntropyBound,
    Event,
    Everything,
    Klass,
    LanguageModel,
    LockByAge,
    LockRule,
    Margin,
    NonFiniteLogits,
    Random,
    Replay,
    SelectRule,
    Step,
    Threshold,
    UnlockRule,
    UnmaskPolicy,
)
from surelock.decoding.state import Slots, State
from surelock.experiments.lock_schedule import RecordedLocks
from surelock.model.packed import PackedForward

MASK, EOS = 1, 0
PROMPTS = [[5, 3, 9], [8, 30, 2, 36, 4, 11, 20], [6]]
WIDTH, GEN = 7 + 12, 12
UNLOCK = UnlockRule(period=2, budget=3, epsilon_unlock=1e-3, min_interval=1, cooldown=1)
EVENTS = [Event(4, "write", 12, 9), Event(5, "mask", 12), Event(3, "lock", 0), Event(6, "unlock", 0)]
RUNS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "baseline": ({}, {}),
    "locked": ({}, {"compute": LockRule(epsilon=5e-2)}),
    "literal": ({"temperature": 1.0}, {"compute": LockRule(epsilon=1e-1, percentile=50, visible_steps=0)}),
    "unlocking": (
        {"temperature": 0.7, "seed": [3, 1, 4]},
        {"compute": LockRule(epsilon=0.5, percentile=60, unlock=UNLOCK)},
    ),
    "guided": ({"cfg_scale": 1.5}, {"compute": LockRule(epsilon=5e-2), "unmask": Entropy()}),
    "selected": ({"block_length": 6, "steps": 6}, {"compute": LockRule(epsilon=5e-2) & SelectRule(0.4)}),
    "threshold": ({"block_length": 4}, {"compute": LockRule(epsilon=5e-2), "unmask": Threshold(0.5)}),
    "unrepeated": (
        {"no_repeat_ngram_size": 2, "temperature": 0.7, "block_length": 6},
        {"compute": LockRule(epsilon=5e-2)},
    ),
    "random": ({"steps": 5}, {"compute": LockRule(epsilon=5e-2), "unmask": Random()}),
    "margin": ({"block_length": 3, "steps": 4}, {"unmask": Margin()}),
    "age": ({"block_length": 6}, {"compute": LockByAge(3), "unmask": EntropyBound(0.5)}),
    "dual": ({"block_length": 4}, {"compute": BlockCache()}),
    "prefix": ({"block_length": 4}, {"compute": BlockCache(dual=False), "unmask": Klass(0.05, 0.5, 1)}),
    "delayed": ({"block_length": 6}, {"compute": DelayedCache(4)}),
    "budget": ({"block_length": 6}, {"compute": BudgetRule(0.3)}),
    "smoothed": ({}, {"compute": LockRule(epsilon=5e-2, percentile=None, smoothing=0.5)}),
    "patient": ({}, {"compute": LockRule(epsilon=5e-2, percentile=None, visible_steps=3)}),
    "events": ({}, {"events": EVENTS}),
}
LOCKS = [name for name, (_, choices) in RUNS.items() if choices.get("compute", Everything()).locks]


def run(lm: LanguageModel, name: str = "baseline", prompts: Sequence = PROMPTS, **options: Any) -> list[Step]:
    changes, choices = RUNS[name]
    return list(surelock.decode(lm, prompts, DecodeSettings(gen_length=GEN, **changes), **choices, **options))


def with_weights(lm: LanguageModel, name: str, index: Any, value: float) -> LanguageModel:
    """The model with some values of one parameter replaced."""
    network = copy.deepcopy(lm.network)
    network.get_parameter(name)[index] = value
    return replace(lm, network=network)


def same(a: Step, b: Step, but: Sequence[str] = ("seconds",)) -> bool:
    pairs = [(getattr(a, f.name), getattr(b, f.name)) for f in fields(Step) if f.name not in but]
    return all(torch.equal(x.nan_to_num(-1), y.nan_to_num(-1)) if isinstance(x, Tensor) else x == y for x, y in pairs)


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("rule", [None, LockRule()])
def test_non_finite_logits_name_the_step(lm: LanguageModel, value: float, rule: LockRule | None) -> None:
    bad = with_weights(lm, "head.weight", (20, 7), value)
    with pytest.raises(NonFiniteLogits, match=r"step 0\b"):
        next(surelock.decode(bad, PROMPTS, DecodeSettings(gen_length=GEN), compute=rule))


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_non_finite_logits_of_a_later_step_name_it(lm: LanguageModel, value: float) -> None:
    """A token's embedding is bad: the step after the one that first commits the token meets it."""
    steps = run(lm, prompts=[[5]])
    seen = [set(step.tokens[0].tolist()) for step in steps]
    t = next(t for t in range(1, GEN - 1) if seen[t] > seen[t - 1])
    (token,) = seen[t] - seen[t - 1]
    decoding = surelock.decode(
        with_weights(lm, "embed.weight", (token, 3), value), [[5]], DecodeSettings(gen_length=GEN)
    )
    for _ in range(t + 1):
        next(decoding)
    with pytest.raises(NonFiniteLogits, match=rf"step {t + 1}\b"):
        next(decoding)


@pytest.mark.parametrize(
    ("prompts", "words"),
    [
        ([[5], []], "prompt 1 is empty"), ([], "at least one"), ("a text", "prompts must be a list"),
        ([5, 6], "prompts must be a list"), (None, "prompts must be a list"), ([[5], [41]], "prompt 1 .*0 to 40"),
        ([[-1]], "prompt 0 .*0 to 40"), ([[5, MASK, 6]], r"prompt 0 .*mask token \(id 1\) at position 1"),
        ([[5] * 52, [5] * 53], "prompt 1 has 53 tokens.* 12 .*64"), (["text"], "no tokenizer"),
        ([[5.5]], "prompt 0"), ([[5], ["6"]], "prompt 1"),
    ],
)  # fmt: skip
def test_prompts_that_cannot_be_continued(lm: LanguageModel, prompts: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        surelock.decode(lm, prompts, DecodeSettings(gen_length=GEN))


def test_an_empty_text(stories: LanguageModel) -> None:
    with pytest.raises(ValueError, match="prompt 1 is empty"):
        surelock.decode(stories, ["Once", ""])


def test_the_longest_prompt_that_fits(lm: LanguageModel) -> None:
    assert run(lm, prompts=[[5] * 52])[-1].tokens.shape == (1, 64)


REPLAY = [(t, t, 5) for t in range(GEN)]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seed": [1, 2]}, "seed is given for 2 .* 3 prompts"),
        ({"seed": [1, 2, 3, 4]}, "seed is given for 4 .* 3 prompts"),
    ],
)
def test_settings_that_do_not_fit_the_prompts(lm: LanguageModel, changes: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        surelock.decode(lm, PROMPTS, DecodeSettings(gen_length=GEN, **changes))


@pytest.mark.parametrize(
    ("replay", "words"),
    [
        ([REPLAY] * 2, "replay is given for 2 .* 3 prompts"),
        ([REPLAY, REPLAY, [*REPLAY[:-1], (0, 11, 41)]], "replay of sequence 2 .*0 to 40"),
        ([REPLAY, REPLAY, [*REPLAY[:-1], (0, 11, -1)]], "replay of sequence 2 .*0 to 40"),
        ([REPLAY, REPLAY, [*REPLAY[:-1], (0, 11, MASK)]], "replay of sequence 2 .*mask token"),
        ([REPLAY, [], REPLAY], "replay of sequence 1 must commit each of the 12 positions once"),
        ([REPLAY, REPLAY, [*REPLAY[:-1], (0, 10, 5)]], "replay of sequence 2 must commit each of the 12 positions"),
        ([REPLAY, [*REPLAY[:-1], (12, 11, 5)], REPLAY], "replay of sequence 1 must keep to steps 0 to 11"),
        ([[(-1, 0, 5), *REPLAY[1:]], REPLAY, REPLAY], "replay of sequence 0 must keep to steps 0 to 11"),
    ],
)
def test_a_replay_must_fit_the_run(lm: LanguageModel, replay: list, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        surelock.decode(lm, PROMPTS, DecodeSettings(gen_length=GEN), unmask=Replay(replay))


@pytest.mark.parametrize("value", [-1, 42, 1.0, "3"])
def test_top_k_is_checked(lm: LanguageModel, value: Any) -> None:
    with pytest.raises(ValueError, match=r"^top_k must"):
        surelock.decode(lm, PROMPTS, top_k=value)


@pytest.mark.parametrize("name", ["compute", "unmask"])
@pytest.mark.parametrize("choice", [True, 5e-4, "lock", UnlockRule(), LockRule, {"kind": "lock"}])
def test_a_choice_of_another_kind_is_refused(lm: LanguageModel, name: str, choice: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must be an? \w+"):
        surelock.decode(lm, PROMPTS, DecodeSettings(gen_length=GEN), **{name: choice})


# --- every step -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RUNS)
def test_shapes_and_types(lm: LanguageModel, name: str) -> None:
    for index, step in enumerate(run(lm, name, top_k=4)):
        assert step.index == index
        assert step.tokens.dtype == step.top_ids.dtype == torch.int64
        for mask in ("masked", "locked", "newly_unmasked", "newly_locked", "newly_unlocked", "computed", "probed"):
            assert getattr(step, mask).dtype == torch.bool
            assert getattr(step, mask).shape == (3, WIDTH)
        assert step.tokens.shape == step.kl.shape == step.confidence.shape == (3, WIDTH)
        assert step.top_ids.shape == step.top_probs.shape == (3, WIDTH, 4)
        assert step.flops.shape == step.baseline_flops.shape == (3,)
        assert step.flops.dtype == step.baseline_flops.dtype == torch.float64
        assert step.kl.is_floating_point()
        assert step.confidence.is_floating_point()
        assert step.seconds > 0
        assert all(x.device.type == "cpu" for f in fields(Step) if isinstance(x := getattr(step, f.name), Tensor))


def looked_at(step: Step, candidates: Tensor, rule: ComputeRule, policy: UnmaskPolicy | None) -> Tensor:
    """Those of the candidates that the confidence gate admits, where nothing but it and epsilon decides."""
    if not isinstance(rule, LockRule) or rule.percentile is None or rule.kl_from == 0 or (policy and policy.needs_kl):
        return candidates
    admitted = torch.zeros_like(candidates)
    for b, row in enumerate(candidates):
        if row.any():
            confidence = step.confidence[b, row].sort(descending=True).values
            admitted[b] = row & (step.confidence[b] >= confidence[int(rule.percentile * (len(confidence) - 1) / 100)])
    return admitted


@pytest.mark.parametrize("name", [name for name in RUNS if name != "events"])
def test_what_holds_of_every_step(lm: LanguageModel, name: str) -> None:
    steps, (_, choices) = run(lm, name), RUNS[name]
    rule, policy = choices.get("compute", Everything()), choices.get("unmask")
    kl_from = 0 if policy and policy.needs_kl else rule.kl_from if rule.needs_kl else GEN + 1
    lengths = torch.tensor([len(ids) + GEN for ids in PROMPTS])
    pad = torch.arange(WIDTH) < (WIDTH - lengths)[:, None]
    masked = torch.arange(WIDTH).ge(WIDTH - GEN).repeat(3, 1)
    tokens = torch.full((3, WIDTH), MASK)
    for b, ids in enumerate(PROMPTS):
        tokens[b, WIDTH - GEN - len(ids) : WIDTH - GEN] = torch.tensor(ids)
    tokens[pad], locked, seen = lm.pad_id, torch.zeros_like(masked), torch.zeros_like(tokens)
    for step in steps:
        running = masked.any(1)
        assert torch.equal(step.newly_unmasked, masked & ~step.masked)
        assert torch.equal(step.tokens[~step.newly_unmasked], tokens[~step.newly_unmasked])
        assert (step.tokens[step.newly_unmasked] != MASK).all()
        assert torch.equal(step.tokens == MASK, step.masked)
        assert torch.equal(step.locked, (locked | step.newly_locked) & ~step.newly_unlocked)
        assert not (step.newly_locked & (locked | step.masked | ~step.computed)).any()
        assert not (step.newly_unlocked & ~step.probed).any()
        assert not (step.probed & ~locked).any()
        assert not (step.computed & locked).any()
        if name in ("baseline", "locked", "unlocking", "threshold", "age"):
            assert torch.equal(step.computed, ~locked & ~pad & running[:, None])
        for x in (step.masked, step.locked, step.newly_unmasked, step.newly_locked, step.computed, step.probed):
            assert not (x & pad).any()
        assert (step.tokens[pad] == lm.pad_id).all()
        assert torch.equal(step.confidence.isnan(), ~step.computed)
        seen += step.computed & ~masked
        assert torch.equal(step.kl.isnan(), ~looked_at(step, step.computed & (seen >= kl_from), rule, policy))
        assert (step.kl[~step.kl.isnan()] >= 0).all()
        assert ((step.confidence[step.computed] > 0) & (step.confidence[step.computed] <= 1)).all()
        assert torch.equal(step.flops > 0, running)
        assert (step.flops <= step.baseline_flops).all()
        tokens, masked, locked = step.tokens, step.masked, step.locked
    assert not masked.any()
    if name == "unlocking":
        assert any(step.newly_unlocked.any() for step in steps)
    else:
        assert not any((step.newly_unlocked | step.probed).any() for step in steps)
        assert any(step.newly_locked.any() for step in steps) == (name in LOCKS)


@pytest.mark.parametrize("name", ["locked", "unlocking", "threshold"])
def test_top_k_is_the_posteriors_head(lm: LanguageModel, name: str) -> None:
    for step in run(lm, name, top_k=5):
        probs = step.top_probs[step.computed]
        torch.testing.assert_close(probs[:, 0], step.confidence[step.computed], rtol=0, atol=0)
        assert (probs.diff(dim=-1) <= 0).all()
        assert (probs.sum(-1) <= 1 + 1e-12).all()
        assert step.top_probs[~step.computed].isnan().all()
    whole = run(lm, top_k=41)[0]
    torch.testing.assert_close(whole.top_probs[whole.computed].sum(-1), torch.ones(42 + 5).double())
    dense = lm.network(torch.tensor([[6, *[MASK] * GEN]]))[0].softmax(-1)
    torch.testing.assert_close(whole.top_probs[2, -13:], dense.gather(1, whole.top_ids[2, -13:]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["baseline", "threshold", "random"])
def test_observing_changes_nothing_but_kl(lm: LanguageModel, name: str) -> None:
    changes, choices = RUNS[name]
    settings, unmask = DecodeSettings(gen_length=GEN, **changes), choices.get("unmask")
    plain, observed = (
        list(surelock.decode(lm, PROMPTS, settings, unmask=unmask, observe=observe)) for observe in (False, True)
    )
    for a, b in zip(plain, observed, strict=True):
        assert same(a, b, but=("seconds", "kl"))
        assert a.kl.isnan().all()
        assert torch.equal(b.kl.isnan(), ~b.computed)
    for a, b in zip(run(lm, "locked"), run(lm, "locked", observe=True), strict=True):
        assert same(a, b, but=("seconds", "kl"))
        assert torch.equal(b.kl.isnan(), ~b.computed)
        torch.testing.assert_close(a.kl, torch.where(a.kl.isnan(), a.kl, b.kl), rtol=1e-12, atol=0, equal_nan=True)


@dataclass(frozen=True)
class LooksAtAll(ComputeRule):
    """Computes all that is active, and probes all that is locked."""

    kind = "looks"

    def rows(self, state: State, active: Slots) -> Slots:
        return np.flatnonzero(state.alive)


def test_the_gate_chooses_among_those_that_may_lock(lm: LanguageModel) -> None:
    """Whoever looks at locked positions beside it changes no lock."""
    settings, rule = DecodeSettings(gen_length=GEN), LockRule(epsilon=5e-1, percentile=50)
    looking = list(surelock.decode(lm, PROMPTS, settings, compute=rule & LooksAtAll()))
    for a, b in zip(surelock.decode(lm, PROMPTS, settings, compute=rule), looking, strict=True):
        assert torch.equal(a.newly_locked, b.newly_locked) and torch.equal(a.kl.isnan(), b.kl.isnan())
    assert any(step.probed.any() for step in looking)


@pytest.mark.parametrize("name", RUNS)
def test_a_run_in_buckets_is_the_same_run(monkeypatch: pytest.MonkeyPatch, lm: LanguageModel, name: str) -> None:
    changes, choices = RUNS[name]
    filled, sizes = replace(lm, buckets=(3, 8)), set()
    own = PackedForward._run
    monkeypatch.setattr(PackedForward, "_run", lambda *args: sizes.update(args[2].counts) or own(*args))
    steps = list(surelock.decode(filled, PROMPTS, DecodeSettings(gen_length=GEN, **changes), **choices))
    assert {size for size in sizes if size <= 8} <= {3, 8}
    for a, b in zip(run(lm, name), steps, strict=True):
        assert same(a, b, but=("seconds", "kl", "confidence"))
        for mine, theirs in ((a.kl, b.kl), (a.confidence, b.confidence)):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("name", [name for name in RUNS if name != "events"])
def test_a_lean_run_is_the_same_run(lm: LanguageModel, name: str) -> None:
    """With fewer posteriors: of what may be committed, and of what a rule or a policy compares or will compare."""
    changes, choices = RUNS[name]
    settings = DecodeSettings(gen_length=GEN, **changes)
    made = {False: 0, True: 0}
    for a, b in zip(run(lm, name), surelock.decode(lm, PROMPTS, settings, **choices, lean=True), strict=True):
        assert same(a, b, but=("seconds", "kl", "confidence"))
        for mine, theirs in ((a.kl, b.kl), (a.confidence, b.confidence)):
            torch.testing.assert_close(torch.where(theirs.isnan(), theirs, mine), theirs, equal_nan=True)
        assert not b.confidence[a.newly_unmasked].isnan().any()
        assert torch.equal(a.kl.isnan(), b.kl.isnan())
        made[False] += int((~a.confidence.isnan()).sum())
        made[True] += int((~b.confidence.isnan()).sum())
    rule, policy = choices.get("compute", Everything()), choices.get("unmask")
    looks = (rule.needs_kl and rule.kl_from == 0) or rule.needs_confidence or bool(policy and policy.needs_kl)
    every = looks or (
        rule.needs_kl and rule.kl_from == 1 and settings.block_length is None
    )  # what is written may lock, the rest is a choice
    assert (made[True] == made[False]) == every, made


@pytest.mark.parametrize("scale", [0.0, 1.5])
def test_a_lean_run_keeps_the_same_logits(lm: LanguageModel, scale: float) -> None:
    """With guidance, too, where a row is read in both passes."""
    settings = DecodeSettings(gen_length=GEN, block_length=4, cfg_scale=scale)
    told = {"compute": LockRule(epsilon=5e-2), "keep_logits": True}
    whole, lean = (surelock.decode(lm, PROMPTS, settings, **told, lean=lean) for lean in (False, True))
    for a, b in zip(whole, lean, strict=True):
        assert same(a, b, but=("seconds", "kl", "confidence", "commit_logits"))
        assert a.commit_logits is not None and b.commit_logits is not None
        torch.testing.assert_close(b.commit_logits, a.commit_logits, rtol=0, atol=1e-12)


def test_what_looks_closer_is_never_lean(lm: LanguageModel) -> None:
    settings = DecodeSettings(gen_length=GEN)
    for told in ({"observe": True}, {"top_k": 2}, {"events": [Event(1, "lock", 0)]}):
        for step in surelock.decode(lm, PROMPTS, settings, **told, lean=True):
            assert torch.equal(step.confidence.isnan(), ~step.computed)


def test_kl_of_the_first_steps_equals_the_dense_posteriors(lm: LanguageModel) -> None:
    first, second, *_ = surelock.decode(lm, [[5, 6]], DecodeSettings(gen_length=GEN), observe=True)
    assert torch.isposinf(first.kl).all()
    before = torch.tensor([[5, 6, *[MASK] * GEN]])
    log_q, log_p = (lm.network(x)[0].log_softmax(-1) for x in (before, first.tokens))
    torch.testing.assert_close(second.kl[0], (log_p.exp() * (log_p - log_q)).sum(-1), rtol=0, atol=1e-9)


def test_a_rule_that_never_fires_is_the_baseline(lm: LanguageModel) -> None:
    settings = DecodeSettings(gen_length=GEN, temperature=0.8)
    runs = (surelock.decode(lm, PROMPTS, settings, compute=rule) for rule in (None, LockRule(epsilon=-1)))
    assert all(same(a, b, but=("seconds", "kl")) for a, b in zip(*runs, strict=True))


def test_a_schedule_replaces_the_verdict(lm: LanguageModel) -> None:
    """Each position locks at the step it is given, or as soon as it is a candidate: visible since the step before."""
    drawn = torch.randint(0, GEN, (15,), generator=torch.Generator().manual_seed(0)).tolist()
    rule = RecordedLocks(epsilon=-1, at=(tuple(drawn),))
    committed, locked_at = [-1] * 3 + [0] * GEN, [GEN] * 15
    for step in surelock.decode(lm, PROMPTS[:1], DecodeSettings(gen_length=GEN), compute=rule):
        for i in step.newly_unmasked[0].nonzero().flatten().tolist():
            committed[i] = step.index
        for i in step.newly_locked[0].nonzero().flatten().tolist():
            locked_at[i] = step.index
    earliest = [max(at, seen + 1) for at, seen in zip(drawn, committed, strict=True)]
    assert locked_at == [min(at, GEN) for at in earliest]
    with pytest.raises(ValueError, match=r"^at must"):
        next(surelock.decode(lm, PROMPTS, DecodeSettings(gen_length=GEN), compute=rule))


def test_steps_are_the_callers_own(lm: LanguageModel) -> None:
    """Normal tensors, not inference tensors or views of the run's state: writing to them changes nothing."""
    untouched, steps = run(lm, "unlocking", top_k=2), []
    changes, choices = RUNS["unlocking"]
    for step in surelock.decode(lm, PROMPTS, DecodeSettings(gen_length=GEN, **changes), **choices, top_k=2):
        steps.append(copy.deepcopy(step))
        for f in fields(Step):
            if isinstance(tensor := getattr(step, f.name), Tensor):
                tensor.zero_()
        step.kl.clone().requires_grad_().square().sum().backward()
    assert all(map(same, steps, untouched))


def test_inputs_are_left_as_they_are(lm: LanguageModel) -> None:
    prompts, weights = copy.deepcopy(PROMPTS), copy.deepcopy(lm.network.state_dict())
    settings = DecodeSettings(gen_length=GEN, seed=[1, 2, 3])
    list(surelock.decode(lm, prompts, settings, compute=LockRule(epsilon=1.0)))
    assert prompts == PROMPTS
    assert settings == DecodeSettings(gen_length=GEN, seed=[1, 2, 3])
    assert all(map(torch.equal, weights.values(), lm.network.state_dict().values()))


def test_two_runs_at_a_time_do_not_meet(lm: LanguageModel) -> None:
    settings, rule = DecodeSettings(gen_length=GEN, temperature=1.0), LockRule(epsilon=0.1)
    alone = list(surelock.decode(lm, PROMPTS, settings, compute=rule))
    pairs = zip(*(surelock.decode(lm, PROMPTS, settings, compute=rule) for _ in range(2)), strict=True)
    assert all(same(a, b) and same(a, c) for a, (b, c) in zip(alone, pairs, strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("name", ["locked", "unlocking", "guided", "selected", "random"])
def test_narrow_networks_decode(tmp_path, dtype: torch.dtype, name: str) -> None:
    write_llada(tmp_path, **TINY)
    steps = run(surelock.load(tmp_path, device="cpu", dtype=dtype), name)
    assert not steps[-1].masked.any()
    assert any(step.newly_locked.any() for step in steps)


# --- the baseline sampler ---------------------------------------------------------------------------------------------


def reference_sampler(
    lm: LanguageModel, prompt: list[int], gen_length: int, steps: int, block_length: int
) -> list[int]:
    """LLaDA's `generate` at temperature 0 with low-confidence remasking, one sequence, dense forwards."""
    x = torch.tensor([*prompt, *[MASK] * gen_length])
    blocks = gen_length // block_length
    for block in range(blocks):
        end = len(prompt) + (block + 1) * block_length
        for step in range(steps // blocks):
            masks_at_start, n = block_length, steps // blocks
            count = masks_at_start // n + (step < masks_at_start % n)
            logits = lm.network(x[None])[0]
            p = logits.softmax(-1)
            logits[:, MASK] = -torch.inf
            x0 = logits.argmax(-1)
            confidence = p[torch.arange(len(x)), x0]
            confidence[x != MASK] = -torch.inf
            confidence[end:] = -torch.inf
            chosen = confidence.topk(count).indices
            x[chosen] = x0[chosen]
    return x.tolist()


@pytest.mark.parametrize(("gen_length", "steps", "block_length"), [(12, 12, 12), (12, 5, 12), (12, 6, 4), (14, 4, 7),
                                                                  (12, 1, 12), (12, 12, 1)])  # fmt: skip
def test_without_a_rule_it_is_lladas_sampler(lm: LanguageModel, gen_length: int, steps: int, block_length: int) -> None:
    settings = DecodeSettings(gen_length=gen_length, steps=steps, block_length=block_length)
    found = list(surelock.decode(lm, PROMPTS, settings))
    assert len(found) == steps
    for b, prompt in enumerate(PROMPTS):
        expected = reference_sampler(lm, prompt, gen_length, steps, block_length)
        assert found[-1].tokens[b, -len(expected) :].tolist() == expected


def test_a_high_threshold_is_one_token_a_step_and_a_low_one_ends_early(lm: LanguageModel) -> None:
    def decoded(unmask: Threshold | None) -> list[Step]:
        return list(surelock.decode(lm, PROMPTS, DecodeSettings(gen_length=GEN, block_length=4), unmask=unmask))

    high = decoded(Threshold(1.0))
    assert torch.equal(high[-1].tokens, decoded(None)[-1].tokens)
    low = decoded(Threshold(0.0))
    assert [int(step.newly_unmasked.sum()) for step in low] == [12, 12, 12]
    assert len(low) == 3


def test_a_finished_sequence_costs_nothing(lm: LanguageModel) -> None:
    steps = run(lm, "threshold")
    ends = [next(t for t, step in enumerate(steps) if not step.masked[b].any()) for b in range(3)]
    assert max(ends) == len(steps) - 1
    for t, step in enumerate(steps):
        assert (step.flops > 0).tolist() == (step.baseline_flops > 0).tolist() == [t <= end for end in ends]


def test_seeds(lm: LanguageModel) -> None:
    def tokens(prompts: list, **changes: Any) -> Tensor:
        settings = DecodeSettings(gen_length=GEN, temperature=1.0, **changes)
        return list(surelock.decode(lm, prompts, settings))[-1].tokens

    both = tokens([[5, 6]] * 2, seed=7)
    assert torch.equal(both, tokens([[5, 6]] * 2, seed=[7, 8]))
    assert torch.equal(both[1:], tokens([[5, 6]], seed=8))
    assert not torch.equal(both[0], both[1])


# --- no n-gram twice --------------------------------------------------------------------------------------------------


def grams(ids: list[int], size: int) -> list[tuple[int, ...]]:
    """The n-grams without EOS, which may always come again."""
    return [gram for gram in zip(*(ids[k:] for k in range(size)), strict=False) if EOS not in gram]


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize(
    ("changes", "unmask"), [({}, None), ({"temperature": 0.5}, None), ({"block_length": 4}, Random())]
)
def test_no_ngram_comes_twice(lm: LanguageModel, size: int, changes: dict[str, Any], unmask: Random | None) -> None:
    """A sharper head repeats itself, and with one token a step `no_repeat_ngram_size` ends that."""
    sharp = with_weights(lm, "norm.weight", slice(None), 4.0)
    prompts = [[5, 3, 9], [8, 30, 2, 36], [6]]

    def repeats(no_repeat: int) -> int:
        settings = DecodeSettings(gen_length=24, no_repeat_ngram_size=no_repeat, **changes)
        steps = list(surelock.decode(sharp, prompts, settings, compute=LockRule(), unmask=unmask))
        texts = steps[-1].tokens.tolist()
        told = [grams(ids[-24 - len(prompt) :], size) for ids, prompt in zip(texts, prompts, strict=True)]
        return sum(len(all_) - len(set(all_)) for all_ in told)

    assert repeats(0) > 0
    assert repeats(size) == 0


def test_without_another_choice_a_token_comes_again(lm: LanguageModel) -> None:
    """More positions than tokens: repeating is better than committing the mask."""
    settings = DecodeSettings(gen_length=60, no_repeat_ngram_size=1, suppress_eos=True)
    tokens = list(surelock.decode(lm, [[5]], settings))[-1].tokens[0].tolist()
    assert set(tokens) == set(range(lm.network.config.vocab_size)) - {MASK, EOS}


# --- the end of the text ----------------------------------------------------------------------------------------------


def test_suppressed_eos_is_never_chosen(lm: LanguageModel) -> None:
    """All logits are equal: the lowest token that may be chosen wins, and posteriors stay raw."""
    flat = with_weights(lm, "head.weight", slice(None), 0.0)
    plain, suppressed = (
        list(surelock.decode(flat, [[5]], DecodeSettings(gen_length=4, suppress_eos=off))) for off in (False, True)
    )
    assert plain[-1].tokens[0, 1:].tolist() == [EOS] * 4
    assert suppressed[-1].tokens[0, 1:].tolist() == [2] * 4
    assert torch.equal(plain[0].confidence, suppressed[0].confidence)


@pytest.mark.parametrize("role", ["eos_id", "eot_id"])
def test_positions_that_would_end_the_text_come_last(lm: LanguageModel, role: str) -> None:
    first = run(lm, prompts=[[5]], top_k=1)[0]
    token = int(first.tokens[0, first.newly_unmasked[0]])
    ends = replace(lm, **{"eos_id": None, role: token})
    settings = DecodeSettings(gen_length=GEN, suppress_eos_confidence=True)
    steps = list(surelock.decode(ends, [[5]], settings, top_k=1))
    assert int(steps[0].tokens[0, steps[0].newly_unmasked[0]]) != token
    masked = torch.ones(GEN, dtype=torch.bool)
    for step in steps:  # an end is committed only where every masked position's candidate is one
        if (step.tokens[0, -GEN:][step.newly_unmasked[0, -GEN:]] == token).any():
            assert (step.top_ids[0, -GEN:, 0][masked] == token).all()
        masked = step.masked[0, -GEN:]


def test_generate_cuts_at_the_first_eos(stories: LanguageModel) -> None:
    ids = stories.encode(" and they lived happily")[:6]
    tokens = [*ids[:3], stories.eos_id, *ids[3:], stories.eos_id]
    replay = [[(t, t, token) for t, token in enumerate(tokens)], [(t, t, ids[0]) for t in range(len(tokens))]]
    settings = DecodeSettings(gen_length=len(tokens))
    asked = {"compute": LockRule(), "unmask": Replay(replay)}
    texts = surelock.generate(stories, ["Once upon a time", "One"], settings, **asked)
    assert texts == [stories.decode(ids[:3]), stories.decode([ids[0]] * len(tokens))]


def test_generate_is_decode_to_the_end(stories: LanguageModel) -> None:
    settings, prompts = DecodeSettings(gen_length=16, temperature=0.5), ["Once upon a time", "The cat"]
    *_, last = surelock.decode(stories, prompts, settings, compute=LockRule())
    for text, ids in zip(surelock.generate(stories, prompts, settings, compute=LockRule()), last.tokens, strict=True):
        generated = ids[-16:].tolist()
        end = generated.index(stories.eos_id) if stories.eos_id in generated else 16
        assert text == stories.decode(generated[:end])
