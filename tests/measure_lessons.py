"""How often each lesson's effect shows: `python tests/measure_lessons.py [--seeds 20] [--lesson NAME] [--out FILE]`.

For each lesson it makes the runs that its learners would (the recorded run's lanes with the lesson's settings), each
with another seed and, but for blanks, another opening, and asks whether the claim holds. It prints a line per lesson
and writes the answers as JSON. With the embedded model on two busy cores 20 seeds of all take half an hour.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from lesson_answers import answers, shows  # noqa: E402

from surelock.loading import load  # noqa: E402
from surelock.model.language_model import LanguageModel  # noqa: E402
from surelock.record import record_run  # noqa: E402
from surelock.trace.lanes import Lane  # noqa: E402
from surelock.trace.lessons import LESSONS, read_lessons  # noqa: E402

MEASURED = LESSONS / "measured.json"
OPENINGS = (ROOT / "assets" / "results" / "openings.txt").read_text("utf-8").splitlines()


def recorded_header(lesson: dict[str, Any]) -> dict[str, Any]:
    path = ROOT / "assets" / "runs" / f"{lesson['run']['recorded']}.json"
    return json.loads(path.read_text("utf-8"))["header"]


def opening(lesson: dict[str, Any], seed: int) -> str:
    """Another one for each seed; that of the recorded run where it has blanks, for which its events are."""
    header = recorded_header(lesson)
    return (
        header["prompt"]
        if header["mask_id"] in header["prompt_tokens"]
        else OPENINGS[seed % len(OPENINGS)]
    )


def lanes(lesson: dict[str, Any], seed: int) -> list[Lane]:
    """Those of the lesson's recorded run, as a learner's own run has them."""
    run = lesson["run"]
    changed = run.get("settings", {}) | {"seed": seed}
    plain = [
        each | {"settings": each["settings"] | changed} for each in recorded_header(lesson)["lanes"]
    ]
    return [Lane.from_plain(each) for each in plain]


def columns(lesson: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What is asked of each run: the claim's answer, and that of each question that asks for no positions, by page."""
    questions = {str(i): page.get("question") for i, page in enumerate(lesson["pages"], 1)}
    asked = {
        page: each["answer"] for page, each in questions.items() if each and each["kind"] != "cells"
    }
    return {"claim": lesson["claim"]["answer"], **asked}


def measure(lm: LanguageModel, lesson: dict[str, Any], seeds: int) -> dict[str, list[Any]]:
    """The answers, run by run; the seed is the run's number."""
    found: dict[str, list[Any]] = {name: [] for name in columns(lesson)}
    for seed in range(seeds):
        run = record_run(lm, opening(lesson, seed), lanes(lesson, seed))
        for name, value in zip(found, answers(run, [*columns(lesson).values()]), strict=True):
            found[name].append(value if isinstance(value, str) else round(value, 4))
    return found


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, measure, print and write."""
    parser = argparse.ArgumentParser(description="How often each lesson's effect shows.")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--lesson", help="only this one")
    parser.add_argument(
        "--out", type=Path, default=MEASURED, help="keeps what it has of other lessons"
    )
    options = parser.parse_args(arguments)
    lm = load("stories", device="cpu")
    found = json.loads(options.out.read_text("utf-8")) if options.out.exists() else {}
    for lesson in read_lessons()["lessons"]:
        name = lesson["name"]
        claim = lesson["claim"]
        if options.lesson in (None, name):
            found[name] = measure(lm, lesson, options.seeds)
            share = sum(shows(value, claim) for value in found[name]["claim"]) / options.seeds
            print(f"{name}: shows on {share:.0%} of {options.seeds} runs", flush=True)
            options.out.write_text(
                json.dumps(found, indent=1, allow_nan=False) + "\n", encoding="utf-8"
            )


if __name__ == "__main__":
    main()
