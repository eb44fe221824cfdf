"""Every number on the first screen is what the trace says, at any step, in both orders of play."""

import base64
import json
import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.browser.actions import drawn_states, run_to_end, seek, settled, true_states, until, visit
from tests.browser.server import App

PLAYS = """(speed) => new Promise((then) => {
  const { timeline, teller, trace } = surelock.stage;
  const seen = [];
  timeline.seek(-1, -1);
  timeline.speed.value = String(speed);
  timeline.play();
  const begun = performance.now();
  const look = () => {
    const text = document.querySelector(".sl-narrator").textContent;
    seen.push([surelock.page.now.step, teller.told?.step ?? null, text]);
    if (performance.now() - begun < 2500 && timeline.playing) requestAnimationFrame(look);
    else { timeline.pause(); then(seen); }
  };
  requestAnimationFrame(look);
})"""
READ = Path(__file__).with_name("numbers.js").read_text("utf-8")
STEPS = 8  # sampled of each run
UNKNOWN = "\u2013"  # a dash
BLANKS = "Tom found a __ in the garden. He was very ___ and ran to his mom."
FOUR = ["everything", "surelock", "dual-cache", "budget"]
BACK = [
    {"name": "Every token", "compute": {"kind": "everything"}},
    {"name": "Taken back", "compute": {"kind": "lock"}, "unmask": {"kind": "remask"}},
]
RUNS: dict[str, dict[str, Any]] = {
    "four lanes, here": {"where": "browser", "lanes": json.dumps(FOUR)},
    "blanks, here": {"where": "browser", "prompt": BLANKS, "gen_length": 16, "steps": 16},
    "taking back": {"lanes": json.dumps(BACK)},
    "ends": {
        "prompt": "The end.",
        "suppress_eos": "false",
        "lanes": json.dumps(["everything", "surelock", "klass"]),
    },
    "a draw": {"temperature": 0.8, "seed": 5, "where": "browser"},
}


@dataclass
class Lane:
    """What a lane's records say after each of its steps: sums from the first on."""

    flops: list[float]
    every: list[float]
    seconds: list[float]
    changed: list[int]
    choices: list[int]
    tokens: list[dict[int, int]]
    computed: list[int]
    medians: list[float]

    @property
    def last(self) -> int:
        return len(self.flops) - 1

    def clamp(self, step: int) -> int:
        return min(step, self.last)


def kls(record: dict[str, Any]) -> list[float]:
    """The finite step-wise KLs of a record, from their bytes."""
    bytes_ = base64.b64decode(record["kl"]) if isinstance(record["kl"], str) else None
    if bytes_ is None:
        return [value for value in record["kl"] if value is not None]
    return [0.0 if b == 0 else 1e-12 * 10 ** (14 * (b - 1) / 253) for b in bytes_ if b != 255]


def median(values: list[float]) -> float:
    ordered = sorted(values)
    middle = (len(ordered) - 1) / 2
    low = int(middle)
    high = min(low + 1, len(ordered) - 1)
    return (
        ordered[low] + (middle - low) * (ordered[high] - ordered[low]) if ordered else float("nan")
    )


def reading(document: dict[str, Any], lane: str) -> Lane:
    """A second reading of a lane's records, which shares no code with the page's."""
    header = document["header"]
    tokens = {
        at: token for at, token in enumerate(header["prompt_tokens"]) if token != header["mask_id"]
    }
    made = Lane([], [], [], [], [], [], [], [])
    flops = every = seconds = 0.0
    changed = choices = 0
    for record in (each for each in document["records"] if each["lane"] == lane):
        for position in (*record.get("masked", ()), *record.get("taken_back", ())):
            tokens.pop(position, None)
        tokens |= dict((*record.get("written", ()), *record["unmasked"]))
        flops = flops + record["flops"]
        every = every + record["baseline_flops"]
        seconds += record["seconds"]
        changed = changed + len(record.get("changed") or ())
        choices = choices + len(record["unmasked"])
        made.flops.append(flops)
        made.every.append(every)
        made.seconds.append(seconds)
        made.changed.append(changed)
        made.choices.append(choices)
        made.tokens.append(dict(tokens))
        made.computed.append(sum(record["computed"][1::2]))
        made.medians.append(median(kls(record)))
    return made


def step_of(clock: list[str]) -> int:
    """A lane's own step, from what its clock says."""
    found = re.match(r"(?:step )?(\d+)", clock[1])
    return int(found[1]) - 1 if found else -1


def check(page, document, lanes, by_clock, drawn=drawn_states):
    """Hold what the first screen shows against the records. drawn: of a lane's place the states that its grid shows."""
    seen = page.evaluate(READ)
    names = [lane["name"] for lane in document["header"]["lanes"]]
    ids = [lane["id"] for lane in document["header"]["lanes"]]
    base = lanes[ids[0]]
    at = {side["id"]: step_of(side["clock"]) for side in seen["sides"]}
    place = (seen["step"], by_clock, seen)
    shares = []
    for name, own, row in zip(names, ids, seen["work"], strict=True):
        lane = lanes[own]
        t = at[own]
        assert row["name"] == name, place
        if t < 0:  # by the clock, before its first step
            assert row["share"] == UNKNOWN and row["bar"] == 0, place
            continue
        fair = (
            base.last if t == lane.last else base.clamp(t) if by_clock else base.clamp(seen["step"])
        )
        share = 1.0 if own == ids[0] else lane.flops[t] / base.flops[fair]
        shares.append((share, row["bar"]))
        assert abs(float(row["share"].removesuffix(" %")) - 100 * share) <= 0.5001, (
            name,
            share,
            place,
        )
    most = max(1.0, *(share for share, _ in shares))
    assert all(abs(bar - share / most) < 2e-4 for share, bar in shares), place
    for own, kl, saved in zip(ids, seen["kl"], seen["saved"], strict=True):
        lane = lanes[own]
        t = at[own]
        if t < 0:
            assert (kl, saved) == (UNKNOWN, UNKNOWN), place
            continue
        assert (
            abs(float(saved.removesuffix(" %")) - 100 * (1 - lane.flops[t] / lane.every[t]))
            <= 0.5001
        ), place
        if kl != UNKNOWN:
            assert float(kl) == pytest.approx(lane.medians[t], rel=0.06, abs=1e-12), (
                own,
                lane.medians[t],
                place,
            )
    others = ids[1:]
    changed = [str(lanes[own].changed[at[own]]) if at[own] >= 0 else UNKNOWN for own in others]
    assert seen["changed"] == changed, place
    if len(others) == 1 and at[others[0]] >= 0:
        assert seen["of"] == f" of {lanes[others[0]].choices[at[others[0]]]}", place
    written = {own: lanes[own].tokens[at[own]] if at[own] >= 0 else {} for own in ids}
    mine = written[ids[0]]
    differ = [
        sum(mine.get(p, token) != token for p, token in written[own].items()) for own in others
    ]
    assert seen["others"] == [str(count) for count in differ], place
    for number, side in enumerate(seen["sides"]):
        t = at[side["id"]]
        states = true_states(document, ids.index(side["id"]), t)
        assert drawn(page, number) == states, place
        masked, active, resting, locked = map(
            int, re.findall(r"(\d+) (?:masked|active|resting|locked)", side["grid"])
        )
        assert [masked, active, resting, locked] == [
            states.count(state) for state in (0, 1, 3, 2)
        ], place
        assert not side["beyond"], "a raster gives nothing away"
    told(seen, lanes[others[0]], at[others[0]], len(states))


def told(seen: dict[str, Any], lane: Lane, t: int, size: int) -> None:
    """The sentence that stands is about this step or one of the two before, and its counts add up."""
    if seen["verdict"] is not None:
        assert seen["sentence"] == "", "after the end there is the verdict and nothing else"
        return
    if not seen["sentence"]:
        return
    assert 0 <= seen["step"] - seen["about"] <= 2, seen
    if found := re.search(
        r"computes (\d+) of (\d+) tokens[^;]*; (\d+) are left out", seen["sentence"]
    ):
        computed, of, left = map(int, found.groups())
        assert computed + left == of == size, seen
        own = int(re.match(r"Step (\d+)", seen["sentence"])[1]) - 1  # type: ignore[index]
        assert computed == lane.computed[own] and abs(own - t) <= 2 * (1 + lane.last // 8), seen


@pytest.mark.parametrize("run", RUNS)
def test_numbers_agree(page, app, run):
    settings = dict(RUNS[run])
    where = settings.pop("where", "server")
    visit(page, app.url, **settings)
    page.select_option(".sl-action-where", where)
    run_to_end(page)
    document = page.evaluate("surelock.stage.trace.toDocument()")
    lanes = {lane["id"]: reading(document, lane["id"]) for lane in document["header"]["lanes"]}
    for by_clock in (False, True):
        page.evaluate("(byClock) => surelock.stage.timeline.setRace(byClock)", by_clock)
        last = page.evaluate("surelock.stage.timeline.last")
        for step in sorted(random.Random(run).sample(range(last + 1), min(STEPS, last + 1))):
            seek(page, step)
            settled(page)
            check(
                page, document, lanes, by_clock and page.evaluate("surelock.stage.timeline.byClock")
            )


@pytest.mark.parametrize("speed", [1, 2, 4, 8])
def test_a_sentence_is_about_a_step_at_most_two_back(page: Page, app: App, speed: int) -> None:
    page.emulate_media(reduced_motion="no-preference")
    page.goto(app.url)
    until(page, "window.surelock?.stage.trace && surelock.stage.sides.length")
    page.evaluate("surelock.stage.timeline.pause()")
    seen = page.evaluate(PLAYS, speed)
    assert len(seen) > 5 and seen[-1][0] > 0
    for step, about, text in seen:
        assert (about is None) == (text == ""), text
        if about is not None:
            assert 0 <= step - about <= 2, (step, about, text)
