"""The runs of the server, by unguessable ids. Visitors with equal jobs share one computation."""

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

IDLE_SECONDS = 600.0  # after which an unused run is dropped
MOST_RUNS = 2000  # of all visitors
MOST_OF_CLIENT = 400  # a class behind one address is one client
KEPT_RUNS = 4  # of a visitor, for export and likely tokens; the page keeps older ones
#: Seconds between two batches of messages: EACH_SECONDS for every reader of the race, at least
#: SEND_SECONDS and at most MOST_SECONDS. Faster steps are sent together.
SEND_SECONDS = 0.08
EACH_SECONDS = 0.03
MOST_SECONDS = 2.0
PIECE = 2**16  # bytes of a batch: the next batch follows when the reader has taken it


class TooMany(ValueError):
    """A client streams too many runs. The message is one sentence."""


class VisitorRun:
    """The run of one visitor: a race at the visitor's pace, with a separate end.

    owner: the visitor. client: the visitor's address.
    """

    def __init__(self, owner: str, client: str, race: SharedRace) -> None:
        self.id = secrets.token_urlsafe(18)
        self.owner = owner
        self.client = client
        self.race = race
        self.touched = time.monotonic()
        self._stream: object = None  # the newest stream, None if none is open
        self._sent = 0  # messages
        # the number of the last message, if the visitor stopped the run
        self._stopped: int | None = None
        race.followers.add(self)

    @property
    def ended(self) -> bool:
        """Whether nothing is left to compute for the visitor."""
        return self._stopped is not None or self.race.ended is not None

    @property
    def idle(self) -> bool:
        return self._stream is None

    @property
    def steps(self) -> int | None:
        """The number of steps that the page has been sent; None if it has everything, commit errors included."""
        seen = self._sent if self._stopped is None else self._stopped
        if seen == len(self.race.log):
            return None
        return max(0, min(seen, self.race.over or seen) - 1)

    def stop(self) -> None:
        """End this run alone. An open stream ends after the step that was sent last."""
        if self._stopped is None and (self.race.ended is None or self._sent < len(self.race.log)):
            self._stopped = self._sent
        self.race.leave(self)

    @contextmanager
    def streaming(self) -> Iterator[Callable[[], bool]]:
        """Give the run to a stream until the block ends.

        Yields `is_current()`: whether no newer stream has the run.
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
        self, after: int, steps: int | None = None, goes_on: Callable[[], bool] = lambda: True
    ) -> AsyncGenerator[bytes]:
        """Yield batches of messages until `steps` are sent, the run ends, or `goes_on()` is false.

        after: the number of the last message that the page has.
        steps: how many steps are sent; None is no limit. Commit errors belong to the last step.

        The first and the last step are sent at once, the others in batches, see SEND_SECONDS.
        """
        race, log = self.race, self.race.log
        due = 0.0  # the time of the next batch
        cursor = min(after + 1, self._sent)
        most = inf if steps is None else max(cursor, 1) + steps
        while goes_on():
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
    """The end, at most `end`, of a batch from message `first` on that has at most PIECE bytes or one message."""
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

    shared: whether visitors with equal jobs share a race that has not ended. On ZeroGPU they do not:
    the quota of one visitor pays for it.
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
        """Return a new run for a visitor. Stop the visitor's older runs, and keep the latest KEPT_RUNS.

        key: of the job. begin: returns a new race; called if no race of an equal job can be followed.
        origin: an older run that goes on, since the new one is a branch of it.

        Raises TooMany.
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
        """A race of an equal job that is running (if `shared`) or finished, None if there is none.

        Not one that the visitor has had: pressing Run again computes it again.
        """
        same = [run for run in self._runs.values() if run.race.key == key]
        seen = {run.race for run in same if run.owner == owner}
        for run in same:
            running = self.shared and run.race.ended is None
            if (running or run.race.ended == FINISHED) and run.race not in seen:
                return run.race
        return None

    def find(self, run_id: str) -> VisitorRun | None:
        """Return the run of an id, or None. The run counts as used."""
        run = self._runs.get(run_id)
        if run is not None:
            run.touched = time.monotonic()
        return run

    def make_room(self, race: SharedRace) -> None:
        """Drop races without a reader, the longest idle first, until the others fit the budget.

        race: the one that begins. It has a reader, so it stays.
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
                for run in [run for run in self._runs.values() if run.race is kept]:
                    self._drop(run)

    def sweep(self) -> None:
        """Drop the idle runs that were not used for IDLE_SECONDS."""
        long_ago = time.monotonic() - IDLE_SECONDS
        for run in [run for run in self._runs.values() if run.idle and run.touched < long_ago]:
            self._drop(run)

    def _sweep_later(self) -> None:
        self.sweep()
        self._sweeping = bool(self._runs)
        if self._sweeping:
            asyncio.get_running_loop().call_later(IDLE_SECONDS / 60, self._sweep_later)

    def _drop(self, run: VisitorRun) -> None:
        del self._runs[run.id]
        run.stop()
