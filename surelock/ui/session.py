"""The runs of the server: kept by unguessable ids, shared by visitors with one job, freed when a visitor leaves."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import deque
from statistics import median
from typing import TYPE_CHECKING, Any

from surelock.errors import first_line
from surelock.memory import trim_memory
from surelock.ui.computation import FINISHED, Computation
from surelock.ui.device import Runner
from surelock.ui.limits import Limits
from surelock.ui.request import Job
from surelock.ui.run import Run

if TYPE_CHECKING:
    from surelock.trace.recorder import Recorder

IDLE_SECONDS = 600.0  # after which an unused run is dropped
REMEMBERED = 9  # runs whose times estimate that of the next one
TIDY_SECONDS = 2.0  # between two searches for idle runs
TOLD_IDS = 1000  # of dropped runs whose reason is kept
MOST_RUNS = 2000  # of all visitors: each time that the queue looks for its next event it looks through them
KEPT_RUNS = 4  # of each visitor, for export and likely tokens; the page itself keeps older ones


class Sessions:
    """The runs of a server, by id and by visitor (Gradio's session hash), within one memory budget.

    decoder: runs a job, see `make_decoder`.
    pausable: whether runs can pause. On ZeroGPU they cannot, and a computation is shared only once it has ended, since
    the quota of one visitor pays for it.

    Runs with the same job share one computation.
    """

    def __init__(self, decoder: Runner, *, pausable: bool = True, limits: Limits | None = None) -> None:
        self._decoder = decoder
        self._limits = limits or Limits()
        self._gone: dict[str, str] = {}  # why runs were dropped, of the latest TOLD_IDS
        self._pausable = pausable
        self._runs: dict[str, Run] = {}
        self._of_job: dict[str, dict[Run, None]] = {}  # the same runs by the keys of their jobs
        self._took: deque[float] = deque(maxlen=REMEMBERED)  # seconds of the latest computations
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        self._trim_is_due = False

    def __len__(self) -> int:
        return len(self._runs)

    def open(self, owner: str, job: Job, recorder: Recorder) -> Run:
        """Return a new run for a visitor. It stops the visitor's older runs, of which the latest few are kept.

        recorder: records a new computation, if there is none of the same job to follow.
        """
        with self._opening:
            run = self._joined(owner, job.key) or self._begun(owner, job, recorder)
            with self._lock:
                self._runs[run.id] = run
                self._of_job.setdefault(run.computation.key, {})[run] = None
                mine = [other for other in self._runs.values() if other.owner == owner]
        for other in mine[:-1]:
            other.stop()
        for other in mine[:-KEPT_RUNS]:
            self._drop(other)
        if len(self._runs) > MOST_RUNS:
            idle = [other for other in tuple(self._runs.values()) if not other.streams and other is not run]
            for other in sorted(idle, key=lambda each: each.touched)[: len(self._runs) - MOST_RUNS]:
                self._drop(other, "to make room for newer ones")
        return run

    def follows(self, owner: str, key: str) -> bool:
        """Return whether a new run of a job would follow a computation that is running or finished."""
        return any(each.running or each.ended for each in self._to_follow(owner, key))

    def goes_on(self, run_id: Any) -> bool:
        """Return whether a resumed run would follow a computation that is running or finished."""
        run = self._runs.get(run_id) if isinstance(run_id, str) else None
        return run is not None and bool(run.computation.running or run.computation.ended)

    @property
    def computing(self) -> bool:
        """Whether any run is being computed."""
        return any(each.running for each in self._computations())

    def _computations(self) -> dict[Computation, list[Run]]:
        """The kept computations, each with the runs that follow or followed it."""
        found: dict[Computation, list[Run]] = {}
        for run in tuple(self._runs.values()):
            found.setdefault(run.computation, []).append(run)
        return found

    def _to_follow(self, owner: str, key: str) -> list[Computation]:
        """The computations of a job that a new run of a visitor may follow.

        That is one which other visitors follow, or a finished one, unless this visitor has had it: pressing Run again
        computes it again.
        """
        runs = tuple(self._of_job.get(key, ()))
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
        """A run with a new computation. Computations that have been idle longest are dropped to make room."""
        rounds = self._decoder(job, True, True)
        computation = Computation(job, recorder, rounds, self._pausable, self._limits, self._took.append)
        self._make_room(computation.bytes)
        run = Run(owner, computation)
        computation.join(run)
        return run

    def find(self, run_id: Any) -> Run | None:
        """Return the run of an id, or None. It counts as used."""
        run = self._runs.get(run_id) if isinstance(run_id, str) else None
        if run is not None:
            run.touched = time.monotonic()
        return run

    def wait(self, place: int) -> float | None:
        """Return the seconds until the run at a place of the queue begins; None before anything was measured.

        place: 1 is next. The estimate is the rest of the present run, and the median time of the latest runs for each
        run in between.
        """
        present = next((each for each in self._computations() if each.running), None)
        left = present.left() if present is not None else 0.0
        typical = median(self._took) if self._took else left
        if typical is None:
            return None
        return (typical if left is None else left) + max(0, place - 1) * typical

    def leave(self, owner: str) -> None:
        """Drop all runs of a visitor."""
        with self._lock:
            gone = [run for run in self._runs.values() if run.owner == owner]
        for run in gone:
            self._drop(run)

    def sweep(self, now: float | None = None) -> None:
        """Drop the runs that were not used for IDLE_SECONDS. now: in seconds of `time.monotonic`."""
        now = time.monotonic() if now is None else now
        with self._lock:
            stale = [run for run in self._runs.values() if now - run.touched > IDLE_SECONDS]
        for run in stale:
            self._drop(run, "which nobody had touched for ten minutes")

    def tidy(self) -> None:
        """Drop idle runs, and return freed memory to the system."""
        self.sweep()
        self._trim()

    def _trim(self) -> None:
        if self._trim_is_due:
            self._trim_is_due = False
            trim_memory()

    def why_gone(self, run_id: Any) -> str:
        """Return the message for a request of a run that is not kept."""
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
            same = self._of_job.get(run.computation.key, {})
            same.pop(run, None)
            if not same:
                self._of_job.pop(run.computation.key, None)
            self._trim_is_due = True
            if why:
                self._gone[run.id] = why
            while len(self._gone) > TOLD_IDS:
                self._gone.pop(next(iter(self._gone)))


def keep_tidy(sessions: Sessions, stop: threading.Event | None = None) -> None:
    """Tidy up every TIDY_SECONDS until `stop` is set. Errors are printed, and the loop goes on."""
    stop = stop or threading.Event()
    while not stop.wait(TIDY_SECONDS):
        try:
            sessions.tidy()
        except (RuntimeError, OSError, MemoryError) as error:
            print(f"surelock: could not tidy up: {first_line(error)}", file=sys.stderr)


def refusal(problem: str) -> str:
    """Return the message that says why there is no run."""
    return said(refused=problem)


def said(**message: str) -> str:
    """Return a message that is about no run."""
    return json.dumps([{"run": None, "seq": 0, **message}], ensure_ascii=False)
