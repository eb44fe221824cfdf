"""What the lessons ask of a run, computed from its exported trace in Python, for the tests and for
`measure_lessons.py`. It shares nothing with assets/js/lessons/answers.js but the names of the answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from surelock.trace.frames import read_trace


class Run:
    """A trace document and its frames."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document, self.frames = document, read_trace(document)
        self.ids = [lane["id"] for lane in document["header"]["lanes"]]
        self.reference = document["header"].get("reference", self.ids[0])

    def lane(self, name: str) -> str:
        """A lane's id."""
        others = [own for own in self.ids if own != self.reference]
        return {"reference": self.reference, "subject": (others or self.ids)[0]}.get(name, name)

    def of(self, frame: str, name: str) -> Any:
        """A lane's rows of one of the frames."""
        rows = getattr(self.frames, frame)
        return rows[rows["lane"] == self.lane(name)]

    def records(self, name: str) -> list[dict[str, Any]]:
        return [record for record in self.document["records"] if record["lane"] == self.lane(name)]


def written_next(run: Run, lane: str, at: float, count: int) -> list[int]:
    records = run.records(lane)
    over = max(1, math.ceil(at * len(records)))
    return [position for record in records[over:] for position, _ in record["unmasked"]][:count]


def leftmost_share(run: Run, lane: str) -> float:
    rows = run.of("positions", lane)
    rows = rows[~rows["prompt"]]
    steps = rows.groupby("unmask_step")["position"].min()
    first = [position == rows[rows["unmask_step"] >= step]["position"].min() for step, position in steps.items()]
    return sum(first) / len(first)


def still_share(run: Run, lane: str, below: float) -> float:
    kl = run.of("values", lane)["kl"].to_numpy(dtype=float)
    return float(np.mean(kl[np.isfinite(kl)] <= below))


def first_locked(run: Run, lane: str, count: int) -> list[int]:
    rows = run.of("positions", lane)
    rows = rows[~rows["prompt"] & rows["lock_step"].notna()]
    last = rows["lock_step"].nsmallest(count).max()
    return sorted(rows[rows["lock_step"] <= last]["position"].tolist()) if len(rows) else []


def rest_steps(run: Run, lane: str) -> float:
    rows = run.of("positions", lane)
    rows = rows[~rows["prompt"] & rows["lock_step"].notna()]
    return float(median((rows["lock_step"] - rows["unmask_step"]).tolist() or [0]))


def commit_error(run: Run, lane: str) -> float:
    errors = [nats or 0.0 for record in run.records(lane) for nats in record["commit_error"]]
    return sum(errors) / max(1, len(errors))


def changed_share(run: Run, lane: str) -> float:
    records = run.records(lane)
    return sum(len(r["changed"]) for r in records) / max(1, sum(len(r["unmasked"]) for r in records))


def error_rank(run: Run, lanes: list[str], want: str, tie: float) -> str:
    errors = sorted(((commit_error(run, lane), run.lane(lane)) for lane in lanes), reverse=want == "most")
    (first, own), (second, _), *_ = errors
    return "same" if abs(first - second) <= tie * max(first, second) else own


def error_ratio(run: Run, lane: str, beside: str) -> float:
    mine, other = commit_error(run, lane), commit_error(run, beside)
    if other == 0:
        return math.inf if mine else math.nan
    return mine / other


def total(run: Run, lane: str, what: str) -> float:
    return float(run.of("steps", lane)[what].sum())


def flops_saved(run: Run, lane: str) -> float:
    return 1 - total(run, lane, "flops") / total(run, "reference", "flops")


def time_saved(run: Run, lane: str) -> float:
    return 1 - total(run, lane, "seconds") / total(run, "reference", "seconds")


def saved_more(run: Run, lane: str, tie: float) -> str:
    gap = flops_saved(run, lane) - time_saved(run, lane)
    return "same" if abs(gap) <= tie else ("flops" if gap > 0 else "time")


def after_end_share(run: Run, lane: str) -> float:
    rows = run.of("positions", lane)
    written = rows[~rows["prompt"]].sort_values("position")["token"].tolist()
    end = run.document["header"].get("eos_id")
    return (len(written) - written.index(end)) / len(written) if end in written else 0.0


def cost_spread(run: Run, lanes: list[str]) -> float:
    costs = [total(run, lane, "flops") for lane in lanes]
    return max(costs) / min(costs) - 1


ANSWERS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        written_next,
        leftmost_share,
        still_share,
        first_locked,
        rest_steps,
        changed_share,
        error_rank,
        error_ratio,
        flops_saved,
        time_saved,
        saved_more,
        after_end_share,
        cost_spread,
    )
}


def answer(run: Run, asked: dict[str, Any]) -> Any:
    """What a lesson asks for: {"is": name, parameters}."""
    return ANSWERS[asked["is"]](run, **{name: value for name, value in asked.items() if name != "is"})


def holds(run: Run, claim: dict[str, Any]) -> bool:
    """Whether the effect that a lesson speaks of shows on a run."""
    return shows(answer(run, claim["answer"]), claim)


def shows(found: Any, claim: dict[str, Any]) -> bool:
    """Whether it shows where the claim's answer is that."""
    if "equals" in claim:
        return found == claim["equals"]
    return bool(claim.get("at_least", -math.inf) <= found <= claim.get("at_most", math.inf))


def asked_in(lesson: dict[str, Any]) -> list[dict[str, Any]]:
    """All that a lesson asks of a run: its questions', its pins' and its claim's answers."""
    pages = lesson["pages"]
    asked = [page["question"]["answer"] for page in pages if "question" in page]
    asked += [page["pins"] for page in pages if "pins" in page]
    return [*asked, *([lesson["claim"]["answer"]] if "claim" in lesson else [])]
