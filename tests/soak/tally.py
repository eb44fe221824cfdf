"""What a soak run has seen so far, counted by many threads at once."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

MOST_EXAMPLES = 12


class Tally:
    """Counts, latencies in seconds, and the first examples of every kind of problem."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.latencies: dict[str, list[float]] = {}
        self.problems: Counter[str] = Counter()
        self.examples: list[str] = []
        self.runs: set[str] = set()
        self.told: set[str] = set()  # of a computation its first step's times, which no other has

    def count(self, what: str, number: int = 1) -> None:
        with self._lock:
            self.counts[what] += number

    def took(self, what: str, seconds: float) -> None:
        with self._lock:
            self.latencies.setdefault(what, []).append(seconds)

    def problem(self, kind: str, detail: str) -> None:
        with self._lock:
            self.problems[kind] += 1
            if len(self.examples) < MOST_EXAMPLES:
                self.examples.append(f"{kind}: {detail}"[:300])

    def saw_run(self, run: str) -> None:
        """A run's id: nobody may ever be given one that was given before."""
        with self._lock:
            if run in self.runs:
                self.problems["a run was given twice"] += 1
            self.runs.add(run)

    def summary(self) -> dict[str, Any]:
        """Everything as plain values; latencies as percentiles in milliseconds."""
        with self._lock:
            latencies = {what: percentiles(values) for what, values in sorted(self.latencies.items())}
            problems = dict(self.problems)
            return {
                "errors": sum(problems.values()),
                "problems": problems,
                "examples": list(self.examples),
                **dict(sorted(self.counts.items())),
                "latency_ms": latencies,
            }


def percentiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    at = {f"p{p}": round(1000 * ordered[min(len(ordered) - 1, len(ordered) * p // 100)], 1) for p in (50, 95, 99)}
    return at | {"max": round(1000 * ordered[-1], 1), "n": len(ordered)}
