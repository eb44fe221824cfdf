"""Runs and who follows them: streams, pauses and ends of each, what is computed once for all, what is kept."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

import surelock
from surelock.trace.lanes import Lane, StepsOver
from surelock.ui import session as sessions_module
from surelock.ui.layout import _continue
from surelock.ui.limits import Limits, weigh
from surelock.ui.request import Job
from surelock.ui.run import ENDED, PAUSED, RUNNING
from surelock.ui.session import Sessions
from tests.loops import drawn, messages

DECODER = surelock.Decoder(settings=surelock.DecodeSettings(gen_length=6))
JOB = Job("m", "hello", [5, 6], (Lane(id="own", name="Own", decoder=DECODER),))
NUMBERS = count()


class FakeRecorder:
    """Stands for a Recorder: records are the facts themselves."""

    def __init__(self) -> None:
        model = {"vocab_size": 41, "n_layers": 2, "d_model": 32}
        self.header = {"model": model, "lanes": [{}], "length": 8, "steps": 6}

    def start(self) -> dict[str, Any]:
        return {"header": self.header}

    def take(self, told: Any) -> dict[str, Any]:
        return {"records": told, "pieces": {}}


class FakeDecoder:
    """Stands for the decoders: counts the steps it was made to compute, and whether it was closed."""

    def __init__(self, steps: int = 6, error: BaseException | None = None) -> None:
        self.steps, self.error, self.computed, self.closed = steps, error, 0, 0

    def __call__(self, *_: Any) -> Iterator[list[dict[str, Any]]]:
        try:
            for step in range(self.steps):
                if self.error and step == 2:
                    raise self.error
                self.computed += 1
                yield [{"lane": "own", "step": step}]
            yield [StepsOver()]
        finally:
            self.closed += 1


def followed(sessions: Sessions, *owners: str, job: Job = JOB) -> list[Any]:
    """Runs of one job."""
    recorder: Any = FakeRecorder()
    return [sessions.open(owner, job, recorder) for owner in owners]


def open_run(decoder: Any, owner: str = "a", sessions: Sessions | None = None) -> tuple[Sessions, Any]:
    """A run of a job that nobody else asks for."""
    sessions = Sessions(decoder) if sessions is None else sessions
    recorder: Any = FakeRecorder()
    return sessions, sessions.open(owner, replace(JOB, prompt=f"hello {next(NUMBERS)}"), recorder)


def held(steps: int) -> tuple[Any, threading.Event, threading.Event]:
    """A decoder whose steps wait, that it is in one, and what lets them go."""
    inside, go = threading.Event(), threading.Event()

    def slow(*_: Any) -> Iterator[list[dict[str, Any]]]:
        for step in range(steps):
            inside.set()
            go.wait(5)
            yield [{"lane": "own", "step": step}]

    return slow, inside, go


@pytest.fixture
def each_step_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SEND_SECONDS", "EACH_SECONDS"):
        monkeypatch.setattr(f"surelock.ui.run.{name}", 0.0)


def test_a_run_streams_numbered_messages_to_its_end() -> None:
    decoder = FakeDecoder()
    _, run = open_run(decoder)
    seen = messages(run.stream(-1))
    assert [message["seq"] for message in seen] == list(range(8))
    assert "open" in seen[0] and seen[-1]["end"] == "finished" and run.state == ENDED
    assert {message["run"] for message in seen} == {run.id} and len(run.id) >= 24


def test_a_step_past_the_last_brings_all_that_follows_the_steps() -> None:
    def told(*_: Any) -> Iterator[list[dict[str, Any]]]:
        yield [{"lane": "own", "step": 0}]
        yield [StepsOver()]  # the errors of two lanes take a while, and come one by one
        yield [{"lane": "a", "step": 1}]
        yield [{"lane": "b", "step": 1}]

    _, run = open_run(told)
    assert len(messages(run.stream(-1, 1))) == 2 and run.state == PAUSED
    assert [*messages(run.stream(1, 1))[-1]][-2:] == ["end", "problem"] and run.state == ENDED


@pytest.mark.parametrize("steps", [6, 4, 1])
def test_quick_steps_are_sent_together_the_first_and_the_last_at_once(steps: int) -> None:
    """What comes after the last, the commit errors, takes seconds: nobody waits for a step so long, whether the
    lanes take all of their steps or end early.
    """
    _, run = open_run(FakeDecoder(steps))
    batches = [[message["seq"] for message in json.loads(batch)] for batch in drawn(run.stream(-1))]
    together = [list(range(2, steps + 1))] if steps > 1 else []
    assert batches == [[0], [1], *together, [steps + 1]]


def test_what_was_missed_comes_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the run, a follower who does not read holds one piece."""
    first, second, third = followed(Sessions(FakeDecoder(200)), "a", "b", "c")
    whole = messages(first.stream(-1))
    monkeypatch.setattr("surelock.ui.run.PIECE", 500)
    late = list(drawn(second.stream(-1)))
    assert [message["seq"] for message in messages(late)] == [message["seq"] for message in whole] == list(range(202))
    assert len(late) > 10 and max(map(len, late)) < 1000 and second.state == ENDED
    stream = drawn(third.stream(-1))
    next(stream)
    third.pause()
    assert list(stream) == [] and third.state == PAUSED
    for _ in range(2):  # the second time it has ended
        assert [message["seq"] for message in messages(third.stream(-1))] == list(range(202)) and third.state == ENDED


@pytest.mark.usefixtures("each_step_alone")
def test_pause_ends_the_generator_and_resume_repeats_what_was_missed() -> None:
    decoder = FakeDecoder()
    sessions, run = open_run(decoder)
    race = run.computation
    assert (race.seconds, len(race.log), race.left()) == (0, 1, None), "the first message opens the race"
    stream = drawn(run.stream(-1))
    first = [next(stream) for _ in range(3)]
    run.pause()
    assert len(race.log) == 3 and race.left() == pytest.approx(race.seconds / 2 * 4), "four steps more"
    assert list(stream) == [] and run.state == PAUSED and decoder.computed == 2 and not decoder.closed
    assert sessions.wait(2) == 0, "how long a run takes is known when it has ended"
    resumed = messages(run.stream(json.loads(first[1])[-1]["seq"]))
    assert [message["seq"] for message in resumed] == list(range(2, 8)) and sessions.wait(
        2
    ) == run.computation.seconds > 0


@pytest.mark.usefixtures("each_step_alone")
def test_a_later_stream_takes_the_run_over_from_one_that_was_given_up() -> None:
    """Play, taken back and pressed again: Gradio lets the first stream go without a word, perhaps after the second."""
    decoder = FakeDecoder()
    _, run = open_run(decoder)
    first = drawn(run.stream(-1))
    next(first), next(first)
    second = drawn(run.stream(1))
    seen = messages(iter([next(second)]))
    assert list(first) == [] and run.state == RUNNING
    assert [message["seq"] for message in seen + messages(second)] == list(range(2, 8))
    assert run.state == ENDED and decoder.computed == 6


def test_a_later_stream_waits_for_the_step_of_the_one_before() -> None:
    slow, inside, go = held(4)
    _, run = open_run(slow)
    given_up = threading.Thread(target=lambda: list(drawn(run.stream(-1))))
    given_up.start()
    assert inside.wait(5)
    seen: list[dict[str, Any]] = []
    later = threading.Thread(target=lambda: seen.extend(messages(run.stream(0))))
    later.start()
    time.sleep(0.05)
    assert later.is_alive() and not seen
    go.set()
    for thread in (given_up, later):
        thread.join(5)
    assert run.state == ENDED and [message["seq"] for message in seen] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("after", "steps"), [(-1, "x"), (-1, 0), (-1, True), (-1, 1.5), (-2, None), ("0", 1), (True, 1)]
)
def test_what_is_no_number_of_steps_is_refused_and_the_device_stays_free(after: Any, steps: Any) -> None:
    sessions, run = open_run(FakeDecoder())
    (told,) = messages(_continue(sessions, run.id, after, steps))
    assert told["refused"].startswith("A run goes on after a message's number") and run.state == PAUSED
    assert not sessions.computing
    assert len(messages(_continue(sessions, run.id, -1, 2))) == 3, "the opening and two steps"


@pytest.mark.usefixtures("each_step_alone")
def test_stop_ends_a_streaming_run_after_its_step_and_a_paused_one_at_once() -> None:
    decoder = FakeDecoder()
    _, run = open_run(decoder)
    stream = drawn(run.stream(-1))
    next(stream), next(stream)
    assert run.stop() is None
    assert messages(stream)[-1]["end"] == "stopped" and decoder.computed == 1 and decoder.closed == 1
    _, paused = open_run(FakeDecoder())
    assert json.loads(paused.stop())["end"] == "stopped"


@pytest.mark.usefixtures("each_step_alone")
@pytest.mark.parametrize("how", ["the reader goes away", "the visitor leaves", "both"])
def test_a_closed_tab_stops_the_run_within_two_steps_and_frees_it(how: str) -> None:
    decoder = FakeDecoder(steps=10_000)
    sessions, run = open_run(decoder)
    stream = drawn(run.stream(-1))
    for _ in range(5):
        next(stream)
    if how != "the reader goes away":
        sessions.leave("a")
    if how != "the visitor leaves":
        stream.close()
        sessions.leave("a")
    else:
        list(stream)
    assert decoder.computed <= 4 + 2 and decoder.closed == 1 and len(sessions) == 0


@pytest.mark.parametrize("later", [0, 1, 2])
def test_what_any_of_its_followers_used_last_is_kept(later: int) -> None:
    """Three follow one computation, another one follows a second that was used in between; a third needs the room."""
    each = weigh(FakeRecorder().header)
    sessions = Sessions(FakeDecoder(), limits=Limits(keep_mb=2.5 * (each.live + each.kept) / 1e6))  # type: ignore[arg-type]
    runs = followed(sessions, "a", "b", "c")
    _, between = open_run(FakeDecoder(), "d", sessions)
    for number, run in enumerate(runs):
        run.touched = 9 if number == later else number
    between.touched = 5
    open_run(FakeDecoder(), "e", sessions)
    assert [sessions.find(run.id) for run in (*runs, between)] == [*runs, None]


def test_a_run_ends_that_takes_too_long() -> None:
    sessions = Sessions(FakeDecoder(), limits=Limits(run_seconds=1e-9))  # type: ignore[arg-type]
    last = messages(open_run(FakeDecoder(), "a", sessions)[1].stream(-1))[-1]
    assert last["end"] == "failed" and "seconds" in last["problem"]
    with pytest.raises(ValueError, match=r"--keep-mb"):
        Limits(keep_mb=math.nan)


def test_leaving_while_a_step_is_being_computed() -> None:
    slow, inside, go = held(10**6)
    sessions = Sessions(slow)
    run = sessions.open("a", JOB, FakeRecorder())  # type: ignore[arg-type]
    seen: list[str] = []
    thread = threading.Thread(target=lambda: seen.extend(drawn(run.stream(-1))))
    thread.start()
    assert inside.wait(5)
    sessions.leave("a")
    go.set()
    thread.join(5)
    assert not thread.is_alive() and run.state == ENDED and len(sessions) == 0


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ArithmeticError("the network put out NaN in step 2"), "NaN in step 2"),
        (MemoryError(), "more memory"),
        (RuntimeError("CUDA out of memory. Tried"), "ran out of memory"),
        (ValueError("bad"), "bad"),
    ],
)
def test_failures_are_one_sentence_and_free_the_run(error: BaseException, said: str) -> None:
    decoder = FakeDecoder(error=error)
    _, run = open_run(decoder)
    last = messages(run.stream(-1))[-1]
    assert last["end"] == "failed" and said in last["problem"] and last["problem"].endswith(".")


@pytest.mark.parametrize("run_id", [None, 3, "", "x" * 1000, ["a"], {"a": 1}])
def test_foreign_ids_find_nothing(run_id: Any) -> None:
    sessions, _ = open_run(FakeDecoder())
    assert sessions.find(run_id) is None


def test_thirty_who_ask_for_the_same_wait_for_one_computation() -> None:
    decoder: Any = FakeDecoder()
    sessions = Sessions(decoder)
    runs = followed(sessions, *(f"visitor {number}" for number in range(30)))
    with ThreadPoolExecutor(30) as pool:
        seen = list(pool.map(lambda run: messages(run.stream(-1)), runs))
    assert decoder.computed == 6 and decoder.closed == 1
    for run, own in zip(runs, seen, strict=True):
        assert {message.pop("run") for message in own} == {run.id} and own == seen[0] and run.state == ENDED
    assert [message["seq"] for message in seen[0]] == list(range(8)) and seen[0][-1]["end"] == "finished"
    assert len({run.id for run in runs}) == 30
    others = [replace(JOB, prompt="other"), replace(JOB, tokens=[5, 7]), replace(JOB, chat=True)]
    settings = surelock.DecodeSettings(gen_length=6, seed=1)
    seeded = replace(JOB.lanes[0], decoder=replace(DECODER, settings=settings))
    for number, job in enumerate([*others, replace(JOB, lanes=(seeded,))]):
        messages(followed(sessions, "x", job=job)[0].stream(-1))
        assert decoder.computed == 6 * (number + 2), "what differs in anything is computed by itself"


def test_the_runs_of_all_visitors_have_an_end_and_those_that_rest_longest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many sessions somebody makes up: each run that is kept is looked at whenever the queue moves."""
    monkeypatch.setattr(sessions_module, "MOST_RUNS", 5)
    monkeypatch.setattr(sessions_module, "TOLD_IDS", 3)
    sessions = Sessions(FakeDecoder())  # type: ignore[arg-type]
    (first,) = followed(sessions, "first")
    streamed = drawn(first.stream(-1))
    next(streamed)
    runs = followed(sessions, *(f"visitor {number}" for number in range(8)))
    assert len(sessions) == 5 and first.streams and sessions.find(first.id) is first
    assert [sessions.find(run.id) is not None for run in runs] == [False] * 4 + [True] * 4
    told = ["to make room for newer ones" in sessions.why_gone(run.id) for run in runs[:4]]
    assert told == [False, True, True, True], "of the latest it is known why they have gone"
    assert sessions.follows("another", JOB.key)
    for owner in ("first", *(f"visitor {number}" for number in range(8))):
        sessions.leave(owner)
    assert len(sessions) == 0 and not sessions.follows("another", JOB.key) and not sessions._of_job


@pytest.mark.usefixtures("each_step_alone")
def test_a_pause_and_a_step_are_the_followers_own() -> None:
    decoder: Any = FakeDecoder()
    sessions = Sessions(decoder)
    one, other = followed(sessions, "a", "b")
    mine, theirs = drawn(one.stream(-1)), drawn(other.stream(-1))
    next(mine), next(mine), next(theirs)
    one.pause()
    assert list(mine) == [] and one.state == PAUSED and other.state == RUNNING and sessions.goes_on(one.id)
    next(theirs), next(theirs)
    assert decoder.computed == 3 and one.steps == 1 and other.steps is None
    assert [each["seq"] for each in messages(one.stream(1, 1))] == [2] and decoder.computed == 3 and one.steps == 2
    other.pause()
    assert list(theirs) == [] and not sessions.computing and not sessions.goes_on(one.id) and decoder.closed == 0
    assert [each["seq"] for each in messages(one.stream(2, 1))] == [3] and decoder.computed == 3
    assert [each["seq"] for each in messages(one.stream(3, 1))] == [4] and decoder.computed == 4
    assert [each["seq"] for each in messages(other.stream(3))] == [4, 5, 6, 7]
    assert json.loads(one.stop())["seq"] == 5 and [each["seq"] for each in messages(one.stream(3))] == [4, 5]
    assert one.steps == 4 and other.steps is None


def test_what_fails_is_told_to_all_and_not_told_again() -> None:
    sessions = Sessions(FakeDecoder(error=ValueError("bad")))  # type: ignore[arg-type]
    runs = followed(sessions, "a", "b")
    assert {messages(run.stream(-1))[-1]["problem"] for run in runs} == {"The run stopped: bad."}
    assert not sessions.follows("c", JOB.key)


def test_on_zero_gpu_a_run_is_shared_when_it_is_complete() -> None:
    decoder: Any = FakeDecoder()
    sessions = Sessions(decoder, pausable=False)
    first, second = followed(sessions, "a", "b")
    assert first.computation is not second.computation and not sessions.follows("c", JOB.key)
    messages(first.stream(-1))
    assert followed(sessions, "c")[0].computation is first.computation
