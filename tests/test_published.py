"""The choices of rows of other papers, and controls, each by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

import surelock
from surelock.decoding.compute import ComputeRule
from surelock.research.published import (
    BudgetOfWritten,
    CertaintyDensity,
    LockByChance,
    RestByAge,
    SkipByImportance,
    read_rule,
)

PROMPTS = [[5, 9, 3], [4, 7]]
SETTINGS = surelock.DecodeSettings(gen_length=24, block_length=8)


def steps_of(lm: surelock.LanguageModel, rule: ComputeRule, check: Callable[[Any, Any, Any], None]) -> list[Any]:
    """A run in which `check(state, active, rows)` sees each choice before it is made."""

    class Checked(type(rule)):  # type: ignore[misc]
        __slots__ = ()

        def rows(self, state: Any, active: Any) -> Any:
            chosen = super().rows(state, active)
            if state.step:
                check(state, active, chosen)
            return chosen

    told = {field.name: getattr(rule, field.name) for field in fields(rule)}
    return list(surelock.decode(lm, PROMPTS, SETTINGS, compute=Checked(**told)))


def test_the_most_important_rows_of_the_block_go_on(lm: surelock.LanguageModel) -> None:
    """Half confidence, half change; the two most confident masks first; a new token counts as changed in full."""
    seen = set()

    def check(state: Any, active: Any, chosen: Any) -> None:
        for b in range(2):
            start, stop = state.schedule.starts[b], state.schedule.stops[b]
            own = [s for s in chosen.tolist() if state.canvas.sequence[s] == b]
            if state.schedule.steps_in_block[b] == 0:
                assert own == [s for s in active.tolist() if state.canvas.sequence[s] == b]
                continue
            value = {}
            for slot in range(start, stop):
                masked = bool(state.masked[slot])
                sure = float(state.confidence[slot]) if masked else 0.0
                new = not masked and state.visible[slot] == 0
                change = 1.0 if new or math.isinf(state.kl[slot]) else min(1.0, float(state.kl[slot]))
                value[slot] = 0.25 * sure + 0.75 * change
                seen.add("new" if new else "masked" if masked else "written")
            masks = sorted((s for s in value if state.masked[s]), key=lambda s: (-state.confidence[s], s))
            for slot in masks[:2]:
                value[slot] += 2
            assert own == sorted(sorted(value, key=lambda s: (-value[s], s))[:3])

    steps = steps_of(lm, SkipByImportance(0.3, alpha=0.25), check)
    assert seen == {"new", "masked", "written"} and not steps[-1].masked.any()


def test_by_age_later_blocks_rest(lm: surelock.LanguageModel) -> None:
    seen = set()

    def check(state: Any, active: Any, chosen: Any) -> None:
        begins = [int(state.schedule.steps_in_block[b]) == 0 for b in range(2)]
        rests = [bool(state.masked[s] and not state.open[s] and not begins[state.canvas.sequence[s]]) for s in active]
        assert chosen.tolist() == [s for s, rested in zip(active.tolist(), rests, strict=True) if not rested]
        seen.update(rests)

    steps = steps_of(lm, RestByAge(2), check)
    assert seen == {False, True} and steps[-1].locked.any() and not steps[-1].masked.any()


def test_a_budget_of_written_rows_computes_every_mask(lm: surelock.LanguageModel) -> None:
    """New words, then what is owed most: one over the distance, weighted by how near the four surest masks are."""
    owed: dict[int, float] = {}
    chose = set()

    def check(state: Any, active: Any, chosen: Any) -> None:
        for b in range(2):
            own = range(state.canvas.parts[b].start, state.canvas.parts[b].stop)
            masks = [s for s in own if state.masked[s]]
            new = [s for s in own if not state.masked[s] and state.visible[s] == 0]
            surest = sorted((s for s in masks if state.open[s]), key=lambda s: (-state.confidence[s], s))[:4]
            worth = {}
            for slot in own:
                owed[slot] = 0.0 if state.computed_at[slot] == state.step - 1 else owed[slot]
                owed[slot] += sum(1 / max(1, abs(slot - each)) for each in new)
                weight = 0.1 + math.exp(-min(abs(slot - each) for each in surest) / 4)
                worth[slot] = owed[slot] * weight
            old = sorted((s for s in own if s not in masks and s not in new), key=lambda s: (-worth[s], s))
            spent = max(0, math.ceil(0.2 * len(own)) - len(new))
            assert [s for s in chosen.tolist() if s in own] == sorted(masks + new + old[:spent])
            chose.add(0 < spent < len(old))

    steps = steps_of(lm, BudgetOfWritten(0.2), check)
    assert True in chose and not steps[-1].masked.any()


@pytest.mark.parametrize("sigma", [2.0, 40.0])
def test_masks_near_known_tokens_are_computed_and_new_words(lm: surelock.LanguageModel, sigma: float) -> None:
    reached = set()

    def check(state: Any, active: Any, chosen: Any) -> None:
        for b in range(2):
            start = int(state.canvas.generated_from[b])
            known = {i: not state.masked[start + i] if 0 <= i < 24 else i < 0 for i in range(-24, 24)}
            known |= dict.fromkeys(range(24, 48), known[23])
            masks = [i for i in range(24) if not known[i]]
            value = {}
            for i in masks:
                weights = {j: math.exp(-((i - j) ** 2) / (2 * sigma**2)) for j in range(i - 23, i + 24)}
                density = sum(w for j, w in weights.items() if known[j]) / sum(weights.values())
                value[i] = density * float(state.confidence[start + i])
            window = [i for i in masks if i // 8 <= masks[min(5, len(masks)) - 1] // 8] if masks else []
            order = sorted(window, key=lambda i: (not state.open[start + i], -value[i], i))[:5]
            new = [i for i in range(24) if known[i] and state.visible[start + i] == 0]
            own = [s - start for s in chosen.tolist() if state.canvas.sequence[s] == b]
            assert own == sorted(order + new)
            reached.add(any(not state.open[start + i] for i in order))

    steps = steps_of(lm, CertaintyDensity(5, sigma=sigma), check)
    assert reached == {False, True} and not steps[-1].masked.any()


def test_the_density_is_a_share() -> None:
    """What lies left of the text counts as known, what lies right of it as its last token."""
    none, every, last = (
        CertaintyDensity(sigma=1.5).density(np.array(known)) for known in ([0] * 9, [1] * 9, [0, 0, 1])
    )
    assert (np.diff(none) < 0).all() and 0 <= none[-1] < 1e-6 and none[0] < 0.5
    assert every == pytest.approx(1) and last[2] > 0.5


def test_a_plain_form_names_a_rule_of_either_kind() -> None:
    told = {"kind": "es_dllm", "fraction": 0.25}
    assert read_rule(told) == SkipByImportance(0.25) and "kind" in told
    assert read_rule({"kind": "d2_cache", "masks": 20}) == CertaintyDensity(20)
    assert read_rule({"kind": "resting_age", "steps": 9}) == RestByAge(9)
    assert read_rule({"kind": "written_budget", "share": 0.1}) == BudgetOfWritten(0.1)
    assert read_rule({"kind": "chance", "probability": 0.2}) == LockByChance(0.2)
    assert read_rule({"kind": "age", "steps": 12}) == surelock.LockByAge(12)
