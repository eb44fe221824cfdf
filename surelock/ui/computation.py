"""A race that is computed once for all its followers. A step is computed when the first of them needs it."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from surelock.errors import reason_of
from surelock.trace.lanes import StepsOver
from surelock.ui.limits import Limits, too_long, weigh
from surelock.ui.request import Job

if TYPE_CHECKING:
    from surelock.trace.race import Round
    from surelock.trace.recorder import Recorder
    from surelock.ui.run import Run

FINISHED, FAILED, STOPPED = "finished", "failed", "stopped"  # the ends of a race


class Computation:
    """One race and its messages.

    rounds: the iterator of `race`.
    pausable: whether the page offers a pause.
    took: called at the end with the seconds of computation.

    `log` holds the messages, numbered by their index, without the id of the run. The race ends when it has no
    followers.
    """

    def __init__(
        self,
        job: Job,
        recorder: Recorder,
        rounds: Iterator[Round],
        pausable: bool,
        limits: Limits,
        took: Callable[[float], None],
    ) -> None:
        self.key, self.recorder = job.key, recorder
        self._weight, self._most_seconds = weigh(recorder.header), limits.run_seconds
        self.seconds = 0.0  # of computation
        self._begun: float | None = None  # when the step that is on its way began
        self._took = took
        self.log: list[str] = []
        self.over: int | None = None  # the number of the first message behind the steps
        self.ended: str | None = None
        self._rounds: Iterator[Round] | None = rounds
        self._followers: set[Run] = set()
        self._left = False  # the last follower has left
        self._lock = threading.Lock()
        self._turn = threading.Lock()  # whoever computes a step
        self._coming: asyncio.Future[None] | None = None
        self._append({"open": recorder.start(), "label": job.label, "pausable": pausable})

    @property
    def bytes(self) -> float:
        """Its estimated memory."""
        return self._weight.kept + (0 if self.ended else self._weight.live)

    @property
    def running(self) -> bool:
        """Whether it is being computed: a follower is streaming."""
        return not self.ended and self.crowd > 0

    @property
    def crowd(self) -> int:
        """The number of followers that are being streamed."""
        return sum(each.streams for each in tuple(self._followers))

    def join(self, follower: Run) -> bool:
        """Add a follower. Returns False if the race was stopped or has failed."""
        with self._lock:
            if self._left or self.ended not in (None, FINISHED):
                return False
            self._followers.add(follower)
            return True

    def leave(self, follower: Run) -> None:
        """Remove a follower. Without followers the race ends after the present step."""
        with self._lock:
            self._followers.discard(follower)
            if self._followers or self.ended:
                return
            self._left = True
        with self._turn:
            if not self.ended:
                self._end(STOPPED)

    async def more(self) -> None:
        """Wait for the next step, which is computed once for all followers. Returns at once if the race has ended."""
        if self._coming is None or self._coming.done():
            self._coming = asyncio.ensure_future(asyncio.to_thread(self._advance))
        await asyncio.shield(self._coming)

    def left(self) -> float | None:
        """Return the seconds that the remaining steps will take, by the time of the steps so far; None before the
        first.
        """
        steps = (self.over or len(self.log)) - 1  # the first message opens the race
        return self._spent() / steps * max(0, self.recorder.header["steps"] - steps) if steps else None

    def _spent(self) -> float:
        begun = self._begun
        return self.seconds + (0.0 if begun is None else time.monotonic() - begun)

    def _advance(self) -> None:
        """Compute one step of each lane; after the last step the commit errors, then append the end of the race."""
        with self._turn:
            if self.ended:
                return
            self._begun = time.monotonic()
            items, problem = self._next()
            self.seconds, self._begun = self._spent(), None
            if items is None:
                return self._end(FAILED if problem else FINISHED, problem)
            if any(isinstance(each, StepsOver) for each in items):
                self.over = len(self.log)
                return
            self._append(self.recorder.take(items))
            if self.seconds > self._most_seconds:
                self._end(FAILED, too_long(self._most_seconds))

    def _next(self) -> tuple[Round | None, str | None]:
        """The next item of the race, None at its end; and a sentence if the race has failed."""
        assert self._rounds is not None
        try:
            return next(self._rounds, None), None
        except MemoryError:
            return None, "This run needs more memory than the machine has; try a shorter one."
        except (ArithmeticError, ValueError) as error:
            return None, f"The run stopped: {error}."
        except RuntimeError as error:  # torch's, out of memory on a GPU among them
            return None, f"The run stopped: {reason_of(error)}."

    def _end(self, how: str, problem: str | None = None) -> None:
        """Free the decoders and close the log. In a stopped race each follower has its own last message."""
        close = getattr(self._rounds, "close", None)
        self._rounds = None
        if close is not None:
            close()
        if self.seconds:
            self._took(self.seconds)
        if self.over is None:
            self.over = len(self.log)
        if how != STOPPED:
            self._append({"end": how, "problem": problem})
        self.ended = how

    def _append(self, message: dict[str, Any]) -> None:
        self.log.append(numbered(len(self.log), message))


def numbered(number: int, message: dict[str, Any]) -> str:
    """Return a message as JSON without its beginning, which is the id of the run."""
    return json.dumps({"seq": number, **message}, ensure_ascii=False, separators=(",", ":"))[1:]
