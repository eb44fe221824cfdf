"""What a person does to a run: what cannot be asked for. The oracle's tests hold what comes of the rest."""

import pytest

import surelock
from surelock import DecodeSettings, Event, LanguageModel, LockRule, Replay, Threshold

LOCKING = LockRule(epsilon=5e-2)
REFUSED = [
    ([Event(12, "lock", 3)], "there is no such step, the run has 12, from 0 to 11"),
    ([Event(1, "lock", 15)], "there is no such position, the sequence has 15, from 0 to 14"),
    ([Event(1, "lock", 0, sequence=1)], "there is no sequence 1, the batch has 1"),
    ([Event(1, "write", 2, token=7)], "it belongs to the prompt"), ([Event(1, "mask", 0)], "it belongs to the prompt"),
    ([Event(1, "write", 3, token=41)], "token 41 cannot be written, it is outside 0 to 40"),
    ([Event(1, "write", 3, token=1)], "token 1 cannot be written, it is the mask token"),
    ([Event(4, "lock", 5), Event(4, "unlock", 5)], "event at step 4, position 5: it cannot lock and unlock at once"),
    ([Event(4, "mask", 5), Event(4, "write", 5, token=7)], "it cannot mask and write at once"),
    ([Event(4, "lock", 5), Event(4, "mask", 5)], "it cannot lock and mask at once"),
    ([Event(4, "write", 5, token=7)] * 2, "'write' is asked for twice"),
    ([Event(4, "rule", compute=LOCKING)] * 2, "event at step 4: 'rule' is asked for twice"),
    (["lock"], "events must be a list of Event, not 'lock'"),
]  # fmt: skip


@pytest.mark.parametrize(("events", "said"), REFUSED)
def test_what_cannot_be_asked_is_refused_at_the_call(
    lm: LanguageModel, events: list[Event], said: str
) -> None:
    with pytest.raises(ValueError, match=rf"^[^\n]*{said}[^\n]*$"):
        surelock.decode(lm, [[5, 3, 9]], DecodeSettings(gen_length=12), events=events)


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([Event(2, "lock", 14)], "step 2, position 14: it is masked, so it cannot be locked"),
        ([Event(2, "lock", 0), Event(3, "lock", 0)], "step 3, position 0: it is locked, so it cannot be locked"),
        ([Event(2, "unlock", 0)], "step 2, position 0: it is not locked, so it cannot be unlocked"),
        ([Event(2, "mask", 14)], "step 2, position 14: it is masked already"),
        ([Event(0, "lock", 1)], "step 0, position 1: it was never computed, so there is nothing to lock"),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_run_is_refused_in_its_step(
    lm: LanguageModel, events: list[Event], said: str
) -> None:
    settings = DecodeSettings(gen_length=12, suppress_eos_confidence=True)
    steps = surelock.decode(lm, [[5, 3, 9]], settings, events=events)
    for _ in range(events[-1].step):
        next(steps)
    with pytest.raises(ValueError, match=f"^event at {said}$"):
        next(steps)


@pytest.mark.parametrize(
    ("unmask", "event", "said"),
    [
        (Threshold(0.0), Event(5, "lock", 4), "no such step, the run ended before step 1"),
        (Replay([[(i, i, 5) for i in range(12)]]), Event(2, "mask", 4), "under the policy 'replay' tokens"),
    ],
)  # fmt: skip
def test_what_a_policy_leaves_no_room_for_is_refused(
    lm: LanguageModel, unmask: surelock.UnmaskPolicy, event: Event, said: str
) -> None:
    settings = DecodeSettings(gen_length=12)
    with pytest.raises(ValueError, match=said):
        list(surelock.decode(lm, [[5, 3, 9]], settings, unmask=unmask, events=[event]))
