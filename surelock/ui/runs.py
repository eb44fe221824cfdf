"""The runs of the server: kept by unguessable ids, computed once for all visitors with equal jobs."""

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
KEPT_RUNS = 4  # of each visitor, for export and likely tokens; the page itself keeps older ones
SEND_SECONDS = 0.08  # between two batches of messages: steps that are faster are sent together
EACH_SECONDS = 0.03  # the same for each reader, up to MOST_SECONDS
MOST_SECONDS = 2.0
PIECE = 2**16  # bytes of messages that are sent at once: the next follow when these were taken


class TooMany(ValueError):
    """A client streams too many runs. The message is one sentence."""


class VisitorRun:
    """The run of one visitor: a race at the visitor's own pace, with its own end.

    owner: the visitor. client: the visitor's address.
    """

    def __init__(self, owner: str, client: str, race: SharedRace) -> None:
        self.id = secrets.token_urlsafe(18)
        self.owner, self.client, self.race = owner, client, race
        self.touched = time.monotonic()
        self._stream: object = None  # the latest one
        self._sent = 0  # messages
        self._stopped: int | None = None  # the number of its own last message
        race.followers.add(self)

    @property
    def ended(self) -> bool:
        """Whether nothing is left to compute for it."""
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
        """End this run alone. An open stream has its last message after the present step."""
        if self._stopped is None and (self.race.ended is None or self._sent < len(self.race.log)):
            self._stopped = self._sent
        self.race.leave(self)

    @contextmanager
    def streaming(self) -> Iterator[Callable[[], bool]]:
        """Give the run to a stream until the block ends. Yields what returns whether no newer stream has it."""
        own = self._stream = object()
        self.race.readers += 1
        try:
            yield lambda: self._stream is own
        finally:
            self.race.readers -= 1
            self.touched = time.monotonic()
            if self._stream is own:
                self._stream = None

    async def messages(
        self, after: int, steps: int | None = None, goes_on: Callable[[], bool] = lambda: True
    ) -> AsyncGenerator[bytes]:
        """Yield batches of messages until the run rests or ends, or `goes_on` is false.

        after: the number of the last message that the page has.
        steps: the number of steps after which the run rests; None is no limit. Commit errors belong to the last step.

        The first and the last step are sent at once, the others every SEND_SECONDS or, with many readers, more rarely.
        """
        race, log, due = self.race, self.race.log, 0.0
        cursor = min(after + 1, self._sent)
        most = inf if steps is None else max(cursor, 1) + steps
        while goes_on():
            end = most if race.over is None or most <= race.over else inf
            if self._stopped is not None:
                end = self._stopped
            there = int(min(end, len(log)))
            if cursor < there and (there == end or race.over is not None or time.monotonic() >= due):
                last = _taken(log, cursor, there)
                self._sent = max(self._sent, last)
                yield b"".join(log[cursor:last])
                cursor = last
                if 1 < cursor >= len(log):
                    due = time.monotonic() + max(SEND_SECONDS, min(MOST_SECONDS, EACH_SECONDS * race.readers))
            elif self._stopped is not None and cursor <= self._stopped:
                self._sent = self._stopped + 1
                yield event("end", {"end": STOPPED, "problem": None}, self._stopped)
                return
            elif cursor >= end or race.ended:
                return
            else:
                await race.more()


def _taken(log: list[bytes], first: int, end: int) -> int:
    """The number of the message to stop before, so that those from `first` on have PIECE bytes."""
    size, last = len(log[first]), first + 1
    while last < end and (size := size + len(log[last])) <= PIECE:
        last += 1
    return last


class Runs:
    """The runs of a server, by id, within one memory budget.

    shared: whether visitors with equal jobs share a race that has not ended. On ZeroGPU they do not, since the quota of
    one visitor pays for it.
    """

    def __init__(self, limits: Limits | None = None, shared: bool = True) -> None:
        self.limits, self.shared = limits or Limits(), shared
        self._runs: dict[str, VisitorRun] = {}
        self._sweeping = False

    def __len__(self) -> int:
        return len(self._runs)

    def open(
        self, owner: str, client: str, key: str, begin: Callable[[], SharedRace], origin: VisitorRun | None = None
    ) -> VisitorRun:
        """Return a new run for a visitor. It stops the visitor's older runs, of which the latest few are kept.

        key: of the job. begin: returns a new race, if there is none of an equal job to follow.
        origin: an older run that goes on: the new one is a branch of it.

        Raises TooMany.
        """
        of_client = [each for each in self._runs.values() if each.client == client]
        if len(of_client) >= MOST_OF_CLIENT:
            idle = [each for each in of_client if each.idle]
            if not idle:
                raise TooMany("Too many runs of one address are open here; close some pages.")
            self._drop(min(idle, key=lambda each: each.touched))
        run = VisitorRun(owner, client, self._to_follow(owner, key) or begin())
        mine = [other for other in self._runs.values() if other.owner == owner and other is not origin]
        self._runs[run.id] = run
        for other in mine:
            other.stop()
        for other in mine[: 1 - KEPT_RUNS]:
            self._drop(other)
        idle = sorted((each for each in self._runs.values() if each.idle), key=lambda each: each.touched)
        for other in idle[: max(0, len(self._runs) - MOST_RUNS)]:
            self._drop(other)
        if not self._sweeping:
            self._sweeping = True
            self._sweep_later()
        return run

    def _to_follow(self, owner: str, key: str) -> SharedRace | None:
        """A race of an equal job that others follow, or a finished one.

        A visitor who has had it gets a new one: pressing Run again computes it again.
        """
        same = [run for run in self._runs.values() if run.race.key == key]
        own = {run.race for run in same if run.owner == owner}
        for run in same:
            going = self.shared and run.race.ended is None
            if (going or run.race.ended == FINISHED) and run.race not in own:
                return run.race
        return None

    def find(self, run_id: str) -> VisitorRun | None:
        """Return the run of an id, or None. It counts as used."""
        run = self._runs.get(run_id)
        if run is not None:
            run.touched = time.monotonic()
        return run

    def make_room(self, race: SharedRace) -> None:
        """Drop the races that have been idle longest until all fit the budget with one that begins: it has a reader."""
        races: dict[SharedRace, float] = {}
        for run in self._runs.values():
            races[run.race] = max(run.touched, races.get(run.race, 0.0))
        used = sum(each.bytes for each in races)
        for each in sorted(races, key=races.__getitem__):
            if used <= self.limits.keep_mb * 1e6:
                break
            if not each.readers:
                used -= each.bytes
                for run in [run for run in self._runs.values() if run.race is each]:
                    self._drop(run)

    def sweep(self) -> None:
        """Drop the runs that were not used for IDLE_SECONDS."""
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
