"""The decoder that the arguments of `decode` and `generate` ask for.

Arguments take precedence over the model's recommendations.
"""

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

    generation: the model's recommendations, a short spelling. They replace arguments that are None, and `overrides`
    take precedence over them, as on the command line.
    settings, compute, unmask: used unchanged unless None, except for `overrides`.
    overrides: single settings by their short names. They change passed arguments and recommendations alike.

    Raises ValueError for an argument of a wrong class, for an unknown name, and for a setting of a rule or a policy
    that is not chosen.
    """
    passed = {"settings": settings, "compute": compute, "unmask": unmask}
    passed = {name: value for name, value in passed.items() if value is not None}
    for name, value in passed.items():
        if not isinstance(value, _PARTS[name]):
            raise ValueError(
                f"{name} must be a {_PARTS[name].__name__} or None, not {shown(value)}"
            )
    part_settings = {}
    for value in passed.values():
        for part in _parts(value):
            part_settings |= _names(type(part))
    read = _read(overrides, part_settings)
    others = {name: value for name, value in read.items() if name not in part_settings}
    changed = {name: _changed(value, read) for name, value in passed.items()}
    decoder = replace(recommended(generation, others), **changed, events=tuple(events))
    check_owners(others, [kind_of(part) for part in (*_parts(decoder.compute), decoder.unmask)])
    return decoder


def _read(overrides: Fields, part_settings: dict[str, Setting]) -> Json:
    """Return the checked values of settings by short name.

    part_settings: settings of the passed rules and policy, which may be classes from outside the package.
    """
    known = {short: flat.setting for short, flat in flat_settings().items()} | part_settings
    read = {}
    for name, value in overrides.items():
        if name not in known:
            raise ValueError(f"{name} is no setting{nearest(name, known)}")
        read[name] = value if isinstance(known[name], Group) else known[name].read(name, value)
    return read


def _parts(part: Any) -> tuple[Any, ...]:
    """Return the two rules of a `Both`, otherwise the part alone."""
    return (part.lock, part.select) if isinstance(part, Both) else (part,)


def _names(kind: type) -> Iterator[tuple[str, Setting]]:
    """Yield (short name, setting) for the settings of a class and of its groups."""
    for name, setting in described(kind):
        yield setting.flat or name, setting
        if isinstance(setting, Group):
            yield from _names(setting.of)


def _changed(part: Any, overrides: Fields) -> Any:
    """Return settings, a rule or a policy with the overrides of its settings applied."""
    if isinstance(part, Both):
        return Both(_changed(part.lock, overrides), _changed(part.select, overrides))
    kind = type(part)
    if not overrides.keys() & dict(_names(kind)).keys():
        return part
    groups = {name for name, setting in described(kind) if isinstance(setting, Group)}
    # A group that is None is left out: its single settings would have no place in it.
    plain = {
        name: value
        for name, value in to_plain(part).items()
        if value is not None or name not in groups
    }
    return from_plain(kind, put_flat(plain, kind, overrides))
