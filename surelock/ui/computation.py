"""A race that is computed once, for all who follow it: each step when the first of them has seen all that there is."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from surelock.model.errors import reason_of
from surelock.trace.lanes import StepsOver
from surelock.ui.limits import Limits, too_long, weigh
from surelock.ui.request import Job

if TYPE_CHECKING:
    from surelock.trace.race import Told
    from surelock.trace.recorder import Recorder

FINISHED, FAILED, STOPPED = "finished", "failed", "stopped"  # how a race ends


class Follower(Protocol):
    """Who follows a race, and whether what comes is sent on at present."""

    @property
    def streams(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class _NoMore:
    """What comes after all that a race tells, or instead of it. problem: a sentence, where something went wrong."""

    problem: str | None = None


class Computation:
    """One race. ``log`` holds what its messages say, numbered by their index; who sends one names the run before it.

    Steps that the page has already (``job.skip``) are computed and recorded, but not sent. The race ends when nobody
    follows it. took: told how many seconds it was computing, once it has ended.
    """

    def __init__(
        self,
        job: Job,
        recorder: Recorder,
        told: Iterator[list[Told]],
        pausable: bool,
        limits: Limits,
        took: Callable[[float], None] = lambda _: None,
    ) -> None:
        self.key, self.recorder = job.key, recorder
        self._weight, self._most_seconds = weigh(recorder.header), limits.run_seconds
        self.seconds, self.steps = 0.0, 0  # that it has been computing, and what came of it
        self._begun: float | None = None  # when the step that is on its way began
        self._took, self._skip = took, job.skip
        self.log: list[str] = []
        self.over: int | None = None  # the number of the first message behind the steps
        self.ended: str | None = None
        self._told: Iterator[list[Told]] | None = told
        self._followers: set[Follower] = set()
        self._left = False  # nobody follows any more
        self._lock = threading.Lock()
        self._turn = threading.Lock()  # whoever computes a step
        self._coming: asyncio.Future[None] | None = None
        self._append({"open": recorder.start(), "label": job.label, "pausable": pausable})

    @property
    def bytes(self) -> float:
        """What it takes of the server's memory, by estimate."""
        return self._weight.kept + (0 if self.ended else self._weight.live)

    @property
    def running(self) -> bool:
        """Whether it is being computed: a follower takes what comes."""
        return not self.ended and any(each.streams for each in tuple(self._followers))

    @property
    def crowd(self) -> int:
        """How many follow it."""
        return len(self._followers)

    def join(self, follower: Follower) -> bool:
        """Follow it, from now on; False where it will not come to its end."""
        with self._lock:
            if self._left or self.ended not in (None, FINISHED):
                return False
            self._followers.add(follower)
            return True

    def leave(self, follower: Follower) -> None:
        """Do not follow it any more. The last one ends it, after the present step."""
        with self._lock:
            self._followers.discard(follower)
            if self._followers or self.ended:
                return
            self._left = True
        with self._turn:
            if not self.ended:
                self._end(STOPPED)

    async def more(self) -> None:
        """Wait for the next step, which is computed once for all who wait; not where the race has ended."""
        if self._coming is None or self._coming.done():  # or `_came` has yet to be called
            self._coming = asyncio.ensure_future(asyncio.to_thread(self._advance))
            self._coming.add_done_callback(self._came)
        await asyncio.shield(self._coming)

    def left(self) -> float | None:
        """Seconds that the rest of it takes, by what its steps took so far; None before the first."""
        steps = self.steps
        return self._spent() / steps * max(0, self.recorder.header["steps"] - steps) if steps else None

    def _came(self, coming: asyncio.Future[None]) -> None:
        if self._coming is coming:
            self._coming = None

    def _spent(self) -> float:
        begun = self._begun
        return self.seconds + (0.0 if begun is None else time.monotonic() - begun)

    def _advance(self) -> None:
        """Compute one step of each lane; after the steps the commit errors, and the last message says how the
        race ended.
        """
        with self._turn:
            if self.ended:
                return
            self._begun = time.monotonic()
            told = self._next()
            self.seconds, self._begun = self._spent(), None
            if isinstance(told, _NoMore):
                return self._end(FAILED if told.problem else FINISHED, told.problem)
            if any(isinstance(each, StepsOver) for each in told):
                self.over = len(self.log)
                return
            self._append(self._message(told))
            if self.seconds > self._most_seconds:
                self._end(FAILED, too_long(self._most_seconds))

    def _message(self, told: list[Told]) -> dict[str, Any]:
        message = self.recorder.take(told)
        if self.over is None:
            self.steps += 1
        if "records" in message:
            new = [each for each in message["records"] if each["step"] >= self._skip.get(each["lane"], 0)]
            message["records"] = new
        return message

    def _next(self) -> list[Told] | _NoMore:
        """What the race tells next."""
        assert self._told is not None
        try:
            return next(self._told, _NoMore())
        except MemoryError:
            return _NoMore("This run needs more memory than the machine has; try a shorter one.")
        except (ArithmeticError, ValueError) as error:
            return _NoMore(f"The run stopped: {error}.")
        except RuntimeError as error:  # torch's, out of memory on a GPU among them
            return _NoMore(f"The run stopped: {reason_of(error)}.")

    def _end(self, how: str, problem: str | None = None) -> None:
        """Free what the decoders hold and close the log. Of a race that was stopped each follower has its own end."""
        close = getattr(self._told, "close", None)
        self._told = None
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
    """A message of that number as JSON, but for its beginning: the run that it belongs to."""
    return json.dumps({"seq": number, **message}, ensure_ascii=False, separators=(",", ":"))[1:]
