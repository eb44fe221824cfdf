"""A run that begins at a snapshot of another one is the run that begins at its first step, to the last bit."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import surelock
from surelock.decoding import snapshots as module
from surelock.decoding.decoder import Decoder
from surelock.decoding.events import Event
from surelock.decoding.snapshots import EVERY, Allowance, Snapshots
from surelock.quality.commit_error import Shadow
from surelock.trace.lanes import Lane
from surelock.trace.race import Beginning, race
from surelock.trace.recorder import Recorder, make_header
from surelock.ui.request import Origin
from surelock.ui.snapshots import RaceSnapshots, snapshots_of

LENGTH = {"gen_length": 16, "seed": 3}
# unlocks in every step
NERVOUS = surelock.UnlockRule(period=1, epsilon_unlock=0.0, min_interval=0, cooldown=0)


def decoder_of(compute: Any, unmask: Any = None, events: Any = (), **chosen: Any) -> Decoder:
    settings = surelock.DecodeSettings(**LENGTH, **chosen)
    unmask = unmask or surelock.LowConfidence()
    return Decoder(settings=settings, compute=compute, unmask=unmask, events=events)


# from the middle on
ANOTHER = Event(4, "rule", compute=surelock.LockByAge(1))
DECODERS = {
    "every": decoder_of(surelock.Everything()),
    "lock": decoder_of(surelock.LockRule(), temperature=0.8),
    "blocks": decoder_of(surelock.BlockCache(), surelock.Klass(), block_length=8),
    "budget": decoder_of(surelock.BudgetRule(), no_repeat_ngram_size=2),
    "remask": decoder_of(surelock.LockByAge(2), surelock.Remask()),
    "correct": decoder_of(surelock.LockByAge(2), surelock.Correct(doubt=0.2)),
    # a snapshot lies between a step that unlocks and the next, which forgets
    "unlock": decoder_of(surelock.LockRule(epsilon=1.0, unlock=NERVOUS)),
    "another rule": decoder_of(surelock.Everything(), events=(ANOTHER,)),
    "guided": decoder_of(
        surelock.LockRule() & surelock.SelectRule(0.8), cfg_scale=0.5, temperature=0.8
    ),
}


def recorded(lm: Any, prompt: list[int], lane: Lane, **kept: Any) -> tuple[Recorder, list[Any]]:
    """The recorder of a race of one lane, and its rounds."""
    recorder = Recorder(make_header(lm, "Once", prompt, [lane]), lm.tokenizer)
    rounds = list(race(lm, prompt, [lane], shadow=Shadow, **kept))
    return recorder, rounds


def untimed(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in each.items() if name != "seconds"}
        for each in document["records"]
    ]


def touches(rounds: list[Any]) -> list[Event]:
    """Events early and late: another token in place of a committed one, and one in a locked cell."""
    steps = [items[0].step for items in rounds if items and hasattr(items[0], "step")]
    places = {}
    for at in (len(steps) // 2, len(steps) - 2):
        written = np.flatnonzero(steps[at].newly_unmasked[0])
        places |= dict.fromkeys(written[:1].tolist(), at)
    locked = np.flatnonzero(steps[-3].locked[0] & ~steps[0].given[0])
    places |= {
        position: len(steps) - 2 for position in locked[:1].tolist() if position not in places
    }
    return [Event(at, "write", position, token=700) for position, at in places.items()]


@pytest.mark.parametrize(
    ("engine", "name"),
    [*(("onnx", name) for name in DECODERS), ("torch", "lock"), ("torch", "guided")],
)
def test_a_run_begins_anywhere(stories: Any, stories_in_torch: Any, engine: str, name: str) -> None:
    lm = stories if engine == "onnx" else stories_in_torch
    prompt = lm.encode("Tom found a __ in the garden. He", blanks=True)
    lane = Lane(id="own", name="Own", decoder=DECODERS[name])
    kept = Snapshots(lane.decoder, lm.engine, Allowance())
    parent, rounds = recorded(lm, prompt, lane, snapshots={"own": kept})
    for items in filter(None, rounds):
        parent.take(items)
    events = touches(rounds)
    assert events
    for number, event in enumerate(events, start=1):  # of a branch there is another branch
        own = (*lane.decoder.events, *events[:number])
        child = replace(lane, id=f"{number}", decoder=replace(lane.decoder, events=own))
        whole, all_rounds = recorded(lm, prompt, child)
        for items in filter(None, all_rounds):
            whole.take(items)
        step = kept.before(child.decoder, 10**6)
        assert event.step - EVERY < step <= event.step
        begins = {child.id: Beginning(kept, step)}
        kept = kept.until(step, child.decoder, Allowance())
        later, few = recorded(lm, prompt, child, begins=begins, snapshots={child.id: kept})
        later.adopt(child.id, parent, "own" if number == 1 else f"{number - 1}", step)
        assert few[0][0].step.index == step
        for items in filter(None, few):
            later.take(items)
        assert untimed(later.document()) == untimed(whole.document())
        parent = later


def test_where_snapshots_do_not_fit_a_run_begins_earlier(stories: Any) -> None:
    prompt = stories.encode("Lily had a red")
    lane = Lane(id="own", name="Own", decoder=DECODERS["lock"])
    allowance = Allowance(2**20)
    kept = Snapshots(lane.decoder, stories.engine, allowance)
    _, rounds = recorded(stories, prompt, lane, snapshots={"own": kept})
    dense = sum(
        items[0].step.computed.all() for items in rounds if items and hasattr(items[0], "step")
    )
    late = replace(lane.decoder, events=(Event(13, "write", 16, token=700),))
    assert allowance.used <= allowance.most and 0 < kept.before(late, 99) < 13
    assert kept.before(late, 3) == min(dense, 3), "no later than what the page has"
    assert dense >= 2
    other = replace(late, settings=replace(late.settings, seed=4))
    assert kept.before(other, 99) == 0, "another run has no step in common"
    none = kept.until(13, late, Allowance(0))
    assert none.before(late, 99) in (0, kept.before(late, 99))


def test_every_lane_of_a_branch_begins_where_the_page_has_its_steps(stories: Any) -> None:
    """The page has 16 steps of one lane and 4 of the other."""
    prompt = stories.encode("Lily had a red")
    lane = Lane(id="own", name="Own", decoder=DECODERS["lock"])
    kept = Snapshots(lane.decoder, stories.engine, Allowance())
    parent, rounds = recorded(stories, prompt, lane, snapshots={"own": kept})
    for items in filter(None, rounds):
        parent.take(items)
    late = replace(lane.decoder, events=(Event(13, "write", 16, token=700),))
    lanes = [replace(lane, id=name, decoder=late) for name in ("all", "few")]
    job: Any = SimpleNamespace(lanes=lanes, tokens=prompt, origin=Origin("run", "own", (16, 4)))
    race: Any = SimpleNamespace(
        snapshots=RaceSnapshots(Allowance(), {}, {"own": kept}), recorder=parent
    )
    branch = Recorder(make_header(stories, "Once", prompt, lanes), stories.tokenizer)
    begins = snapshots_of(stories, job, branch, race).begins
    assert 0 < begins["few"].step <= 4 < begins["all"].step <= 13


def test_the_bounds_are_those_that_the_page_promises() -> None:
    assert EVERY + 1 <= 8 and module.MOST_BYTES == 64 * 2**20
