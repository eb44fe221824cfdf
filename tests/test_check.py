"""`surelock decode --check`: what it finds of planted differences, what it says of them, and what it refuses."""

import json
from dataclasses import replace
from functools import wraps
from typing import Any

import numpy as np
import pytest
import torch

import surelock
from surelock import loading
from surelock.__main__ import main
from surelock.decoding.decoder import Decoder
from surelock.decoding.step import Plan, Reading
from surelock.trace.agreement import Comparison, Difference, moments_alone, rounding
from surelock.trace.prompts import Prompt
from surelock.trace.tasks import Task

TIE = 1e-9  # below the root of float64's epsilon, 1.5e-8


class Nudged:
    """An engine whose readings are changed by `nudge(plan, reading)` before a run takes them."""

    def __init__(self, engine: Any, nudge: Any) -> None:
        self._engine = engine
        self._nudge = nudge

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def read(self, memory: Any, plan: Plan) -> Reading:
        reading = self._engine.read(memory, plan)
        self._nudge(plan, reading)
        return reading


def best_of(plan: Plan, reading: Reading, sequence: int = -1) -> np.ndarray:
    """The two best candidates of a sequence, by their numbers."""
    sequences = np.repeat(np.arange(len(plan.counts)), plan.counts)[plan.choice.rows]
    (ours,) = np.nonzero(sequences == range(len(plan.counts))[sequence])
    return ours[np.argsort(-reading.score[ours])[:2]]


def swap_order(plan: Plan, reading: Reading) -> None:
    """In a batch, from step 3 on: the second best candidate comes first."""
    if plan.step >= 3 and len(plan.counts) > 1:
        best = best_of(plan, reading)
        reading.score[best] = reading.score[best[::-1]]


def tie_order(plan: Plan, reading: Reading) -> None:
    """In step 3 the two best candidates of a sequence are within TIE, and a batch has them in the other order."""
    if plan.step == 3:
        for sequence in range(len(plan.counts)):
            best = np.sort(best_of(plan, reading, sequence))
            reading.score[best] = 1.0
            reading.score[best[int(len(plan.counts) > 1)]] += TIE


def other_token(plan: Plan, reading: Reading) -> None:
    """In a batch, in step 3: the best candidate gets a token that is not the likeliest."""
    if plan.step == 3 and len(plan.counts) > 1:
        best = best_of(plan, reading)[0]
        reading.tokens[best] = 2 + (reading.tokens[best] - 1) % 39


def tasks_of(compute: surelock.ComputeRule | None = None, **settings: Any) -> list[Task]:
    decoder = Decoder(settings=surelock.DecodeSettings(gen_length=16, **settings))
    if compute is not None:
        decoder = replace(decoder, compute=compute)
    prompts = ([5, 6, 7], [9, 8, 7, 6, 5])
    return [
        Task(Prompt(number, "", {}), tokens, decoder, {}) for number, tokens in enumerate(prompts)
    ]


def compared(
    lm: surelock.LanguageModel, tasks: list[Task], nudge: Any = None
) -> dict[int, Difference]:
    """The differences of a batch of tasks from what they get alone."""
    if nudge is not None:
        lm = replace(lm, engine=Nudged(lm.engine, nudge))
    references = [list(moments_alone(lm, task)) for task in tasks]
    comparison = Comparison(lm, tasks, references)
    while comparison.step():
        pass
    return comparison.differences


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize(
    "compute", [surelock.LockRule(epsilon=0.1), surelock.BudgetRule(), surelock.Everything()]
)
def test_in_float64_a_batch_changes_no_token(lm, compute, temperature):
    assert compared(lm, tasks_of(compute, temperature=temperature)) == {}


@pytest.mark.parametrize(
    ("nudge", "cause", "is_tie"),
    [(swap_order, "order", False), (tie_order, "order", True), (other_token, "token", False)],
)
def test_the_first_difference_has_its_place_its_cause_and_its_width(lm, nudge, cause, is_tie):
    tasks = tasks_of(surelock.Everything())
    found = compared(lm, tasks, nudge)
    assert found.keys() == ({0, 1} if is_tie else {1}), (
        "only the last one is decided against its numbers"
    )
    difference = found[1]
    assert (difference.cause, difference.is_tie, difference.place.step) == (cause, is_tie, 3)
    assert difference.since == difference.place and difference.tokens[0] != difference.tokens[1]
    if is_tie:
        # from one side of the edge to the other
        assert difference.width == pytest.approx(2 * TIE, rel=0.1)
    else:
        assert difference.width > rounding(lm)


def test_at_a_temperature_a_token_drawn_otherwise_is_measured_with_its_noise(lm):
    """The noise of a token can outweigh its logit: without it a right draw would look like a wrong one."""
    (difference,) = compared(
        lm, tasks_of(surelock.Everything(), temperature=1), other_token
    ).values()
    assert difference.cause == "token" and not difference.is_tie


@pytest.mark.parametrize("kl", [9.0, np.inf])
def test_rows_that_differ_before_a_token_are_its_cause(lm, kl):
    """In a batch no row converges. A KL that is infinite in one run alone is a difference, too."""

    def lock_less(plan: Plan, reading: Reading) -> None:
        if len(plan.counts) > 1:
            reading.kl[np.isfinite(reading.kl)] = kl

    found = compared(lm, tasks_of(surelock.LockRule(epsilon=0.5, percentile=None)), lock_less)
    for difference in found.values():
        assert difference.cause == "rows" and difference.since.step <= difference.place.step
        assert not difference.is_tie and difference.width > 1
    assert found, "locks change a token of this network"


CHECK = ["decode", "Tom had a red ball. He", "Lily"]
CHECK += ["--gen-length", "6", "--device", "cpu", "--check"]


def test_the_embedded_model_agrees_in_every_way(capsys):
    assert main([*CHECK, "--json"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    result = json.loads(last)
    ways = ["in a batch", "in another order", "twice at once", f"by torch {torch.__version__}"]
    assert lines[0].startswith("alone: 2 prompts, 12 steps, by onnxruntime") and lines[0].endswith(
        "in float32"
    )
    assert lines[1:] == [f"{way}: equal tokens" for way in ways]
    assert (
        result["agree"]
        and result["differences"] == {way: [] for way in ways}
        and result["left_out"] == ""
    )


def test_a_difference_is_named_and_ends_with_status_one(capsys, monkeypatch):
    """Of one prompt, whose batch is made of its copies; the engine that does not compute the dtype is left out."""
    load = loading.load

    @wraps(load)
    def nudged(*args, **kwargs):
        model = load(*args, **kwargs)
        return replace(model, engine=Nudged(model.engine, swap_order))

    monkeypatch.setattr(loading, "load", nudged)
    words = [*CHECK[:2], *CHECK[3:], "--engine", "torch", "--dtype", "float64", "--json"]
    assert main(words) == 1
    *lines, last = capsys.readouterr().out.splitlines()
    result = json.loads(last)
    (difference,) = result["differences"]["in a batch"]
    assert difference["id"] == 1 and difference["step"] == 3 and difference["cause"] == "order"
    assert not (result["agree"] or difference["is_tie"])
    assert lines[1] == "in a batch: other tokens for 1 prompt"
    assert lines[2].startswith(f"  prompt 1: step 3, position {difference['position']} is ")
    assert (
        "(another order; no tie: " in lines[2]
        and "more than the 1.5e-08 that rounding may make)" in lines[2]
    )
    assert (
        lines[-1]
        == "left out: engine 'onnx' computes in float32 on one CPU: ask for that, or for engine 'torch'"
    )


def test_blanks_from_lists_agree_in_every_way(capsys):
    prompts = ["Tom __{saw|had|light green} it.", "Tom had a __{red|blue} ball."]
    flags = ["--gen-length", "2", "--device", "cpu", "--check"]
    assert main(["decode", *prompts, *flags]) == 0
    assert capsys.readouterr().out.count("equal tokens") == 4
