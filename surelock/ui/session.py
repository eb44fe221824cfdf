"""Runs on the server: kept by unguessable ids, shared by who asks for the same, freed when their visitor leaves."""

from __future__ import annotations

import ctypes
import json
import sys
import threading
import time
from collections import deque
from statistics import median
from typing import TYPE_CHECKING, Any

from surelock.model.errors import first_line
from surelock.ui.computation import FINISHED, Computation
from surelock.ui.device import Decoder
from surelock.ui.limits import Limits
from surelock.ui.request import Job
from surelock.ui.run import Run

if TYPE_CHECKING:
    from surelock.trace.recorder import Recorder

IDLE_SECONDS = 600.0  # a run that is not resumed is dropped after this long
REMEMBERED = 9  # runs whose time tells how long the next one may take
TIDY_SECONDS = 2.0  # between looks for what nobody needs any more
TOLD_IDS = 1000  # of dropped runs, for those who ask for them
KEPT_RUNS = 4  # per visitor, for export and likely tokens; older ones live on in the visitor's page only


class Sessions:
    """All runs of this server, by id and by visitor (Gradio's session hash), within one budget of memory.

    Runs of one job follow one computation. pausable: not on ZeroGPU, where it is not shared before it has ended: one
    visitor's quota pays for it, and its refusal is for that visitor.
    """

    def __init__(self, decoder: Decoder, *, pausable: bool = True, limits: Limits | None = None) -> None:
        self._decoder = decoder
        self._limits = limits or Limits()
        self._gone: dict[str, str] = {}  # why runs are no longer kept, the latest of them
        self._pausable = pausable
        self._runs: dict[str, Run] = {}
        self._took: deque[float] = deque(maxlen=REMEMBERED)  # seconds of the latest computations
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        self._trim_is_due = False

    def __len__(self) -> int:
        return len(self._runs)

    def open(self, owner: str, job: Job, recorder: Recorder) -> Run:
        """A new run for a visitor; their older ones stop, and only the latest few are kept. It follows the computation
        of the same job, if there is one; else it has one of its own, with that recorder.
        """
        with self._opening:
            run = self._joined(owner, job.key) or self._begun(owner, job, recorder)
            with self._lock:
                self._runs[run.id] = run
                mine = [other for other in self._runs.values() if other.owner == owner]
        for other in mine[:-1]:
            other.stop()
        for other in mine[:-KEPT_RUNS]:
            self._drop(other)
        return run

    def follows(self, owner: str, key: str) -> bool:
        """Whether a run of that job, opened now, needs nothing computed for it alone."""
        return any(each.running or each.ended for each in self._to_follow(owner, key))

    def goes_on(self, run_id: Any) -> bool:
        """Whether that run, resumed now, needs nothing computed for it alone."""
        run = self._runs.get(run_id) if isinstance(run_id, str) else None
        return run is not None and bool(run.computation.running or run.computation.ended)

    @property
    def computing(self) -> bool:
        """Whether any run is being computed."""
        return any(each.running for each in self._computations())

    def _computations(self) -> dict[Computation, list[Run]]:
        """What is kept, and whose runs follow it or have followed it."""
        found: dict[Computation, list[Run]] = {}
        for run in tuple(self._runs.values()):
            found.setdefault(run.computation, []).append(run)
        return found

    def _to_follow(self, owner: str, key: str) -> list[Computation]:
        """The computations of that job that a new run of that visitor may follow: one that others follow already, or a
        finished one, unless they were given it. Who presses Run again wants another.
        """
        runs = [run for run in tuple(self._runs.values()) if run.computation.key == key]
        given = {run.computation for run in runs if run.owner == owner}
        finished = {run.computation for run in runs if run.computation.ended == FINISHED} - given
        others = [run for run in runs if run.owner != owner and run.follows and self._pausable]
        return [*{run.computation for run in others if not run.computation.ended}, *finished]

    def _joined(self, owner: str, key: str) -> Run | None:
        for each in self._to_follow(owner, key):
            run = Run(owner, each)
            if each.join(run):
                return run
        return None

    def _begun(self, owner: str, job: Job, recorder: Recorder) -> Run:
        """Where the budget has no room for it, the computations go that have been idle longest, whoever's they are."""
        told = self._decoder(job, True, True)
        computation = Computation(job, recorder, told, self._pausable, self._limits, self._took.append)
        self._make_room(computation.bytes)
        run = Run(owner, computation)
        computation.join(run)
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
        present = next((each for each in self._computations() if each.running), None)
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
        most, kept = self._limits.keep_mb * 1e6, self._computations()
        idle = [each for each in kept if not each.running]
        used = sum(each.bytes for each in kept)
        for each in sorted(idle, key=lambda each: max(run.touched for run in kept[each])):
            if used + wanted <= most:
                break
            used -= each.bytes
            for run in kept[each]:
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


def refusal(problem: str) -> str:
    """A message that belongs to no run: why there is none."""
    return json.dumps([{"run": None, "seq": 0, "refused": problem}], ensure_ascii=False)
