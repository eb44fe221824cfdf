"""The frontier: what a cell measures beside the library's own measures, and its tables from made-up cells."""

import math
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest

import surelock
from surelock.decoding.loop import decode
from surelock.research import frontier, judged
from surelock.research.faults import ordinary_words, repeated, strangers
from surelock.research.frontier import EVERY, FRONTIER, RULES, SURELOCK, LockByChance
from surelock.research.lab import Lab
from surelock.research.runner import Record
from surelock.research.taking_back import TAKING_BACK


def records(
    errors: dict[str, list[float]], skip: int = 0, setting: str = "recorded run"
) -> list[Record]:
    """Openings of 100 rows each, half of them computed; SureLock errs by 0.5 unless `errors` tells otherwise."""
    made = []
    for rule, compute in RULES.items():
        own = errors.get(rule, [0.0 if rule == EVERY else 0.5] * len(errors[SURELOCK]))
        result: Record = {
            "rows": [50] * len(own),
            "positions": [100] * len(own),
            "commits": [10] * len(own),
        }
        result |= {"error": own, "regret": own, "large": [1] * len(own), "changed": [2] * len(own)}
        result["faults"] = list(range(len(own)))
        cell = {"setting": setting, "rule": rule, "compute": compute, "skip": skip}
        made.append({"cell": cell, "result": result | {"tokens": [[5]] * len(own)}})
    return made


def timed(*seconds: float, setting: str = "recorded run") -> list[Record]:
    """An opening for each of SureLock's seconds; every other rule takes 2 s. Two rules take turns by themselves."""
    later = ("local leap", "correct")
    turns = [[name for name in RULES if name not in later], [EVERY, *later]]
    made: list[Record] = []
    for own in seconds:
        for names in turns:
            took = {name: own if name == SURELOCK else 2.0 for name in names}
            cell = {"setting": setting, "timed": {name: RULES[name] for name in names}}
            made.append({"cell": cell, "result": {"seconds": took}})
    return made


def test_a_rule_is_timed_beside_those_that_took_turns_with_it():
    times = timed(1.0, 1.0)
    for record in times:
        if "correct" in record["cell"]["timed"]:
            record["result"]["seconds"] = {EVERY: 4.0, "local leap": 2.0, "correct": 6.0}
    frame = FRONTIER.table(records({SURELOCK: [0.1, 0.2]}) + times).set_index("rule")
    assert frame.loc["correct", ["timed", "seconds", "time"]].tolist() == [2, 6.0, 1.5]
    assert frame.loc[EVERY, ["timed", "seconds", "time"]].tolist() == [2, 2.0, 1.0]
    assert frame.loc[EVERY, "faults"] == 0.5


@pytest.mark.parametrize(
    ("margin", "errs"), [(1.001, ("less", "more")), (0.999, ("not shown", "not shown"))]
)
def test_a_difference_is_told_after_correction_for_everything_that_was_compared(margin, errs):
    """Seven rules beside SureLock, over 32 openings: Student's t of 31 degrees of freedom at 1 - .05 / 7 / 2."""
    t = 2.8804
    sides = np.tile([-0.01, 0.01], 16)
    shift = margin * t * sides.std(ddof=1) / math.sqrt(32)
    own = {
        SURELOCK: [0.5] * 32,
        "by age": (0.5 - shift + sides).tolist(),
        "by chance": (0.5 + shift + sides).tolist(),
    }
    frame = FRONTIER.table(records(own) + timed(1.0, 2.0)).set_index("rule")
    assert (frame.loc["by age", "errs"], frame.loc["by chance", "errs"]) == errs
    assert (
        frame.loc[EVERY, "errs"] == frame.loc[SURELOCK, "errs"] == ""
        and frame.loc["budget", "errs"] == "not shown"
    )
    assert frame.loc["by age", "over_surelock"] == pytest.approx(1 - shift / 0.5)
    assert frame.loc[SURELOCK, ["rows", "large", "changed"]].tolist() == [0.5, 0.1, 0.2]
    assert frame.loc[SURELOCK, "time"] == pytest.approx(3 / 4) and frame.loc["budget", "time"] == 1
    assert frame.loc[SURELOCK, "time_se"] == pytest.approx(1 / 4)


def test_a_judge_compares_what_it_has_read_of_every_rule():
    """Of the second opening it has not read the budget's text."""
    made = []
    scores = []
    for skip, nats in ((0, 9.0), (1, 4.0)):
        for record in [*records({SURELOCK: [0.1]}, skip), *timed(1.0)]:
            read = "rule" in record["cell"] and (skip, record["cell"]["rule"]) != (1, "budget")
            made.append(record)
            scores.append({"": judged.Scores([nats], [3], [8], [0.0])} if read else {})
    frame = FRONTIER.judge_table(made, scores) if FRONTIER.judge_table else None
    assert (
        frame is not None and frame["rule"].tolist() == list(RULES) and set(frame["prompts"]) == {1}
    )
    assert frame["bits"].to_numpy() == pytest.approx(9 / 8 / math.log(2))


@pytest.mark.parametrize("rule", ["by chance", "dual cache"])
def test_rows_and_errors_are_those_of_each_run_alone(rule, stories):
    (cell,) = [cell for cell in FRONTIER.grids["quick"] if cell.get("rule") == rule]
    cell |= {"skip": 3, "sampler": {"gen_length": 24, "block_length": 8, "temperature": 0.7}}
    lab = Lab(stories)
    result = FRONTIER.measure(lab, cell)
    for number, prompt in enumerate(lab.prompts(cell)):
        if rule == "by chance" and number:
            break  # its chance is of the slot in the batch
        decoder = frontier._decoder(cell["sampler"], cell["compute"], [3 + number])
        steps = list(surelock.decode(stories, [prompt.ids], **decoder.keywords(), keep_logits=True))
        assert result["rows"][number] == sum(int(step.computed.sum()) for step in steps)
        assert result["positions"][number] == 24 * (len(prompt.ids) + 24)
        errors = surelock.commit_error(stories, steps, decoder.settings)
        looked_at = (errors.step % 2 == 0) | (rule == "dual cache")
        assert result["commits"][number] == looked_at.sum()
        assert result["error"][number] == pytest.approx(
            errors.error[looked_at].mean(), rel=1e-3, abs=1e-6
        )
        assert result["regret"][number] == pytest.approx(
            errors.regret[looked_at].mean(), rel=1e-3, abs=1e-6
        )
        assert result["tokens"][number] == steps[-1].tokens[0, -24:].tolist()


def test_taking_back_is_compared_in_as_many_steps_and_in_as_many_rows():
    """Made-up decoders, each with an error of its own that the openings share."""
    texts = {
        (128, "entropy"): 3.0,
        (64, "entropy"): 5.0,
        (128, "low_confidence"): 2.0,
        (64, "remask"): 4.0,
    }
    made: list[Record] = []
    for (steps, policy), characters in texts.items():
        result: Record = {"f_locked": steps * (1 + (policy == "remask")), "repeats": [0.5, None]}
        result |= {
            "faults": [int(characters), 9],
            "nats": [math.log(2)] * 2,
            "characters": [characters] * 2,
            "tokens": [[5]] * 2,
        }
        made.append({"cell": {"steps": steps, "remasking": policy}, "result": result})
    frame = TAKING_BACK.table(made).set_index("less")
    assert frame.index.tolist() == [""] * 4 + [
        "entropy in 64",
        "low_confidence in 128",
        "entropy in 128",
    ]
    assert frame["rows"].tolist() == [1, 0.5, 1, 1, 0.5, 0, 0]
    assert frame["bits"].tolist()[4:] == pytest.approx(
        [1 / 4 - 1 / 5, 1 / 4 - 1 / 2, 1 / 4 - 1 / 3]
    )
    assert frame["faults"].tolist()[4:] == [-0.5, 1, 0.5]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("He ran away. She sat. He ran away! HE RAN AWAY", 2),
        ("She sat. She sat. She sat.", 0),
        ("the the cat cat, and and", 3),
        ("ha-ha-ha-ha-ha", 1),
    ],
)
def test_faults_are_sentences_again_and_what_is_stuck(text, found):
    assert repeated(text) == found


PROMPT = "Mateo planted carrots with his aunt. After"


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        (" that, Mateo was glad. Kateo smiled.", ["Kateo"]),  # a name that came back changed
        (" that he met a girl named Zara. Zara smiled.", []),  # introduced
        (" that they saw Lou. Lou ran, and Lou sang.", ["Lou"]),  # once, however often
        (" that they sang. They were glad. Mom was glad, too. Thank you, Mateo!", []),
    ],
)
def test_a_stranger_is_a_name_that_nothing_introduces(text, unknown):
    ordinary = ordinary_words(["they sang while she ran, and then he was glad", PROMPT])
    assert strangers(PROMPT, text, ordinary) == unknown


def test_rules_take_turns_in_going_first(
    stories: surelock.LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each turn takes as many seconds as runs came before it; the first run, which warms up, is not counted."""
    runs = []
    clock = count()

    def decoded(lm: object, prompts: object, compute: object, **_: object) -> list[object]:
        runs.append(compute)
        return [SimpleNamespace(index=0)]

    monkeypatch.setattr(frontier, "decode", decoded)
    monkeypatch.setattr(frontier.time, "process_time", lambda: next(clock) ** 2)
    cells = [cell for cell in FRONTIER.grids["quick"] if "timed" in cell]
    assert {name for cell in cells for name in cell["timed"]} == set(RULES)
    for cell, skip in ((cells[0], 0), (cells[0], 3), (cells[1], 2)):
        runs.clear()
        names = list(cell["timed"])
        told = FRONTIER.measure(Lab(stories), cell | {"skip": skip})["seconds"]
        order = names[skip:] + names[:skip]
        kinds = [RULES[name]["kind"] for name in [order[-1], *order]]
        assert [compute.kind for compute in runs] == kinds and sorted(told, key=told.get) == order


def test_chance_locks_what_it_says(lm: surelock.LanguageModel) -> None:
    settings = surelock.DecodeSettings(gen_length=32)
    counts = dict.fromkeys((0.0, 0.3, 1.0), 0)
    for p in counts:
        *_, last = decode(lm, [[5, 9, 3]] * 8, settings, compute=LockByChance(p))
        counts[p] = int(last.locked.sum())
    assert counts[0.0] == 0 < counts[0.3] < counts[1.0]
