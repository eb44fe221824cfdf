"""The queue of the device against a plain model of it: whose turn it is, who has a place, and what each is told."""

import asyncio
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from surelock.ui import queue as queue_module
from surelock.ui.queue import Place, Queue, QueueFull
from tests.loops import finished
from tests.waiting import HANGS

SIZE = 4


class Turns(RuleBasedStateMachine):
    """Readers come and go. The model: the jobs in the order in which they came, with whose they are, and the holder."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = Queue(SIZE)
        self.readers = list[tuple[int, ExitStack, Place]]()
        self.jobs = dict[int, tuple[str, bool]]()
        self.holder = None

    def turns(self) -> list[int]:
        """The jobs that wait, in the order of their turns."""
        came = [job for job in self.jobs if job != self.holder]
        rounds = {
            job: [self.jobs[other] for other in came[:i]].count(self.jobs[job])
            for i, job in enumerate(came)
        }
        return sorted(came, key=lambda job: (self.jobs[job][1], rounds[job], came.index(job)))

    def gone(self, job: int) -> None:
        """A job is computed no longer, and the next one has the device."""
        del self.jobs[job]
        if job == self.holder:
            self.holder = None
            self.holder = next(iter(self.turns()), None)

    @rule(job=st.integers(0, 9), client=st.sampled_from("abc"))
    def comes(self, job: int, client: str) -> None:
        script = job > 5
        here = [self.jobs[each][0] for each in self.turns() if self.jobs[each][1] == script]
        alone = here.count(client) >= (SIZE // 4 if script else 3 * SIZE // 4)
        full = job not in self.jobs and (alone or len(here) >= SIZE)
        stack = ExitStack()
        try:
            place = stack.enter_context(self.queue.place(job, client, script))
        except QueueFull as error:
            assert full and error.client == alone
            return
        assert not full
        self.jobs.setdefault(job, (client, script))
        self.readers.append((job, stack, place))
        if self.holder is None:
            self.holder = job

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def leaves(self, data: st.DataObject) -> None:
        each = data.draw(st.sampled_from(self.readers))
        each[1].close()
        self.readers.remove(each)
        if each[0] not in [job for job, *_ in self.readers]:
            self.gone(each[0])

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def ends(self, data: st.DataObject) -> None:
        """A job has nothing more to compute, whoever still reads it."""
        job = data.draw(st.sampled_from(self.readers))[0]
        self.queue.finished(job)
        self.readers = [each for each in self.readers if each[0] != job]
        self.gone(job)

    @invariant()
    def each_has_the_place_of_its_job(self) -> None:
        places = {self.holder: 0} | {job: i + 1 for i, job in enumerate(self.turns())}
        for job, *_, place in self.readers:
            assert self.queue.before(place) == places[job]


TestTurns = Turns.TestCase
TestTurns.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, derandomize=True
)


def test_readers_of_all_jobs_have_an_end() -> None:
    queue = Queue(8)
    with ExitStack() as stack:
        for _ in range(150):
            stack.enter_context(queue.place("lesson", "a"))
        with pytest.raises(QueueFull, match="full for you: 150 of your"):
            stack.enter_context(queue.place("lesson", "a"))
        for number in range(50):
            stack.enter_context(queue.place("lesson", f"{number}"))
        with pytest.raises(QueueFull, match="full: 200 runs"):
            stack.enter_context(queue.place("lesson", "b"))
    with queue.place("another", "a") as place:
        assert queue.before(place) == 0


def test_a_place_is_reported_at_each_change_until_the_device_is_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(queue_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    queue = Queue(8)

    async def visit() -> list[Any]:
        told = []
        with ExitStack() as first, ExitStack() as second, queue.place("c", "c") as mine:
            queue.finished("c")
            held = first.enter_context(queue.place("a", "a", left=lambda: 4.0))
            second.enter_context(queue.place("b", "b", left=lambda: None))
            with queue.place("c", "c") as mine:
                async for each in mine.waits():
                    told.append(each)
                    now[0] += 10
                    (first if len(told) == 1 else second).close()
            assert queue.before(held) is None
        return told

    assert finished(visit()) == [(2, 4.0 + 0.0), (1, 5.0), (0, 0.0)]


def test_who_waits_hears_after_a_while_though_nothing_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue = Queue(8)

    async def visit() -> list[Any]:
        with queue.place("a", "a"), queue.place("b", "b") as mine:
            reports = mine.waits()
            told = [await anext(reports), await asyncio.wait_for(anext(reports), HANGS)]
            queue.finished("b")
            return [*told, await anext(reports, "left")]

    monkeypatch.setattr(Queue.change, "__defaults__", (0.05,))
    assert finished(visit()) == [(1, None), (1, None), "left"]
