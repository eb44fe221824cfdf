"""A run without a network: it plans, takes readings and decides, in numpy alone."""

from dataclasses import replace

import numpy as np
import pytest
from made_up import made_up
from test_decode import RUNS

from surelock import (
    ComputeRule,
    Decoder,
    DecodeSettings,
    DelayedCache,
    EarlyFinish,
    EntropyBound,
    Event,
    Klass,
    LockRule,
    Threshold,
    UnlockRule,
    UnmaskPolicy,
)  # fmt: skip
from surelock.config import NetworkConfig, Shape
from surelock.decoding.algorithm import NonFiniteLogits, Run
from surelock.decoding.compute import Changes
from surelock.decoding.state import Slots, State
from surelock.decoding.step import Plan, Reading, Step

VOCAB = 29
PROMPTS = [[5, 6, 7], [9], [3]]
SHAPE = Shape(
    NetworkConfig(VOCAB, 8, 1, 1, 1, 8, 8, 64, 1e4, 1e-5, True), mask_id=1, pad_id=0, ends=(0,)
)
UNLOCK = UnlockRule(period=2, epsilon_unlock=1e-4, min_interval=0)
DECODERS = {
    name: Decoder(settings=DecodeSettings(gen_length=12, **changes), **choices)
    for name, (changes, choices) in RUNS.items()
    if name != "events"  # on the readings of no network what they ask for may not be possible
}
EVENTS = (Event(3, "lock", 0), Event(5, "write", 4, 8))
DECODERS["by hand"] = Decoder(
    settings=DecodeSettings(gen_length=12), compute=DelayedCache(3), events=EVENTS
)


def through(decoder: Decoder, seed: int = 0) -> tuple[list[Plan], list[Step]]:
    """All plans and steps of a run on made-up readings."""
    run = Run(SHAPE, PROMPTS, decoder)
    rng = np.random.default_rng(seed)
    plans = []
    steps = []
    while (plan := run.plan()) is not None:
        assert run.plan() is plan, "made once, the same until it is taken"
        plans.append(plan)
        steps.append(run.take(made_up(plan, rng, VOCAB)))
    assert run.plan() is None
    return plans, steps


def test_costs_of_no_rows_are_float64() -> None:
    """A step in which every row rests has none; numpy alone would count them in integers."""

    class Nothing(ComputeRule):
        def rows(self, state: State, active: Slots) -> Slots:
            return active[:0]

    _, steps = through(Decoder(settings=DecodeSettings(gen_length=12), compute=Nothing()))
    assert all(step.flops.dtype == step.baseline_flops.dtype == np.float64 for step in steps)
    assert steps[1].flops.tolist() == [0, 0, 0]


def test_a_position_that_is_locked_does_not_lock_again() -> None:
    """Whatever a rule from outside names in each step."""

    class Again(ComputeRule):
        def after(self, state: State, reading: Reading) -> Changes:
            return Changes(locked=np.flatnonzero(~state.masked))

    _, steps = through(Decoder(settings=DecodeSettings(gen_length=12), compute=Again()))
    assert (sum(step.newly_locked.astype(int) for step in steps) <= 1).all() and steps[
        -1
    ].newly_locked.any()


def test_what_was_opened_again_is_forgotten() -> None:
    """By an event, in the plan of its own step; by the rule, in the plan of the next."""
    what = [(2, "lock", 0), (4, "unlock", 0), (5, "lock", 1), (6, "lock", 0), (6, "unlock", 1)]
    events = tuple(Event(*each) for each in what)
    plans, _ = through(Decoder(settings=DecodeSettings(gen_length=12), events=events))
    assert {plan.step: plan.outdated.tolist() for plan in plans if len(plan.outdated)} == {
        4: [0],
        6: [1],
    }
    plans, steps = through(
        Decoder(
            settings=DecodeSettings(gen_length=12), compute=LockRule(epsilon=1.0, unlock=UNLOCK)
        )
    )
    freed = [np.flatnonzero(step.newly_unlocked[0, :]).tolist() for step in steps]
    assert any(freed) and all(
        len(plan.outdated) >= len(own) for own, plan in zip(freed, plans[1:], strict=False)
    )


@pytest.mark.parametrize(
    "policy", [Threshold(0.5), Klass(0.05, 0.5, 1), EntropyBound(0.5), EarlyFinish(2.0, 1.2, 0.8)]
)
@pytest.mark.parametrize("block_length", [12, 4])
def test_no_mask_is_left_whatever_is_masked_again(policy: UnmaskPolicy, block_length: int) -> None:
    """A policy that ends blocks early, and a written word that is masked in any later step."""
    settings = DecodeSettings(gen_length=12, block_length=block_length)
    written = Decoder(settings=settings, unmask=policy, events=(Event(0, "write", 4, 8),))
    for seed in range(3):
        _, plain = through(written, seed)
        last = max(
            step.index for step in plain if step.masked[0].any() or step.newly_unmasked[0].any()
        )
        for at in range(1, last + 1):
            _, steps = through(
                replace(written, events=(*written.events, Event(at, "mask", 4))), seed
            )
            assert not steps[-1].masked.any(), (seed, at)


def test_a_reading_needs_a_plan_and_finite_logits() -> None:
    run = Run(SHAPE, PROMPTS, DECODERS["locked"])
    plan = run.plan()
    assert plan is not None
    reading = made_up(plan, np.random.default_rng(0), VOCAB)
    run.take(reading)
    with pytest.raises(ValueError, match="call plan"):
        run.take(reading)
    second = run.plan()
    assert second is not None
    bad = made_up(second, np.random.default_rng(0), VOCAB)
    bad.finite = False
    with pytest.raises(NonFiniteLogits, match=r"step 1\b"):
        run.take(bad)
