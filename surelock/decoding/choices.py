"""A decoder is two choices, a compute rule and an unmask policy: the tables of both, and their JSON forms.

Traces, links and the page's lanes hold the plain form: `{"kind": "lock", "epsilon": 5e-4, ...}` for one rule or policy,
`{"kind": "both", "lock": ..., "select": ...}` for two rules together. A missing setting has its default.

Flags, `/decode` and a model's generation_config.json use the flat form: one mapping of all settings, in which every
setting of every kind has a name of its own (`Setting.flat`). `compute` and `unmask` name the kinds; "lock+select" is
two rules together. A missing setting has its default.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sized
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
from surelock.errors import cut, shown

#: Every compute rule and every unmask policy by its kind. A new one is a class in its file and a line here.
COMPUTE: dict[str, type[ComputeRule]] = {
    rule.kind: rule for rule in (Everything, LockRule, LockByAge, SelectRule, BudgetRule, BlockCache, DelayedCache)
}
#: Further rules of plain forms, which only a browser runs.
TYPED: dict[str, type[ComputeRule]] = {OwnRule.kind: OwnRule}
UNMASK: dict[str, type[UnmaskPolicy]] = {
    policy.kind: policy for policy in (LowConfidence, Random, Entropy, Margin, Threshold, Klass, EntropyBound)
}
#: The two choices of a flat form: what flags, `/decode` and agents say of them.
CHOICES: dict[str, str] = {
    "compute": f"Which rows a step computes: {', '.join(COMPUTE)}, or a locking and a selecting rule together as in "
    f"lock+select (default: {LockRule.kind}).",
    "unmask": f"Which masked positions a step commits: {', '.join(UNMASK)} (default: {LowConfidence.kind}).",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """Everything that a run depends on besides its model and its prompt.

    The fields are arguments of `surelock.decode`.
    """

    settings: DecodeSettings = DecodeSettings()
    compute: ComputeRule = LockRule()
    unmask: UnmaskPolicy = LowConfidence()
    events: tuple[Event, ...] = ()

    def keywords(self) -> dict[str, Any]:
        """Return the fields as keyword arguments of `surelock.decode` and `surelock.generate`."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def to_plain(self) -> dict[str, Any]:
        """Return the plain form: JSON values under the names of the fields."""
        return {
            "compute": plain_choice(self.compute),
            "unmask": plain_choice(self.unmask),
            "settings": to_plain(self.settings),
            "events": [plain_event(event) for event in self.events],
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Decoder:
        """Return the decoder of a plain form.

        A missing field has its default, except `compute`: a trace or a link without it means `Everything()`. Raises
        ValueError, which names the field.
        """
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
    """Return the plain form of a rule or a policy."""
    if isinstance(choice, Both):
        return {"kind": Both.kind, "lock": plain_choice(choice.lock), "select": plain_choice(choice.select)}
    return {"kind": choice.kind, **to_plain(choice)}


def read_compute(plain: Any) -> ComputeRule:
    """Return the rule of a plain form or of a kind ("lock", "lock+select"). Raises ValueError for any other value."""
    if isinstance(plain, str):
        return rule_of([{"kind": kind} for kind in plain.split("+")])
    plain = dict(_mapping("compute", plain))
    if plain.get("kind") == Both.kind:
        return rule_of([plain.get("lock"), plain.get("select")], COMPUTE | TYPED)
    return rule_of([plain], COMPUTE | TYPED)


def rule_of(parts: list[Any], table: Mapping[str, type[ComputeRule]] = COMPUTE) -> ComputeRule:
    """Return the rule of one plain form, or of two. table: the rules by kind.

    Raises ValueError for any other number.
    """
    check_number(parts)
    rules = [_read("compute", part, table) for part in parts]
    return Both(*rules) if len(rules) == 2 else rules[0]


def check_number(rules: Sized) -> None:
    """Raise ValueError for more than two rules, before any of them is read."""
    if len(rules) > 2:
        raise ValueError(f"compute can be one rule or two together, not {len(rules)}")


def read_unmask(plain: Any) -> UnmaskPolicy:
    """Return the policy of a plain form or of a kind. Raises ValueError for any other value."""
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
    """Return the plain form of an event of a run of one sequence."""
    plain: dict[str, Any] = {"step": event.step, "kind": event.kind}
    plain |= {name: getattr(event, name) for name in ("position", "token") if getattr(event, name) is not None}
    return plain if event.compute is None else {**plain, "compute": plain_choice(event.compute)}


def read_event(plain: Any) -> Event:
    """Return the event of a plain form. Raises ValueError for any other value."""
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
    """A setting in the flat form.

    kind: the kind of the rule or policy that it belongs to; "" for DecodeSettings.
    group: the field that holds its group; "" for none.
    """

    name: str
    setting: Setting
    default: Any
    kind: str = ""
    group: str = ""


def flat_names(kind: type, kind_name: str = "", group: str = "") -> Iterator[tuple[str, FlatSetting]]:
    """Yield (flat name, setting) of each setting of a class; a nested group comes before its own settings."""
    defaults = kind()
    for name, description in described(kind):
        yield description.flat or name, FlatSetting(name, description, getattr(defaults, name), kind_name, group)
        if description.group is not None:
            yield from flat_names(description.group, kind_name, name)


@cache
def flat_settings() -> dict[str, FlatSetting]:
    """Return the settings of DecodeSettings, of all rules and of all policies by their flat names."""
    found = dict(flat_names(DecodeSettings))
    for choice in (*COMPUTE.values(), *UNMASK.values()):
        found |= dict(flat_names(choice, choice.kind))
    return found


def from_flat(values: Mapping[str, Any]) -> Decoder:
    """Return the decoder of a flat form. Without `compute` it is LockRule, without `unmask` LowConfidence.

    Unknown names, and settings of kinds that are not chosen, are ignored. Raises ValueError, which names the setting.
    """
    rules, policy = chosen_kinds(values)
    shared = {name: values[name] for name, _ in described(DecodeSettings) if name in values}
    return Decoder(
        settings=from_plain(DecodeSettings, shared),
        compute=rule_of([_gather(kind, COMPUTE, values) for kind in rules]),
        unmask=read_unmask(_gather(policy, UNMASK, values)),
    )


def chosen_kinds(values: Mapping[str, Any]) -> tuple[list[str], str]:
    """Return the kinds of the rules and the kind of the policy of a flat form.

    A missing or empty `compute` is LockRule's kind, a missing or empty `unmask` LowConfidence's. Raises ValueError,
    which names the setting.
    """
    compute, unmask = values.get("compute", ""), values.get("unmask", "")
    for name, kind in (("compute", compute), ("unmask", unmask)):
        if not isinstance(kind, str):
            raise ValueError(f"{name} must be the name of a kind, not {shown(kind)}")
    rules = (compute or LockRule.kind).split("+")
    check_number(rules)
    return rules, unmask or LowConfidence.kind


def check_owners(given: Mapping[str, Any], kinds: Container[str]) -> None:
    """Raise ValueError for a given setting, whatever its value, of a kind that is not chosen or of a group that is
    switched off.
    """
    for flat, each in flat_settings().items():
        if flat not in given:
            continue
        if each.kind and each.kind not in kinds:
            name = "compute" if each.kind in COMPUTE else "unmask"
            raise ValueError(f"{flat} is a setting of {name} {each.kind!r}, which was not chosen")
        if each.group and not given.get(each.group, True):
            raise ValueError(f"{flat} is a setting of {each.group}, which was switched off")


def _gather(kind: str, table: Mapping[str, type], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the whole plain form of a chosen kind, with settings of the flat form. Errors have their flat names."""
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
        elif values.get(each.group, True):  # a setting of a group asks for the group
            plain[each.group] = (plain.get(each.group) or {}) | {each.name: value}
    return plain
