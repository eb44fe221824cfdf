"""The queue of the device: one job computes at a time, and the readers of waiting jobs see their place.

This module knows neither HTTP nor Gradio. All calls must come from one event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from statistics import median

from surelock.values import frozen

STATUS_SECONDS = 2.0  # the time between two reports of a place
#: The number of latest jobs whose median duration estimates the duration of the next job.
REMEMBERED = 9
MOST_READERS = 200  # the most readers of all jobs; one client may have three quarters of them


class QueueFull(ValueError):
    """The queue has no place.

    most: the limit that is reached.
    client: whether the limit is that of the client; other clients may still have a place.
    """

    def __init__(self, most: int, client: bool) -> None:
        whose = f" for you: {most} of your" if client else f": {most}"
        super().__init__(f"The queue is full{whose} runs wait already. Try again in a moment.")
        self.client = client


@dataclass(eq=False, slots=True)
class _Entry:
    """A job in the queue."""

    client: str  # the client of the first reader
    script: bool  # whether a script sent the job; a visitor of the page did otherwise
    left: Callable[[], float | None]  # see `Queue.place`
    readers: list[Place] = field(default_factory=list)
    begun: float = 0.0  # when the job got the device, in monotonic seconds


class Queue:
    """The jobs that wait for the device, and the job that has it.

    Visitors come before scripts, clients take turns, and the jobs of one client keep the order of their arrival. Equal
    jobs share one place.

    size: the number of places for visitors, and the number of further places for scripts. One client may have three
        quarters of the visitors' places and a quarter of the scripts' places. A client is an address: a class that
        shares one address is one client.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        # the most places of one client, by `script`
        self._of_one_client = {False: max(1, 3 * size // 4), True: max(1, size // 4)}
        self._entries: dict[object, _Entry] = {}  # by job
        self._holder: _Entry | None = None  # the job that has the device
        self._durations: deque[float] = deque(maxlen=REMEMBERED)  # seconds of the latest jobs
        self._changed = asyncio.Event()

    @contextmanager
    def place(
        self,
        job: object,
        client: str,
        script: bool = False,
        left: Callable[[], float | None] = lambda: None,
    ) -> Iterator[Place]:
        """Give a reader of a job a place in the queue until the block ends. Raises QueueFull.

        job: a hashable value. Readers of equal jobs share one place.
        left: returns the remaining seconds of a job that has begun, None if they are unknown.
        """
        self.check(client, script, job)
        entry = self._entries.setdefault(job, _Entry(client, script, left))
        place = Place(self, job, client)
        entry.readers.append(place)
        self._choose()
        try:
            yield place
        finally:
            entry.readers.remove(place)
            if not entry.readers and self._entries.get(job) is entry:
                self.finished(job)

    def check(self, client: str, script: bool, job: object = None) -> None:
        """Raise QueueFull if there is no place for a client's job. job: None for a job that is not in the queue."""
        readers: Counter[str] = Counter()
        for entry in self._entries.values():
            readers.update(place.client for place in entry.readers)
        if readers.total() >= MOST_READERS:
            raise QueueFull(MOST_READERS, client=False)
        if readers[client] >= 3 * MOST_READERS // 4:
            raise QueueFull(readers[client], client=True)
        if job in self._entries:
            return
        waiting = [entry.client for entry in self._order() if entry.script == script]
        of_one = self._of_one_client[script]
        if waiting.count(client) >= of_one:
            raise QueueFull(of_one, client=True)
        if len(waiting) >= self._size:
            raise QueueFull(self._size, client=False)

    def finished(self, job: object) -> None:
        """Remove a job from the queue, and let the next job have the device."""
        entry = self._entries.pop(job, None)
        if entry is not None and entry is self._holder:
            self._durations.append(time.monotonic() - entry.begun)
            self._holder = None
        self._choose()
        self.wake()

    def before(self, place: Place) -> int | None:
        """Return the number of jobs before a place: 0 if its job has the device, None if its job left the queue."""
        entry = self._entries.get(place.job)
        if entry is None or place not in entry.readers:
            return None
        if entry is self._holder:
            return 0
        return 1 + self._order().index(entry)

    def seconds(self, before: int) -> float | None:
        """Return the estimated seconds until a job begins, None if they are unknown.

        before: the number of jobs before it.

        The estimate is the rest of the present job, and the median duration of the latest jobs for every other job
        before it.
        """
        if not before:
            return 0.0
        left = self._holder.left() if self._holder is not None else 0.0
        typical = median(self._durations) if self._durations else left
        if typical is None:
            return None
        if left is None:
            left = typical
        return left + (before - 1) * typical

    async def change(self, seconds: float = STATUS_SECONDS) -> None:
        """Wait until a job begins or leaves the queue, at most `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    def wake(self) -> None:
        """Let every waiting call of `change` return."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _choose(self) -> None:
        """Give the device, if it is free, to the job whose turn it is."""
        if self._holder is None and self._entries:
            self._holder = self._order()[0]
            self._holder.begun = time.monotonic()
            self.wake()

    def _order(self) -> list[_Entry]:
        """Return the waiting jobs in the order of their turns."""
        before: Counter[tuple[bool, str]] = Counter()
        turns: dict[_Entry, tuple[bool, int]] = {}
        for entry in self._entries.values():
            if entry is not self._holder:
                turns[entry] = entry.script, before[entry.script, entry.client]
                before[entry.script, entry.client] += 1
        return sorted(turns, key=turns.__getitem__)


@frozen(eq=False)
class Place:
    """The place of one reader in the queue."""

    queue: Queue
    job: object
    client: str

    async def waits(self) -> AsyncGenerator[tuple[int, float | None]]:
        """Yield (number of jobs before this job, estimated seconds) until the job has the device or leaves the queue.

        A report is yielded at every change, and every STATUS_SECONDS without a change. The last report is (0, 0.0) if
        the job has the device.
        """
        while before := self.queue.before(self):
            yield before, self.queue.seconds(before)
            await self.queue.change()
        if before is not None:
            yield 0, 0.0
