"""How often each lesson's effect shows: `python tests/measure_lessons.py [--seeds 20] [--lesson NAME] [--out FILE]`.

For each lesson it makes the runs that its learners would (the recorded run's contestants with the lesson's settings),
each with another seed and another opening, and asks whether the claim holds. It prints a line per lesson and writes all
of it as JSON. With the embedded model on two cores 20 seeds of all six take the better part of an hour.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from lesson_answers import Run, answer, holds  # noqa: E402

from surelock.model.language_model import LanguageModel  # noqa: E402
from surelock.model.loading import load  # noqa: E402
from surelock.trace.contestants import Contestant  # noqa: E402
from surelock.trace.lessons import read_lessons  # noqa: E402
from surelock.trace.record import record_run  # noqa: E402

OPENINGS = (ROOT / "surelock" / "experiments" / "openings.txt").read_text("utf-8").splitlines()


def contestants(lesson: dict[str, Any], seed: int) -> list[Contestant]:
    """Those of the lesson's recorded run, as a learner's own run has them."""
    run = lesson["run"]
    recorded = json.loads((ROOT / "assets" / "runs" / f"{run['recorded']}.json").read_text("utf-8"))
    changed = run.get("settings", {}) | {"seed": seed}
    plain = [each | {"settings": each["settings"] | changed} for each in recorded["header"]["contestants"]]
    return [Contestant.from_plain(each) for each in plain]


def measure(lm: LanguageModel, lesson: dict[str, Any], seeds: int) -> dict[str, Any]:
    """Whether the lesson's claim holds, and the answer that it is about, run by run."""
    runs = []
    for seed in range(seeds):
        run = Run(record_run(lm, OPENINGS[seed % len(OPENINGS)], contestants(lesson, seed)))
        claim = lesson["claim"]
        runs.append({"seed": seed, "answer": answer(run, claim["answer"]), "holds": holds(run, claim)})
    return {"lesson": lesson["name"], "share": sum(run["holds"] for run in runs) / seeds, "runs": runs}


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, measure, print and write."""
    parser = argparse.ArgumentParser(description="How often each lesson's effect shows.")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--lesson", help="only this one")
    parser.add_argument("--out", type=Path, default=Path("lessons.json"))
    options = parser.parse_args(arguments)
    lm = load("stories", device="cpu")
    found = []
    for lesson in read_lessons()["lessons"]:
        if options.lesson in (None, lesson["name"]):
            found.append(measure(lm, lesson, options.seeds))
            print(f"{lesson['name']}: shows on {found[-1]['share']:.0%} of {options.seeds} runs", flush=True)
    options.out.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
