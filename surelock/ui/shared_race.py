"""A race that is computed once for all its readers. A step is computed when the first reader needs it.

One thread does all computation. OpenMP keeps a team of threads for every thread that has ever computed. If there are
more threads than cores, OpenMP's threads sleep at barriers, and every step takes twice as long while another process,
such as the visitor's browser, uses the machine.
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

#: A function that runs a job. Its arguments are the job, whether likely tokens are reported, whether commit errors are
#: measured, and the headers of the visitor's request. The keyword arguments are `begins` and `snapshots` of
#: `surelock.trace.race.race`.
Runner = Callable[..., Generator["Round"]]
#: The only thread that computes. It computes one step after another.
DEVICE = ThreadPoolExecutor(max_workers=1, thread_name_prefix="decoder")
FLOAT = 4  # bytes of a number; half precision would need fewer
#: The most bytes of logits that wait for their comparison, see `surelock.quality.commit_error`.
HELD_BYTES = 2**26
CELL_BYTES = 64  # measured bytes of one position in one step of a recorder
HELD_BESIDE = 1.15  # measured bytes that the allocator takes for one byte of a run
# the ways in which a race ends
FINISHED = "finished"
FAILED = "failed"
STOPPED = "stopped"


def make_runner(models: Models) -> Runner:
    """Return the function that runs a job by `surelock.trace.race.race`, on ZeroGPU in a worker."""

    def decode_lanes(job: Job, top: bool, errors: bool, **kept: Any) -> Generator[Round]:
        lm = models.get(job.label)
        from surelock.quality.commit_error import Shadow
        from surelock.trace.race import race

        shadow = Shadow if errors else None
        yield from race(lm, job.tokens, job.lanes, top=top, shadow=shadow, **kept)

    if on_zero_gpu():
        return on_gpu(decode_lanes, models)
    return lambda job, top, errors, headers, **kept: decode_lanes(job, top, errors, **kept)


def settled_job(models: Models, job: Job) -> Job:
    """Return a job in which the lengths of all blanks with word lists are chosen, see `surelock.settled`.

    Call it in the thread of DEVICE: it computes forward passes.

    Raises ValueError for lists that need too many forward passes. On ZeroGPU, where only a worker can compute, raises
    ValueError for every list whose words have different numbers of tokens.
    """
    if is_settled(job.tokens):
        return job
    if on_zero_gpu():
        raise ValueError(
            "prompt: on this server the words of a blank's list must have one number of tokens."
        )
    unsettled = [word_list for word_list in lists_of(job.tokens) if not word_list.is_settled]
    passes = sum(len(word_list.sizes) for word_list in unsettled)
    if passes > MOST_PASSES:
        numbers = f"{passes} numbers of tokens in all, and {MOST_PASSES} is the most"
        raise ValueError(f"prompt has lists whose words have {numbers}: leave out a few words.")
    return replace(job, tokens=settled(models.get(job.label), job.tokens, job.gen_length))


class Weight(NamedTuple):
    """The most memory of a run, estimated in bytes."""

    live: float  # the memory of the decoders, which is freed when the run ends
    kept: float  # the memory of the recorded steps


def weigh(header: Fields) -> Weight:
    """Return the estimated memory of a run.

    header: the header of its trace.

    A decoder keeps the keys and values of all layers, the logits of two steps, and the logits of commits until they are
    compared.
    """
    model = header["model"]
    positions = header["length"]
    lanes = len(header["lanes"])
    keys_and_values = 2 * model["n_layers"] * model["d_model"]  # numbers per position
    logits = 2 * model["vocab_size"]  # numbers per position
    commits = min(HELD_BYTES, positions * model["vocab_size"] * FLOAT)
    live = positions * FLOAT * (keys_and_values + logits) + commits
    kept = positions * header["steps"] * CELL_BYTES
    factor = HELD_BESIDE * lanes
    return Weight(factor * live, factor * kept)


class SharedRace:
    """One race and its messages. All calls come from one event loop; the thread of DEVICE computes the steps.

    job: the request for the race.
    recorder: makes the messages of the steps.
    rounds: the iterator of `surelock.trace.race.race`.
    limits: the longest computation.
    pausable: whether the page offers a pause.
    begins: called with the race before the first step.
    ends: called with the race after the last step.
    snapshots: the snapshots that the race takes, None for none.

    `log` contains the messages as events of a stream; the number of a message is its index. The race is stopped when
    its last follower leaves.
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
        # The number of the first message after the steps; None before the last step.
        self.over: int | None = None
        self.ended: str | None = None  # FINISHED, FAILED or STOPPED
        self.followers: set[object] = set()  # the runs of visitors that share the race
        self.readers = 0  # the number of open streams of the followers
        self._rounds = rounds
        self._begins = begins
        self._ends = ends
        self._coming: asyncio.Task[None] | None = None  # the latest step
        self._seconds = 0.0  # seconds of computation of all steps so far
        self._since: float | None = None  # when the present step began, in monotonic seconds

    @property
    def bytes(self) -> float:
        """The estimated memory of the race in bytes, 0 before its first step."""
        if self._coming is None:
            return 0.0
        copied = 0 if self.snapshots is None else self.snapshots.allowance.used
        live = 0.0 if self.ended else self._weight.live
        return self._weight.kept + copied + live

    def leave(self, follower: object) -> None:
        """Remove a follower. If no follower remains, stop the race, and free its decoders after the present step."""
        self.followers.discard(follower)
        if not (self.followers or self.ended):
            self._end(STOPPED)

    async def more(self) -> None:
        """Wait until the next step is computed, once for all readers. Return at once if the race has ended."""
        if self._coming is None or self._coming.done():
            first = self._coming is None
            self._coming = asyncio.ensure_future(self._advance())
            if first:
                self._begins(self)
        await asyncio.shield(self._coming)

    def left(self) -> float | None:
        """Return the estimated seconds of the remaining steps, None before the first step is computed.

        The estimate is the mean time of the steps so far for every remaining step.
        """
        if self.over is not None:
            return 0.0
        steps = len(self.log) - 1  # the first message opens the race
        if not steps:
            return None
        spent = self._seconds
        if self._since is not None:
            spent += time.monotonic() - self._since
        remaining = max(0, self.recorder.header["steps"] - steps)
        return spent / steps * remaining

    async def _advance(self) -> None:
        """Compute one step of every lane and append its message.

        After the last step, the next call appends the commit errors, and the call after that the end of the race.
        """
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
        kind = "errors" if "errors" in message else "records"
        self.log.append(event(kind, message, len(self.log)))
        if self._seconds > self._most_seconds:
            self._end(FAILED, too_long(self._most_seconds))

    def _step(self) -> tuple[Json | None, str | None]:
        """Compute the next round. Return its message, and a sentence if the race has failed.

        The message is empty after the last step, and None at the end of the race.
        """
        try:
            items = next(self._rounds, None)
        except (ArithmeticError, ValueError, MemoryError, RuntimeError) as error:
            # errors of torch are RuntimeErrors, such as running out of memory
            return None, f"The run stopped: {reason_of(error)}."
        if items is None:
            return None, None
        if not items:  # the empty round after the last step
            return {}, None
        return self.recorder.take(items), None

    def _end(self, how: str, problem: str | None = None) -> None:
        """Append the last message, and free the decoders.

        A stopped race has no last message in its log: every follower that was stopped sends one itself.
        """
        self.ended = how
        if self.over is None:
            self.over = len(self.log)
        if how != STOPPED:
            self.log.append(event("end", {"end": how, "problem": problem}, len(self.log)))
        rounds = self._rounds
        self._rounds = iter(())
        DEVICE.submit(_free, rounds)  # runs after the present step
        self._ends(self)


def _free(rounds: Any) -> None:
    """End the iterator of a race, which frees the memory of its decoders."""
    if hasattr(rounds, "close"):
        rounds.close()
    del rounds
    trim_memory()


def event(kind: str, data: Any, number: int | None = None) -> bytes:
    """Return the bytes of a server-sent event.

    kind: the name of the event. data: its data, written as JSON. number: its id, None for an event without an id.
    """
    numbered = "" if number is None else f"id: {number}\n"
    return f"{numbered}event: {kind}\ndata: {compact_json(data)}\n\n".encode()
