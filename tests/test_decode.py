"""The decode loop from outside: its errors, and what holds of every Step."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest
import torch

import surelock
from surelock import (
    BlockCache,
    BudgetRule,
    Correct,
    DecodeSettings,
    DelayedCache,
    EarlyFinish,
    Entropy,
    EntropyBound,
    EntropyCache,
    Event,
    Everything,
    Klass,
    LanguageModel,
    LocalLeap,
    LockByAge,
    LockRule,
    LowConfidence,
    Margin,
    NonFiniteLogits,
    Random,
    Remask,
    Replay,
    SelectRule,
    Step,
    Threshold,
    UnlockRule,
)
from surelock.engines.torch import TorchEngine
from surelock.research.bench.schedule import RecordedLocks

MASK = 1
EOS = 0
PROMPTS = [[5, 3, 9], [8, 30, 2, 36, 4, 11, 20], [6]]
WIDTH = 7 + 12
GEN = 12
UNLOCK = UnlockRule(period=2, budget=3, epsilon_unlock=1e-3, min_interval=1, cooldown=1)
EVENTS = [
    Event(4, "write", 12, 9),
    Event(5, "mask", 12),
    Event(3, "lock", 0),
    Event(6, "unlock", 0),
]
RUNS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "baseline": ({}, {"compute": Everything()}),
    "locked": ({}, {"compute": LockRule(epsilon=5e-2)}),
    "literal": (
        {"temperature": 1.0},
        {"compute": LockRule(epsilon=1e-1, percentile=50, visible_steps=0)},
    ),
    "unlocking": (
        {"temperature": 0.7, "seed": [3, 1, 4]},
        {"compute": LockRule(epsilon=0.5, percentile=60, unlock=UNLOCK)},
    ),
    "guided": ({"cfg_scale": 1.5}, {"compute": LockRule(epsilon=5e-2), "unmask": Entropy()}),
    "selected": (
        {"block_length": 6, "steps": 6},
        {"compute": LockRule(epsilon=5e-2) & SelectRule(0.4)},
    ),
    "threshold": (
        {"block_length": 4},
        {"compute": LockRule(epsilon=5e-2), "unmask": Threshold(0.5)},
    ),
    "unrepeated": (
        {"no_repeat_ngram_size": 2, "temperature": 0.7, "block_length": 6},
        {"compute": LockRule(epsilon=5e-2)},
    ),
    "random": ({"steps": 5}, {"compute": LockRule(epsilon=5e-2), "unmask": Random()}),
    "margin": ({"block_length": 3, "steps": 4}, {"compute": Everything(), "unmask": Margin()}),
    "age": ({"block_length": 6}, {"compute": LockByAge(3), "unmask": EntropyBound(0.5)}),
    "dual": ({"block_length": 4}, {"compute": BlockCache()}),
    "prefix": (
        {"block_length": 4},
        {"compute": BlockCache(dual=False), "unmask": Klass(0.05, 0.5, 1)},
    ),
    "delayed": ({"block_length": 6}, {"compute": DelayedCache(4)}),
    "budget": ({"block_length": 6}, {"compute": BudgetRule(0.3)}),
    "doubted": ({"block_length": 6, "temperature": 0.7}, {"compute": EntropyCache(3, 2.5)}),
    "taken back": (
        {"block_length": 6, "temperature": 0.5},
        {"compute": LockRule(epsilon=5e-2), "unmask": Remask(2, 0.5)},
    ),
    "finished": (
        {"block_length": 4, "temperature": 0.5},
        {"compute": LockByAge(3) & EntropyCache(2, 2.0), "unmask": EarlyFinish(2.0, 1.2, 0.8)},
    ),
    "near": (
        {"block_length": 6, "temperature": 0.5},
        {"compute": LockRule(epsilon=5e-2), "unmask": LocalLeap(0.3, 0.1, 2)},
    ),
    "corrected": ({"block_length": 6}, {"compute": LockByAge(4), "unmask": Correct(0.3, 0.2)}),
    "patient": ({}, {"compute": LockRule(epsilon=5e-2, percentile=None, visible_steps=3)}),
    "replayed": (
        {"block_length": 4},
        {
            "compute": LockRule(epsilon=9.0, percentile=None),
            "unmask": Replay([[(s, GEN - 1 - s, 5 + s) for s in range(GEN)]] * 3),
        },
    ),
    "events": ({}, {"compute": Everything(), "events": EVENTS}),
}


def run(
    lm: LanguageModel, name: str = "baseline", prompts: Sequence = PROMPTS, **options: Any
) -> list[Step]:
    changes, choices = RUNS[name]
    return list(
        surelock.decode(
            lm, prompts, DecodeSettings(gen_length=GEN, **changes), **choices, **options
        )
    )


def with_weights(lm: LanguageModel, name: str, index: Any, value: float) -> LanguageModel:
    """The model with some values of one parameter replaced."""
    network = copy.deepcopy(lm.network)
    network.get_parameter(name)[index] = value
    return replace(lm, engine=TorchEngine(network))


def same(a: Step, b: Step, but: Sequence[str] = ("seconds",)) -> bool:
    pairs = [(getattr(a, f.name), getattr(b, f.name)) for f in fields(Step) if f.name not in but]
    return all(
        np.array_equal(x, y, equal_nan=x.dtype.kind == "f") if isinstance(x, np.ndarray) else x == y
        for x, y in pairs
    )


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_non_finite_logits_of_a_later_step_name_it(lm: LanguageModel, value: float) -> None:
    """A token's embedding is bad: the step after the one that first commits the token meets it."""
    steps = run(lm, prompts=[[5]])
    seen = [set(step.tokens[0].tolist()) for step in steps]
    t = next(t for t in range(1, GEN - 1) if seen[t] > seen[t - 1])
    (token,) = seen[t] - seen[t - 1]
    decoding = surelock.decode(
        with_weights(lm, "embed.weight", (token, 3), value),
        [[5]],
        DecodeSettings(gen_length=GEN),
        compute=Everything(),
    )
    for _ in range(t + 1):
        next(decoding)
    with pytest.raises(NonFiniteLogits, match=rf"step {t + 1}\b"):
        next(decoding)


@pytest.mark.parametrize(
    ("base", "method", "said"),
    [
        (
            surelock.ComputeRule,
            "rows",
            "rule `wrong` failed in step 2: IndexError: index 0 is out of bounds",
        ),
        (surelock.LockingRule, "after", "rule `wrong` failed in step 2: IndexError: index 0"),
        (surelock.ComputeRule, "watches", "rule `wrong` failed in step 2"),
        (surelock.UnmaskPolicy, "commits", "policy `wrong` failed in step 2"),
        (surelock.UnmaskPolicy, "takes_back", "policy `wrong` failed in step 2"),
    ],
)
@pytest.mark.parametrize("returns", [False, True])
def test_what_a_rule_raises_is_said_with_its_name_and_step(
    lm: LanguageModel, base: Any, method: str, said: str, returns: bool
) -> None:
    """Also where it returns what is none of its answers."""

    def fails(self: Any, state: Any, *more: Any) -> Any:
        if state.step < 2:
            return getattr(LowConfidence if base is surelock.UnmaskPolicy else base, method)(
                self, state, *more
            )
        return None if returns else np.empty(0)[0]

    def commits(self: Any, candidates: Any) -> Any:
        if candidates.state.step < 2:
            return LowConfidence.commits(self, candidates)
        return None if returns else np.empty(0)[0]

    def after(self: Any, state: Any, reading: Any) -> Any:
        return fails(self, state, reading) if state.step == 2 else surelock.Changes()

    own = {"commits": commits, "after": after}.get(method, fails)
    bases = (LowConfidence,) if base is surelock.UnmaskPolicy else (base,)
    wrong = dataclass(frozen=True)(
        type("Wrong", bases, {"kind": "wrong", "__module__": __name__, method: own})
    )
    chosen = {"unmask" if base is surelock.UnmaskPolicy else "compute": wrong()}
    steps = surelock.decode(lm, PROMPTS, DecodeSettings(gen_length=GEN), **chosen)
    with pytest.raises(ValueError, match=said.partition(":")[0] if returns else said) as raised:
        list(steps)
    assert steps.run.next_step == 2 and (returns or isinstance(raised.value.__cause__, IndexError))
    if base is surelock.ComputeRule:
        with pytest.raises(ValueError, match="rule `wrong` failed"):
            list(
                surelock.decode(
                    lm, PROMPTS, DecodeSettings(gen_length=GEN), compute=LockRule() & wrong()
                )
            )


@pytest.mark.parametrize(
    ("prompts", "words"),
    [
        ([[5], []], "prompt 2 is empty"), ([], "at least one"), ("a text", "no tokenizer"),
        ([5, 6], "prompts must be a text, or a list"), (None, "prompts must be a text, or a list"),
        ([[5], [41]], "prompt 2 .*0 to 40"),
        ([[-1]], "prompt 1 .*0 to 40"),
        ([[5] * 52, [5] * 53], "prompt 2 has 53 tokens.* 12 .*64"), (["text"], "no tokenizer"),
        ([[5.5]], "prompt 1"), ([[5], ["6"]], "prompt 2"),
    ],
)  # fmt: skip
def test_prompts_that_cannot_be_continued(lm: LanguageModel, prompts: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        surelock.decode(lm, prompts, DecodeSettings(gen_length=GEN))


def test_the_longest_prompt_that_fits(lm: LanguageModel) -> None:
    assert run(lm, prompts=[[5] * 52])[-1].tokens.shape == (1, 64)


REPLAY = [(t, t, 5) for t in range(GEN)]


@pytest.mark.parametrize("count", [2, 4])
def test_seeds_are_one_for_each_prompt(lm: LanguageModel, count: int) -> None:
    with pytest.raises(ValueError, match=f"seed is given for {count} .* 3 prompts"):
        surelock.decode(lm, PROMPTS, DecodeSettings(gen_length=GEN, seed=[*range(count)]))


@pytest.mark.parametrize(
    ("replay", "words"),
    [
        ([REPLAY] * 2, "replay is given for 2 .* 3 prompts"),
        ([REPLAY, REPLAY, [*REPLAY[:-1], (0, 11, 41)]], "replay of sequence 2 .*0 to 40"),
        ([REPLAY, REPLAY, [*REPLAY[:-1], (0, 11, -1)]], "replay of sequence 2 .*0 to 40"),
        ([REPLAY, REPLAY, [*REPLAY[:-1], (0, 11, MASK)]], "replay of sequence 2 .*mask token"),
        ([REPLAY, [], REPLAY], "replay of sequence 1 must commit each of the 12 positions once"),
        (
            [REPLAY, REPLAY, [*REPLAY[:-1], (0, 10, 5)]],
            "replay of sequence 2 must commit each of the 12 positions",
        ),
        (
            [REPLAY, [*REPLAY[:-1], (12, 11, 5)], REPLAY],
            "replay of sequence 1 must keep to steps 0 to 11",
        ),
        (
            [[(-1, 0, 5), *REPLAY[1:]], REPLAY, REPLAY],
            "replay of sequence 0 must keep to steps 0 to 11",
        ),
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


@pytest.mark.parametrize("name", ["unlocking", "threshold"])
def test_top_k_is_the_posteriors_head(lm: LanguageModel, name: str) -> None:
    for step in run(lm, name, top_k=5):
        probs = step.top_probs[step.computed]
        assert np.array_equal(probs[:, 0], step.confidence[step.computed])
        assert (np.diff(probs) <= 0).all()
        assert (probs.sum(-1) <= 1 + 1e-12).all()
        assert np.isnan(step.top_probs[~step.computed]).all()
    whole = run(lm, top_k=41)[0]
    np.testing.assert_allclose(whole.top_probs[whole.computed].sum(-1), 1)
    dense = lm.network(torch.tensor([[6, *[MASK] * GEN]]))[0].softmax(-1).detach().numpy()
    found = np.take_along_axis(dense, whole.top_ids[2, -13:], 1)
    np.testing.assert_allclose(whole.top_probs[2, -13:], found, rtol=0, atol=1e-12)


def test_what_is_decided_by_is_read_and_nothing_else(lm: LanguageModel) -> None:
    """By hand, in blocks of 6 of 12: before anything locks, 13 rows of a prompt of one token."""
    rules = {
        "a block's candidates": (Everything(), Entropy(), [6, 5, 4]),
        "what may lock, too": (LockRule(epsilon=-1.0), Entropy(), [7, 7, 7]),
        "masks of the block to come": (BudgetRule(1.0), Entropy(), [12, 11, 10]),
        "all that is masked": (Everything(), Klass(0.99, 1e-9, 1), [12, 11, 10]),
        "what was left out": (SelectRule(1.0), Entropy(), [13, 13, 13]),
        "to the letter": (LockRule(epsilon=-1.0, visible_steps=0), Entropy(), [13, 13, 13]),
        "after three passes": (LockRule(epsilon=-1.0, visible_steps=3), Entropy(), [6, 6, 6]),
    }
    settings = DecodeSettings(gen_length=GEN, block_length=6)
    for name, (rule, policy, counts) in rules.items():
        steps = surelock.decode(lm, [[5]], settings, compute=rule, unmask=policy)
        assert [
            int((~np.isnan(step.confidence)).sum())
            for _, step in zip(range(3), steps, strict=False)
        ] == counts, name


def test_a_schedule_replaces_the_verdict(lm: LanguageModel) -> None:
    """Each position locks at the step it is given, or as soon as it is a candidate: visible since the step before."""
    drawn = torch.randint(0, GEN, (15,), generator=torch.Generator().manual_seed(0)).tolist()
    rule = RecordedLocks(epsilon=-1, at=(tuple(drawn),))
    committed = [-1] * 3 + [0] * GEN
    locked_at = [GEN] * 15
    for step in surelock.decode(lm, PROMPTS[:1], DecodeSettings(gen_length=GEN), compute=rule):
        for i in step.newly_unmasked[0].nonzero()[0].tolist():
            committed[i] = step.index
        for i in step.newly_locked[0].nonzero()[0].tolist():
            locked_at[i] = step.index
    earliest = [max(at, seen + 1) for at, seen in zip(drawn, committed, strict=True)]
    assert locked_at == [min(at, GEN) for at in earliest]
    with pytest.raises(ValueError, match=r"^at must"):
        next(surelock.decode(lm, PROMPTS, DecodeSettings(gen_length=GEN), compute=rule))


def test_steps_are_the_callers_own(lm: LanguageModel) -> None:
    """No views of the run's state: writing to them changes nothing."""
    untouched = run(lm, "unlocking", top_k=2)
    steps = []
    changes, choices = RUNS["unlocking"]
    for step in surelock.decode(
        lm, PROMPTS, DecodeSettings(gen_length=GEN, **changes), **choices, top_k=2
    ):
        steps.append(copy.deepcopy(step))
        for f in fields(Step):
            if isinstance(array := getattr(step, f.name), np.ndarray):
                array.fill(0)
    assert all(map(same, steps, untouched))


def test_inputs_are_left_as_they_are(lm: LanguageModel) -> None:
    prompts = copy.deepcopy(PROMPTS)
    weights = copy.deepcopy(lm.network.state_dict())
    settings = DecodeSettings(gen_length=GEN, seed=[1, 2, 3])
    list(surelock.decode(lm, prompts, settings, compute=LockRule(epsilon=1.0)))
    assert prompts == PROMPTS
    assert settings == DecodeSettings(gen_length=GEN, seed=[1, 2, 3])
    assert all(map(torch.equal, weights.values(), lm.network.state_dict().values()))


def test_two_runs_at_a_time_do_not_meet(lm: LanguageModel) -> None:
    settings = DecodeSettings(gen_length=GEN, temperature=1.0)
    rule = LockRule(epsilon=0.1)
    alone = list(surelock.decode(lm, PROMPTS, settings, compute=rule))
    pairs = zip(
        *(surelock.decode(lm, PROMPTS, settings, compute=rule) for _ in range(2)), strict=True
    )
    assert all(same(a, b) and same(a, c) for a, (b, c) in zip(alone, pairs, strict=True))


def test_more_positions_than_words_cannot_be_without_repeats(lm: LanguageModel) -> None:
    words = lm.config.vocab_size - len({MASK, *lm.ends})
    for size in (1, 2):
        settings = DecodeSettings(gen_length=words, no_repeat_ngram_size=size)
        said = (
            "no_repeat_ngram_size must be 0 for this model: "
            f"of {words} words some must come twice in {words + 1} pos"
        )
        with pytest.raises(ValueError, match=said):
            surelock.decode(lm, [[5]], settings)
    settings = DecodeSettings(gen_length=words - 1, no_repeat_ngram_size=1)
    tokens = list(surelock.decode(lm, [[5]], settings, compute=Everything()))[-1].tokens[0].tolist()
    said = [token for token in tokens if token not in lm.ends]
    assert len(said) == len(set(said)) and MASK not in said


def test_generate_cuts_at_the_first_eos(stories: LanguageModel) -> None:
    ids = stories.encode(" and they lived happily")[:6]
    tokens = [*ids[:3], stories.eos_id, *ids[3:], stories.eos_id]
    replay = [
        [(t, t, token) for t, token in enumerate(tokens)],
        [(t, t, ids[0]) for t in range(len(tokens))],
    ]
    settings = DecodeSettings(gen_length=len(tokens))
    asked = {"compute": LockRule(), "unmask": Replay(replay)}
    texts = surelock.generate(stories, ["Once upon a time", "One"], settings, **asked)
    assert texts == [stories.decode(ids[:3]), stories.decode([ids[0]] * len(tokens))]
