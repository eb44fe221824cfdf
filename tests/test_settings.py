"""Settings: the range of each, read through every way in; the forms of a decoder; and what cannot be."""

import json
import math
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from numbers import Integral, Real
from typing import Any

import numpy as np
import pytest

import surelock
from surelock import (
    Decoder,
    DecodeSettings,
    DelayedCache,
    Entropy,
    Event,
    Everything,
    Klass,
    LanguageModel,
    LockByAge,
    LockRule,
    LowConfidence,
    Replay,
    SelectRule,
    Threshold,
    UnlockRule,
    decode,
)
from surelock.__main__ import _parser
from surelock.decoding.compute import Both
from surelock.decoding.decoder import (
    plain_choice,
    read_compute,
    read_decoder,
    read_event,
    read_unmask,
)
from surelock.decoding.flags import given_settings
from surelock.decoding.recommended import recommended
from surelock.decoding.rules import COMPUTE, UNMASK
from surelock.decoding.settings import described, setting
from surelock.decoding.spelling import FlatSetting, flat_settings
from surelock.decoding.state import check_blocks
from surelock.harness.arguments import read_arguments, read_request
from surelock.record import field_of
from surelock.ui.endpoint import decoder_of
from surelock.ui.link import read_text
from surelock.ui.parameters import NONE_IS_ZERO, check_names, parameters
from surelock.ui.request import read_lanes, read_shared

NAN = math.nan
INF = math.inf
KINDS = COMPUTE | UNMASK
FLAT = flat_settings()

#: What each setting may be.
RANGES = """
gen_length: a whole number of at least 0
steps: a whole number of at least 1, or None for one per position
block_length: a whole number of at least 1, or None for one block
temperature: a number from 0 to 1000
cfg_scale: a number from 0 to 1000
seed: a whole number of at least 0, or one per sequence
suppress_eos: True or False
suppress_eos_confidence: True or False
no_repeat_ngram_size: a whole number of at least 0
stop_at_end: True or False
epsilon: a number
percentile: a number from 0 to 100, or None for no gate
visible_steps: a whole number of at least 0
unlock: of UnlockRule, or None for never
unlock_period: a whole number of at least 1
unlock_budget: a whole number of at least 1
epsilon_unlock: a number of at least 0
unlock_min_interval: a whole number of at least 0
unlock_cooldown: a whole number of at least 0
unlock_rho: a number from 0 to 1
future: True or False
age: a whole number of at least 0
select_fraction: a number above 0 and at most 1
budget: a number above 0 and at most 1
budget_near: a number of at least 0.1
dual: True or False
refresh: a whole number of at least 1
recent: a whole number of at least 0
entropy_threshold: a number of at least 0
threshold: a number from 0 to 1
klass_confidence: a number from 0 to 1
klass_kl: a number of at least 0
klass_history: a whole number of at least 1
gamma: a number of at least 0
finish_first: a number of at least 0
finish_middle: a number of at least 0
finish_last: a number of at least 0
finish_answer: a whole number of at least 0
taken_back: a whole number of at least 1
taken_back_from: a number from 0 to 1
leap_from: a number from 0 to 1
leap_near: a number from 0 to 1
leap_radius: a whole number of at least 0
correct_from: a number from 0 to 1
correct_below: a number from 0 to 1
correct_share: a number from 0 to 1
correct_times: a whole number from 0 to 100
"""
NUMBER = re.compile(
    r"a (whole )?number(?: (from|above|of at least) (\S+?))?(?: (?:to|and at most) (\S+?))?(?:,|$)"
)
ODD = ["0.5", "8", "none", True, False, None, 1, 64.0, NAN, INF, -INF, "inf", 1e300, 10**30, [8]]
ODD += [[1, 2.0], [1, -1], [0, "1"], [], {}]
#: What JSON has no type for.
OBJECTS = [1j, (), (3, 4), np.int64(1), np.float32(0.5), Fraction(1, 2)]
OBJECTS += ["x" * 10**5, [[1] * 10**4], -(10**5000), Fraction(10**400), UnlockRule(), UnlockRule]
PARSER = _parser()
SWITCHES = {"true": True, "1": True, "false": False, "0": False}
UNHEARD = object()  # what a way in does not have


def test_the_ranges() -> None:
    """No two settings share a short name."""
    owners = (DecodeSettings, UnlockRule, *KINDS.values())
    assert len(FLAT) == sum(len(described(owner)) for owner in owners)
    found = "\n".join(f"{flat}: {each.setting.range}" for flat, each in FLAT.items())
    assert found == RANGES.strip()


def belongs(words: str, value: Any) -> bool:
    """Whether a value of Python is in a range in words."""
    if value is None:
        return "None" in words
    if words.startswith("True"):
        return isinstance(value, bool)
    match = NUMBER.match(words)
    if match is None:
        return isinstance(value, UnlockRule)
    if isinstance(value, list | tuple) and "per sequence" in words:
        return len(value) > 0 and all(belongs("a whole number of at least 0", one) for one in value)
    whole, bound, low, high = match.groups()
    if isinstance(value, bool) or not isinstance(value, Integral if whole else Real):
        return False
    most = 2**53 if whole else sys.float_info.max
    if most < abs(value) < INF:
        return False
    least = float(low or -INF)
    return least <= value <= float(high or INF) and (bound != "above" or value > least)


def values_of(each: FlatSetting) -> list[Any]:
    """Values at and around the ends of a setting's range, and others."""
    ends = [float(end) for end in re.findall(r"\b[\d.]+\b", each.setting.range)]
    beside = [end + more for end in ends for more in (-1, -1e-9, 0, 1e-9, 1)]
    return [*beside, *(int(end) for end in beside), *ODD]


def choice_of(each: FlatSetting) -> str:
    return "compute" if each.kind in COMPUTE else "unmask"


def part_of(decoder: Decoder, each: FlatSetting) -> Any:
    """The part of a decoder that has a setting."""
    part = getattr(decoder, choice_of(each)) if each.kind else decoder.settings
    return getattr(part, each.group) if each.group else part


def made(each: FlatSetting, value: Any) -> Decoder:
    kind = UnlockRule if each.group else KINDS.get(each.kind, DecodeSettings)
    part = kind(**{each.name: value})
    part = LockRule(unlock=part) if each.group else part
    return Decoder(**{choice_of(each) if each.kind else "settings": part})


def short(each: FlatSetting, value: Any, kind: str = "") -> dict[str, Any]:
    """A short spelling with one value, and what chooses its kind, or another kind."""
    chosen = {choice_of(each): kind or each.kind} if each.kind else {}
    return chosen | {each.setting.flat or each.name: value}


def nested(each: FlatSetting, value: Any, kind: str = "") -> dict[str, Any]:
    """The nested form of a decoder with one value."""
    settings = {each.group: {each.name: value}} if each.group else {each.name: value}
    if not each.kind:
        return {"settings": settings}
    return {choice_of(each): {"kind": kind or each.kind} | settings}


def flags(values: dict[str, Any]) -> Decoder:
    words = []
    for name, value in values.items():
        flag = name.replace("_", "-")
        switch = f"--{flag}" if value else f"--no-{flag}"
        is_switch = name in FLAT and FLAT[name].setting.kind in ("flag", "group")
        words.append(switch if is_switch else f"--{flag}={value}")
    return recommended({}, given_settings(PARSER.parse_args(["decode", "Once", *words])))


def behind(values: dict[str, Any]) -> Decoder:
    """Of a setting behind its kind: `lock,epsilon=1`."""
    (choice, kind), (name, value) = values.items()
    return recommended({}, {choice: f"{kind},{name}={value}"})


def linked(values: dict[str, Any]) -> Decoder:
    ((name, value),) = values.items()
    return Decoder(settings=DecodeSettings(**{name: read_text(name, str(value))}))


def called(plain: dict[str, Any]) -> Decoder:
    """Of a call of /decode, where the settings of all kinds are parameters."""
    defaults = {each.name: each.default for each in parameters()}
    return decoder_of(defaults | {"prompt": "Once"} | plain.get("settings", plain))


def lane(plain: dict[str, Any]) -> Decoder:
    """Of a lane that the page asks for."""
    whole = {"id": "a", "name": "A", "compute": {"kind": "lock"}, "unmask": {"kind": "entropy"}}
    (read,) = read_lanes([whole | plain], None)
    return read.decoder


#: Ways in by short names.
OVER = {"unlock": False, "epsilon": 0.1, "threshold": 0.2}
SHORT: dict[str, Callable[[dict[str, Any]], Decoder]] = {
    "keywords": lambda values: recommended({}, values),
    "over a model's settings": lambda values: recommended(OVER, values),
    "flags": flags,
    "model_args": lambda values: recommended({}, read_request({}) | read_arguments(values)),
    "request of lm-eval": lambda values: recommended({}, read_request(values)),
}
#: Ways in that ignore a setting whose kind is not chosen, or cannot name one.
OTHERS = {
    "a model's settings": lambda values: recommended(values, {}),
    "a prompts file": read_decoder,
    "behind a kind": behind,
    "a link": linked,
}
NESTED: dict[str, Callable[[dict[str, Any]], Decoder]] = {
    "a trace": Decoder.from_plain,
    "/decode": called,
    "a lane": lane,
    "the form": lambda plain: Decoder(settings=read_shared(plain["settings"])),
}


def meaning(way: str, each: FlatSetting, value: Any) -> Any:
    """What a value stands for, by the way in."""
    kind = each.setting.kind
    of_one = {"behind a kind": True, "a link": False, "the form": False}
    is_object = way == "an object"
    if bool(each.kind) != of_one.get(way, bool(each.kind)) or (kind == "group" and not is_object):
        return UNHEARD
    if way == "request of lm-eval" and each.name == "temperature":
        return UNHEARD  # the task's
    if way in ("flags", "behind a kind", "a link"):
        return meaning_of_text(way, each, value)
    if way == "/decode" and each.name in NONE_IS_ZERO and not each.kind and value == 0:
        return None
    if value == "none" and each.setting.none and way in ("model_args", "request of lm-eval"):
        return None
    if way == "the form" and value == "8":
        return 8
    if isinstance(value, list) and each.name == "seed":
        return tuple(value)
    if is_object:
        return value
    if kind == "whole" and isinstance(value, float) and value.is_integer():
        return int(value)
    return INF if kind == "number" and value == "inf" else value


def meaning_of_text(way: str, each: FlatSetting, value: Any) -> Any:
    text = str(value)
    is_flag = each.setting.kind == "flag"
    if is_flag and way == "flags":
        return value if isinstance(value, bool) else UNHEARD
    if text.lower() == "none" and each.setting.none and way != "a link":
        return None
    if is_flag and way == "a link":  # as the page writes them
        return {"true": True, "false": False}.get(text, text)
    if is_flag:
        return SWITCHES.get(text.lower(), text)
    try:
        number = (float if each.setting.kind == "number" else int)(text)
    except ValueError:
        return text
    offered = each.setting.offered
    return text if way == "a link" and offered and number > offered[1] else number


@pytest.mark.filterwarnings("ignore:percentile", "ignore:overflow")
@pytest.mark.parametrize("way", ["an object", *SHORT, *OTHERS, *NESTED])
def test_every_way_in_reads_the_ranges(way: str) -> None:
    for flat, each in FLAT.items():
        words = each.setting.range
        values = [*values_of(each), *(OBJECTS if way == "an object" else [])]
        for value in values:
            wanted = meaning(way, each, value)
            if wanted is UNHEARD:
                continue
            try:
                if way == "an object":
                    decoder = made(each, value)
                elif way in NESTED:
                    decoder = NESTED[way](nested(each, value))
                else:
                    decoder = (SHORT | OTHERS)[way](short(each, value))
            except ValueError as error:
                assert not belongs(words, wanted), (flat, value)
                told = rf"({flat}|{each.name}) must be {re.escape(words)}, not [^\n]{{,200}}"
                assert way == "a link" or re.fullmatch(told, str(error)), (flat, error)
                continue
            found = getattr(part_of(decoder, each), each.name)
            assert belongs(words, wanted) and (found == wanted or found == float(wanted)), (
                flat,
                value,
            )
            assert type(found) in (int, float, bool, tuple, UnlockRule, type(None))
            assert way != "an object" or json.dumps(decoder.to_plain())


@pytest.mark.parametrize("way", [*SHORT, "a lane", "/decode"])
def test_a_setting_counts_with_its_kind_alone(way: str) -> None:
    """Also with its default: it is refused without its kind, and one of a group asks for the group."""
    for flat, each in FLAT.items():
        if not each.kind:
            continue
        is_group = each.setting.kind == "group"
        value = ({} if way in NESTED else False) if is_group else each.default
        other = "everything" if each.kind in COMPUTE else "random"
        said = f"^{flat} is a setting of {choice_of(each)} '{each.kind}', which was not chosen$"
        spell = nested if way in NESTED else short
        read = (SHORT | NESTED)[way]
        with pytest.raises(
            ValueError,
            match=f"^{each.group or each.name} is no setting of" if way in NESTED else said,
        ):
            read(spell(each, value, other))
        chosen = read(spell(each, value))
        assert type(getattr(chosen, choice_of(each))) is KINDS[each.kind]
        assert is_group or getattr(part_of(chosen, each), each.name) == value
        with pytest.raises(ValueError, match=f"^{flat} is a setting of {each.kind}: put it into"):
            check_names(["prompt", flat])
        if each.group and way in SHORT:
            with pytest.raises(
                ValueError, match=f"^{flat} is a setting of {each.group}, which was switched off$"
            ):
                read(short(each, value) | {each.group: False})


def sized(sizes: list[Any]) -> None:
    gen_length, steps, block_length = sizes
    check_blocks(DecodeSettings(gen_length=gen_length, steps=steps, block_length=block_length))


def keywords(lm: LanguageModel, **passed: Any) -> Any:
    return surelock.decode(lm, [[5, 6]], **passed)


TAKES: dict[str, Callable[[LanguageModel, Any], Any]] = {
    "sizes": lambda _, sizes: sized(sizes),
    "replay": lambda _, steps: Replay(steps),
    "short": lambda _, values: read_decoder(values),
    "compute": lambda _, plain: read_compute(plain),
    "unmask": lambda _, plain: read_unmask(plain),
    "decoder": lambda _, plain: Decoder.from_plain(plain),
    "event": lambda _, values: read_event({"step": 1, "kind": "lock"} | values),
    "rule": lambda _, more: Event(step=1, kind="rule", compute=LockRule(), **more),
    "setting": lambda _, kind: setting(kind, 0.9, "Floor", "The least."),
    "keywords": lambda lm, values: keywords(lm, **values),
    "lanes": lambda lm, values: field_of(lm, ["surelock", "everything"], values),
}
#: What cannot be: what takes it, as JSON, and how the sentence begins.
CANNOT = """
sizes | [8, null, 3] | block_length
sizes | [8, null, 16] | block_length
sizes | [8, 9, null] | steps
sizes | [8, 3, 4] | steps
sizes | [8, 1, 4] | steps
sizes | [8, 16, 8] | steps
replay | 5 | replay must
replay | [] | replay must
replay | [5] | replay must
replay | [[[0, 0]]] | replay must
replay | [[[0, 0, 9, 9], [1, 1, 9]]] | replay must
replay | [[["a", 0, 9], [1, 1, 9]]] | replay must
replay | [[[0.5, 0, 9], [1, 1, 9]]] | replay must
short | {"compute": "best"} | compute must be one of everything, lock, age, select, budget, block_cache,
short | {"compute": 3} | compute must be the name of a kind
short | {"compute": "lock+age"} | compute cannot be 'lock' and 'age' together
short | {"compute": "select+block_cache"} | compute cannot be 'select' and 'block_cache' together
short | {"compute": "lock+select+block_cache"} | compute can be one rule or two together, not 3
short | {"compute": "own"} | compute must be one of everything
short | {"unmask": "entropy+margin"} | unmask can be one policy, not 2
short | {"unmask": "replay"} | unmask 'replay' needs the tokens themselves
short | {"unmask": "<b>"} | unmask must be one of low_confidence
short | {"unlock": "sometimes"} | unlock must be
compute | {"kind": "lock", "epsilonn": 1} | epsilonn is no setting of LockRule: it has epsilon, percentile
compute | {"epsilon": 1} | compute must be one of
compute | {"kind": ["lock"]} | compute must be one of
compute | 7 | compute must be an object, not 7
compute | {"kind": "both", "lock": {"kind": "lock"}} | compute must be an object, not None
compute | {"kind": "lock", "unlock": 3} | unlock must be of UnlockRule, or None for never, not
compute | {"kind": "lock", "unlock": true} | unlock must be of UnlockRule, or None for never, not
compute | {"kind": "lock", "unlock": "1"} | unlock must be of UnlockRule, or None for never, not
unmask | null | unmask must be an object
decoder | {"rule": {}} | rule is no part of a decoder
decoder | {"settings": {"remasking": "random"}} | remasking is no setting of DecodeSettings
decoder | {"events": {"a": 1}} | events must be a list
decoder | {"events": [{"step": 1}]} | event kind must be one of
event | {"position": 3, "why": ""} | event why does not
event | {"step": -1, "position": 3} | event step must be a whole number of at least 0
event | {"kind": "erase", "position": 3} | event kind must be one of lock, unlock, write, mask, rule
event | {} | event position must be a whole number
event | {"position": 3, "token": 5} | event token is given, but to 'lock' there is none
event | {"kind": "write", "position": 3} | event token must be a whole number
event | {"kind": "rule"} | event compute must be a rule
event | {"kind": "mask", "position": 3, "compute": "lock"} | event compute must be a rule for the kind 'rule', and
rule | {"position": 3} | event position is given, but to 'rule'
rule | {"sequence": 1} | event sequence is given, but a rule holds
setting | "real" | a setting must be one of whole, number, seeds, flag, code, group, not 'real'
keywords | {"temprature": 1} | temprature is no setting: did you mean 'temperature'?
keywords | {"age": 3} | age is a setting of compute 'age', which was not chosen
keywords | {"compute": "lock"} | compute must be a ComputeRule or None, not 'lock'
keywords | {"settings": {"gen_length": 8}} | settings must be a DecodeSettings or None
keywords | {"gen_length": "many"} | gen_length must be a whole number
lanes | {"threshold": 0.9} | threshold is a setting of unmask 'threshold'
lanes | {"age": 12} | age is a setting of compute 'age'
lanes | {"compute": "lock"} | compute is what --lane says
lanes | {"unmask": "low_confidence", "gen_length": 8} | unmask is what --lane says
"""


@pytest.mark.parametrize("case", CANNOT.strip().splitlines())
def test_what_cannot_be_is_refused_in_a_sentence(stories: LanguageModel, case: str) -> None:
    take, value, said = case.split(" | ")
    with pytest.raises(ValueError, match=f"^{re.escape(said)}[^\n]{{,999}}$"):
        TAKES[take](stories, json.loads(value))


def test_a_keyword_beside_an_object_of_another_kind_is_refused(stories: LanguageModel) -> None:
    with pytest.raises(ValueError, match=r"^epsilon is a setting of compute 'lock', which was not"):
        keywords(stories, compute=Everything(), epsilon=1e-3)
    with pytest.raises(ValueError, match=r"^compute can be one rule or two together, not 10000$"):
        read_decoder({"compute": "+".join(["lock"] * 10**4)})


def test_what_a_model_recommends() -> None:
    """generation_config.json may hold keys of others; what the caller gives goes first."""
    generation = {
        "temperature": 0.5, "gen_length": 64, "steps": 32, "block_length": 32, "epsilon": 1e-2, "top_p": 0.9,
    }  # fmt: skip

    def settings(**given: Any) -> tuple[int, int | None, int | None]:
        found = recommended(generation, given | {"json": True}).settings
        return found.gen_length, found.steps, found.block_length

    assert settings() == (64, 32, 32)
    assert settings(gen_length=96) == (96, None, 32)
    assert settings(gen_length=48) == (48, None, 24)
    assert settings(gen_length=48, steps=6) == (48, 6, 24)
    assert settings(steps=1) == (64, 1, None)
    assert settings(steps=None) == (64, None, 32)
    assert recommended(generation, {}).settings.temperature == 0.5
    for values, over, decoder in (
        ({}, {}, Decoder(compute=LockRule())),
        (
            {"epsilon": 1},
            {"percentile": None},
            Decoder(compute=LockRule(epsilon=1, percentile=None)),
        ),
        ({}, {"unlock": True}, Decoder(compute=LockRule(unlock=UnlockRule()))),
        ({"unmask": "entropy"}, {}, Decoder(unmask=Entropy())),
        ({"unmask": "entropy"}, {"unmask": "klass"}, Decoder(unmask=Klass())),
        # its epsilon is passed over
        ({"epsilon": 1}, {"compute": "everything"}, Decoder(compute=Everything())),
    ):
        assert recommended(values, over) == decoder


@pytest.mark.parametrize(
    ("values", "compute"),
    [
        ({"compute": "lock+select", "select_fraction": 0.5}, LockRule() & SelectRule(0.5)),
        # a setting of a rule that was not chosen
        ({"select_fraction": 0.5}, LockRule()),
        ({"compute": "age+delayed_cache", "age": 3, "refresh": 2}, LockByAge(3) & DelayedCache(2)),
        # below and above the default
        ({"unlock_period": 3}, LockRule(unlock=UnlockRule(period=3))),
        ({"unlock_period": 9}, LockRule(unlock=UnlockRule(period=9))),
        # two of one group
        (
            {"unlock_period": 3, "unlock_budget": 2},
            LockRule(unlock=UnlockRule(period=3, budget=2)),
        ),
        ({"unlock": False, "unlock_period": 8}, LockRule()),
        ({"compute": ""}, LockRule()),
    ],
)
def test_a_short_spelling_chooses_kinds_by_name(values: dict[str, Any], compute: Any) -> None:
    assert read_decoder(values) == Decoder(compute=compute)


RULES = [kind() for kind in COMPUTE.values()]
PAIRS = [a & b for a in RULES for b in RULES if a.locks and not b.locks]


def test_every_decoder_comes_back_from_its_plain_form() -> None:
    rules = [*RULES, *PAIRS, LockRule(epsilon=INF, percentile=None, unlock=UnlockRule(period=2))]
    rules.append(read_compute({"kind": "own", "code": "const rows = () => [];"}))
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
    assert LockByAge() & SelectRule() in PAIRS and Decoder.from_plain({}).compute == Everything()
    assert LockRule() & SelectRule() == SelectRule() & LockRule() == Both(LockRule(), SelectRule())
    assert (LockByAge() & SelectRule()).kinds == "age+select"


def test_every_way_in_has_the_same_default_decoder() -> None:
    ways = [recommended({}, {}), flags({}), SHORT["model_args"]({}), called({}), Decoder()]
    assert {(way.compute, way.unmask) for way in ways} == {(LockRule(), LowConfidence())}


def test_a_flag_beside_presets_is_of_one_of_them(lm: LanguageModel) -> None:
    first, second = field_of(lm, ["surelock", "threshold"], {"epsilon": 5e-4, "threshold": 0.5})
    assert (first.decoder.compute, second.decoder.unmask) == (LockRule(), Threshold(0.5))


def test_a_typed_rule_is_held_and_not_run(lm: LanguageModel) -> None:
    """Traces hold it; flags and `/decode` do not name it."""
    rule = read_compute({"kind": "own", "code": "x" * 4000})
    assert rule.locks and rule != read_compute({"kind": "own"})
    with pytest.raises(ValueError, match="runs in a browser alone"):
        list(decode(lm, [[3, 4]], DecodeSettings(gen_length=4), compute=rule))


def test_what_is_not_passed_is_what_the_model_recommends(stories: surelock.LanguageModel) -> None:
    text = "Tom found a __ in the garden."
    usual = recommended(stories.generation, {"gen_length": 8})
    (wanted,) = surelock.generate(stories, [stories.encode(text, blanks=True)], **usual.keywords())
    assert surelock.generate(stories, text, gen_length=8) == wanted
    assert surelock.generate(stories, [text], gen_length=8) == [wanted]
    changed = replace(stories, generation={**stories.generation})
    changed.recommended["unmask"] = "margin"
    assert surelock.decode(changed, text, gen_length=8).run.policy == surelock.Margin()


RULE = LockRule(percentile=None, unlock=UnlockRule())


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
            {"compute": RULE, "unlock_period": 4},
            {"compute": replace(RULE, unlock=UnlockRule(period=4))},
        ),
        (
            {"compute": LockRule(), "unlock_period": 4},
            {"compute": LockRule(unlock=UnlockRule(period=4))},
        ),
        ({"compute": RULE, "unlock": False}, {"compute": LockRule(percentile=None)}),
        (
            {"compute": RULE & SelectRule(0.4), "epsilon": 1.0},
            {"compute": replace(RULE, epsilon=1.0) & SelectRule(0.4)},
        ),
        ({"unmask": Threshold(0.5), "threshold": 0.7}, {"unmask": Threshold(0.7)}),
        ({"epsilon": 0.25}, {"compute": LockRule(epsilon=0.25)}),
    ],
)
def test_what_is_passed_means_itself_and_keywords_override_singly(
    stories: surelock.LanguageModel, passed: dict[str, Any], expected: dict[str, Any]
) -> None:
    run = keywords(stories, **passed).run
    found = {"settings": run.settings, "compute": run.compute, "unmask": run.policy}
    usual = recommended(stories.generation, {"gen_length": 8} if "gen_length" in passed else {})
    wanted = usual.keywords() | expected
    assert found == {name: wanted[name] for name in found}
