"""Any order of what visitors do with their runs, against a plain model of what the server keeps of them and why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from surelock.ui import session as sessions_module
from surelock.ui.limits import Limits, weigh
from surelock.ui.session import KEPT_RUNS, Sessions
from tests.loops import drawn
from tests.test_sessions import JOB, FakeDecoder, FakeRecorder

STEPS = 2
OWNERS, JOBS = st.sampled_from("abc"), st.sampled_from("xyz")
WEIGHT = weigh(FakeRecorder().header)
FITS = 2.5  # computations that have not ended


@dataclass
class Kept:
    """A run that the server keeps, as the model has it. touched: when it was used last; replays: its stream is of a run
    that had ended.
    """

    run: Any
    owner: str
    job: str
    touched: int
    ended: bool = False
    stream: Iterator[str] | None = None
    replays: bool = False


class Visits(RuleBasedStateMachine):
    """Visitors open, watch, pause, stop and leave runs of few jobs; memory holds few of them."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.kept, self.decoders = 0, list[Kept](), list[FakeDecoder]()
        self.streams: list[Any] = []
        clock = SimpleNamespace(monotonic=lambda: self.now)
        self.patches = [patch(f"surelock.ui.{name}.time", clock) for name in ("run", "session")]
        self.patches += [patch(f"surelock.ui.run.{name}", 0.0) for name in ("SEND_SECONDS", "EACH_SECONDS")]
        for each in self.patches:
            each.start()
        limits = Limits(keep_mb=FITS * (WEIGHT.live + WEIGHT.kept) / 1e6)
        self.sessions, self.texts = Sessions(self.decoder, limits=limits), dict[Any, list[str]]()

    def decoder(self, *given: Any) -> Any:
        self.decoders.append(FakeDecoder(STEPS))
        return self.decoders[-1](*given)

    def teardown(self) -> None:
        for stream in self.streams:  # none is left to the collector, which may run in the loop that they wait for
            stream.close()
        for owner in "abc":
            self.sessions.leave(owner)
        for each in self.patches:
            each.stop()

    @rule()
    def time_passes(self) -> None:
        self.now += 1

    @rule(owner=OWNERS, job=JOBS)
    def opens(self, owner: str, job: str) -> None:
        self.now += 1
        joins = [each for each in self.computations() if self.may_join(owner, job, each)]
        assert self.sessions.follows(owner, replace(JOB, prompt=job).key) is any(
            each.ended or each.running for each in joins
        )
        if not joins:
            self.make_room()
        run = self.sessions.open(owner, replace(JOB, prompt=job), FakeRecorder())  # type: ignore[arg-type]
        assert run.computation in joins if joins else run.computation not in self.computations()
        self.kept.append(Kept(run, owner, job, self.now))
        mine = [each for each in self.kept if each.owner == owner]
        for each in mine[:-1]:
            self.ends(each)
        for each in mine[:-KEPT_RUNS]:
            self.goes(each)

    @precondition(lambda self: self.kept)
    @rule(data=st.data(), most=st.integers(1, 3))
    def reads(self, data: st.DataObject, most: int) -> None:
        """Some messages more, of a stream that stays open."""
        each = data.draw(st.sampled_from(self.kept))
        self.now += 1
        self.follows(each)
        if self.takes_all(each, most) < most:
            each.stream = None

    @precondition(lambda self: self.kept)
    @rule(data=st.data(), how=st.sampled_from(["pause", "stop", "close", "watch"]))
    def comes_to_rest(self, data: st.DataObject, how: str) -> None:
        """It pauses, ends, or is watched to its end."""
        each = data.draw(st.sampled_from(self.kept))
        self.now += 1
        if how == "stop":
            each.run.stop()
        elif how == "pause":
            each.run.pause()
        if how == "watch":
            self.follows(each)
        if how == "close" and each.stream is not None:
            each.stream.close()  # type: ignore[attr-defined]
            each.replays = False
        self.takes_all(each)
        each.stream = None
        each.ended = each.ended or how == "stop"

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def is_asked_about(self, data: st.DataObject) -> None:
        each = data.draw(st.sampled_from(self.kept))
        self.now += 1
        assert self.sessions.find(each.run.id) is each.run
        each.touched = self.now

    @rule(owner=OWNERS)
    def leaves(self, owner: str) -> None:
        self.sessions.leave(owner)
        for each in [each for each in self.kept if each.owner == owner]:
            self.goes(each)

    @rule(seconds=st.sampled_from([1, 599, 601]))
    def nobody_comes(self, seconds: int) -> None:
        self.now += seconds
        self.sessions.sweep()
        for each in [each for each in self.kept if self.now - each.touched > sessions_module.IDLE_SECONDS]:
            self.goes(each)

    @invariant()
    def what_is_kept_is_what_the_model_keeps(self) -> None:
        assert set(self.sessions._runs) == {each.run.id for each in self.kept}
        for each in self.kept:
            assert (each.run.state == "ended") == each.ended and each.run.touched == each.touched
        for computation, runs in self.computations().items():
            alive = computation.ended == "finished" or any(not each.ended for each in runs)
            assert alive or computation.ended == "stopped", "nobody follows it"

    def computations(self) -> dict[Any, list[Kept]]:
        found: dict[Any, list[Kept]] = {}
        for each in self.kept:
            found.setdefault(each.run.computation, []).append(each)
        return found

    def may_join(self, owner: str, job: str, computation: Any) -> bool:
        """Whether a new run may follow it: a finished one that the visitor has not had, or one that others follow."""
        runs = self.computations()[computation]
        if runs[0].job != job:
            return False
        if computation.ended:
            return computation.ended == "finished" and all(each.owner != owner for each in runs)
        return any(each.owner != owner and not each.ended for each in runs)

    def make_room(self) -> None:
        """The computation goes that all of its followers have left alone for longest, until a new one fits."""
        weights = {each: WEIGHT.kept + (0 if each.ended else WEIGHT.live) for each in self.computations()}
        idle = [each for each in weights if not any(one.run.streams for one in self.computations()[each])]
        used = sum(weights.values())
        for each in sorted(idle, key=lambda each: max(one.touched for one in self.computations()[each])):
            if used + WEIGHT.live + WEIGHT.kept <= FITS * (WEIGHT.live + WEIGHT.kept):
                break
            used -= weights[each]
            for one in self.computations()[each]:
                self.goes(one)

    def follows(self, each: Kept) -> None:
        if each.stream is None:
            each.stream, each.touched, each.replays = drawn(each.run.stream(-1)), self.now, each.ended
            self.streams.append(each.stream)

    def takes_all(self, each: Kept, most: int | None = None) -> int:
        """The batches of its stream, or so many of them; returns how many there were."""
        count = 0
        for batch in islice(each.stream or (), most):
            self.takes(each, batch)
            count += 1
        if each.stream is not None and each.replays:
            each.touched = self.now
        return count

    def takes(self, each: Kept, batch: str) -> None:
        """Messages come in order, the same for all that follow a computation but its end."""
        texts = self.texts.setdefault(each.run.computation, [])
        for message in json.loads(batch):
            assert message.pop("run") == each.run.id
            each.ended = each.ended or "end" in message
            number, text = message["seq"], json.dumps(message)
            if message.get("end") != "stopped":
                each.touched = self.now
                texts += [text] if number == len(texts) else []
                assert texts[number] == text

    def ends(self, each: Kept) -> None:
        """Another run of its visitor, or the server, ends it after its present step."""
        self.takes_all(each)
        each.stream, each.ended = None, True

    def goes(self, each: Kept) -> None:
        self.kept.remove(each)
        for _ in each.stream or ():
            pass


TestVisits = Visits.TestCase
TestVisits.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None, derandomize=True, report_multiple_bugs=False
)
