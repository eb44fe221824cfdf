"""Runs and who follows them: streams, rests and ends of each, what is computed once for all, what is kept."""

import asyncio
import json
import math
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import surelock
from surelock.trace.lanes import Lane
from surelock.trace.recorder import make_header
from surelock.ui import runs as module
from surelock.ui.limits import Limits
from surelock.ui.request import Job
from surelock.ui.runs import Runs, VisitorRun
from surelock.ui.shared_race import SharedRace, weigh
from tests.loops import finished
from tests.waiting import HANGS

DECODER = surelock.Decoder(settings=surelock.DecodeSettings(gen_length=6))
JOB = Job("m", "hello", [5, 6], (Lane(id="own", name="Own", decoder=DECODER),))


class FakeRecorder:
    """Stands for a Recorder: records are the facts themselves."""

    def __init__(self) -> None:
        model = {"vocab_size": 41, "n_layers": 2, "d_model": 32}
        self.header: dict[str, Any] = {"model": model, "lanes": [{}], "length": 8, "steps": 6}

    def start(self) -> dict[str, Any]:
        return {"header": self.header}

    def take(self, items: Any) -> dict[str, Any]:
        return {"errors": items} if "errors" in items[0] else {"records": items, "pieces": {}}


class FakeDecoder:
    """Stands for the decoders: counts the steps it was made to compute, and whether it was closed."""

    def __init__(self, steps: int = 6, error: BaseException | None = None) -> None:
        self.steps = steps
        self.error = error
        self.computed = 0
        self.closed = threading.Event()

    def __call__(self) -> Iterator[list[Any]]:
        try:
            for step in range(self.steps):
                if self.error and step == 2:
                    raise self.error
                self.computed += 1
                yield [{"lane": "own", "step": step}]
            yield []
            yield [{"errors": "own"}]
        finally:
            self.closed.set()


LAST = 8  # the number of the last message: behind the opening, six steps and the errors


def opened(runs: Runs, owner: str, decoder: FakeDecoder, job: Job = JOB) -> VisitorRun:
    recorder: Any = FakeRecorder()
    begin = partial(SharedRace, job, recorder, decoder(), runs.limits, runs.shared, runs.make_room)
    return runs.open(owner, owner, job.key, begin)


def read(batch: bytes) -> list[tuple[int, dict[str, Any]]]:
    """The number and the data of each event of a batch."""
    events = [
        dict(line.split(": ", 1) for line in each.split("\n"))
        for each in batch.decode().split("\n\n")
        if each
    ]
    assert all(next(iter(json.loads(each["data"]))) == each["event"] for each in events)
    return [(int(each["id"]), json.loads(each["data"])) for each in events]


async def batches(
    run: VisitorRun, after: int = -1, steps: int | None = None
) -> AsyncGenerator[list[tuple[int, Any]]]:
    with run.streaming() as goes_on:
        async with aclosing(run.messages(after, steps, goes_on)) as messages:
            async for batch in messages:
                yield read(batch)


async def numbers(run: VisitorRun, after: int = -1, steps: int | None = None) -> list[int]:
    return [number async for batch in batches(run, after, steps) for number, _ in batch]


def test_the_time_that_is_left_knows_the_steps_of_every_lane(
    stories: surelock.LanguageModel,
) -> None:
    """A policy that takes back needs twice as many; lanes that end early leave none."""

    lanes = [
        *JOB.lanes,
        Lane(id="back", name="Back", decoder=replace(DECODER, unmask=surelock.Remask())),
    ]
    recorder: Any = FakeRecorder()
    recorder.header["steps"] = make_header(stories, JOB.prompt, JOB.tokens, lanes)["steps"]

    async def visit(steps: int) -> list[float | None]:
        race = SharedRace(JOB, recorder, FakeDecoder(steps)(), Limits())
        left: list[float | None] = [race.left()]
        for done in range(1, steps + 2):  # behind the last step commit errors are compared
            await race.more()
            left.append(round((race.left() or 0) * done / race._seconds))
        return left

    assert finished(visit(12)) == [None, *reversed(range(12)), 0]
    assert finished(visit(4)) == [None, 11, 10, 9, 8, 0]


def test_quick_steps_are_sent_together_the_first_and_the_last_at_once() -> None:
    async def visit() -> list[list[int]]:
        run = opened(Runs(), "a", FakeDecoder())
        return [[number for number, _ in batch] async for batch in batches(run)]

    assert finished(visit()) == [[0], [1], [2, 3, 4, 5, 6], [7], [8]]


def test_what_was_missed_comes_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE", 500)

    async def visit() -> list[list[Any]]:
        runs = Runs()
        first, second = (opened(runs, owner, FakeDecoder(200)) for owner in "ab")
        await numbers(first)
        return [batch async for batch in batches(second)]

    found = finished(visit())
    assert [number for batch in found for number, _ in batch] == [*range(203)] and len(found) > 10


def test_a_later_stream_takes_the_run_over() -> None:
    async def visit() -> None:
        run = opened(runs := Runs(), "a", made := FakeDecoder())
        decoder = made
        earlier = batches(run)
        assert [await anext(earlier), await anext(earlier)][1][0][0] == 1
        later = batches(run, 1, 2)
        assert (await anext(later))[0][0] == 2
        assert [each async for each in earlier] == [] and not run.idle
        assert [number async for batch in later for number, _ in batch] == [3]
        assert run.idle and decoder.computed == 3 and runs.find(run.id) is run

    finished(visit())


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ArithmeticError("the network put out NaN in step 2"), "NaN in step 2"),
        (MemoryError(), "ran out of memory"),
        (RuntimeError("CUDA out of memory. Tried"), "ran out of memory"),
        (ValueError("bad"), "bad"),
    ],
)
def test_a_failure_is_one_sentence_for_all_and_nobody_follows_it(
    error: BaseException, sentence: str
) -> None:
    async def visit() -> None:
        runs = Runs()
        decoder = FakeDecoder(error=error)
        pair = [opened(runs, owner, decoder) for owner in "ab"]
        for run in pair:
            number, last = [batch async for batch in batches(run)][-1][-1]
            assert number == 3 and last["end"] == "failed" and sentence in last["problem"]
            assert last["problem"].endswith(".") and decoder.closed.wait(HANGS)
        assert opened(runs, "c", FakeDecoder()).race is not pair[0].race

    finished(visit())


def test_an_error_of_our_own_ends_the_run_and_is_raised() -> None:
    async def visit() -> None:
        run = opened(Runs(), "a", FakeDecoder(error=KeyError("a fault")))
        with pytest.raises(KeyError):
            await numbers(run)
        _, last = [batch async for batch in batches(run)][-1][-1]
        assert last["end"] == "failed" and "its log says more" in last["problem"]

    finished(visit())


def test_a_run_ends_that_takes_too_long() -> None:
    async def visit() -> dict[str, Any]:
        run = opened(Runs(Limits(run_seconds=1e-9)), "a", FakeDecoder())
        return [batch async for batch in batches(run)][-1][-1][1]

    assert finished(visit())["problem"].startswith("The run was stopped after 0 seconds")
    with pytest.raises(ValueError, match=r"--keep-mb"):
        Limits(keep_mb=math.nan)


def test_thirty_with_one_job_share_a_race_and_another_job_does_not() -> None:
    async def visit() -> None:
        runs = Runs()
        decoder = FakeDecoder()
        thirty = [opened(runs, f"visitor {number}", decoder) for number in range(30)]
        seen = await asyncio.gather(*(numbers(run) for run in thirty))
        assert (
            seen == [[*range(9)]] * 30
            and decoder.computed == 6
            and len({run.id for run in thirty}) == 30
        )
        assert opened(runs, "late", FakeDecoder()).race is thirty[0].race, (
            "it has ended and is sent again"
        )
        assert (
            opened(runs, "x", FakeDecoder(), replace(JOB, key="other")).race is not thirty[0].race
        )
        alone = Runs(shared=False)
        first, second = (opened(alone, owner, FakeDecoder()) for owner in "ab")
        assert first.race is not second.race, "on ZeroGPU one visitor pays for it"
        await numbers(first)
        assert opened(alone, "c", FakeDecoder()).race is first.race

    finished(visit())


def test_runs_have_an_end_and_those_that_rest_longest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_RUNS", 5)
    monkeypatch.setattr(module, "MOST_OF_CLIENT", 3)

    async def visit() -> None:
        runs = Runs()
        first = opened(runs, "first", FakeDecoder())
        stream = batches(first)
        await anext(stream)
        rest = [opened(runs, f"visitor {number}", FakeDecoder()) for number in range(8)]
        assert len(runs) == 5 and runs.find(first.id) is first
        assert [runs.find(run.id) is not None for run in rest] == [False] * 4 + [True] * 4

        def made_up(number: int) -> module.VisitorRun:
            recorder: Any = FakeRecorder()
            begin = partial(SharedRace, JOB, recorder, FakeDecoder()(), runs.limits)
            return runs.open(f"made up {number}", "one address", str(number), begin)

        idle = [made_up(number) for number in range(4)]
        assert [runs.find(run.id) is not None for run in idle] == [False, True, True, True]
        with ExitStack() as streams:
            for run in idle[1:]:
                streams.enter_context(run.streaming())
            with pytest.raises(module.TooMany):
                made_up(4)
        assert made_up(5)
        await stream.aclose()

    finished(visit())


OVER = 3  # the numbers of the first message behind two steps, and of the last one
END = 4
WEIGHT = weigh(FakeRecorder().header)
FITS = 2.5  # races that have begun and not ended


@dataclass(eq=False)
class Kept:
    """A run that the model keeps. seen: the number of its last message. stopped: that of its own end."""

    run: VisitorRun
    owner: str
    job: str
    touched: float
    seen: int = -1
    stopped: int | None = None


class Visits(RuleBasedStateMachine):
    """Visitors open, read and stop runs of few jobs, and leave them alone; memory holds few races."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.kept = list[Kept]()
        self.begun = set[SharedRace]()
        self.patches = pytest.MonkeyPatch()
        self.patches.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.runs = Runs(Limits(keep_mb=FITS * (WEIGHT.live + WEIGHT.kept) / 1e6))

    def teardown(self) -> None:
        self.patches.undo()

    def of(self, race: SharedRace) -> list[Kept]:
        return [each for each in self.kept if each.run.race is race]

    @rule(owner=st.sampled_from("abc"), job=st.sampled_from("xyz"))
    def opens(self, owner: str, job: str) -> None:
        self.now += 1
        races = {each.run.race: each for each in self.kept if each.job == job}
        open_to = [
            race
            for race in races
            if all(each.owner != owner for each in self.of(race))
            and race.ended in (None, "finished")
        ]

        async def visit() -> VisitorRun:
            return opened(self.runs, owner, FakeDecoder(2), replace(JOB, key=job))

        run = finished(visit())
        assert run.race in open_to if open_to else run.race not in races
        mine = [each for each in self.kept if each.owner == owner]
        self.kept.append(Kept(run, owner, job, self.now))
        for each in mine:
            self.stopped(each)
        for each in mine[: 1 - module.KEPT_RUNS]:
            self.kept.remove(each)

    def stopped(self, each: Kept) -> None:
        if each.stopped is None and each.seen < END:
            each.stopped = each.seen + 1

    @precondition(lambda self: self.kept)
    @rule(data=st.data(), steps=st.integers(1, 3), again=st.booleans())
    def reads(self, data: st.DataObject, steps: int, again: bool) -> None:
        """So many steps behind what it has, or from its beginning."""
        each = data.draw(st.sampled_from(self.kept))
        self.now = self.now + 1
        after = -1 if again else each.seen
        race = each.run.race
        most = max(after + 1, 1) + steps
        last = each.stopped if each.stopped is not None else END if most > OVER else most - 1
        if race not in self.begun and each.stopped is None and last > 0:
            self.begun.add(race)
            self.make_room(race)
        assert finished(numbers(each.run, after, steps)) == [*range(after + 1, last + 1)]
        each.touched = self.now
        each.seen = max(each.seen, last)

    def make_room(self, new: SharedRace) -> None:
        """The races go that all of their runs have left alone for longest, until the others fit."""
        races = {
            each.run.race: max(one.touched for one in self.of(each.run.race)) for each in self.kept
        }
        weights = {
            race: WEIGHT.kept + (0 if race.ended else WEIGHT.live)
            for race in races
            if race in self.begun
        }
        for race in sorted(races, key=lambda race: races[race]):
            if sum(weights.values()) > FITS * (WEIGHT.live + WEIGHT.kept) and race is not new:
                weights.pop(race, None)
                self.kept = [each for each in self.kept if each.run.race is not race]

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def stops(self, data: st.DataObject) -> None:
        each = data.draw(st.sampled_from(self.kept))
        each.run.stop()
        self.stopped(each)

    @rule(seconds=st.sampled_from([1.0, 599.0, 601.0]))
    def nobody_comes(self, seconds: float) -> None:
        self.now += seconds
        self.runs.sweep()
        self.kept = [each for each in self.kept if self.now - each.touched <= 600]

    @invariant()
    def the_server_keeps_what_the_model_keeps(self) -> None:
        assert len(self.runs) == len(self.kept)
        for each in self.kept:
            race = each.run.race
            whole = race.ended == "finished"
            assert each.run.ended == (each.stopped is not None or whole) and race.ended in (
                None,
                "finished",
                "stopped",
            )
            assert whole or (race.ended == "stopped") == all(
                one.stopped is not None for one in self.of(race)
            )
            has = (
                None
                if each.seen == END and each.stopped is None
                else max(0, min(each.seen, OVER - 1))
            )
            assert (
                each.stopped is not None or each.run.steps == has or len(race.log) == each.seen + 1
            )


TestVisits = Visits.TestCase
TestVisits.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None, derandomize=True
)
