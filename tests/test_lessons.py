"""The lessons: their files, and their answers on many runs, held against Python's own."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections import Counter
from copy import deepcopy
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from lesson_answers import ANSWERS, Run, answer, asked_in, holds, shows
from measure_lessons import columns
from test_javascript import ROOT, needs_node, node

from surelock.decoding.recommended import recommended
from surelock.model.language_model import LanguageModel
from surelock.quality.commit_error import Shadow
from surelock.record import record_run
from surelock.trace.lanes import Lane
from surelock.trace.lessons import LESSONS, LessonError, read_lesson, read_lessons

LOOSE = {"compute": "lock", "epsilon": 0.05, "percentile": 100.0}
FIELDS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "too-early": [
        ("everything", {"compute": "everything"}),
        ("surelock", {"compute": "lock"}),
        ("seen", LOOSE),
        ("letter", {**LOOSE, "visible_steps": 0}),
    ],
    "rules": [
        ("everything", {"compute": "everything"}),
        ("surelock", {"compute": "lock"}),
        ("age", {"compute": "age", "age": 4}),
        ("own", {"compute": "select", "select_fraction": 0.65}),
    ],
}
RUNS = 5
OPENINGS = (ROOT / "assets" / "results" / "openings.txt").read_text("utf-8").splitlines()


def field(lm: LanguageModel, lanes: list[tuple[str, dict[str, Any]]], seed: int) -> list[Lane]:
    shared = {"gen_length": 16, "seed": seed}
    return [Lane(id=own, name=own, decoder=recommended(lm.generation, shared | given)) for own, given in lanes]


@pytest.fixture(scope="session")
def runs(
    stories: LanguageModel, lm: LanguageModel, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[tuple[Path, Run]]]:
    """Short runs of each field: of the embedded model where the texts matter, else of the tiny one."""
    folder, made = tmp_path_factory.mktemp("runs"), {}
    for name, lanes in FIELDS.items():
        made[name] = []
        for seed in range(RUNS):
            model, prompt = (stories, OPENINGS[seed]) if name == "too-early" else (lm, None)
            document = (
                record_run(model, prompt, field(model, lanes, seed), exact=seed % 2 == 0)
                if prompt
                else tiny_run(model, field(model, lanes, seed))
            )
            path = folder / f"{name}-{seed}.json"
            path.write_text(json.dumps(document), encoding="utf-8")
            made[name].append((path, Run(document)))
    return made


def tiny_run(lm: LanguageModel, lanes: list[Lane]) -> dict[str, Any]:
    """A run of a model without a tokenizer."""
    from surelock.trace.race import race
    from surelock.trace.recorder import Recorder, make_header

    prompt = [5, 9, 3, 17]
    recorder = Recorder(make_header(lm, None, prompt, lanes), lm.tokenizer)
    for told in race(lm, prompt, lanes, shadow=Shadow):
        recorder.take(told)
    return recorder.document(exact=False)


def recorded(name: str) -> tuple[Path, Run]:
    path = ROOT / "assets" / "runs" / f"{name}.json"
    return path, Run(json.loads(path.read_text("utf-8")))


@needs_node
def test_every_answer_on_many_runs(runs: dict[str, list[tuple[Path, Run]]]) -> None:
    """What the page computes from the learner's trace is what Python computes from the exported one."""
    asked, expected = [], []
    for lesson in read_lessons()["lessons"]:
        kind = "rules" if lesson["run"]["recorded"] == "rules" else "too-early"
        played = [*runs[kind], recorded(lesson["run"]["recorded"])]
        assert len(played) > RUNS
        for path, run in played:
            parts = {"asked": asked_in(lesson), "claim": lesson["claim"], "needs": lesson["run"]["needs"]}
            asked.append({"trace": str(path), **parts})
            answers = [answer(run, each) for each in asked_in(lesson)]
            expected.append({"misfit": "", "answers": answers, "holds": holds(run, lesson["claim"])})
    found = json.loads(node("tests/js/answers-of.js", given=json.dumps(asked)))
    assert len(found) == len(expected) == len(read_lessons()["lessons"]) * (RUNS + 1)
    differing = [
        (each["trace"], question, mine, own)
        for each, theirs, ours in zip(asked, found, expected, strict=True)
        for question, mine, own in zip(each["asked"], theirs["answers"], ours["answers"], strict=True)
        if not same(mine, own)
    ]
    assert differing == []
    assert [(each["misfit"], each["holds"]) for each in found] == [(each["misfit"], each["holds"]) for each in expected]


def same(a: Any, b: Any) -> bool:
    if isinstance(a, list):
        return sorted(a) == sorted(b)
    return a == b if isinstance(a, str) or isinstance(b, str) else a == pytest.approx(b, abs=1e-9)


def test_python_knows_every_answer() -> None:
    schema = json.loads((LESSONS / "schema.json").read_text("utf-8"))
    assert set(schema["$defs"]["answer"]["properties"]["is"]["enum"]) == set(ANSWERS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(LESSONS, tmp_path / "lessons"))


def test_another_lesson_is_one_file(folder: Path) -> None:
    lesson = json.loads((folder / "2-work.json").read_text("utf-8"))
    lesson |= {"name": "another", "number": 8, "title": "Another one"}
    del lesson["claim"]  # a lesson may have none
    (folder / "8-another.json").write_text(json.dumps(lesson), encoding="utf-8")
    found = read_lessons(folder)
    assert [each["number"] for each in found["lessons"]] == [1, 2, 3, 4, 5, 6, 7, 8] and found["problems"] == []


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
        ("pages/2/question/unit", "miles", "pages/2/question/unit"),
        ("pages/2/question/answer/is", "guess", "pages/2/question/answer/is"),
        ("pages/1/kind", "sing", "pages/1/kind"),
        ("pages/0/question", {}, "pages/0/question"),
        ("pages/0/kind", "gap", "pages/0"),
        ("run", None, "run"),
        ("extra", 1, "its top"),
        ("x" * 10**5 + "\n", 1, "its top"),
        ("pages/2/question/answer/lane", "nowhere", "run/needs"),
        ("pages/2/question/answer/lane", 7, "pages/2/question/answer/lane"),
        ("pages/2/question/answer", {"is": "error_ratio", "lane": "subject"}, "pages/2/question/answer"),
        ("pages/2/question/answer", {"is": "saved_more", "lane": "subject", "tie": 0}, "pages/2/question/answer"),
        ("pages/0/shows", ["lane:subject"], "pages/0/shows"),
        ("pages/0/shows", ["grids", "lane:nowhere"], "run/needs"),
        ("pages/0/pins", {"is": "flops_saved", "lane": "subject"}, "pages/0/pins/is"),
        ("claim/answer/lane", "nowhere", "run/needs"),
    ],
)
def test_a_damaged_lesson_is_a_sentence(folder: Path, where: str, value: Any, named: str) -> None:
    path = folder / "2-work.json"
    path.write_text(json.dumps(damaged(json.loads(path.read_text("utf-8")), where, value)), encoding="utf-8")
    with pytest.raises(LessonError, match=rf"^The lesson 2-work\.json is damaged at {named}: [^\n]{{1,201}}\.$"):
        read_lesson(path)
    found = read_lessons(folder)
    assert len(found["lessons"]) == 6 and len(found["problems"]) == 1


def test_what_is_no_lesson_is_told(folder: Path) -> None:
    whole = json.loads((folder / "2-work.json").read_text("utf-8"))
    half, none = ("title", "\ud800"), ("run/settings", {"seed": math.nan})
    unlike = [json.dumps(damaged(deepcopy(whole), *each)) for each in (half, none)]
    for text in ("{", "[" * 10**5, "1" * 5000, *unlike):  # 5000: more digits than Python reads
        (folder / "1-unmasking.json").write_text(text, encoding="utf-8")
        assert read_lessons(folder)["problems"] == ["The lesson 1-unmasking.json is not JSON."]
    large = folder / "0-large.json"
    for make, unmake in ((large.mkdir, large.rmdir), (lambda: large.write_text(" " * 2**21), large.unlink)):
        make()
        assert read_lessons(folder)["problems"][0] == "The lesson 0-large.json is no file of at most 1,048,576 bytes."
        unmake()
    shutil.copy(folder / "2-work.json", folder / "8-again.json")
    problems = read_lessons(folder)["problems"]
    assert problems == [
        "The lesson 1-unmasking.json is not JSON.",
        "The lesson 8-again.json is damaged at name: another lesson has the same.",
    ]


def test_the_teachers_sheet_opens_the_right_pages() -> None:
    """Each lesson has a sheet; what it links to under "Open at" is there, and is a page that shows something."""
    sheet = (LESSONS / "README.md").read_text("utf-8")
    for lesson in read_lessons()["lessons"]:
        heading = f"## {lesson['number']}. {lesson['title']} ({lesson['minutes']} minutes): "
        part = sheet.split(heading)[1].split("\n## ")[0]
        assert [f"- **{name}.**" in part for name in ("Aim", "Say", "Open at", "The claim")] == [True] * 4
        pages = [int(found) for found in re.findall(rf"\?lesson={lesson['name']}&page=(\d+)", part)]
        assert len(pages) == 2
        kinds = [lesson["pages"][page - 1]["kind"] for page in pages]
        assert kinds[0] == "predict" and kinds[1] != "why"


def test_the_teachers_sheets_say_what_was_measured() -> None:
    """On how many of at least twenty runs each effect shows, and what else the sheets tell of them."""
    sheets = " ".join((LESSONS / "README.md").read_text("utf-8").split())
    measured = json.loads((LESSONS / "measured.json").read_text("utf-8"))
    for lesson in read_lessons()["lessons"]:
        found = measured[lesson["name"]]
        assert set(found) == set(columns(lesson)) and {len(column) for column in found.values()} == {20}
        shown = sum(shows(value, lesson["claim"]) for value in found["claim"])
        part = sheets.split(f"## {lesson['number']}. ")[1].split(" ## ")[0]
        assert f"- **Measured.** It holds on {shown} of 20 runs" in part, (lesson["name"], shown)
        assert shown > 10, "a lesson must not insist on what shows on few runs"
    middle = {name: median(found["claim"]) for name, found in measured.items() if name != "savings"}
    assert f"the leftmost blank at {percent(middle['unmasking'])} of the steps" in sheets
    assert f"in the middle one {percent(middle['work'])} of the rows" in sheets
    assert middle["sure"] == 5 and "wait five steps" in sheets
    assert (
        set(measured["too-early"]["3"]) == {"letter"} and "has the largest error of the three on all of them" in sheets
    )
    saved = measured["savings"]["5"]
    assert f"between {percent(min(saved))} and {percent(max(saved))}" in sheets
    first = Counter(measured["better-rule"]["2"])
    told = f"that of locking by age on {first['age']} of them, of taking turns on {first['own']}, of SureLock on "
    assert f"{told}{first['surelock']}; two shared the first place on {first['same']}." in sheets
    smaller = Counter(measured["own-rule"]["2"])
    told = f"on {smaller['age']} of them, that rule on {smaller['own']}; they shared it on {smaller['same']}."
    assert f"Locking by age had the smaller error {told}" in sheets


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def test_the_ten_questions() -> None:
    test = json.loads((LESSONS / "test.json").read_text("utf-8"))
    assert len(test["questions"]) == 10
    for question in test["questions"]:
        assert len(question["options"]) == 3 and question["right"] in range(3) and question["ask"].endswith("?")
    assert len({question["right"] for question in test["questions"]}) == 3
