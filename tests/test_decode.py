"""The decode loop from outside: its errors, and what holds of every Step."""

import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest
import torch

import surelock
from surelock import (
    BudgetRule,
    DecodeSettings,
    Entropy,
    Event,
    Everything,
    Klass,
    LanguageModel,
    LockRule,
    LowConfidence,
    NonFiniteLogits,
    Replay,
    SelectRule,
    Step,
    UnlockRule,
)
from surelock.decoding.decoder import read_decoder
from surelock.decoding.spelling import unfolded
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
_RUNS = """
baseline | {"compute": "everything"}
locked | {"compute": "lock,epsilon=5e-2"}
literal | {"compute": "lock,epsilon=1e-1,percentile=50,visible_steps=0", "temperature": 1.0}
guided | {"compute": "lock,epsilon=5e-2", "unmask": "entropy", "cfg_scale": 1.5}
selected | {"compute": "lock,epsilon=5e-2+select,fraction=0.4", "block_length": 6, "steps": 6}
threshold | {"compute": "lock,epsilon=5e-2", "unmask": "threshold,p=0.5", "block_length": 4}
unrepeated | {"compute": "lock,epsilon=5e-2", "no_repeat_ngram_size": 2, "temperature": 0.7, "block_length": 6}
random | {"compute": "lock,epsilon=5e-2", "unmask": "random", "steps": 5}
margin | {"compute": "everything", "unmask": "margin", "block_length": 3, "steps": 4}
age | {"compute": "age,steps=3", "unmask": "entropy_bound,gamma=0.5", "block_length": 6}
dual | {"compute": "block_cache", "block_length": 4}
prefix | {"compute": "block_cache,dual=false", "unmask": "klass,confidence=0.05,kl=0.5,history=1", "block_length": 4}
delayed | {"compute": "delayed_cache,refresh=4", "block_length": 6}
budget | {"compute": "budget,share=0.3", "block_length": 6}
doubted | {"compute": "entropy_cache,recent=3,threshold=2.5", "block_length": 6, "temperature": 0.7}
taken back | {"compute": "lock,epsilon=5e-2", "unmask": "remask,taken_back=2,begins=.5", "block_length": 6,\
 "temperature": 0.5}
finished | {"compute": "age,steps=3+entropy_cache,recent=2,threshold=2", "unmask": "early_finish", "finish_first": 2,\
 "finish_middle": 1.2, "finish_last": 0.8, "block_length": 4, "temperature": 0.5}
near | {"compute": "lock,epsilon=5e-2", "unmask": "local_leap,p=0.3,near=0.1,radius=2", "block_length": 6,\
 "temperature": 0.5}
corrected | {"compute": "age,steps=4", "unmask": "correct,p=0.3,doubt=0.2", "block_length": 6}
patient | {"compute": "lock,epsilon=5e-2,percentile=none,visible_steps=3"}
"""


def changes_of(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings, and the rule and the policy, of a short spelling."""
    values = json.loads(text)
    decoder = read_decoder(unfolded(values))
    choices = {"compute": decoder.compute, "unmask": decoder.unmask}
    shared = {field.name for field in fields(DecodeSettings)}
    return {name: values[name] for name in values.keys() & shared}, choices


RUNS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    name: changes_of(text)
    for name, text in (line.split(" | ") for line in _RUNS.strip().splitlines())
}
RUNS["unlocking"] = (
    {"temperature": 0.7, "seed": [3, 1, 4]},
    {"compute": LockRule(epsilon=0.5, percentile=60, unlock=UNLOCK)},
)
RUNS["replayed"] = (
    {"block_length": 4},
    {
        "compute": LockRule(epsilon=9.0, percentile=None),
        "unmask": Replay([[(s, GEN - 1 - s, 5 + s) for s in range(GEN)]] * 3),
    },
)
RUNS["events"] = ({}, {"compute": Everything(), "events": EVENTS})


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


#: Prompts that cannot be continued, and a part of the sentence.
PROMPTS_NOT = """
[[5], []] | prompt 2 is empty
[] | at least one
"a text" | no tokenizer
["text"] | no tokenizer
[5, 6] | prompts must be a text, or a list
null | prompts must be a text, or a list
[[5], [41]] | prompt 2 .*0 to 40
[[-1]] | prompt 1 .*0 to 40
[[5.5]] | prompt 1
[[5], ["6"]] | prompt 2
"""
REPLAY = [(t, t, 5) for t in range(GEN)]
#: Steps of a replay that do not fit, where one of them is changed: of which sequence, which, to what.
REPLAYS_NOT = """
2 | 11 | [0, 11, 41] | replay of sequence 2 .*0 to 40
2 | 11 | [0, 11, -1] | replay of sequence 2 .*0 to 40
2 | 11 | [0, 11, 1] | replay of sequence 2 .*mask token
2 | 11 | [0, 10, 5] | replay of sequence 2 must commit each of the 12 positions once
1 | 11 | [12, 11, 5] | replay of sequence 1 must keep to steps 0 to 11
0 | 0 | [-1, 0, 5] | replay of sequence 0 must keep to steps 0 to 11
"""


def refused(lm: LanguageModel, words: str, prompts: Any = PROMPTS, **more: Any) -> None:
    """It is, before the first step."""
    settings = DecodeSettings(gen_length=GEN)
    with pytest.raises(ValueError, match=words):
        surelock.decode(lm, prompts, **{"settings": settings} | more)


def test_what_cannot_be_decoded_is_refused_at_once(lm: LanguageModel) -> None:
    for case in PROMPTS_NOT.strip().splitlines():
        prompts, words = case.split(" | ")
        refused(lm, words, json.loads(prompts))
    refused(lm, "prompt 2 has 53 tokens.* 12 .*64", [[5] * 52, [5] * 53])
    for case in REPLAYS_NOT.strip().splitlines():
        sequence, number, step, words = case.split(" | ")
        replay = [list(REPLAY) for _ in PROMPTS]
        replay[int(sequence)][int(number)] = tuple(json.loads(step))
        refused(lm, words, unmask=Replay(replay))
    refused(lm, "replay of sequence 1 must commit each", unmask=Replay([REPLAY, [], REPLAY]))
    refused(lm, "replay is given for 2 .* 3 prompts", unmask=Replay([REPLAY] * 2))
    for count in (2, 4):
        seeds = DecodeSettings(gen_length=GEN, seed=[*range(count)])
        refused(lm, f"seed is given for {count} .* 3 prompts", settings=seeds)
    for value in (-1, 42, 1.0, "3"):
        refused(lm, r"^top_k must", top_k=value)
    for choice in (True, 5e-4, "lock", UnlockRule(), LockRule, {"kind": "lock"}):
        for name in ("compute", "unmask"):
            refused(lm, rf"^{name} must be an? \w+", **{name: choice})


def test_the_longest_prompt_that_fits(lm: LanguageModel) -> None:
    assert run(lm, prompts=[[5] * 52])[-1].tokens.shape == (1, 64)


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
