"""The frontier: what a cell measures beside the library's own measures, and its tables from made-up cells."""

from __future__ import annotations

import math
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest

import surelock
from surelock.decoding.loop import decode
from surelock.research import frontier, judged
from surelock.research.frontier import EVERY, FRONTIER, RULES, SURELOCK, LockByChance
from surelock.research.lab import Lab
from surelock.research.runner import Record


def records(errors: dict[str, list[float]], skip: int = 0, setting: str = "recorded run") -> list[Record]:
    """Openings of 100 rows each, half of them computed; SureLock errs by 0.5 unless `errors` tells otherwise."""
    made = []
    for rule, compute in RULES.items():
        own = errors.get(rule, [0.0 if rule == EVERY else 0.5] * len(errors[SURELOCK]))
        result: Record = {"rows": [50] * len(own), "positions": [100] * len(own), "commits": [10] * len(own)}
        result |= {"error": own, "regret": own, "large": [1] * len(own), "changed": [2] * len(own)}
        cell = {"setting": setting, "rule": rule, "compute": compute, "skip": skip}
        made.append({"cell": cell, "result": result | {"tokens": [[5]] * len(own)}})
    return made


def timed(*seconds: float, setting: str = "recorded run") -> list[Record]:
    """An opening for each of SureLock's seconds; every other rule takes 2 s."""
    cell = {"setting": setting, "timed": RULES}
    return [{"cell": cell, "result": {"seconds": dict.fromkeys(RULES, 2.0) | {SURELOCK: own}}} for own in seconds]


@pytest.mark.parametrize(("margin", "errs"), [(1.001, ("less", "more")), (0.999, ("not shown", "not shown"))])
def test_a_difference_is_told_after_correction_for_everything_that_was_compared(
    margin: float, errs: tuple[str, str]
) -> None:
    """Six rules beside SureLock, over 32 openings: Student's t of 31 degrees of freedom at 1 - .05 / 6 / 2."""
    t, sides = 2.8156, np.tile([-0.01, 0.01], 16)
    shift = margin * t * sides.std(ddof=1) / math.sqrt(32)
    own = {SURELOCK: [0.5] * 32, "by age": (0.5 - shift + sides).tolist(), "by chance": (0.5 + shift + sides).tolist()}
    frame = FRONTIER.table(records(own) + timed(1.0, 2.0)).set_index("rule")
    assert (frame.loc["by age", "errs"], frame.loc["by chance", "errs"]) == errs
    assert frame.loc[EVERY, "errs"] == frame.loc[SURELOCK, "errs"] == "" and frame.loc["budget", "errs"] == "not shown"
    assert frame.loc["by age", "over_surelock"] == pytest.approx(1 - shift / 0.5)
    assert (frame.loc[SURELOCK, "rows"], frame.loc[SURELOCK, "large"], frame.loc[SURELOCK, "changed"]) == (
        0.5,
        0.1,
        0.2,
    )
    assert frame.loc[SURELOCK, "time"] == pytest.approx(3 / 4) and frame.loc["budget", "time"] == 1
    assert frame.loc[SURELOCK, "time_se"] == pytest.approx(1 / 4)


def test_a_judge_compares_what_it_has_read_of_every_rule() -> None:
    """Of the second opening it has not read the budget's text."""
    made, scores = [], []
    for skip, nats in ((0, 9.0), (1, 4.0)):
        for record in [*records({SURELOCK: [0.1]}, skip), *timed(1.0)]:
            read = "rule" in record["cell"] and (skip, record["cell"]["rule"]) != (1, "budget")
            made.append(record)
            scores.append({"": judged.Scores([nats], [3], [8], [0.0])} if read else {})
    frame = FRONTIER.judge_table(made, scores) if FRONTIER.judge_table else None
    assert frame is not None and frame["rule"].tolist() == list(RULES) and set(frame["prompts"]) == {1}
    assert frame["bits"].to_numpy() == pytest.approx(9 / 8 / math.log(2))


@pytest.mark.parametrize("rule", ["by age", "by chance", "dual cache"])
def test_rows_and_errors_are_those_of_each_run_alone(rule: str, stories: surelock.LanguageModel) -> None:
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
        assert result["error"][number] == pytest.approx(errors.error[looked_at].mean(), rel=1e-3, abs=1e-6)
        assert result["regret"][number] == pytest.approx(errors.regret[looked_at].mean(), rel=1e-3, abs=1e-6)
        assert result["tokens"][number] == steps[-1].tokens[0, -24:].tolist()


def test_rules_take_turns_in_going_first(stories: surelock.LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each turn takes as many seconds as runs came before it; the first run, which warms up, is not counted."""
    runs, clock = [], count()

    def decoded(lm: object, prompts: object, compute: object, **_: object) -> list[object]:
        runs.append(compute)
        return [SimpleNamespace(index=0)]

    monkeypatch.setattr(frontier, "decode", decoded)
    monkeypatch.setattr(frontier.time, "process_time", lambda: next(clock) ** 2)
    (cell,) = [cell for cell in FRONTIER.grids["quick"] if "timed" in cell]
    names = list(RULES)
    for skip in (0, 3):
        runs.clear()
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
