"""Runs on the server: kept by unguessable ids, advanced step by step, freed when their visitor leaves."""

from __future__ import annotations

import ctypes
import json
import secrets
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from statistics import median
from typing import TYPE_CHECKING, Any

from surelock.model.errors import first_line, reason_of
from surelock.ui.device import Decoder
from surelock.ui.limits import Limits, too_long, weigh
from surelock.ui.request import Job

if TYPE_CHECKING:
    from surelock.trace.race import Told
    from surelock.trace.recorder import Recorder

IDLE_SECONDS = 600.0  # a run that is not resumed is dropped after this long
SEND_SECONDS = 0.08  # quicker steps are sent together: each sending costs server and page more than a step's content
REMEMBERED = 9  # runs whose time tells how long the next one may take
TIDY_SECONDS = 2.0  # between looks for what nobody needs any more
TOLD_IDS = 1000  # of dropped runs, for those who ask for them
KEPT_RUNS = 4  # per visitor, for export and likely tokens; older ones live on in the visitor's page only
RUNNING, PAUSED, ENDED = "running", "paused", "ended"


class Run:
    """One race. ``log`` holds every message of the stream, numbered by its index, so that a page can catch up.

    Steps that the page has already (``job.skip``) are computed and recorded, but not sent. The latest stream has the
    run; ``pause`` and ``stop`` may come from any thread and take effect after the present step.
    """

    def __init__(
        self,
        owner: str,
        job: Job,
        recorder: Recorder,
        told: Iterator[list[Told]],
        pausable: bool,
        limits: Limits,
        took: Callable[[float], None] = lambda _: None,
    ) -> None:
        self.id = secrets.token_urlsafe(18)
        self._weight, self._most_seconds = weigh(recorder.header), limits.run_seconds
        self.seconds, self.steps = 0.0, 0  # that it has been computing, and what came of it
        self._begun = 0.0
        self._took = took
        self.owner = owner
        self.recorder = recorder
        self.state = PAUSED
        self.touched = time.monotonic()
        self.log: list[str] = []
        self._skip = job.skip
        self._told: Iterator[list[Told]] | None = told
        self._wanted: str | None = None  # what another thread asked for: PAUSED or ENDED
        self._lock = threading.Lock()
        self._turn = threading.Lock()  # whoever computes a step
        self._stream: object = None  # which of its streams computes
        self._append({"open": recorder.start(), "label": job.label, "pausable": pausable})

    @property
    def bytes(self) -> float:
        """What it takes of the server's memory, by estimate."""
        return self._weight.kept + (0 if self.state == ENDED else self._weight.live)

    def stream(self, after: int, most: int | None = None) -> Iterator[str]:
        """Batches of messages: what the page has missed after number ``after``, then one message per step until the run
        pauses or ends, or ``most`` steps. The first step is sent at once, then every SEND_SECONDS what there is, the
        last at once again. A stream before it, which the page has given up, may still be at a step: that is its last.
        """
        self._wanted = None
        own = object()
        with self._turn:
            going = self._begin(own)
        try:
            if missed := self.log[after + 1 :]:
                yield _batch(missed)
            steps, unsent, due = 0, [], 0.0
            while going and (most is None or steps < most):
                with self._turn:
                    if not self._goes_on(own):
                        break
                    message = self._advance()
                    if message is None:
                        most = None  # the steps are over: what follows belongs to the last one
                    else:
                        unsent.append(message)
                        steps += 1
                    if self.state == RUNNING and self._spent() > self._most_seconds:
                        unsent.append(self._end("failed", too_long(self._most_seconds)))
                if unsent and (message is None or time.monotonic() >= due):  # the errors take a while
                    yield _batch(unsent)
                    unsent, due = [], time.monotonic() + SEND_SECONDS
            if self._stream is own and self._wanted == ENDED and self.state == RUNNING:
                unsent.append(self._end("stopped"))
            if unsent:
                yield _batch(unsent)
        finally:
            self._rest(own)

    def pause(self) -> None:
        """Pause after the present step."""
        self._wanted = self._wanted or PAUSED

    def stop(self) -> str | None:
        """End after the present step; a run that is not streaming ends at once and its last message is returned."""
        with self._lock:
            if self.state == PAUSED:
                return self._end("stopped")
            self._wanted = ENDED
            return None

    def left(self) -> float | None:
        """Seconds that the rest of it takes, by what its steps took so far; None before the first."""
        steps = self.steps
        return self._spent() / steps * max(0, self.recorder.header["steps"] - steps) if steps else None

    def _spent(self) -> float:
        begun = self._begun
        return self.seconds + (time.monotonic() - begun if begun else 0.0)

    def _begin(self, stream: object) -> bool:
        """Whether there is anything to compute: then the run is that stream's."""
        with self._lock:
            if self.state == ENDED:
                return False
            if self.state == PAUSED:
                self._begun = time.monotonic()
            self.state, self._stream = RUNNING, stream
            return True

    def _goes_on(self, stream: object) -> bool:
        return self._stream is stream and self.state == RUNNING and self._wanted is None

    def _rest(self, stream: object) -> None:
        """After streaming, whether it ran out, was paused or its reader went away; not where another has the run."""
        with self._lock:
            if self._stream is not stream:
                return
            self._stream = None
            self.seconds += time.monotonic() - self._begun
            self._begun = 0.0
            if self.state == ENDED:
                self._took(self.seconds)
            if self.state == RUNNING:
                self.state = PAUSED
                if self._wanted == ENDED:
                    self._end("stopped")

    def _advance(self) -> str | None:
        """Compute one step of each contestant and return its message; after the steps comes None, then the commit
        errors, and the last message says how the run ended.
        """
        self.touched = time.monotonic()
        told, problem = self._next()
        if told == []:
            return None
        self.steps += 1
        if told is None:
            return self._end("failed" if problem else "finished", problem)
        message = self.recorder.take(told)
        if "records" in message:
            new = [each for each in message["records"] if each["step"] >= self._skip.get(each["contestant"], 0)]
            message["records"] = new
        return self._append(message)

    def _end(self, how: str, problem: str | None = None) -> str:
        """Free what the decoders hold and close the log. ``how``: finished, stopped or failed."""
        self.state = ENDED
        close = getattr(self._told, "close", None)
        self._told = None
        if close is not None:
            close()
        return self._append({"end": how, "problem": problem})

    def _next(self) -> tuple[list[Told] | None, str | None]:
        """What the race tells next, or None and what went wrong, if anything did."""
        if self._told is None:
            return None, None
        try:
            return next(self._told, None), None
        except MemoryError:
            return None, "This run needs more memory than the machine has; try a shorter one."
        except (ArithmeticError, ValueError) as error:
            return None, f"The run stopped: {error}."
        except RuntimeError as error:  # torch's, out of memory on a GPU among them
            return None, f"The run stopped: {reason_of(error)}."

    def _append(self, message: dict[str, Any]) -> str:
        text = json.dumps({"run": self.id, "seq": len(self.log), **message}, ensure_ascii=False, separators=(",", ":"))
        self.log.append(text)
        return text


class Sessions:
    """All runs of this server, by id and by visitor (Gradio's session hash), within one budget of memory."""

    def __init__(self, decoder: Decoder, *, pausable: bool = True, limits: Limits | None = None) -> None:
        self._decoder = decoder
        self._limits = limits or Limits()
        self._gone: dict[str, str] = {}  # why runs are no longer kept, the latest of them
        self._pausable = pausable
        self._runs: dict[str, Run] = {}
        self._took: deque[float] = deque(maxlen=REMEMBERED)  # seconds of the latest runs
        self._lock = threading.Lock()
        self._trim_is_due = False

    def __len__(self) -> int:
        return len(self._runs)

    def open(self, owner: str, job: Job, recorder: Recorder) -> Run:
        """A new run for a visitor; their older ones stop, and only the latest few are kept. Where the budget has no
        room for it, the runs go that have been idle longest, whoever's they are.
        """
        told = self._decoder(job, True, True)
        run = Run(owner, job, recorder, told, self._pausable, self._limits, self._took.append)
        self._make_room(run.bytes)
        with self._lock:
            self._runs[run.id] = run
            mine = [other for other in self._runs.values() if other.owner == owner]
        for other in mine[:-1]:
            other.stop()
        for other in mine[:-KEPT_RUNS]:
            self._drop(other)
        return run

    def find(self, run_id: Any) -> Run | None:
        """The run of that id, or None."""
        run = self._runs.get(run_id) if isinstance(run_id, str) else None
        if run is not None:
            run.touched = time.monotonic()
        return run

    def wait(self, place: int) -> float | None:
        """Seconds until the run at that place of the queue (1 is the next) begins: what is left of the present one, and
        as long as the latest runs took for each between. None before anything was measured.
        """
        present = next((run for run in list(self._runs.values()) if run.state == RUNNING), None)
        left = present.left() if present is not None else 0.0
        typical = median(self._took) if self._took else left
        if typical is None:
            return None
        return (typical if left is None else left) + max(0, place - 1) * typical

    def leave(self, owner: str) -> None:
        """Free everything a visitor has."""
        with self._lock:
            gone = [run for run in self._runs.values() if run.owner == owner]
        for run in gone:
            self._drop(run)

    def sweep(self, now: float | None = None) -> None:
        """Drop the runs that nobody has touched for IDLE_SECONDS."""
        now = time.monotonic() if now is None else now
        with self._lock:
            stale = [run for run in self._runs.values() if now - run.touched > IDLE_SECONDS]
        for run in stale:
            self._drop(run, "which nobody had touched for ten minutes")

    def tidy(self) -> None:
        """Drop what is idle, and give the memory of what was dropped back to the system."""
        self.sweep()
        self._trim()

    def _trim(self) -> None:
        if self._trim_is_due:
            self._trim_is_due = False
            trim_memory()

    def why_gone(self, run_id: Any) -> str:
        """What its owner is told who asks for a run that is not kept."""
        why = self._gone.get(run_id, "") if isinstance(run_id, str) else ""
        if not why:
            return "This run is no longer kept on the server; press Run to start a new one."
        return f"The server has dropped this run, {why}; press Run to make it again."

    def _make_room(self, wanted: float) -> None:
        most = self._limits.keep_mb * 1e6
        with self._lock:
            idle = sorted((run for run in self._runs.values() if run.state != RUNNING), key=lambda run: run.touched)
            used = sum(run.bytes for run in self._runs.values())
        for run in idle:
            if used + wanted <= most:
                break
            used -= run.bytes
            self._drop(run, "to make room for newer ones")
        self._trim()  # at once: many new runs would take what the old ones left before the next look

    def _drop(self, run: Run, why: str = "") -> None:
        run.stop()
        with self._lock:
            self._runs.pop(run.id, None)
            self._trim_is_due = True
            if why:
                self._gone[run.id] = why
            while len(self._gone) > TOLD_IDS:
                self._gone.pop(next(iter(self._gone)))


def keep_tidy(sessions: Sessions, stop: threading.Event | None = None) -> None:
    """Tidy up every few seconds, for as long as the server lives: one thread that outlives what goes wrong."""
    stop = stop or threading.Event()
    while not stop.wait(TIDY_SECONDS):
        try:
            sessions.tidy()
        except (RuntimeError, OSError, MemoryError) as error:
            print(f"surelock: could not tidy up: {first_line(error)}", file=sys.stderr)


def trim_memory() -> None:
    """Give freed memory back to the system. glibc by itself keeps what many threads have allocated and freed: a server
    that has had fifty visitors would look, and count, a third larger for good. Elsewhere nothing is done.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def _batch(messages: list[str]) -> str:
    return "[" + ",".join(messages) + "]"


def refusal(problem: str) -> str:
    """A message that belongs to no run: why there is none. Numbered by the clock, since the page ignores what equals
    the last message.
    """
    return _batch([json.dumps({"run": None, "seq": time.monotonic_ns(), "refused": problem}, ensure_ascii=False)])


def notice(said: str) -> str:
    """A message that belongs to no run: something that the stage says."""
    return _batch([json.dumps({"run": None, "seq": time.monotonic_ns(), "notice": said}, ensure_ascii=False)])
