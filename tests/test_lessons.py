"""The lessons: their files, and what the teachers' sheets say of many runs."""

import json
import math
import shutil
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from lesson_answers import shows
from measure_lessons import columns

from surelock.trace.lessons import LESSONS, LessonError, read_lesson, read_lessons


@pytest.fixture
def folder(tmp_path):
    return Path(shutil.copytree(LESSONS, tmp_path / "lessons"))


def test_another_lesson_is_one_file(folder):
    lesson = json.loads((folder / "2-work.json").read_text("utf-8"))
    lesson |= {"name": "another", "number": 10, "title": "Another one"}
    del lesson["claim"]  # a lesson may have none
    (folder / "10-another.json").write_text(json.dumps(lesson), encoding="utf-8")
    found = read_lessons(folder)
    assert [each["number"] for each in found["lessons"]] == [*range(1, 11)] and found[
        "problems"
    ] == []


def damaged(lesson: dict[str, Any], where: str, value: Any) -> dict[str, Any]:
    *path, last = [int(part) if part.isdecimal() else part for part in where.split("/")]
    target: Any = lesson
    for part in path:
        target = target[part]
    target[last] = value
    return lesson


@pytest.mark.parametrize(
    ("where", "value", "named"),
    [
        ("title", 7, "title"),
        ("pages/2/question/answer/is", "guess", "pages/2/question/answer/is"),
        ("pages/0/kind", "gap", "pages/0"),
        ("x" * 10**5 + "\n", 1, "its top"),
        (
            "pages/2/question/answer",
            {"is": "error_ratio", "lane": "subject"},
            "pages/2/question/answer",
        ),
        ("pages/0/shows", ["lane:subject"], "pages/0/shows"),
        ("pages/0/pins", {"is": "flops_saved", "lane": "subject"}, "pages/0/pins/is"),
        ("claim/answer/lane", "nowhere", "run/needs"),
    ],
)
def test_a_damaged_lesson_is_a_sentence(folder, where, value, named):
    path = folder / "2-work.json"
    path.write_text(
        json.dumps(damaged(json.loads(path.read_text("utf-8")), where, value)), encoding="utf-8"
    )
    with pytest.raises(
        LessonError, match=rf"^The lesson 2-work\.json is damaged at {named}: [^\n]{{1,201}}\.$"
    ):
        read_lesson(path)
    found = read_lessons(folder)
    assert len(found["lessons"]) == 8 and len(found["problems"]) == 1


def test_what_is_no_lesson_is_told(folder):
    whole = json.loads((folder / "2-work.json").read_text("utf-8"))
    half = ("title", "\ud800")
    none = ("run/settings", {"seed": math.nan})
    unlike = [json.dumps(damaged(deepcopy(whole), *each)) for each in (half, none)]
    for text in ("{", "[" * 10**5, "1" * 5000, *unlike):  # 5000: more digits than Python reads
        (folder / "1-unmasking.json").write_text(text, encoding="utf-8")
        assert read_lessons(folder)["problems"] == ["The lesson 1-unmasking.json is not JSON."]
    large = folder / "0-large.json"
    for make, unmake in (
        (large.mkdir, large.rmdir),
        (lambda: large.write_text(" " * 2**21), large.unlink),
    ):
        make()
        assert (
            read_lessons(folder)["problems"][0]
            == "The lesson 0-large.json is no file of at most 1,048,576 bytes."
        )
        unmake()
    shutil.copy(folder / "2-work.json", folder / "9-again.json")
    problems = read_lessons(folder)["problems"]
    assert problems == [
        "The lesson 1-unmasking.json is not JSON.",
        "The lesson 9-again.json is damaged at name: another lesson has the same.",
    ]


def test_the_teachers_sheets_say_what_was_measured():
    """On how many of twenty runs each effect shows."""
    sheets = " ".join((LESSONS / "README.md").read_text("utf-8").split())
    measured = json.loads((LESSONS / "measured.json").read_text("utf-8"))
    for lesson in read_lessons()["lessons"]:
        found = measured[lesson["name"]]
        assert set(found) == set(columns(lesson)) and {
            len(column) for column in found.values()
        } == {20}
        shown = sum(shows(value, lesson["claim"]) for value in found["claim"])
        part = sheets.split(f"## {lesson['number']}. ")[1].split(" ## ")[0]
        assert f"- **Measured.** It holds on {shown} of 20 runs" in part, (lesson["name"], shown)
        assert shown > 10, "a lesson must not insist on what shows on few runs"
