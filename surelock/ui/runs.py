"""The runs of the server, by ids that nobody can guess. Visitors with equal jobs share one computation."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING

from surelock.ui.limits import Limits
from surelock.ui.shared_race import FINISHED, STOPPED, SharedRace, event

if TYPE_CHECKING:
    from collections.abc import Callable

IDLE_SECONDS = 600.0  # a run that nobody has used for so long is dropped
MOST_RUNS = 2000  # the most runs of all visitors
MOST_OF_CLIENT = 400  # the most runs of one client; a class that shares one address is one client
KEPT_RUNS = 4  # the most runs of a visitor; export and likely tokens need them
#: Seconds between two batches of messages: EACH_SECONDS times the readers of the race, but at least SEND_SECONDS and at
#: most MOST_SECONDS. Steps that are computed faster are sent together.
SEND_SECONDS = 0.08
EACH_SECONDS = 0.03
MOST_SECONDS = 2.0
#: The most bytes of a batch; the next batch follows when the reader has taken this one.
PIECE = 2**16


class TooMany(ValueError):
    """A client has too many open streams. The message is one sentence."""


class VisitorRun:
    """The run of one visitor: the messages of a race, sent at the visitor's pace, which the visitor can stop.

    Stopping the run does not stop the race for other visitors.

    owner: the id of the visitor's browser tab.
    client: the visitor's address.
    race: the race, which several runs may share.
    """

    def __init__(self, owner: str, client: str, race: SharedRace) -> None:
        self.id = secrets.token_urlsafe(18)
        self.owner = owner
        self.client = client
        self.race = race
        self.touched = time.monotonic()
        self._stream: object = None  # the newest stream, None if none is open
        self._sent = 0  # the number of messages that were sent
        # the number of messages that were sent before the visitor stopped the run, None for a run that goes on
        self._stopped: int | None = None
        race.followers.add(self)

    @property
    def ended(self) -> bool:
        """Whether nothing remains to be computed for the visitor."""
        return self._stopped is not None or self.race.ended is not None

    @property
    def idle(self) -> bool:
        """Whether no stream of the run is open."""
        return self._stream is None

    @property
    def steps(self) -> int | None:
        """The number of steps that the page has been sent; None if the page has everything, commit errors included."""
        seen = self._sent if self._stopped is None else self._stopped
        if seen == len(self.race.log):
            return None
        return max(0, min(seen, self.race.over or seen) - 1)

    def stop(self) -> None:
        """End this run, not the runs that share its race. An open stream ends after the step that was sent last."""
        if self._stopped is None and (self.race.ended is None or self._sent < len(self.race.log)):
            self._stopped = self._sent
        self.race.leave(self)

    @contextmanager
    def streaming(self) -> Iterator[Callable[[], bool]]:
        """Give the run to a new stream until the block ends.

        Yields the function `is_current()`. It returns whether this stream is still the newest stream of the run.
        """
        stream = self._stream = object()
        self.race.readers += 1
        try:
            yield lambda: self._stream is stream
        finally:
            self.race.readers -= 1
            self.touched = time.monotonic()
            if self._stream is stream:
                self._stream = None

    async def messages(
        self, after: int, steps: int | None = None, is_current: Callable[[], bool] = lambda: True
    ) -> AsyncGenerator[bytes]:
        """Yield batches of messages until `steps` steps are sent, the run ends, or `is_current()` is false.

        after: the number of the last message that the page has, -1 for none.
        steps: the most steps that are sent, None for all. The commit errors are sent with the last step.

        The first and the last step are sent at once, other steps in batches, see SEND_SECONDS.
        """
        race, log = self.race, self.race.log
        due = 0.0  # the time of the next batch
        cursor = min(after + 1, self._sent)
        most = inf if steps is None else max(cursor, 1) + steps
        while is_current():
            end = most if race.over is None or most <= race.over else inf
            if self._stopped is not None:
                end = self._stopped
            available = int(min(end, len(log)))
            at_once = available == end or race.over is not None
            if cursor < available and (at_once or time.monotonic() >= due):
                last = _end_of_batch(log, cursor, available)
                self._sent = max(self._sent, last)
                yield b"".join(log[cursor:last])
                cursor = last
                if 1 < cursor >= len(log):
                    pause = min(MOST_SECONDS, EACH_SECONDS * race.readers)
                    due = time.monotonic() + max(SEND_SECONDS, pause)
            elif self._stopped is not None and cursor <= self._stopped:
                self._sent = self._stopped + 1
                yield event("end", {"end": STOPPED, "problem": None}, self._stopped)
                return
            elif cursor >= end or race.ended:
                return
            else:
                await race.more()


def _end_of_batch(log: list[bytes], first: int, end: int) -> int:
    """Return the end (exclusive) of a batch that begins with message `first` and ends before message `end`.

    The batch has at most PIECE bytes, or consists of one longer message.
    """
    size = len(log[first])
    for last in range(first + 1, end):
        size += len(log[last])
        if size > PIECE:
            return last
    return end


def _touched(run: VisitorRun) -> float:
    return run.touched


class Runs:
    """The runs of a server, by id, within one memory budget.

    limits: the memory budget and the longest computation of a run; None for the defaults.
    shared: whether visitors with equal jobs share a race that is still running. On ZeroGPU they do not, since a race
        counts against the quota of one visitor.
    """

    def __init__(self, limits: Limits | None = None, shared: bool = True) -> None:
        self.limits = limits or Limits()
        self.shared = shared
        self._runs: dict[str, VisitorRun] = {}
        self._sweeping = False

    def __len__(self) -> int:
        return len(self._runs)

    def open(
        self,
        owner: str,
        client: str,
        key: str,
        begin: Callable[[], SharedRace],
        origin: VisitorRun | None = None,
    ) -> VisitorRun:
        """Return a new run for a visitor. Stop the visitor's older runs, and keep only the latest KEPT_RUNS.

        owner: the id of the visitor's browser tab.
        client: the visitor's address.
        key: the key of the job.
        begin: returns a new race. It is called if no race of an equal job can be shared.
        origin: the visitor's older run of which the new run is a branch. It is not stopped.

        Raises TooMany if all runs of the client are being streamed.
        """
        of_client = [run for run in self._runs.values() if run.client == client]
        if len(of_client) >= MOST_OF_CLIENT:
            idle = [run for run in of_client if run.idle]
            if not idle:
                raise TooMany("Too many runs of one address are open here; close some pages.")
            self._drop(min(idle, key=_touched))
        run = VisitorRun(owner, client, self._to_follow(owner, key) or begin())
        older = [
            other for other in self._runs.values() if other.owner == owner and other is not origin
        ]
        self._runs[run.id] = run
        for other in older:
            other.stop()
        for other in older[: 1 - KEPT_RUNS]:
            self._drop(other)
        idle = sorted((other for other in self._runs.values() if other.idle), key=_touched)
        excess = max(0, len(self._runs) - MOST_RUNS)
        for other in idle[:excess]:
            self._drop(other)
        if not self._sweeping:
            self._sweeping = True
            self._sweep_later()
        return run

    def _to_follow(self, owner: str, key: str) -> SharedRace | None:
        """Return a race of an equal job, running (if `shared`) or finished; None if there is none.

        A race that the visitor has already seen is left out, so that pressing Run again computes the run again.
        """
        same = [run for run in self._runs.values() if run.race.key == key]
        seen = {run.race for run in same if run.owner == owner}
        for run in same:
            running = self.shared and run.race.ended is None
            if (running or run.race.ended == FINISHED) and run.race not in seen:
                return run.race
        return None

    def find(self, run_id: str) -> VisitorRun | None:
        """Return the run of an id, None if it is not kept. Finding a run counts as using it."""
        run = self._runs.get(run_id)
        if run is not None:
            run.touched = time.monotonic()
        return run

    def make_room(self, race: SharedRace) -> None:
        """Drop races without a reader, the longest idle first, until the remaining races fit the memory budget.

        race: the race that begins. It has a reader, so it is not dropped.
        """
        touched: dict[SharedRace, float] = {}
        for run in self._runs.values():
            touched[run.race] = max(run.touched, touched.get(run.race, 0.0))
        used = sum(kept.bytes for kept in touched)
        for kept in sorted(touched, key=touched.__getitem__):
            if used <= self.limits.keep_mb * 1e6:
                break
            if not kept.readers:
                used -= kept.bytes
                followers = [run for run in self._runs.values() if run.race is kept]
                for run in followers:
                    self._drop(run)

    def sweep(self) -> None:
        """Drop the idle runs that were not used for IDLE_SECONDS."""
        long_ago = time.monotonic() - IDLE_SECONDS
        unused = [run for run in self._runs.values() if run.idle and run.touched < long_ago]
        for run in unused:
            self._drop(run)

    def _sweep_later(self) -> None:
        self.sweep()
        self._sweeping = bool(self._runs)
        if self._sweeping:
            asyncio.get_running_loop().call_later(IDLE_SECONDS / 60, self._sweep_later)

    def _drop(self, run: VisitorRun) -> None:
        del self._runs[run.id]
        run.stop()
