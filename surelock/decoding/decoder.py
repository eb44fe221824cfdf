"""A decoder is two choices, a compute rule and an unmask policy: their JSON forms.

Traces, links and the page's lanes hold the plain form: `{"kind": "lock", "epsilon": 5e-4, ...}` for one rule or policy,
`{"kind": "both", "lock": ..., "select": ...}` for two rules together. A missing setting has its default.

Flags, `/decode` and a model's generation_config.json use the flat form: one mapping of all settings, in which every
setting of every kind has a name of its own (`Setting.flat`). `compute` and `unmask` name the kinds; "lock+select" is
two rules together. A missing setting has its default.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, fields
from typing import Any

from surelock.decoding.compute import Both, ComputeRule, Everything
from surelock.decoding.events import Event
from surelock.decoding.locking import LockRule
from surelock.decoding.rules import COMPUTE, TYPED, UNMASK, check_kind, flat_names, flat_settings
from surelock.decoding.settings import DecodeSettings, described, from_plain, read_value, to_plain
from surelock.decoding.unmasking import LowConfidence, Replay, UnmaskPolicy
from surelock.errors import cut, shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """Everything that a run depends on besides its model and its prompt.

    The fields are arguments of `surelock.decode`.
    """

    settings: DecodeSettings = DecodeSettings()
    compute: ComputeRule = LockRule()
    unmask: UnmaskPolicy = LowConfidence()
    events: tuple[Event, ...] = ()

    def steps_of(self, blanks: int = 0) -> int:
        """The most steps of a run whose prompt has so many masks."""
        steps = self.settings.steps or self.settings.gen_length + blanks
        return len(self.unmask.quotas(steps, steps))

    def keywords(self) -> dict[str, Any]:
        """Return the fields as keyword arguments of `surelock.decode` and `surelock.generate`."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def to_plain(self) -> dict[str, Any]:
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
            has = "it has compute, unmask, settings and events"
            raise ValueError(f"{cut(min(unknown), 60)} is no part of a decoder: {has}")
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


def rule_of(parts: list[Any], table: dict[str, type[ComputeRule]] = COMPUTE) -> ComputeRule:
    """Return the rule of one plain form, or of two. Raises ValueError for any other number. table: rules by kind."""
    if len(parts) > 2:
        raise ValueError(f"compute can be one rule or two together, not {len(parts)}")
    rules = [_read("compute", part, table) for part in parts]
    return Both(*rules) if len(rules) == 2 else rules[0]


def read_unmask(plain: Any) -> UnmaskPolicy:
    """Return the policy of a plain form or of a kind. Raises ValueError."""
    return _read("unmask", {"kind": plain} if isinstance(plain, str) else plain, UNMASK)


def _read(name: str, plain: Any, table: dict[str, Any]) -> Any:
    values = dict(_mapping(name, plain))
    kind = values.pop("kind", None)
    if name == "unmask" and kind == Replay.kind:
        raise ValueError("unmask 'replay' needs the tokens themselves: it is for `surelock.decode` only")
    check_kind(name, kind, table)
    return from_plain(table[kind], values)


def _mapping(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be an object, not {shown(value)}")
    return value


def plain_event(event: Event) -> dict[str, Any]:
    plain: dict[str, Any] = {"step": event.step, "kind": event.kind}
    plain |= {name: getattr(event, name) for name in ("position", "token") if getattr(event, name) is not None}
    return plain if event.compute is None else {**plain, "compute": plain_choice(event.compute)}


def read_event(plain: Any) -> Event:
    """Return the event of a plain form. Raises ValueError for any other value."""
    values: dict[str, Any] = {"step": None, "kind": None} | dict(_mapping("event", plain))
    if unknown := values.keys() - {"step", "kind", "position", "token", "compute"}:
        has = "it has step, kind, position, token and compute"
        raise ValueError(f"event {cut(min(unknown), 60)} does not exist: {has}")
    if "compute" in values:
        values["compute"] = read_compute(values["compute"])
    return Event(**values)


# --- the flat form ----------------------------------------------------------------------------------------------------


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


def to_flat(decoder: Decoder) -> dict[str, Any]:
    """Return the flat form of a decoder without its events: what `from_flat` reads, as JSON values."""
    found: dict[str, Any] = {"compute": decoder.compute.kinds, "unmask": decoder.unmask.kind}
    rules = (decoder.compute.lock, decoder.compute.select) if isinstance(decoder.compute, Both) else (decoder.compute,)
    for part in (decoder.settings, *rules, decoder.unmask):
        plain = to_plain(part)
        for flat, each in flat_names(type(part)):
            group = plain[each.group] if each.group else plain
            if group is not None:
                found[flat] = group[each.name] if each.setting.group is None else group[each.name] is not None
    return found


def chosen_kinds(values: Mapping[str, Any]) -> tuple[list[str], str]:
    """Return the kinds of the rules and the kind of the policy of a flat form.

    A missing or empty `compute` is LockRule's kind, a missing or empty `unmask` LowConfidence's. Raises ValueError,
    which names the setting.
    """
    compute, unmask = values.get("compute", ""), values.get("unmask", "")
    for name, kind in (("compute", compute), ("unmask", unmask)):
        if not isinstance(kind, str):
            raise ValueError(f"{name} must be the name of a kind, not {shown(kind)}")
    return (compute or LockRule.kind).split("+"), unmask or LowConfidence.kind


def check_owners(given: Mapping[str, Any], kinds: Container[str]) -> None:
    """Raise ValueError for a given setting of a kind that is not chosen or of a group that is switched off."""
    for flat, each in flat_settings().items():
        if flat not in given:
            continue
        if each.kind and each.kind not in kinds:
            name = "compute" if each.kind in COMPUTE else "unmask"
            raise ValueError(f"{flat} is a setting of {name} {each.kind!r}, which was not chosen")
        if each.group and not given.get(each.group, True):
            raise ValueError(f"{flat} is a setting of {each.group}, which was switched off")


def _gather(kind: str, table: Mapping[str, type], values: Mapping[str, Any]) -> dict[str, Any]:
    """The whole plain form of a chosen kind, with settings of the flat form. Errors have their flat names."""
    plain: dict[str, Any] = {"kind": kind} | (to_plain(table[kind]()) if kind in table else {})
    named = flat_names(table[kind]) if kind in table else ()
    for flat, each in ((flat, each) for flat, each in named if flat in values):
        if each.setting.group is not None:
            plain[each.name] = {} if values[flat] is True else values[flat] or None
            continue
        value = each.setting.checked(flat, read_value(each.setting, values[flat]))
        if not each.group:
            plain[each.name] = value
        elif values.get(each.group, True):  # a setting of a group asks for the group
            plain[each.group] = (plain.get(each.group) or {}) | {each.name: value}
    return plain
