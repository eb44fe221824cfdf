"""The queue of the device. One job computes at a time; the waiting ones are shown their place.

It knows neither HTTP nor Gradio. Call it in one event loop.
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

STATUS_SECONDS = 2.0  # between two reports of a place
REMEMBERED = 9  # jobs whose median time estimates that of the next job
MOST_READERS = 200  # of all jobs; one client may have three quarters of them


class QueueFull(ValueError):
    """The queue has no place. client: whether it has one for other clients."""

    def __init__(self, most: int, client: bool) -> None:
        whose = f" for you: {most} of your" if client else f": {most}"
        super().__init__(f"The queue is full{whose} runs wait already. Try again in a moment.")
        self.client = client


@dataclass(eq=False, slots=True)
class _Entry:
    """A job in the queue."""

    client: str  # who sent it first
    script: bool  # whether a script sent it, not a visitor
    left: Callable[[], float | None]  # see `Queue.place`
    readers: list[Place] = field(default_factory=list)
    begun: float = 0.0  # monotonic seconds


class Queue:
    """Jobs by the order of arrival: visitors come before scripts, clients take turns, equal jobs have
    one place.

    size: the number of places for visitors, and as many for scripts. One client may have three
    quarters of the visitors' places and a quarter of the scripts'. A client is an address: a class
    behind one address is one client.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._of_one_client = {False: max(1, 3 * size // 4), True: max(1, size // 4)}  # by `script`
        self._entries: dict[object, _Entry] = {}
        self._holder: _Entry | None = None
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
        """Give a reader of a job a place until the block ends. Raises QueueFull.

        job: readers of equal jobs share its place in the queue.
        left: once the job has begun, returns the seconds that it still takes; None if unknown.
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
        """Raise QueueFull if there is no place for a client's job. job: None for one that nobody waits for yet."""
        readers = Counter(
            place.client for entry in self._entries.values() for place in entry.readers
        )
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
        """Take a job off the queue and the device: it computes nothing more."""
        entry = self._entries.pop(job, None)
        if entry is not None and entry is self._holder:
            self._durations.append(time.monotonic() - entry.begun)
            self._holder = None
        self._choose()
        self.wake()

    def before(self, place: Place) -> int | None:
        """Return the number of jobs before a place, 0 if its job has the device; None if the place was left."""
        entry = self._entries.get(place.job)
        if entry is None or place not in entry.readers:
            return None
        return 0 if entry is self._holder else 1 + self._order().index(entry)

    def seconds(self, before: int) -> float | None:
        """Return the estimated seconds until a job begins, None if unknown. before: the jobs before it.

        That is the rest of the present job, then the median time of the latest jobs for every job between.
        """
        if not before:
            return 0.0
        left = self._holder.left() if self._holder is not None else 0.0
        typical = median(self._durations) if self._durations else left
        if typical is None:
            return None
        return (typical if left is None else left) + (before - 1) * typical

    async def change(self, seconds: float = STATUS_SECONDS) -> None:
        """Wait until a job begins or leaves the queue, at most some seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    def wake(self) -> None:
        """End every `change` that waits."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _choose(self) -> None:
        """Give a free device to the job whose turn it is."""
        if self._holder is None and self._entries:
            self._holder = self._order()[0]
            self._holder.begun = time.monotonic()
            self.wake()

    def _order(self) -> list[_Entry]:
        """The waiting jobs in the order of their turns."""
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
        """Yield (jobs before this one, estimated seconds) until the job has the device or leaves the queue.

        Reports every change, and the present state every STATUS_SECONDS. The last report of a job that
        has the device is (0, 0.0).
        """
        while before := self.queue.before(self):
            yield before, self.queue.seconds(before)
            await self.queue.change()
        if before is not None:
            yield 0, 0.0
