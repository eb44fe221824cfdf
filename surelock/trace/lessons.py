"""The lessons of the page, read from assets/lessons/ and checked against its schema."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs

from surelock.errors import cut
from surelock.places import ASSETS
from surelock.values import Json

LESSONS = ASSETS / "lessons"
MOST_BYTES = 2**20
_NOT_LESSONS = ("measured.json", "schema.json", "test.json")


class LessonError(ValueError):
    """Raised for a file that is not a lesson. The message is one sentence that names the file and the field."""


@cache
def _validator() -> Any:
    return jsonschema_rs.validator_for(
        json.loads((LESSONS / "schema.json").read_bytes()), mask="this"
    )


def read_lesson(path: Path) -> Json:
    """Return a checked lesson. Raises LessonError if the file is damaged, OSError if it cannot be read."""
    lesson = _json(path)
    for error in _validator().iter_errors(lesson):
        where = "/".join(map(str, error.instance_path))[:80]
        raise _damaged(path, where or "its top", cut(" ".join(error.message.split()), 200))
    predicted = False
    for i, page in enumerate(lesson["pages"]):
        predicted = predicted or page["kind"] == "predict"
        if page["kind"] == "gap" and not predicted:
            raise _damaged(path, f"pages/{i}", "no question stands before this gap")
    run = lesson["run"]
    needs = [*run["needs"], run["own"]] if "own" in run else run["needs"]
    lanes = {"reference", "subject", *(need["lane"] for need in needs)}
    for name in sorted(_lanes(lesson) - lanes):
        raise _damaged(
            path,
            "run/needs",
            f"a page is about {name}, a lane that no run of this lesson needs to have",
        )
    return lesson


def _json(path: Path) -> Any:
    if not path.is_file() or path.stat().st_size > MOST_BYTES:
        raise LessonError(f"The lesson {path.name} is no file of at most {MOST_BYTES:,} bytes.")
    try:
        lesson = json.loads(path.read_bytes())
        # Python also reads JSON that browsers refuse, such as NaN.
        json.dumps(lesson, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise LessonError(f"The lesson {path.name} is not JSON.") from error
    return lesson


def _damaged(path: Path, where: str, why: str) -> LessonError:
    return LessonError(f"The lesson {path.name} is damaged at {where}: {why}.")


def _lanes(lesson: Json) -> set[str]:
    """Return the lanes that answers of a lesson name or that its pages show."""
    answers = [lesson["claim"]["answer"]] if "claim" in lesson else []
    names = []
    for page in lesson["pages"]:
        if "pins" in page:
            answers.append(page["pins"])
        if "question" in page:
            answers.append(page["question"]["answer"])
        names += [part[5:] for part in page["shows"] if part.startswith("lane:")]
    for answer in answers:
        names += [answer.get("lane"), answer.get("beside"), *answer.get("lanes", ())]
    return set(filter(None, names))


def read_lessons(folder: Path = LESSONS) -> Json:
    """Return {"lessons": [lesson], "problems": [sentence]} of a folder.

    Lessons are in the order of their numbers. There is a problem for every file that is no lesson.
    """
    lessons: list[Json] = []
    problems: list[str] = []
    for path in sorted(folder.glob("*.json")):
        if path.name in _NOT_LESSONS:
            continue
        try:
            lesson = read_lesson(path)
            if any(lesson["name"] == other["name"] for other in lessons):
                raise _damaged(path, "name", "another lesson has the same")
            lessons.append(lesson)
        except LessonError as error:
            problems.append(str(error))
    return {"lessons": sorted(lessons, key=lambda lesson: lesson["number"]), "problems": problems}
