"""Every invalid setting is refused where it is made, by a sentence that starts with its name."""

import math
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surelock import DecodeSettings, LockRule, UnlockRule
from surelock.decoding.recommended import recommended_rule, recommended_settings
from surelock.decoding.settings import REMASKING

NAN, INF = math.nan, math.inf
NOT_WHOLE = [1.5, "8", True, None, [8], NAN]
NOT_NUMBERS = ["0.5", True, None, [1.0], NAN, 1j]


def refused(kind: type, name: str, **values: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{name}\b[^\n]*$"):
        kind(**values)


@pytest.mark.parametrize("name", ["gen_length", "steps", "block_length"])
@pytest.mark.parametrize("value", [0, -8, *NOT_WHOLE])
def test_lengths(name: str, value: Any) -> None:
    if name == "gen_length" or value is not None:
        refused(DecodeSettings, name, **{"gen_length": 8} | {name: value})


@pytest.mark.parametrize(
    ("name", "gen_length", "steps", "block_length"),
    [
        ("block_length", 8, None, 3), ("block_length", 8, None, 16), ("steps", 8, 9, None), ("steps", 8, 3, 4),
        ("steps", 8, 1, 4), ("steps", 8, 16, 8),
    ],
)  # fmt: skip
def test_schedules_that_do_not_divide(name: str, gen_length: int, steps: int | None, block_length: int | None) -> None:
    refused(DecodeSettings, name, gen_length=gen_length, steps=steps, block_length=block_length)


@pytest.mark.parametrize("value", [-0.1, INF, *NOT_NUMBERS])
@pytest.mark.parametrize("name", ["temperature", "cfg_scale"])
def test_temperature_and_guidance(name: str, value: Any) -> None:
    refused(DecodeSettings, name, **{name: value})


@pytest.mark.parametrize("value", [0, -0.5, 1.1, INF, *NOT_NUMBERS])
def test_select_fraction(value: Any) -> None:
    refused(DecodeSettings, "select_fraction", select_fraction=value)


@pytest.mark.parametrize("value", [-0.1, 1.1, *NOT_NUMBERS])
def test_threshold(value: Any) -> None:
    refused(DecodeSettings, "threshold", threshold=value)


@pytest.mark.parametrize("value", ["lowest", "", None, 3, ["random"]])
def test_remasking(value: Any) -> None:
    refused(DecodeSettings, "remasking", remasking=value)


@pytest.mark.parametrize("value", [-1, 0.5, "7", None, True, [1, -1], [0, "1"], (), [[1]]])
def test_seed(value: Any) -> None:
    refused(DecodeSettings, "seed", seed=value)


@pytest.mark.parametrize("value", [-1, 2.5, "3", None, True])
def test_no_repeat_ngram_size(value: Any) -> None:
    refused(DecodeSettings, "no_repeat_ngram_size", no_repeat_ngram_size=value)


@pytest.mark.parametrize("value", ["no", None])
@pytest.mark.parametrize("name", ["suppress_eos", "suppress_eos_confidence"])
def test_flags(name: str, value: Any) -> None:
    refused(DecodeSettings, name, **{name: value})


@pytest.mark.parametrize(
    "value",
    [
        5, [], [5], [[(0, 0)]], [[(0, 0, 9, 9), (1, 1, 9)]], [[("a", 0, 9), (1, 1, 9)]], [[(0, 0, 9)]],
        [[(0, 0, 9), (1, 0, 9)]], [[(0, 0, 9), (2, 1, 9)]], [[(-1, 0, 9), (0, 1, 9)]], [[(0, 0, 9), (0, 2, 9)]],
        [[(0.5, 0, 9), (1, 1, 9)]], [[(0, 0, 9), (1, 1, 9)], [(0, 0, 9)]],
    ],
)  # fmt: skip
def test_replay(value: Any) -> None:
    refused(DecodeSettings, "replay", gen_length=2, remasking="replay", replay=value)


def test_replay_is_given_exactly_with_its_policy() -> None:
    refused(DecodeSettings, "replay", gen_length=1, remasking="replay")
    refused(DecodeSettings, "replay", gen_length=1, replay=[[(0, 0, 9)]])
    assert DecodeSettings(gen_length=1, remasking="replay", replay=[[(0, 0, 9)]]).replay == (((0, 0, 9),),)


@pytest.mark.parametrize("value", ["0", None, NAN, True, [0.1]])
def test_epsilon(value: Any) -> None:
    refused(LockRule, "epsilon", epsilon=value)


@pytest.mark.parametrize("value", [-1, 100.1, INF, NAN, "20", True])
def test_percentile(value: Any) -> None:
    refused(LockRule, "percentile", percentile=value)


@pytest.mark.parametrize("value", [-1, *NOT_WHOLE])
def test_visible_steps(value: Any) -> None:
    refused(LockRule, "visible_steps", visible_steps=value)


@pytest.mark.parametrize("value", [True, 8, {"period": 8}, UnlockRule])
def test_unlock(value: Any) -> None:
    refused(LockRule, "unlock", unlock=value)


@pytest.mark.parametrize("value", [3, [], [3], [[1, "2"]], [[1, 0.5]], [[1, -1]], "12"])
def test_schedule(value: Any) -> None:
    refused(LockRule, "schedule", schedule=value)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("period", [0, *NOT_WHOLE]), ("budget", [0, *NOT_WHOLE]), ("min_interval", [-1, *NOT_WHOLE]),
        ("cooldown", [-1, *NOT_WHOLE]), ("epsilon_unlock", [-0.1, *NOT_NUMBERS]), ("rho", [-0.1, 1.1, *NOT_NUMBERS]),
    ],
)  # fmt: skip
def test_unlock_rule(name: str, values: list) -> None:
    for value in values:
        refused(UnlockRule, name, **{name: value})


def test_settings_are_frozen_and_hashable() -> None:
    settings = DecodeSettings(seed=[3, 4])
    assert settings == DecodeSettings(seed=(3, 4))
    assert len({settings, DecodeSettings(), LockRule(), LockRule(unlock=UnlockRule(), schedule=[[0, 1]])}) == 4
    with pytest.raises(FrozenInstanceError):
        settings.steps = 3


def test_defaults_are_those_of_the_design() -> None:
    settings = DecodeSettings()
    assert (settings.gen_length, settings.blocks, settings.total_steps) == (128, 1, 128)
    assert LockRule() == LockRule(epsilon=5e-4, percentile=20.0, visible_steps=1, unlock=None)


def test_what_a_model_recommends() -> None:
    """generation_config.json may hold keys of others; what the caller gives goes first."""
    generation = {"temperature": 0.5, "gen_length": 64, "steps": 32, "block_length": 32, "epsilon": 1e-2, "top_p": 0.9}
    settings = recommended_settings(generation, {"temperature": 0.0, "json": True})
    assert settings == DecodeSettings(gen_length=64, steps=32, block_length=32)
    assert recommended_settings(generation, {"gen_length": 96}).block_length == 32
    assert recommended_settings(generation, {"gen_length": 96}).steps is None
    assert recommended_settings(generation, {"gen_length": 48}).block_length == 24
    assert recommended_settings(generation, {"gen_length": 48, "steps": 6}).steps == 6
    assert recommended_settings(generation, {"gen_length": 64, "steps": 1}).block_length is None
    assert recommended_settings(generation, {"gen_length": 64, "steps": None}).block_length == 32
    assert recommended_settings({}, {}) == DecodeSettings()
    assert recommended_rule(generation, {"percentile": None}) == LockRule(epsilon=1e-2, percentile=None)
    assert recommended_rule({}, {"unlock": True}) == LockRule(unlock=UnlockRule())


FINITE = st.floats(0, allow_nan=False, allow_infinity=False)


@given(
    blocks=st.integers(1, 6),
    block_length=st.integers(1, 20),
    share=st.floats(0, 1),
    temperature=FINITE | FINITE.map(np.float64) | st.integers(0, 3),
    cfg_scale=FINITE,
    remasking=st.sampled_from([name for name in REMASKING if name != "replay"]),
    seed=st.integers(0, 2**40) | st.lists(st.integers(0, 2**40) | st.integers(0, 99).map(np.int64), min_size=1),
    select_fraction=st.floats(0, 1, exclude_min=True),
    threshold=st.floats(0, 1),
    no_repeat_ngram_size=st.integers(0, 9),
    flags=st.tuples(st.booleans(), st.booleans()),
)
def test_valid_settings(blocks: int, block_length: int, share: float, seed: Any, flags: tuple, **values: Any) -> None:
    per_block = 1 + int(share * (block_length - 1))
    settings = DecodeSettings(
        gen_length=blocks * block_length,
        steps=blocks * per_block,
        block_length=block_length,
        seed=seed,
        suppress_eos=flags[0],
        suppress_eos_confidence=flags[1],
        **values,
    )
    assert (settings.blocks, settings.total_steps) == (blocks, blocks * per_block)
    assert [settings.seed_of(b) for b in range(2 if isinstance(seed, int) else len(seed))] == (
        [seed, seed + 1] if isinstance(seed, int) else seed
    )


@given(
    epsilon=st.floats(allow_nan=False) | st.integers(-1, 1),
    percentile=st.none() | st.floats(0, 100) | st.integers(0, 100),
    visible_steps=st.integers(0),
    unlock=st.none()
    | st.builds(
        UnlockRule,
        period=st.integers(1),
        budget=st.integers(1),
        epsilon_unlock=st.floats(0, allow_nan=False),
        min_interval=st.integers(0),
        cooldown=st.integers(0),
        rho=st.floats(0, 1),
    ),
)
def test_valid_rules(**values: Any) -> None:
    rule = LockRule(**values)
    assert {name: getattr(rule, name) for name in values} == values
