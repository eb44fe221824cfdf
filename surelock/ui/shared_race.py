"""A race that is computed once for all its readers. A step is computed when the first of them needs it.

One thread does all computation. OpenMP keeps a team of threads for every thread that has ever computed. With more
threads than cores it stops spinning at barriers, and every step takes twice as long as soon as another process (such as
the visitor's browser) uses the machine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from surelock.decoding.word_lists import is_settled, lists_of, settled
from surelock.errors import reason_of
from surelock.memory import trim_memory
from surelock.trace.format import compact_json
from surelock.ui.limits import MOST_PASSES, Limits, too_long
from surelock.ui.models import Models
from surelock.ui.request import Job
from surelock.ui.zero_gpu import on_gpu, on_zero_gpu
from surelock.values import Fields, Json

if TYPE_CHECKING:
    from surelock.trace.race import Round
    from surelock.trace.recorder import Recorder
    from surelock.ui.snapshots import RaceSnapshots

#: Runs a job. Its arguments are job, likely tokens?, commit errors?, and the headers of the visitor's request; by name
#: what `surelock.trace.race.race` takes of snapshots.
Runner = Callable[..., Generator["Round"]]
#: The thread that computes: the steps of a runner, one after another.
DEVICE = ThreadPoolExecutor(max_workers=1, thread_name_prefix="decoder")
FLOAT = 4  # bytes; the halves of another precision are not counted on
HELD_BYTES = 2**26  # of logits that wait for their comparison, see `surelock.quality.commit_error`
CELL_BYTES = 64  # of one position in one step in a recorder, as measured
HELD_BESIDE = 1.15  # memory that the allocator holds for one byte of runs, as measured
FINISHED = "finished"  # the ends of a race
FAILED = "failed"
STOPPED = "stopped"


def make_runner(models: Models) -> Runner:
    """Return the function that runs a job, see `surelock.trace.race.race`."""

    def decode_lanes(job: Job, top: bool, errors: bool, **kept: Any) -> Generator[Round]:
        lm = models.get(job.label)
        from surelock.quality.commit_error import Shadow
        from surelock.trace.race import race

        yield from race(
            lm, job.tokens, job.lanes, top=top, shadow=Shadow if errors else None, **kept
        )

    if on_zero_gpu():
        return on_gpu(decode_lanes, models)
    return lambda job, top, errors, headers, **kept: decode_lanes(job, top, errors, **kept)


def settled_job(models: Models, job: Job) -> Job:
    """Return a job whose blanks from lists have their lengths, see `surelock.settled`. Called in the device's thread.

    Raises ValueError for lists that need too many forward passes, and on ZeroGPU, whose worker alone computes, for
    lists of words of several numbers of tokens.
    """
    if is_settled(job.tokens):
        return job
    if on_zero_gpu():
        raise ValueError(
            "prompt: on this server the words of a blank's list must have one number of tokens."
        )
    passes = sum(
        len(word_list.sizes) for word_list in lists_of(job.tokens) if not word_list.is_settled
    )
    if passes > MOST_PASSES:
        numbers = f"{passes} numbers of tokens in all, and {MOST_PASSES} is the most"
        raise ValueError(f"prompt has lists whose words have {numbers}: leave out a few words.")
    return replace(job, tokens=settled(models.get(job.label), job.tokens, job.gen_length))


class Weight(NamedTuple):
    """The most bytes of a run, by estimate. live: of its decoders, until it ends. kept: of its record."""

    live: float
    kept: float


def weigh(header: Fields) -> Weight:
    """Return the estimated memory of a run.

    header: of its trace. Each decoder holds the keys and values of all layers, the logits of two steps, and the logits
    of commits until they are compared.
    """
    model = header["model"]
    positions = header["length"]
    lanes = len(header["lanes"])
    numbers = 2 * model["n_layers"] * model["d_model"] + 2 * model["vocab_size"]  # of a position
    commits = min(HELD_BYTES, positions * model["vocab_size"] * FLOAT)
    kept = positions * header["steps"] * CELL_BYTES
    return Weight(
        *(HELD_BESIDE * lanes * size for size in (positions * FLOAT * numbers + commits, kept))
    )


class SharedRace:
    """One race and its messages. Call it in one event loop; the steps are computed in the thread of the device.

    rounds: the iterator of `surelock.trace.race.race`.
    snapshots: those that it takes.
    pausable: whether the page offers a pause.
    begins, ends: called before the first step and behind the last.

    `log` holds the messages as events of a stream, numbered by their index. The race ends when it has no followers.
    """

    def __init__(
        self,
        job: Job,
        recorder: Recorder,
        rounds: Iterator[Round],
        limits: Limits,
        pausable: bool = True,
        begins: Callable[[SharedRace], None] = lambda race: None,
        ends: Callable[[SharedRace], None] = lambda race: None,
        snapshots: RaceSnapshots | None = None,
    ) -> None:
        self.key = job.key
        self.recorder = recorder
        self.snapshots = snapshots
        self._weight = weigh(recorder.header)
        self._most_seconds = limits.run_seconds
        self.log = [
            event("open", {"open": recorder.start(), "label": job.label, "pausable": pausable}, 0)
        ]
        self.over: int | None = None  # the number of the first message behind the steps
        self.ended: str | None = None
        self.followers: set[object] = set()  # visitors' runs
        self.readers = 0  # open streams of its followers
        self._rounds = rounds
        self._begins = begins
        self._ends = ends
        self._coming: asyncio.Task[None] | None = None
        self._seconds = 0.0  # of computation
        self._since: float | None = None  # when the step that is on its way began

    @property
    def bytes(self) -> float:
        """Its estimated memory: none before its first step."""
        if self._coming is None:
            return 0.0
        copied = 0 if self.snapshots is None else self.snapshots.allowance.used
        return self._weight.kept + copied + (0.0 if self.ended else self._weight.live)

    def leave(self, follower: object) -> None:
        """Remove a follower. Without followers the race ends, and its decoders are freed after the present step."""
        self.followers.discard(follower)
        if not (self.followers or self.ended):
            self._end(STOPPED)

    async def more(self) -> None:
        """Wait for the next step, which is computed once for all readers. Returns at once if the race has ended."""
        if self._coming is None or self._coming.done():
            first = self._coming is None
            self._coming = asyncio.ensure_future(self._advance())
            if first:
                self._begins(self)
        await asyncio.shield(self._coming)

    def left(self) -> float | None:
        """Return the seconds that the remaining steps will take, by the time of those so far; None before the first."""
        if self.over is not None:
            return 0.0
        steps = len(self.log) - 1  # the first message opens the race
        spent = self._seconds + (0.0 if self._since is None else time.monotonic() - self._since)
        return spent / steps * max(0, self.recorder.header["steps"] - steps) if steps else None

    async def _advance(self) -> None:
        """Compute one step of every lane; after the last step the commit errors, then append the end of the race."""
        if self.ended:
            return
        self._since = time.monotonic()
        message = None
        problem = "The run stopped: the server failed; its log says more."
        try:
            message, problem = await asyncio.get_running_loop().run_in_executor(DEVICE, self._step)
        finally:
            self._seconds = self._seconds + time.monotonic() - self._since
            self._since = None
            if not self.ended and message is None:
                self._end(FAILED if problem else FINISHED, problem)
        if self.ended or message is None:
            return
        if not message:
            self.over = len(self.log)
            return
        self.log.append(
            event("errors" if "errors" in message else "records", message, len(self.log))
        )
        if self._seconds > self._most_seconds:
            self._end(FAILED, too_long(self._most_seconds))

    def _step(self) -> tuple[Json | None, str | None]:
        """The next message: empty behind the last step, None at the end; and a sentence if the race has failed."""
        try:
            items = next(self._rounds, None)
        except (ArithmeticError, ValueError, MemoryError, RuntimeError) as error:
            # torch's, out of memory among them
            return None, f"The run stopped: {reason_of(error)}."
        if not items:  # an empty round, or none
            return (None if items is None else {}), None
        return self.recorder.take(items), None

    def _end(self, how: str, problem: str | None = None) -> None:
        """Close the log, and free the decoders. In a stopped race each follower has its own last message."""
        self.ended = how
        if self.over is None:
            self.over = len(self.log)
        if how != STOPPED:
            self.log.append(event("end", {"end": how, "problem": problem}, len(self.log)))
        rounds = self._rounds
        self._rounds = iter(())
        DEVICE.submit(_free, rounds)  # behind the present step
        self._ends(self)


def _free(rounds: Any) -> None:
    if hasattr(rounds, "close"):
        rounds.close()
    del rounds
    trim_memory()


def event(kind: str, data: Any, number: int | None = None) -> bytes:
    """Return an event of a stream: its kind, its number if it has one, and its data as JSON."""
    numbered = "" if number is None else f"id: {number}\n"
    return f"{numbered}event: {kind}\ndata: {compact_json(data)}\n\n".encode()
