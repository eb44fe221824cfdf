"""Events: interventions of a person before a step, as data that can be recorded and replayed.

A running generator takes no messages. To intervene at step t, start a run with the same decoder and one more event. Its
first t steps equal the first t steps of the earlier run, bit for bit on the same kind of machine.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from surelock.decoding.compute import ComputeRule
from surelock.decoding.settings import Whole
from surelock.decoding.state import Canvas, State
from surelock.decoding.unmasking import UnmaskPolicy
from surelock.errors import shown
from surelock.values import frozen

KINDS = ("lock", "unlock", "write", "mask", "rule")
_WHOLE = Whole(label="", help="", low=0)
#: The order in which the events of a step are applied.
_ORDER = ("unlock", "mask", "write", "lock", "rule")
#: Pairs of kinds that exclude each other at one position in one step.
_OPPOSED = ({"lock", "unlock"}, {"write", "mask"}, {"lock", "mask"})


@frozen
class Event:
    """One intervention.

    step: the event is applied before this step, 0-based.
    kind: "lock" or "unlock" a position; "write" a token at a position, which also unlocks it; "mask" a position again;
    or "rule": use another compute rule from this step on.
    position: number of the position in the sequence, prompt included, 0-based; None for "rule". Prompt positions can be
    locked and unlocked, but not written or masked.
    token: the token of a "write"; None for the other kinds.
    compute: the new rule of a "rule"; None for the other kinds.
    sequence: number of the sequence in the batch, 0-based. A rule applies to the whole batch.

    Raises ValueError, one sentence, for a field that is missing, out of range, or belongs to another kind.
    """

    step: int
    kind: str
    position: int | None = None
    token: int | None = None
    compute: ComputeRule | None = None
    sequence: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(
                f"event kind must be one of {', '.join(KINDS)}, not {shown(self.kind)}"
            )
        needed = {"step", "sequence"}
        if self.kind != "rule":
            needed.add("position")
        if self.kind == "write":
            needed.add("token")
        for name in ("step", "sequence", "position", "token"):
            value = getattr(self, name)
            if name in needed:
                object.__setattr__(self, name, _WHOLE.checked(f"event {name}", value))
            elif value is not None:
                raise ValueError(f"event {name} is given, but to {self.kind!r} there is none")
        if self.kind == "rule" and self.sequence != 0:
            raise ValueError("event sequence is given, but a rule holds for the whole batch")
        if (self.kind == "rule") != isinstance(self.compute, ComputeRule):
            wanted = "a rule for the kind 'rule', and nothing else"
            raise ValueError(f"event compute must be {wanted}, not {shown(self.compute)}")

    @property
    def where(self) -> str:
        """Step and position of the event, in words."""
        place = f"event at step {self.step}"
        return place if self.position is None else f"{place}, position {self.position}"


def in_order(
    events: Sequence[Event], canvas: Canvas, steps: int, vocab_size: int, policy: UnmaskPolicy
) -> list[Event]:
    """Return the events of a run, checked and sorted by step and by `_ORDER`. steps: the largest number of steps.

    Raises ValueError, one sentence, for an event that the run cannot have, and for two events that exclude each other.
    """
    kinds: dict[Any, set[str]] = {}
    for event in events:
        if not isinstance(event, Event):
            raise ValueError(f"events must be a list of Event, not {shown(event)}")
        if event.step >= steps:
            raise ValueError(
                f"{event.where}: there is no such step, the run has {steps}, from 0 to {steps - 1}"
            )
        if event.position is not None:
            _check_place(event, canvas, vocab_size, policy)
    for event in events:
        others = kinds.setdefault((event.step, event.sequence, event.position), set())
        if event.kind in others:
            raise ValueError(f"{event.where}: {event.kind!r} is asked for twice")
        others.add(event.kind)
        for pair in _OPPOSED:
            if pair <= others:
                raise ValueError(f"{event.where}: it cannot {' and '.join(sorted(pair))} at once")
    return sorted(events, key=lambda event: (event.step, _ORDER.index(event.kind)))


def refuse_later(events: Sequence[Event], step: int) -> None:
    """Raise ValueError for an event at or after `step`, before which the run has ended."""
    for event in events:
        if event.step >= step:
            raise ValueError(
                f"{event.where}: there is no such step, the run ended before step {step}"
            )


def _check_place(event: Event, canvas: Canvas, vocab_size: int, policy: UnmaskPolicy) -> None:
    assert event.position is not None
    if event.sequence >= canvas.batch:
        raise ValueError(
            f"{event.where}: there is no sequence {event.sequence}, the batch has {canvas.batch}"
        )
    length = int(canvas.lengths[event.sequence])
    if event.position >= length:
        raise ValueError(
            f"{event.where}: there is no such position, the sequence has {length}, from 0 to {length - 1}"
        )
    if event.kind in ("write", "mask"):
        if canvas.is_prompt[canvas.slot(event.sequence, event.position)]:
            raise ValueError(
                f"{event.where}: it belongs to the prompt, whose tokens stay as they are"
            )
        if policy.scores is None:
            reason = "tokens and their steps are given already"
            raise ValueError(f"{event.where}: under the policy {policy.kind!r} {reason}")
    if event.token is not None and (event.token >= vocab_size or event.token == canvas.mask_id):
        named = (
            "the mask token" if event.token == canvas.mask_id else f"outside 0 to {vocab_size - 1}"
        )
        raise ValueError(f"{event.where}: token {event.token} cannot be written, it is {named}")


def apply(event: Event, state: State) -> None:
    """Apply an event to the state. Raises ValueError, one sentence, if the state does not allow it."""
    canvas = state.canvas
    assert event.position is not None
    slot = canvas.slot(event.sequence, event.position)
    slots = np.array([slot])
    if not state.alive[slot]:
        raise ValueError(f"{event.where}: sequence {event.sequence} has ended before")
    masked = bool(state.masked[slot])
    locked = bool(state.locked[slot])
    if event.kind == "lock" and (masked or locked):
        raise ValueError(
            f"{event.where}: it is {'masked' if masked else 'locked'}, so it cannot be locked"
        )
    if event.kind == "lock" and state.computed_at[slot] < 0:
        raise ValueError(f"{event.where}: it was never computed, so there is nothing to lock")
    if event.kind == "unlock" and not locked:
        raise ValueError(f"{event.where}: it is not locked, so it cannot be unlocked")
    if event.kind == "mask" and masked:
        raise ValueError(f"{event.where}: it is masked already")
    if event.kind == "lock":
        state.lock(slots)
    elif locked:
        state.unlock(slots)
    if event.kind == "write":
        state.commit(slots, np.array([event.token]))
    if event.kind == "mask":
        state.mask(slots)
