"""`Decoder`: a compute rule, an unmask policy, settings and events. Its one written form, and the reader of that form.

The form is nested: `{"compute": {"kind": "lock", "epsilon": 5e-4}, "unmask": {"kind": "low_confidence"}, "settings":
{...}, "events": [...]}`; two rules together are `{"kind": "both", "lock": ..., "select": ...}`. Traces, links, results
and the page's lanes use this form. A missing setting has its default. `read_decoder` also reads short spellings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from surelock.decoding.compute import Both, ComputeRule, Everything
from surelock.decoding.events import Event
from surelock.decoding.locking import LockRule
from surelock.decoding.rules import class_of, kind_of
from surelock.decoding.settings import DecodeSettings, from_plain, to_plain
from surelock.decoding.spelling import nested
from surelock.decoding.unmasking import LowConfidence, UnmaskPolicy
from surelock.errors import cut, shown
from surelock.values import Fields, Json, frozen


@frozen(kw_only=True)
class Decoder:
    """Everything that a run depends on besides its model and its prompt.

    The fields have the names and meanings of the arguments of `surelock.decode`.
    """

    settings: DecodeSettings = DecodeSettings()
    compute: ComputeRule = LockRule()
    unmask: UnmaskPolicy = LowConfidence()
    events: tuple[Event, ...] = ()

    def steps_of(self, blanks: int = 0) -> int:
        """Return the largest number of steps of a run. blanks: number of masks in its prompt."""
        steps = self.settings.steps or self.settings.gen_length + blanks
        return len(self.unmask.quotas(steps, steps))

    def keywords(self) -> Json:
        """Return the fields as keyword arguments of `surelock.decode` and `surelock.generate`."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def to_plain(self) -> Json:
        """Return the nested form."""
        return {
            "compute": plain_choice(self.compute),
            "unmask": plain_choice(self.unmask),
            "settings": to_plain(self.settings),
            "events": [plain_event(event) for event in self.events],
        }

    @classmethod
    def from_plain(cls, plain: Fields) -> Decoder:
        """Return the decoder of a nested form.

        A missing field has its default, except `compute`: a trace or a link without `compute` means `Everything()`.

        Raises ValueError for an unknown field or a wrong value. The message names the field.
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


def plain_choice(choice: ComputeRule | UnmaskPolicy) -> Json:
    """Return the nested form of a rule or a policy."""
    if isinstance(choice, Both):
        return {
            "kind": Both.kind,
            "lock": plain_choice(choice.lock),
            "select": plain_choice(choice.select),
        }
    return {"kind": kind_of(choice), **to_plain(choice)}


def read_compute(plain: Any) -> ComputeRule:
    """Return the rule of a nested form or of a short spelling ("lock+select"). Raises ValueError otherwise."""
    if isinstance(plain, str) and plain:
        plain = nested({"compute": plain})["compute"]
    plain = _mapping("compute", plain)
    if plain.get("kind") == Both.kind:
        return Both(_read("compute", plain.get("lock")), _read("compute", plain.get("select")))
    return _read("compute", plain)


def read_unmask(plain: Any) -> UnmaskPolicy:
    """Return the policy of a nested form or of a short spelling ("threshold"). Raises ValueError otherwise."""
    if isinstance(plain, str) and plain:
        plain = nested({"unmask": plain})["unmask"]
    return _read("unmask", plain)


def _read(name: str, plain: Any) -> Any:
    values = dict(_mapping(name, plain))
    return from_plain(class_of(name, values.pop("kind", None), typed=True), values)


def _mapping(name: str, value: Any) -> Fields:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be an object, not {shown(value)}")
    return value


def plain_event(event: Event) -> Json:
    """Return the plain form of an event, without the fields that are None."""
    plain: Json = {"step": event.step, "kind": event.kind}
    plain |= {
        name: getattr(event, name)
        for name in ("position", "token")
        if getattr(event, name) is not None
    }
    return plain if event.compute is None else {**plain, "compute": plain_choice(event.compute)}


def read_event(plain: Any) -> Event:
    """Return the event of a plain form. Raises ValueError for any other value."""
    values: Json = {"step": None, "kind": None} | dict(_mapping("event", plain))
    if unknown := values.keys() - {"step", "kind", "position", "token", "compute"}:
        has = "it has step, kind, position, token and compute"
        raise ValueError(f"event {cut(min(unknown), 60)} does not exist: {has}")
    if "compute" in values:
        values["compute"] = read_compute(values["compute"])
    return Event(**values)


def read_decoder(values: Fields) -> Decoder:
    """Return the decoder of a short spelling. `compute` defaults to LockRule, `unmask` to LowConfidence.

    Unknown names, and settings of kinds that are not chosen, are ignored. Raises ValueError for a wrong value. The
    message names the setting.
    """
    return Decoder.from_plain(nested(values))
