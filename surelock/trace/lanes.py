"""Lanes: the named decoders of a race."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from surelock.decoding.compute import Everything
from surelock.decoding.decoder import Decoder
from surelock.decoding.presets import PRESETS
from surelock.errors import shown
from surelock.values import Json, frozen

MOST = 4


@frozen(kw_only=True)
class Lane:
    """A decoder in a race."""

    id: str  # unique in the race
    name: str
    decoder: Decoder
    parent: str | None = None  # the id of the lane that it branched from; None if it did not

    def to_plain(self) -> Json:
        return {"id": self.id, "name": self.name, **self.decoder.to_plain(), "parent": self.parent}

    @classmethod
    def from_plain(cls, plain: Any) -> Lane:
        """Return the lane of a trace's header. Raises ValueError, which names the field."""
        if not isinstance(plain, Mapping):
            raise ValueError(f"a lane must be an object, not {shown(plain)}")
        values = {key: value for key, value in plain.items() if key != "engine"}  # of the header, not of the lane
        name, lane_id, parent = values.pop("name", None), values.pop("id", None), values.pop("parent", None)
        for what, value in (("name", name), ("id", lane_id)):
            if not isinstance(value, str) or not value.strip() or len(value) > 80:
                raise ValueError(f"a lane needs {what}: a text of at most 80 characters, not {shown(value)}")
        if parent is not None and (not isinstance(parent, str) or len(parent) > 80):
            raise ValueError(f"parent must be the id of a lane, at most 80 characters, or None, not {shown(parent)}")
        return cls(id=lane_id, name=name, decoder=Decoder.from_plain(values), parent=parent)


def check_field(lanes: Sequence[Lane]) -> None:
    """Raise ValueError unless there are one to four lanes with different ids."""
    if not 1 <= len(lanes) <= MOST:
        raise ValueError(f"one to four lanes can race, not {len(lanes)}")
    ids = [lane.id for lane in lanes]
    if twice := [each for each in ids if ids.count(each) > 1]:
        raise ValueError(f"two lanes have the id {twice[0]!r}")


def alone(decoder: Decoder) -> Lane:
    """Return a lane for a run by itself, named after its rule and its policy."""
    return Lane(id="decode", name=f"{decoder.compute.label}; {decoder.unmask.label.lower()}", decoder=decoder)


def beside_every_position(name: str, decoder: Decoder) -> list[Lane]:
    """Return two lanes: the decoder with every position computed, and the decoder itself."""
    plain = replace(decoder, compute=Everything(), events=())
    first = Lane(id="everything", name=PRESETS["everything"].name, decoder=plain)
    return [first, Lane(id="own", name=name, decoder=decoder)]
