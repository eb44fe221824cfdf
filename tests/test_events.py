"""What a person does to a run: events by hand, what cannot be asked for, steps shared with the undisturbed run."""

from typing import Any

import numpy as np
import pytest
import torch
from checkpoints import write_llada
from conftest import TINY

import surelock
from surelock import (
    DecodeSettings,
    Event,
    Everything,
    LanguageModel,
    LockRule,
    Replay,
    SelectRule,
    Step,
    Threshold,
)

PROMPT = [5, 3, 9]
FIRST = 3
GEN = 12
N = 15
LOCKING = LockRule(epsilon=5e-2)


def run(lm: LanguageModel, *events: Event, prompts: Any = (PROMPT,), **choices: Any) -> list[Step]:
    asked = {"compute": Everything(), "events": events} | choices
    return list(surelock.decode(lm, prompts, DecodeSettings(gen_length=GEN), **asked))


def where(flags: np.ndarray) -> list[int]:
    return flags[0].nonzero()[0].tolist()


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (
            {"step": 12, "kind": "lock", "position": 3},
            "there is no such step, the run has 12, from 0 to 11",
        ),
        (
            {"step": 1, "kind": "lock", "position": 15},
            "there is no such position, the sequence has 15, from 0 to 14",
        ),
        (
            {"step": 1, "kind": "lock", "position": 0, "sequence": 1},
            "there is no sequence 1, the batch has 1",
        ),
        ({"step": 1, "kind": "write", "position": 2, "token": 7}, "it belongs to the prompt"),
        ({"step": 1, "kind": "mask", "position": 0}, "it belongs to the prompt"),
        (
            {"step": 1, "kind": "write", "position": 3, "token": 41},
            "token 41 cannot be written, it is outside 0 to 40",
        ),
        (
            {"step": 1, "kind": "write", "position": 3, "token": 1},
            "token 1 cannot be written, it is the mask token",
        ),
    ],
)
def test_what_cannot_be_asked_is_refused_at_the_call(
    lm: LanguageModel, event: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError) as caught:
        surelock.decode(lm, [PROMPT], DecodeSettings(gen_length=GEN), events=[Event(**event)])
    assert said in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        (("lock", "unlock"), "event at step 4, position 5: it cannot lock and unlock at once"),
        (("mask", "write"), "it cannot mask and write at once"),
        (("lock", "mask"), "it cannot lock and mask at once"),
        (("write", "write"), "'write' is asked for twice"),
        (("rule", "rule"), "event at step 4: 'rule' is asked for twice"),
    ],
)
def test_two_that_contradict_each_other(
    lm: LanguageModel, pair: tuple[str, str], said: str
) -> None:
    made = {
        kind: Event(4, kind, compute=LOCKING)
        if kind == "rule"
        else Event(4, kind, 5, 7 if kind == "write" else None)
        for kind in pair
    }
    with pytest.raises(ValueError, match=said):
        surelock.decode(
            lm, [PROMPT], DecodeSettings(gen_length=GEN), events=[made[kind] for kind in pair]
        )


@pytest.mark.parametrize(
    ("events", "said"),
    [
        (
            [Event(2, "lock", 14)],
            "event at step 2, position 14: it is masked, so it cannot be locked",
        ),
        (
            [Event(2, "lock", 0), Event(3, "lock", 0)],
            "event at step 3, position 0: it is locked, so it cannot be locked",
        ),
        (
            [Event(2, "unlock", 0)],
            "event at step 2, position 0: it is not locked, so it cannot be unlocked",
        ),
        ([Event(2, "mask", 14)], "event at step 2, position 14: it is masked already"),
        (
            [Event(0, "lock", 1)],
            "event at step 0, position 1: it was never computed, so there is nothing to lock",
        ),
    ],
)
def test_what_does_not_fit_the_run_is_refused_in_its_step(
    lm: LanguageModel, events: list[Event], said: str
) -> None:
    settings = DecodeSettings(gen_length=GEN, suppress_eos_confidence=True)
    steps = surelock.decode(lm, [PROMPT], settings, events=events)
    for _ in range(events[-1].step):
        assert (last := next(steps)) is not None and (
            events[-1].position != 14 or last.masked[0, 14]
        )
    with pytest.raises(ValueError) as caught:
        next(steps)
    assert str(caught.value).endswith(said)


def test_an_event_after_an_early_end_is_refused(lm: LanguageModel) -> None:
    early = {"unmask": Threshold(0.0)}
    assert len(run(lm, **early)) == 1
    with pytest.raises(
        ValueError, match="step 5, position 4: there is no such step, the run ended before step 1"
    ):
        run(lm, Event(5, "lock", 4), **early)


def test_events_are_checked_to_be_events(lm: LanguageModel) -> None:
    with pytest.raises(ValueError, match="events must be a list of Event, not 'lock'"):
        surelock.decode(lm, [PROMPT], DecodeSettings(gen_length=GEN), events=["lock"])  # type: ignore[list-item]
    replay = Replay([[(i, i, 5) for i in range(GEN)]])
    with pytest.raises(
        ValueError, match="under the policy 'replay' tokens and their steps are given already"
    ):
        run(lm, Event(2, "mask", 4), unmask=replay)


@pytest.mark.parametrize(
    "compute", [Everything(), LOCKING, LOCKING & SelectRule(0.6)], ids=lambda rule: rule.kinds
)
@pytest.mark.parametrize("step", [0, 1, 6, 11])
def test_shared_steps_are_the_same_bit_for_bit(tmp_path: Any, compute: Any, step: int) -> None:
    """What a branch shows beside its parent: float32, one machine."""
    write_llada(tmp_path, **TINY)
    lm = surelock.load(str(tmp_path), device="cpu", dtype=torch.float32)
    settings = DecodeSettings(gen_length=GEN, temperature=0.7, seed=3)
    event = Event(step, "write", 14, 7)

    def values(events: list[Event]) -> list[list[np.ndarray]]:
        steps = surelock.decode(
            lm, [PROMPT], settings, compute=compute, events=events, observe=True, top_k=5
        )
        names = (
            "tokens",
            "masked",
            "locked",
            "computed",
            "kl",
            "confidence",
            "top_ids",
            "top_probs",
            "flops",
        )
        return [[np.nan_to_num(getattr(each, name), nan=-1) for name in names] for each in steps]

    parent, child = values([]), values([event])
    equal = [
        all(np.array_equal(a, b) for a, b in zip(*pair, strict=True))
        for pair in zip(parent, child, strict=True)
    ]
    assert all(equal[:step]) and not equal[step]
