"""Every invalid setting is refused where it is made, by a sentence that starts with its name; and the plain forms."""

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import surelock
from surelock import (
    BlockCache,
    BudgetRule,
    Correct,
    Decoder,
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
    Remask,
    Replay,
    SelectRule,
    Threshold,
    UnlockRule,
    decode,
)
from surelock.__main__ import _parser
from surelock.decoding.compute import Both
from surelock.decoding.decoder import plain_choice, read_compute, read_decoder, read_unmask
from surelock.decoding.flags import given_settings
from surelock.decoding.recommended import recommended
from surelock.decoding.rules import COMPUTE, UNMASK
from surelock.decoding.settings import described, setting, to_plain
from surelock.decoding.spelling import flat_settings
from surelock.decoding.state import check_blocks
from surelock.harness.arguments import read_arguments, read_request
from surelock.record import field_of
from surelock.ui.endpoint import decoder_of
from surelock.ui.parameters import check_names, parameters

NAN = math.nan
INF = math.inf
WORDS = [1.5, "8", True, [8], NAN]
NOT_WHOLE = [*WORDS, None]
NOT_NUMBERS = ["0.5", True, None, [1.0], NAN, 1j]


def refused(kind: type, name: str, **values: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{name}\b[^\n]*$"):
        kind(**values)


REFUSED: list[tuple[type, str, list[Any]]] = [
    (DecodeSettings, "gen_length", [-1, -8, *NOT_WHOLE]),
    *((DecodeSettings, name, [0, -8, *WORDS]) for name in ("steps", "block_length")),
    *((DecodeSettings, name, [-0.1, INF, 1e300, np.float32(1e38), 10**400, Fraction(10**400), *NOT_NUMBERS])
      for name in ("temperature", "cfg_scale")),
    (DecodeSettings, "seed", [-1, 0.5, "7", None, True, [1, -1], [0, "1"], (), [[1]]]),
    (DecodeSettings, "no_repeat_ngram_size", [-1, 2.5, "3", None, True]),
    *((DecodeSettings, name, ["no", None]) for name in ("suppress_eos", "suppress_eos_confidence", "stop_at_end")),
    (LockRule, "epsilon", ["0", None, NAN, True, [0.1]]),
    (LockRule, "percentile", [-1, 100.1, INF, NAN, "20", True]),
    (LockRule, "visible_steps", [-1, *NOT_WHOLE]),
    (LockRule, "unlock", [True, 8, {"period": 8}, UnlockRule]),
    *((UnlockRule, name, [0, *NOT_WHOLE]) for name in ("period", "budget")),
    *((UnlockRule, name, [-1, *NOT_WHOLE]) for name in ("min_interval", "cooldown")),
    (UnlockRule, "epsilon_unlock", [-0.1, *NOT_NUMBERS]),
    (UnlockRule, "rho", [-0.1, 1.1, *NOT_NUMBERS]),
    (SelectRule, "fraction", [0, -0.5, 1.1, INF, *NOT_NUMBERS]),
    (LockByAge, "steps", [-1, *NOT_WHOLE]),
    (BlockCache, "dual", [1, "yes", None]),
    (DelayedCache, "refresh", [0, *NOT_WHOLE]),
    (LockRule, "future", [1, "yes", None]),
    (BudgetRule, "share", [0, 1.1, *NOT_NUMBERS]),
    (BudgetRule, "near", [0, 0.09, -1, NAN, "4", True]),
    (Threshold, "p", [-0.1, 1.1, *NOT_NUMBERS]),
    (Klass, "confidence", [-0.1, 1.1, *NOT_NUMBERS]),
    (Klass, "kl", [-1e-9, *NOT_NUMBERS]),
    (Klass, "history", [0, *NOT_WHOLE]),
    (EntropyBound, "gamma", [-0.1, *NOT_NUMBERS]),
    *((EarlyFinish, name, [-0.1, *NOT_NUMBERS]) for name in ("first", "middle", "last")),
    (EarlyFinish, "answer", [-1, *NOT_WHOLE]),
    (Remask, "taken_back", [0, *NOT_WHOLE]),
    (Remask, "begins", [-0.1, 1.1, *NOT_NUMBERS]),
    *((LocalLeap, name, [-0.1, 1.1, *NOT_NUMBERS]) for name in ("p", "near")),
    (LocalLeap, "radius", [-1, *NOT_WHOLE]),
    *((Correct, name, [-0.1, 1.1, *NOT_NUMBERS]) for name in ("p", "doubt", "share")),
    (Correct, "times", [-1, 101, *NOT_WHOLE]),
    (EntropyCache, "recent", [-1, *NOT_WHOLE]),
    (EntropyCache, "threshold", [-0.1, *NOT_NUMBERS]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "name", "values"), REFUSED)
def test_what_a_setting_cannot_be(kind: type, name: str, values: list[Any]) -> None:
    for value in values:
        refused(
            kind, name, **(({"gen_length": 8} if kind is DecodeSettings else {}) | {name: value})
        )


@pytest.mark.parametrize("value", ["64", 64.5, "none", True])
def test_a_text_is_no_number_where_json_is_read(value: Any) -> None:
    """Only behind a kind, and as a flag, does a text spell a number. JSON may have a whole number as a float."""
    for read in (
        lambda: DecodeSettings(gen_length=value),
        lambda: DecodeSettings(gen_length=64.0),  # pyright: ignore[reportArgumentType]
        lambda: DecodeSettings(seed=[1.0, 2.0]),  # pyright: ignore[reportArgumentType]
        lambda: read_decoder({"gen_length": value}),
        lambda: read_decoder({"seed": [1.0, 2.0]}),
        lambda: read_decoder({"visible_steps": value}),
        lambda: read_decoder({"compute": {"kind": "lock", "visible_steps": value}}),
        lambda: Decoder.from_plain({"settings": {"gen_length": value}}),
        lambda: Decoder.from_plain({"compute": {"kind": "age", "steps": value}}),
        lambda: Decoder.from_plain({"compute": {"kind": "lock", "unlock": {"period": value}}}),
        lambda: recommended({"gen_length": value}, {}),
        lambda: recommended({}, {"steps": value} if value != "none" else {"gen_length": value}),
    ):
        with pytest.raises(
            ValueError,
            match=r"^(gen_length|seed|steps|visible_steps|period) must be a whole number",
        ):
            read()
    assert read_decoder({"compute": "age,steps=64"}).compute == LockByAge(64)
    assert Decoder.from_plain({"compute": {"kind": "age", "steps": 64.0}}).compute == LockByAge(64)


@pytest.mark.parametrize("value", [True, "true", "1"])
def test_a_nested_group_is_an_object(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^unlock must be of UnlockRule, or None for never, not"):
        Decoder.from_plain({"compute": {"kind": "lock", "unlock": value}})


@pytest.mark.parametrize(
    ("name", "gen_length", "steps", "block_length"),
    [
        ("block_length", 8, None, 3), ("block_length", 8, None, 16), ("steps", 8, 9, None), ("steps", 8, 3, 4),
        ("steps", 8, 1, 4), ("steps", 8, 16, 8),
    ],
)  # fmt: skip
def test_schedules_that_do_not_divide(
    name: str, gen_length: int, steps: int | None, block_length: int | None
) -> None:
    settings = DecodeSettings(gen_length=gen_length, steps=steps, block_length=block_length)
    with pytest.raises(ValueError, match=f"^{name} [^\n]*$"):
        check_blocks(settings)


@pytest.mark.parametrize(
    "value",
    [
        5,
        [],
        [5],
        [[(0, 0)]],
        [[(0, 0, 9, 9), (1, 1, 9)]],
        [[("a", 0, 9), (1, 1, 9)]],
        [[(0.5, 0, 9), (1, 1, 9)]],
    ],
)
def test_replay(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^replay must[^\n]*$"):
        Replay(value)


def test_values_take_the_type_of_their_setting() -> None:
    settings = DecodeSettings(
        gen_length=np.int64(8), seed=np.int32(3), temperature=Fraction(1, 2), cfg_scale=True + 1
    )
    kinds = [
        type(value)
        for value in (settings.gen_length, settings.seed, settings.temperature, settings.cfg_scale)
    ]
    assert kinds == [int, int, float, float]
    assert json.dumps(to_plain(settings))


def test_what_a_model_recommends() -> None:
    """generation_config.json may hold keys of others; what the caller gives goes first."""
    generation = {
        "temperature": 0.5,
        "gen_length": 64,
        "steps": 32,
        "block_length": 32,
        "epsilon": 1e-2,
        "top_p": 0.9,
    }

    def settings(**given: Any) -> DecodeSettings:
        return recommended(generation, given).settings

    assert settings(temperature=0.0, json=True) == DecodeSettings(
        gen_length=64, steps=32, block_length=32
    )
    assert settings(gen_length=96).block_length == 32
    assert settings(gen_length=96).steps is None
    assert settings(gen_length=48).block_length == 24
    assert settings(gen_length=48, steps=6).steps == 6
    assert settings(gen_length=64, steps=1).block_length is None
    assert settings(gen_length=64, steps=None).block_length == 32
    assert recommended({}, {}) == Decoder(compute=LockRule())
    assert recommended(generation, {"percentile": None}).compute == LockRule(
        epsilon=1e-2, percentile=None
    )
    assert recommended({}, {"unlock": True}).compute == LockRule(unlock=UnlockRule())
    assert recommended({"unmask": "entropy"}, {}).unmask == Entropy()
    assert recommended({"unmask": "entropy"}, {"unmask": "klass"}).unmask == Klass()
    # its epsilon is passed over
    assert recommended(generation, {"compute": "everything"}).compute == Everything()


def test_a_short_spelling_chooses_kinds_by_name() -> None:
    assert read_decoder(
        {"select_fraction": 0.5, "compute": "lock+select"}
    ).compute == LockRule() & SelectRule(0.5)
    # a setting of a rule that was not chosen
    assert read_decoder({"select_fraction": 0.5}).compute == LockRule()
    assert read_decoder(
        {"compute": "age+delayed_cache", "age": 3, "refresh": 2}
    ).compute == LockByAge(3) & DelayedCache(2)
    assert read_decoder({"unmask": "threshold", "threshold": 0.5}).unmask == Threshold(0.5)
    for period in (3, 9):  # below and above the default
        assert read_decoder({"unlock_period": period}).compute == LockRule(
            unlock=UnlockRule(period=period)
        )
    assert read_decoder({"unlock": False, "unlock_period": 8}).compute == LockRule()
    assert read_decoder({"gen_length": 64.0, "epsilon": "inf"}) == Decoder(
        settings=DecodeSettings(gen_length=64), compute=LockRule(epsilon=INF)
    )


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"compute": "best"},
            "compute must be one of everything, lock, age, select, budget, block_cache, delayed_",
        ),
        ({"compute": 3}, "compute must be the name of a kind"),
        ({"compute": "lock+age"}, "compute cannot be 'lock' and 'age' together"),
        (
            {"compute": "select+block_cache"},
            "compute cannot be 'select' and 'block_cache' together",
        ),
        ({"compute": "lock+select+block_cache"}, "compute can be one rule or two together, not 3"),
        ({"unmask": "entropy+margin"}, "unmask can be one policy, not 2"),
        (
            {"compute": "+".join(["lock"] * 10**6)},
            "compute can be one rule or two together, not 1000000",
        ),
        ({"unmask": "replay"}, "unmask 'replay' needs the tokens themselves"),
        ({"unmask": "<b>"}, "unmask must be one of low_confidence"),
        ({"compute": "age", "age": -1}, "age must be a whole number of at least 0"),
        ({"unmask": "threshold", "threshold": "high"}, "threshold must be a number from 0 to 1"),
        ({"unlock": "sometimes"}, "unlock must be"),
    ],
)
def test_short_spellings_that_cannot_be(values: dict, said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}[^\n]*$"):
        read_decoder(values)


@pytest.mark.parametrize(
    ("read", "plain", "said"),
    [
        (
            read_compute,
            {"kind": "lock", "epsilonn": 1},
            "epsilonn is no setting of LockRule: it has epsilon, percentile",
        ),
        (read_compute, {"epsilon": 1}, "compute must be one of .* not None"),
        (read_compute, {"kind": ["lock"]}, "compute must be one of"),
        (read_compute, 7, "compute must be an object, not 7"),
        (
            read_compute,
            {"kind": "both", "lock": {"kind": "lock"}},
            "compute must be an object, not None",
        ),
        (read_compute, {"kind": "lock", "unlock": 3}, "unlock must be of UnlockRule"),
        (read_compute, {"kind": "lock", "unlock": {"period": 0}}, "period must be a whole number"),
        (
            read_unmask,
            {"kind": "klass", "history": 1.5},
            "history must be a whole number of at least 1",
        ),
        (read_unmask, None, "unmask must be an object"),
        (Decoder.from_plain, {"rule": {}}, "rule is no part of a decoder"),
        (Decoder.from_plain, {"settings": []}, None),
        (
            Decoder.from_plain,
            {"settings": {"remasking": "random"}},
            "remasking is no setting of DecodeSettings",
        ),
        (Decoder.from_plain, {"events": {"a": 1}}, "events must be a list"),
        (Decoder.from_plain, {"events": [{"step": 1}]}, "event kind must be one of"),
        (
            Decoder.from_plain,
            {"events": [{"step": 1, "kind": "lock", "position": 3, "why": ""}]},
            "event why does not",
        ),
    ],
)
def test_plain_forms_that_cannot_be(read: Any, plain: Any, said: str | None) -> None:
    if said is None:
        assert read(plain) == Decoder(compute=Everything())
        return
    with pytest.raises(ValueError, match=f"^{said}[^\n]*$"):
        read(plain)


RULES = [kind() for kind in COMPUTE.values()]
PAIRS = [a & b for a in RULES for b in RULES if a.locks and not b.locks]


def test_every_decoder_comes_back_from_its_plain_form() -> None:
    rules = [*RULES, *PAIRS, LockRule(epsilon=INF, percentile=None, unlock=UnlockRule(period=2))]
    events = (
        Event(3, "write", 20, 7), Event(3, "lock", 20), Event(4, "mask", 20), Event(5, "unlock", 2),
        Event(6, "rule", compute=LockByAge(4) & SelectRule(0.5)),
    )  # fmt: skip
    for rule in rules:
        for policy in UNMASK.values():
            settings = DecodeSettings(gen_length=64, seed=[3, 4], suppress_eos=True)
            decoder = Decoder(settings=settings, compute=rule, unmask=policy(), events=events)
            plain = json.loads(json.dumps(decoder.to_plain(), allow_nan=False))
            assert Decoder.from_plain(plain) == decoder
            assert read_compute(plain_choice(rule)) == rule
    assert (
        read_compute("lock+select") == LockRule() & SelectRule()
        and LockByAge() & SelectRule() in PAIRS
    )
    assert LockRule() & SelectRule() == SelectRule() & LockRule() == Both(LockRule(), SelectRule())
    assert [rule.kinds for rule in (LockRule(), LockByAge() & SelectRule())] == [
        "lock",
        "age+select",
    ]


def test_short_names_are_unique_and_found() -> None:
    """Of all kinds together: no two settings share a name, and each finds its way to its field."""
    total = sum(
        len(list(described(kind)))
        for kind in (DecodeSettings, UnlockRule, *COMPUTE.values(), *UNMASK.values())
    )
    assert len(flat_settings()) == total
    other = {
        "flag": lambda v: not v,
        "whole": lambda v: (v or 6) + 2,
        "number": lambda v: (v or 1) / 2,
    }
    for flat, each in flat_settings().items():
        if each.setting.kind == "group":
            continue
        value = other[each.setting.kind](each.default)
        chosen = (
            {"compute": each.kind}
            if each.kind in COMPUTE
            else {"unmask": each.kind}
            if each.kind
            else {}
        )
        decoder = read_decoder(
            {**chosen, flat: value} | ({"gen_length": 8} if flat == "block_length" else {})
        )
        owner = (
            decoder.settings
            if not each.kind
            else decoder.compute
            if each.kind in COMPUTE
            else decoder.unmask
        )
        owner = getattr(owner, each.group) if each.group else owner
        assert getattr(owner, each.name) == value, flat


def test_every_way_in_has_the_same_default_decoder() -> None:
    """The library, the command line, lm-eval and /decode."""
    endpoint = {each.name: each.default for each in parameters()} | {"prompt": "Once"}
    for decoder in (
        Decoder(),
        recommended({}, given_settings(_parser().parse_args(["decode", "Once"]))),
        recommended({}, read_request({}) | read_arguments({})),
        decoder_of(endpoint),
    ):
        assert (decoder.compute, decoder.unmask) == (LockRule(), LowConfidence())


def given_on_the_command_line(values: dict[str, Any]) -> Decoder:
    words = []
    for name, value in values.items():
        flag = name.replace("_", "-")
        words += (
            [f"--{'' if value else 'no-'}{flag}"]
            if isinstance(value, bool)
            else [f"--{flag}", str(value)]
        )
    return recommended({}, given_settings(_parser().parse_args(["decode", "Once", *words])))


def given_to_lm_eval(values: dict[str, Any]) -> Decoder:
    return recommended({}, read_request({}) | read_arguments(values))


#: Each way in, as a function of what is given.
WAYS: dict[str, Callable[[dict[str, Any]], Decoder]] = {
    "library": lambda values: recommended({}, values),
    "over a model's settings": lambda values: recommended(
        {"unlock": False, "epsilon": 0.1, "threshold": 0.2}, values
    ),
    "command line": given_on_the_command_line,
    "model_args": given_to_lm_eval,
    "request of lm-eval": lambda values: recommended({}, read_request(values)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("flat", [name for name, each in flat_settings().items() if each.kind])
def test_a_setting_is_given_whatever_its_value(way: str, flat: str) -> None:
    """Also with its default: it is refused without its kind, and counts with it. One of a group asks for the group."""
    each = flat_settings()[flat]
    choice, other = ("compute", "everything") if each.kind in COMPUTE else ("unmask", "random")
    value = False if each.setting.kind == "group" else each.default
    with pytest.raises(
        ValueError, match=f"^{flat} is a setting of {choice} '{each.kind}', which was not chosen$"
    ):
        WAYS[way]({choice: other, flat: value})
    found = WAYS[way]({choice: each.kind, flat: value})
    chosen = getattr(found, choice)
    assert type(chosen) is (COMPUTE | UNMASK)[each.kind]
    if each.setting.kind != "group":
        assert getattr(getattr(chosen, each.group) if each.group else chosen, each.name) == value
    if each.group:
        with pytest.raises(
            ValueError, match=f"^{flat} is a setting of {each.group}, which was switched off$"
        ):
            WAYS[way]({choice: each.kind, each.group: False, flat: value})


@pytest.mark.parametrize("flat", [name for name, each in flat_settings().items() if each.kind])
def test_the_endpoint_takes_a_setting_in_the_object_of_its_kind(flat: str) -> None:
    each = flat_settings()[flat]
    choice, other = ("compute", "everything") if each.kind in COMPUTE else ("unmask", "random")
    value = {} if each.setting.kind == "group" else each.default
    settings = {each.group: {each.name: value}} if each.group else {each.name: value}

    def chosen(kind: str) -> Any:
        defaults = {parameter.name: parameter.default for parameter in parameters()}
        decoder = decoder_of(defaults | {"prompt": "Once", choice: {"kind": kind, **settings}})
        return getattr(decoder, choice)

    with pytest.raises(ValueError, match=f"^{each.group or each.name} is no setting of"):
        chosen(other)
    made = chosen(each.kind)
    owner = getattr(made, each.group) if each.group else made
    assert type(made) is (COMPUTE | UNMASK)[each.kind]
    assert value == {} or getattr(owner, each.name) == value
    with pytest.raises(ValueError, match=f"^{flat} is a setting of {each.kind}: put it into"):
        check_names(["prompt", flat])


def test_a_flag_beside_presets_is_of_one_of_them(lm: LanguageModel) -> None:
    for values, said in (
        ({"threshold": 0.9}, "threshold is a setting of unmask 'threshold'"),
        ({"age": 12}, "age is a setting of compute 'age'"),
        ({"compute": "lock"}, "compute is what --lane says"),
        ({"unmask": "low_confidence", "gen_length": 8}, "unmask is what --lane says"),
    ):
        with pytest.raises(ValueError, match=f"^{said}"):
            field_of(lm, ["surelock", "everything"], values)
    first, second = field_of(lm, ["surelock", "threshold"], {"epsilon": 5e-4, "threshold": 0.5})
    assert (first.decoder.compute, second.decoder.unmask) == (LockRule(), Threshold(0.5))


def test_no_setting_takes_or_repeats_what_is_huge() -> None:
    for name, each in flat_settings().items():
        for value in (10**30, 10**5000, -(10**5000), "x" * 10**6, [[1] * 10**6]):
            if each.setting.kind == "whole":
                with pytest.raises(ValueError, match=f"^{name} must be") as refused:
                    each.setting.checked(name, value)
                assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"step": -1, "kind": "lock", "position": 3},
            "event step must be a whole number of at least 0",
        ),
        (
            {"step": 1, "kind": "erase", "position": 3},
            "event kind must be one of lock, unlock, write, mask, rule",
        ),
        ({"step": 1, "kind": "lock"}, "event position must be a whole number"),
        (
            {"step": 1, "kind": "lock", "position": 3, "token": 5},
            "event token is given, but to 'lock' there is none",
        ),
        ({"step": 1, "kind": "write", "position": 3}, "event token must be a whole number"),
        ({"step": 1, "kind": "rule"}, "event compute must be a rule"),
        (
            {"step": 1, "kind": "rule", "compute": LockRule(), "position": 3},
            "event position is given, but to 'rule'",
        ),
        (
            {"step": 1, "kind": "rule", "sequence": 1, "compute": LockRule()},
            "event sequence is given, but a rule holds",
        ),
        (
            {"step": 1, "kind": "mask", "position": 3, "compute": LockRule()},
            "event compute must be a rule for the kind 'rule', and nothing else",
        ),
    ],
)
def test_events_that_cannot_be(values: dict, said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}[^\n]*$"):
        Event(**values)


def test_a_typed_rule_is_held_and_not_run(lm: LanguageModel) -> None:
    """Traces hold it; flags and `/decode` do not name it."""
    assert read_compute({"kind": "own", "code": "x" * 4000}) != read_compute({"kind": "own"})
    rule = read_compute({"kind": "own", "code": "const rows = () => [];"})
    assert plain_choice(rule) == {"kind": "own", "code": "const rows = () => [];"} and rule.locks
    with pytest.raises(ValueError, match="runs in a browser alone"):
        list(decode(lm, [[3, 4]], DecodeSettings(gen_length=4), compute=rule))
    with pytest.raises(ValueError, match="compute must be one of everything"):
        read_decoder({"compute": "own"})


def test_what_is_not_passed_is_what_the_model_recommends(stories: surelock.LanguageModel) -> None:
    text = "Tom found a __ in the garden."
    usual = recommended(stories.generation, {"gen_length": 8})
    (wanted,) = surelock.generate(stories, [stories.encode(text, blanks=True)], **usual.keywords())
    assert surelock.generate(stories, text, gen_length=8) == wanted
    assert surelock.generate(stories, [text], gen_length=8) == [wanted]
    changed = replace(stories, generation={**stories.generation})
    changed.recommended["unmask"] = "margin"
    assert surelock.decode(changed, text, gen_length=8).run.policy == surelock.Margin()
    assert surelock.decode(stories, text, gen_length=8).run.policy == usual.unmask


@pytest.mark.parametrize(
    ("passed", "expected"),
    [
        ({"settings": DecodeSettings(gen_length=8)}, {"settings": DecodeSettings(gen_length=8)}),
        (
            {"settings": DecodeSettings(gen_length=8, temperature=1.0), "temperature": 0.25},
            {"settings": DecodeSettings(gen_length=8, temperature=0.25)},
        ),
        ({"compute": LockByAge(3), "gen_length": 8}, {"compute": LockByAge(3)}),
        (
            {"compute": LockRule(epsilon=1e-2), "percentile": 50},
            {"compute": LockRule(epsilon=1e-2, percentile=50)},
        ),
        (
            {"compute": LockRule(), "unlock_period": 4},
            {"compute": LockRule(unlock=UnlockRule(period=4))},
        ),
        (
            {"compute": LockRule(percentile=None), "epsilon": 1},
            {"compute": LockRule(epsilon=1, percentile=None)},
        ),
        ({"compute": LockRule(unlock=UnlockRule()), "unlock": False}, {"compute": LockRule()}),
        (
            {"compute": LockRule() & SelectRule(0.4), "epsilon": 1.0},
            {"compute": LockRule(epsilon=1.0) & SelectRule(0.4)},
        ),
        (
            {"unmask": surelock.Threshold(0.5), "threshold": 0.7},
            {"unmask": surelock.Threshold(0.7)},
        ),
        ({"epsilon": 0.25}, {"compute": LockRule(epsilon=0.25)}),
    ],
)
def test_what_is_passed_means_itself_and_keywords_override_singly(
    stories: surelock.LanguageModel, passed: dict[str, Any], expected: dict[str, Any]
) -> None:
    run = surelock.decode(stories, [[5, 6]], **passed).run
    found = {"settings": run.settings, "compute": run.compute, "unmask": run.policy}
    usual = recommended(stories.generation, {"gen_length": 8} if "gen_length" in passed else {})
    assert (
        found
        == {"settings": usual.settings, "compute": usual.compute, "unmask": usual.unmask} | expected
    )


@pytest.mark.parametrize(
    ("passed", "said"),
    [
        ({"temprature": 1}, "temprature is no setting: did you mean 'temperature'?"),
        (
            {"compute": surelock.Everything(), "epsilon": 1e-3},
            "epsilon is a setting of compute 'lock', which was not",
        ),
        ({"age": 3}, "age is a setting of compute 'age', which was not chosen"),
        ({"compute": "lock"}, "compute must be a ComputeRule or None, not 'lock'"),
        ({"settings": {"gen_length": 8}}, "settings must be a DecodeSettings or None"),
        ({"gen_length": "many"}, "gen_length must be a whole number"),
    ],
)
def test_a_wrong_argument_is_refused_in_a_sentence(
    stories: surelock.LanguageModel, passed: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        surelock.generate(stories, "Tom", **passed)


def test_a_setting_of_no_kind_is_refused() -> None:
    with pytest.raises(
        ValueError,
        match="a setting must be one of whole, number, seeds, flag, code, group, not 'real'",
    ):
        setting("real", 0.9, "Floor", "The least confidence.")
