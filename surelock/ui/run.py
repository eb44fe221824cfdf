"""The run of one visitor: a race at the visitor's own pace, with its own pauses and end, under an unguessable id."""

import asyncio
import secrets
import threading
import time
from collections.abc import AsyncGenerator
from math import inf

from surelock.ui.computation import STOPPED, Computation, numbered

SEND_SECONDS = 0.08  # between two messages: steps that are faster are sent together
EACH_SECONDS = 0.03  # the same for each follower that is streamed, up to MOST_SECONDS
MOST_SECONDS = 2.0
PIECE = 2**16  # characters of messages that are taken at once: the next are taken when these have been read
RUNNING, PAUSED, ENDED = "running", "paused", "ended"


class Run:
    """A follower of a computation.

    Only the latest stream of a run goes on. `pause` and `stop` may be called from any thread, and take effect after the
    present step.
    """

    def __init__(self, owner: str, computation: Computation) -> None:
        self.id = secrets.token_urlsafe(18)
        self.owner, self.computation = owner, computation
        self.state = PAUSED
        self.touched = time.monotonic()
        self._sent = 0  # messages
        self._stopped: int | None = None  # the number of its own last message
        self._wanted: str | None = None  # what another thread asked for: PAUSED or ENDED
        self._stream: object = None  # which of its streams goes on
        self._lock = threading.Lock()

    @property
    def streams(self) -> bool:
        """Whether it is being streamed."""
        return self.state == RUNNING

    @property
    def follows(self) -> bool:
        """Whether it has not ended."""
        return self.state != ENDED

    @property
    def steps(self) -> int | None:
        """The number of steps that the page has been sent; None if it has everything, commit errors included."""
        seen = self._sent if self._stopped is None else self._stopped
        if seen == len(self.computation.log):
            return None
        return max(0, min(seen, self.computation.over or seen) - 1)

    async def stream(self, after: int, most: int | None = None) -> AsyncGenerator[str]:
        """Yield batches of messages until the run pauses or ends.

        after: the number of the last message that the page has.
        most: the number of steps after which the run pauses; None is no limit.

        Missed messages come first. The first and the last step are sent at once, the others every SEND_SECONDS or, with
        many followers, more rarely. An earlier stream of the run ends.
        """
        own = object()
        going, cursor = self._begin(own), min(after + 1, self._sent)
        upto, due = inf if most is None else max(cursor, 1) + most, 0.0
        log = self.computation.log
        missed = len(log)
        try:
            while unsent := self._take(cursor, upto):
                yield _batch(unsent)
                cursor, unsent = cursor + len(unsent), []
                if going and (cursor >= missed or not self._goes_on(own)):
                    break
            while going and self._goes_on(own) and cursor < self._bound(upto):
                if cursor >= len(log):
                    await self.computation.more()
                    if not self._goes_on(own):
                        break
                new = self._take(cursor, upto)
                cursor, unsent = cursor + len(new), unsent + new
                at_once = cursor < len(log) or self.computation.over is not None  # commit errors are slow
                if unsent and (at_once or time.monotonic() >= due):
                    yield _batch(unsent)
                    often = max(SEND_SECONDS, min(MOST_SECONDS, EACH_SECONDS * self.computation.crowd))
                    unsent, due = [], time.monotonic() + often
            if self._stream is own and self._wanted == ENDED and self.state == RUNNING:
                unsent.append(self._stop())
            if unsent:
                yield _batch(unsent)
        finally:
            self._rest(own)
            if self.state == ENDED:
                await asyncio.to_thread(self.computation.leave, self)

    def pause(self) -> None:
        """Pause after the present step."""
        self._wanted = self._wanted or PAUSED

    def stop(self) -> str | None:
        """End after the present step. A paused run ends at once, and its last message is returned."""
        with self._lock:
            if self.state != PAUSED:
                self._wanted = ENDED
                return None
            last = self._stop()
        self.computation.leave(self)
        return last

    def _begin(self, stream: object) -> bool:
        """Give the run to a stream. Returns whether it has not ended."""
        with self._lock:
            self._wanted = None
            if self.state == ENDED:
                return False
            self.state, self._stream = RUNNING, stream
            return True

    def _goes_on(self, stream: object) -> bool:
        return self._stream is stream and self.state == RUNNING and self._wanted is None

    def _rest(self, stream: object) -> None:
        """Pause or end the run after a stream, unless another stream has it."""
        with self._lock:
            if self._stream is not stream:
                return
            self._stream = None
            if self.state == RUNNING:
                self.state = PAUSED
                if self._wanted == ENDED:
                    self._stop()

    def _bound(self, upto: float) -> float:
        """The number of the message to stop before. Messages after the last step belong to that step."""
        over = self.computation.over
        return inf if over is not None and upto > over else upto

    def _take(self, cursor: int, upto: float) -> list[str]:
        """The messages from number `cursor` on, of PIECE characters, up to the end of a stopped run."""
        log, self.touched = self.computation.log, time.monotonic()
        there = len(log) if self._stopped is None else self._stopped
        end, size = int(max(cursor, min(there, self._bound(upto)))), 0
        for number in range(cursor, end):
            size += len(log[number])
            if size > PIECE and number > cursor:
                end = number
                break
        with self._lock:
            self._sent = max(self._sent, end)
            if self._stopped is None and self.computation.ended and end == len(log):
                self.state = ENDED
        found = [self._named(text) for text in log[cursor:end]]
        if self._stopped is not None and cursor <= self._stopped and end == self._stopped:
            found.append(self._last(self._stopped))
        return found

    def _stop(self) -> str:
        """End this run alone. Returns its last message."""
        self.state, self._stopped = ENDED, self._sent
        self._sent += 1
        return self._last(self._stopped)

    def _last(self, number: int) -> str:
        return self._named(numbered(number, {"end": STOPPED, "problem": None}))

    def _named(self, text: str) -> str:
        return f'{{"run":"{self.id}",{text}'


def _batch(messages: list[str]) -> str:
    return "[" + ",".join(messages) + "]"
