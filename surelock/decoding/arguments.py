"""The decoder of the arguments of `decode` and `generate`: what is passed, over what the model recommends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from surelock.decoding.compute import Both, ComputeRule
from surelock.decoding.decoder import Decoder
from surelock.decoding.events import Event
from surelock.decoding.recommended import recommended
from surelock.decoding.rules import kind_of
from surelock.decoding.settings import (
    DecodeSettings,
    Group,
    Setting,
    described,
    from_plain,
    to_plain,
)
from surelock.decoding.spelling import check_owners, flat_settings, put_flat
from surelock.decoding.unmasking import UnmaskPolicy
from surelock.errors import nearest, shown
from surelock.values import Fields, Json

_PARTS = {"settings": DecodeSettings, "compute": ComputeRule, "unmask": UnmaskPolicy}


def decoder_of(
    generation: Fields,
    settings: DecodeSettings | None,
    compute: ComputeRule | None,
    unmask: UnmaskPolicy | None,
    events: Iterable[Event],
    overrides: Fields,
) -> Decoder:
    """Return the decoder of the arguments of `decode`.

    generation: what the model recommends, a short spelling. It stands for what is None, under `overrides` as the
    command line has it.
    settings, compute, unmask: what is passed means exactly itself.
    overrides: settings by their short names, which override single ones of either.

    Raises ValueError for what is no rule or no policy, for an unknown name, and for a setting of a rule or a policy
    that is not chosen.
    """
    passed = {"settings": settings, "compute": compute, "unmask": unmask}
    passed = {name: value for name, value in passed.items() if value is not None}
    for name, value in passed.items():
        if not isinstance(value, _PARTS[name]):
            raise ValueError(
                f"{name} must be a {_PARTS[name].__name__} or None, not {shown(value)}"
            )
    part_settings = {
        short: setting
        for value in passed.values()
        for part in _parts(value)
        for short, setting in _names(type(part))
    }
    read = _read(overrides, part_settings)
    others = {name: value for name, value in read.items() if name not in part_settings}
    changed = {name: _changed(value, read) for name, value in passed.items()}
    decoder = replace(recommended(generation, others), **changed, events=tuple(events))
    check_owners(others, [kind_of(part) for part in (*_parts(decoder.compute), decoder.unmask)])
    return decoder


def _read(overrides: Fields, part_settings: dict[str, Setting]) -> Json:
    """Settings as they are kept. part_settings: of the rules and the policy that are passed, which may be outside the
    package.
    """
    known = {short: flat.setting for short, flat in flat_settings().items()} | part_settings
    read = {}
    for name, value in overrides.items():
        if name not in known:
            raise ValueError(f"{name} is no setting{nearest(name, known)}")
        read[name] = value if isinstance(known[name], Group) else known[name].read(name, value)
    return read


def _parts(part: Any) -> tuple[Any, ...]:
    """Two rules that are together, else the part itself."""
    return (part.lock, part.select) if isinstance(part, Both) else (part,)


def _names(kind: type) -> Iterator[tuple[str, Setting]]:
    """Yield (short name, setting) of the settings of a class, also of its groups."""
    for name, setting in described(kind):
        yield setting.flat or name, setting
        if isinstance(setting, Group):
            yield from _names(setting.of)


def _changed(part: Any, overrides: Fields) -> Any:
    """Settings, a rule or a policy with some of its settings changed."""
    if isinstance(part, Both):
        return Both(_changed(part.lock, overrides), _changed(part.select, overrides))
    kind = type(part)
    if not overrides.keys() & dict(_names(kind)).keys():
        return part
    groups = {name for name, setting in described(kind) if isinstance(setting, Group)}
    plain = {
        name: value
        for name, value in to_plain(part).items()
        if value is not None or name not in groups
    }
    return from_plain(kind, put_flat(plain, kind, overrides))
