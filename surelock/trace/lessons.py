"""The lessons of the page: read from assets/lessons/, checked against the schema there."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs

from surelock.places import ASSETS

LESSONS = ASSETS / "lessons"
_NOT_LESSONS = ("measured.json", "schema.json", "test.json")


class LessonError(ValueError):
    """A file is not a lesson; the message is one sentence that names the file and the field."""


@cache
def _validator() -> Any:
    return jsonschema_rs.validator_for(json.loads((LESSONS / "schema.json").read_bytes()), mask="this")


def read_lesson(path: Path) -> dict[str, Any]:
    """One lesson. Raises LessonError if the file is damaged, OSError if it cannot be read."""
    try:
        lesson = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise LessonError(f"The lesson {path.name} is not JSON.") from error
    for error in _validator().iter_errors(lesson):
        where = "/".join(map(str, error.instance_path))[:80]
        raise LessonError(f"The lesson {path.name} is damaged at {where or 'its top'}: {error.message}.")
    asked = False
    for i, page in enumerate(lesson["pages"]):
        asked = asked or page["kind"] == "predict"
        if page["kind"] == "gap" and not asked:
            raise LessonError(f"The lesson {path.name} is damaged at pages/{i}: no question stands before this gap.")
    return lesson


def read_lessons(folder: Path = LESSONS) -> dict[str, Any]:
    """{"lessons": all that can be read, in their order, "problems": a sentence for each file that cannot}."""
    lessons: list[dict[str, Any]] = []
    problems: list[str] = []
    for path in sorted(folder.glob("*.json")):
        if path.name in _NOT_LESSONS:
            continue
        try:
            lesson = read_lesson(path)
            if any(lesson["name"] == other["name"] for other in lessons):
                raise LessonError(f"The lesson {path.name} is damaged at name: another lesson has the same.")
            lessons.append(lesson)
        except LessonError as error:
            problems.append(str(error))
    return {"lessons": sorted(lessons, key=lambda lesson: lesson["number"]), "problems": problems}
