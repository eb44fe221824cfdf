"""Lanes: the named decoders of a race."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from surelock.decoding.compute import Both, Everything
from surelock.decoding.decoder import Decoder
from surelock.decoding.presets import PRESETS
from surelock.decoding.rules import COMPUTE, TYPED, UNMASK
from surelock.decoding.unmasking import Replay
from surelock.errors import shown
from surelock.values import Fields, Json, frozen

MOST = 4
_HOW = "a rule from outside is known once its module is imported: `import {}` in Python, `--rules {}` of the page"


@frozen(kw_only=True)
class Lane:
    """A decoder in a race."""

    id: str  # unique in the race
    name: str
    decoder: Decoder
    parent: str | None = (
        None  # the id of the lane from which this lane branched; None if it did not branch
    )

    def to_plain(self) -> Json:
        """Return the lane as a trace's header has it."""
        return {"id": self.id, "name": self.name, **self.decoder.to_plain(), "parent": self.parent}

    @classmethod
    def from_plain(cls, plain: Any) -> Lane:
        """Return the lane of a JSON form, as a trace's header has it.

        Raises ValueError, which names the field. For a rule that this process does not know, the message says how to
        make it known.
        """
        if not isinstance(plain, Mapping):
            raise ValueError(f"a lane must be an object, not {shown(plain)}")
        # "engine" is information of the header about the lane, and no part of the decoder.
        values = {key: value for key, value in plain.items() if key != "engine"}
        name = values.pop("name", None)
        lane_id = values.pop("id", None)
        parent = values.pop("parent", None)
        for what, value in (("name", name), ("id", lane_id)):
            if not isinstance(value, str) or not value.strip() or len(value) > 80:
                raise ValueError(
                    f"a lane needs {what}: a text of at most 80 characters, not {shown(value)}"
                )
        if parent is not None and (not isinstance(parent, str) or len(parent) > 80):
            raise ValueError(
                f"parent must be the id of a lane, at most 80 characters, or None, not {shown(parent)}"
            )
        try:
            decoder = Decoder.from_plain(values)
        except ValueError as error:
            known = COMPUTE.keys() | TYPED.keys() | UNMASK.keys() | {Replay.kind}
            unknown = _kinds_in(values) - known
            if not unknown:
                raise
            raise ValueError(f"{error}; {_how(min(unknown))}") from error
        return cls(id=lane_id, name=name, decoder=decoder, parent=parent)


def _how(kind: str) -> str:
    """Return how to make a rule known. Traces of version 4 have its attribute `kind`, which names no module."""
    place = kind if ":" in kind else "package.module:Class"
    return _HOW.format(place.partition(":")[0], place)


def _kinds_in(lane: Fields) -> set[str]:
    """Return the kinds of the rules and the policy in the JSON form of a lane, including its events."""
    choices = [lane.get("compute"), lane.get("unmask")]
    events = lane.get("events")
    if isinstance(events, list):
        choices += [event.get("compute") for event in events if isinstance(event, Mapping)]
    for choice in [choice for choice in choices if isinstance(choice, Mapping)]:
        choices += [choice.get("lock"), choice.get("select")]
    kinds = [choice.get("kind") for choice in choices if isinstance(choice, Mapping)]
    return {kind for kind in kinds if isinstance(kind, str)} - {Both.kind}


def is_from_outside(lane: Fields) -> bool:
    """Return whether the JSON form of a lane has a rule or a policy from outside the package."""
    tables = COMPUTE | TYPED | UNMASK
    kinds = {kind for kind, rule in tables.items() if rule.__module__.startswith("surelock.")}
    return not _kinds_in(lane) <= kinds


def check_field(lanes: Sequence[Lane]) -> None:
    """Raise ValueError unless there are one to four lanes with different ids."""
    if not 1 <= len(lanes) <= MOST:
        raise ValueError(f"one to four lanes can race, not {len(lanes)}")
    ids = [lane.id for lane in lanes]
    if twice := [lane_id for lane_id in ids if ids.count(lane_id) > 1]:
        raise ValueError(f"two lanes have the id {twice[0]!r}")


def alone(decoder: Decoder) -> Lane:
    """Return the lane of a race with only this decoder, named after its rule and its policy."""
    return Lane(
        id="decode",
        name=f"{decoder.compute.label}; {decoder.unmask.label.lower()}",
        decoder=decoder,
    )


def beside_every_position(name: str, decoder: Decoder) -> list[Lane]:
    """Return two lanes: the decoder with every position computed, and the decoder itself."""
    plain = replace(decoder, compute=Everything(), events=())
    first = Lane(id="everything", name=PRESETS["everything"].name, decoder=plain)
    return [first, Lane(id="own", name=name, decoder=decoder)]
