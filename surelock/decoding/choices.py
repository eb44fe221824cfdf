"""A decoder is a choice of rows and a choice of tokens: the tables of both, and their plain forms.

The plain form of a choice is `{"kind": "lock", "epsilon": 5e-4, ...}`, of two combined rules `{"kind": "both", "lock":
..., "select": ...}`: what traces, links and the page's lanes hold. In the flat form every setting of every kind has a
name of its own (`flat` of its description): what flags, `/decode` and a model's generation_config.json use. There
`compute` and `unmask` name the kinds, "lock+select" two rules together.

A plain form may be old: what it leaves unsaid means what was meant when it was written (`Setting.unsaid`). A flat form
is asked now: what it leaves out has its default.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from surelock.decoding.compute import BlockCache, Both, BudgetRule, ComputeRule, DelayedCache, Everything, SelectRule
from surelock.decoding.events import Event
from surelock.decoding.locking import LockByAge, LockRule
from surelock.decoding.own import OwnRule
from surelock.decoding.settings import DecodeSettings, Setting, described, from_plain, read_value, to_plain
from surelock.decoding.unmasking import (
    Entropy,
    EntropyBound,
    Klass,
    LowConfidence,
    Margin,
    Random,
    Replay,
    Threshold,
    UnmaskPolicy,
)
from surelock.model.errors import cut, shown

#: Every rule and every policy that can be named. A new one is a class in its file and a line here.
COMPUTE: dict[str, type[ComputeRule]] = {
    rule.kind: rule for rule in (Everything, LockRule, LockByAge, SelectRule, BudgetRule, BlockCache, DelayedCache)
}
#: Those that plain forms can hold, too, and that only a browser runs.
TYPED: dict[str, type[ComputeRule]] = {OwnRule.kind: OwnRule}
UNMASK: dict[str, type[UnmaskPolicy]] = {
    policy.kind: policy for policy in (LowConfidence, Random, Entropy, Margin, Threshold, Klass, EntropyBound)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """All that a run depends on besides its model and its prompt. The fields are those of `surelock.decode`."""

    settings: DecodeSettings = DecodeSettings()
    compute: ComputeRule = Everything()
    unmask: UnmaskPolicy = LowConfidence()
    events: tuple[Event, ...] = ()

    def keywords(self) -> dict[str, Any]:
        """The keyword arguments of `surelock.decode` and `surelock.generate`."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def to_plain(self) -> dict[str, Any]:
        """JSON values under the fields' names."""
        return {
            "compute": plain_choice(self.compute),
            "unmask": plain_choice(self.unmask),
            "settings": to_plain(self.settings),
            "events": [plain_event(event) for event in self.events],
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Decoder:
        """From what `to_plain` gives; what is left out has its default. Raises ValueError, which names the field."""
        if unknown := plain.keys() - {"compute", "unmask", "settings", "events"}:
            raise ValueError(
                f"{cut(min(unknown), 60)} is no part of a decoder: it has compute, unmask, settings and events"
            )
        events = plain.get("events") or []
        if not isinstance(events, list):
            raise ValueError(f"events must be a list, not {shown(events)}")
        return cls(
            settings=from_plain(DecodeSettings, _mapping("settings", plain.get("settings") or {})),
            compute=read_compute(plain.get("compute") or {"kind": Everything.kind}),
            unmask=read_unmask(plain.get("unmask") or {"kind": LowConfidence.kind}),
            events=tuple(read_event(event) for event in events),
        )


def plain_choice(choice: ComputeRule | UnmaskPolicy) -> dict[str, Any]:
    """The plain form of a rule or a policy."""
    if isinstance(choice, Both):
        return {"kind": Both.kind, "lock": plain_choice(choice.lock), "select": plain_choice(choice.select)}
    return {"kind": choice.kind, **to_plain(choice)}


def read_compute(plain: Any) -> ComputeRule:
    """The rule of a plain form, or of its kind alone ("lock", "lock+select"). Raises ValueError."""
    if isinstance(plain, str):
        return rule_of([{"kind": kind} for kind in plain.split("+")])
    plain = dict(_mapping("compute", plain))
    if plain.get("kind") == Both.kind:
        return rule_of([plain.get("lock"), plain.get("select")], COMPUTE | TYPED)
    return rule_of([plain], COMPUTE | TYPED)


def rule_of(parts: list[Any], table: Mapping[str, type[ComputeRule]] = COMPUTE) -> ComputeRule:
    """One rule, or two together, from their plain forms. Raises ValueError."""
    rules = [_read("compute", part, table) for part in parts]
    if len(rules) > 2:
        raise ValueError(f"compute can be one rule or two together, not {len(rules)}")
    return Both(*rules) if len(rules) == 2 else rules[0]


def read_unmask(plain: Any) -> UnmaskPolicy:
    """The policy of a plain form, or of its kind alone. Raises ValueError."""
    return _read("unmask", {"kind": plain} if isinstance(plain, str) else plain, UNMASK)


def _read(name: str, plain: Any, table: Mapping[str, type]) -> Any:
    values = dict(_mapping(name, plain))
    kind = values.pop("kind", None)
    if name == "unmask" and kind == Replay.kind:
        raise ValueError("unmask 'replay' needs the tokens themselves: it is for `surelock.decode` only")
    if not isinstance(kind, str) or kind not in table:
        raise ValueError(f"{name} must be one of {', '.join(table)}, not {shown(kind)}")
    return from_plain(table[kind], values)


def _mapping(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be an object, not {shown(value)}")
    return value


def plain_event(event: Event) -> dict[str, Any]:
    """The plain form of an event of a run of one sequence."""
    plain: dict[str, Any] = {"step": event.step, "kind": event.kind}
    plain |= {name: getattr(event, name) for name in ("position", "token") if getattr(event, name) is not None}
    return plain if event.compute is None else {**plain, "compute": plain_choice(event.compute)}


def read_event(plain: Any) -> Event:
    """The event of a plain form. Raises ValueError."""
    values: dict[str, Any] = {"step": None, "kind": None} | dict(_mapping("event", plain))
    if unknown := values.keys() - {"step", "kind", "position", "token", "compute"}:
        raise ValueError(
            f"event {cut(min(unknown), 60)} does not exist: it has step, kind, position, token and compute"
        )
    if "compute" in values:
        values["compute"] = read_compute(values["compute"])
    return Event(**values)


# --- the flat form ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FlatSetting:
    """A setting under its own name among those of all kinds.

    owner: its class. name: the field's. setting: its description. default: the field's. kind: of the choice that it
    belongs to, "" for DecodeSettings. group: the field that holds its group, "" for none.
    """

    owner: type
    name: str
    setting: Setting
    default: Any
    kind: str = ""
    group: str = ""

    def left_alone(self, value: Any) -> bool:
        """Whether this value asks for nothing."""
        return value == self.default or (self.setting.group is not None and not value)


def flat_names(kind: type, kind_name: str = "", group: str = "") -> Iterator[tuple[str, FlatSetting]]:
    """(flat name, what it is) of each setting of a class; a nested group is a flag, and its settings beside it."""
    defaults = kind()
    for name, description in described(kind):
        each = FlatSetting(kind, name, description, getattr(defaults, name), kind_name, group)
        yield description.flat or name, each
        if description.group is not None:
            yield from flat_names(description.group, kind_name, name)


@cache
def flat_settings() -> dict[str, FlatSetting]:
    """Every setting of DecodeSettings, of all rules and all policies, by its flat name."""
    found = dict(flat_names(DecodeSettings))
    for choice in (*COMPUTE.values(), *UNMASK.values()):
        found |= dict(flat_names(choice, choice.kind))
    return found


def from_flat(values: Mapping[str, Any]) -> Decoder:
    """The decoder of a flat form: LockRule() and LowConfidence() where `compute` and `unmask` are left out.

    Names that are no settings, and settings of kinds that were not chosen, are passed over. Raises ValueError, which
    names the setting.
    """
    rules, policy = chosen_kinds(values)
    own = {name: values[flat] for flat, name in _own(DecodeSettings) if flat in values}
    return Decoder(
        settings=from_plain(DecodeSettings, own),
        compute=rule_of([_gather(kind, COMPUTE, values) for kind in rules]),
        unmask=read_unmask(_gather(policy, UNMASK, values)),
    )


def chosen_kinds(values: Mapping[str, Any]) -> tuple[list[str], str]:
    """The kinds of the rules, and of the policy, that a flat form asks for; LockRule's and LowConfidence's where it
    names none or "". Raises ValueError, which names the setting.
    """
    compute, unmask = values.get("compute", ""), values.get("unmask", "")
    for name, kind in (("compute", compute), ("unmask", unmask)):
        if not isinstance(kind, str):
            raise ValueError(f"{name} must be the name of a kind, not {shown(kind)}")
    return (compute or LockRule.kind).split("+"), unmask or LowConfidence.kind


def check_owners(given: Mapping[str, Any], rules: Iterable[str], policy: str) -> None:
    """Raise ValueError for a setting that was given, and is not its default, of a kind that was not chosen."""
    for flat, each in flat_settings().items():
        if flat not in given or not each.kind or each.kind in (*rules, policy):
            continue
        if not each.left_alone(given[flat]):
            name = "compute" if each.kind in COMPUTE else "unmask"
            raise ValueError(f"{flat} is a setting of {name} {each.kind!r}, which was not chosen")


def _gather(kind: str, table: Mapping[str, type], values: Mapping[str, Any]) -> dict[str, Any]:
    """The whole plain form of a chosen kind, its settings gathered from the flat form and checked under their names
    there.
    """
    plain: dict[str, Any] = {"kind": kind} | (to_plain(table[kind]()) if kind in table else {})
    for flat, each in flat_names(table[kind]) if kind in table else ():
        if flat not in values:
            continue
        if each.setting.group is not None:
            plain[each.name] = {} if values[flat] is True else values[flat] or None
            continue
        value = each.setting.checked(flat, read_value(each.setting, values[flat]))
        if not each.group:
            plain[each.name] = value
        elif plain.get(each.group) is not None or value != each.default:  # a setting of a group asks for the group
            plain[each.group] = (plain.get(each.group) or {}) | {each.name: value}
    return plain


def _own(kind: type) -> Iterator[tuple[str, str]]:
    return ((description.flat or name, name) for name, description in described(kind))
