"""`surelock pays`: its figures by hand, its prediction beside what was measured, what it says and refuses."""

import json
import re
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from surelock.__main__ import main
from surelock.bench import pays
from surelock.bench.counts import PROMPT, plan_of
from surelock.bench.curves import (
    SHARES,
    Curve,
    Size,
    block_of,
    run_bytes,
    shares_of_dual_cache,
    step_plan,
)
from surelock.bench.gpu_model import ERROR, as_launched
from surelock.config import LLADA_8B
from surelock.decoding.step import Layout
from surelock.places import ASSETS
from surelock.research.bench import pays as beside
from tests.browser.server import ROOT

SIZE = Size(gen_length=8, batch=2, prompt=4, block=4)


def test_a_step_computes_the_rows_next_to_the_open_block_and_reads_what_a_decoder_would():
    layout, plan = step_plan(SIZE, 0.5, False, mask_id=1)
    assert layout == Layout((12, 12), 1)
    assert plan.counts == [6, 6] and plan.slots.tolist() == [
        5,
        6,
        7,
        8,
        9,
        10,
        17,
        18,
        19,
        20,
        21,
        22,
    ]
    assert plan.tokens.tolist() == 2 * [0, 0, 0, 1, 1, 1], "masks stand from position 4 + 8 / 2 on"
    assert plan.choice.rows.tolist() == 2 * [False, False, False, True, True, False], (
        "half of a block is open"
    )
    assert not plan.watches.any() and not plan.compares.any()
    _, watching = step_plan(SIZE, 0.5, True, mask_id=1)
    assert watching.compares.tolist() == 2 * [True, True, True, False, False, False]
    assert watching.watches.tolist() == 2 * [True, True, True, True, True, False]
    assert len(step_plan(SIZE, 0.001, False, mask_id=1)[1].slots) == 2, (
        "a row of each sequence at least"
    )


def test_shares_blocks_and_bytes_by_hand():
    assert shares_of_dual_cache(SIZE).tolist() == pytest.approx(
        [1, 1 / 3, 1 / 3, 1 / 3, 1, 1 / 3, 1 / 3, 1 / 3]
    )
    assert [block_of(length, 32) for length in (256, 48, 31, 37)] == [32, 24, 31, 37]
    curve = Curve(np.array([10.0, 6.0, 3.0, 1.0, 1.0]), 2 * np.array([10.0, 6.0, 3.0, 1.0, 1.0]))
    assert curve.mean(np.array([1.0, 0.8, 0.01]), watching=False) == pytest.approx((10 + 8 + 1) / 3)
    assert curve.mean(np.array([1.0, 0.8, 0.01]), watching=True) == pytest.approx(
        2 * (10 + 8 + 1) / 3
    )
    keys = 2 * LLADA_8B.n_layers * LLADA_8B.n_kv_heads * LLADA_8B.head_size
    assert run_bytes(LLADA_8B, SIZE, 2, keeps=False) == 24 * 2 * keys
    assert run_bytes(LLADA_8B, SIZE, 2, keeps=True) == 24 * 2 * (keys + LLADA_8B.vocab_size)


def linear(fixed: float, row: float, size: Size) -> Curve:
    """A curve whose steps take a fixed time, and a time a row; twice the latter with KLs."""
    rows = np.array(SHARES) * size.rows
    return Curve(fixed + row * rows, fixed + 2 * row * rows)


def test_from_which_length_and_batch_on_it_pays():
    """A step takes 100 and one a row. At half of the rows, twice as dear, nothing is gained by SureLock."""
    asked = Size(64, 1, 0, 32)
    sizes = [
        asked,
        asked.resized(32, 1),
        asked.resized(128, 1),
        asked.resized(64, 2),
        asked.resized(64, 4),
    ]
    curves = {size: linear(100, 1, size) for size in sizes}
    steps = np.ones(64)
    shares = {"everything": steps, "surelock": steps / 2, "budget": steps * 0.3}
    shares["dual_cache"] = shares_of_dual_cache(asked)
    found = pays.figures_of(asked, curves, shares, dict.fromkeys(shares, 1.0))
    assert found["every_row_step_seconds"] == 164
    assert (
        found["rules"]["surelock"] | {"rows": 0.5, "speedup": 1.0, "pays_from_length": None}
        == (found["rules"]["surelock"])
    )
    budget = found["rules"]["budget"]
    assert budget["speedup"] == pytest.approx(164 / 119.2)
    assert (budget["pays_from_length"], budget["pays_from_batch"]) == (32, 1)
    dual = found["rules"]["dual_cache"]
    assert dual["pays_from_length"] == 64, "at 32 there is one block, and no row to leave out"
    assert [(each["gen_length"], each["batch"]) for each in found["sizes"]] == (
        [(32, 1), (64, 1), (64, 2), (64, 4), (128, 1)]
    )
    assert [each["rows"] for each in found["by_rows"]] == [64, 38, 19, 6, 2]


def measured_steps() -> list[tuple[str, int, int, bool, float]]:
    """The measured steps with compiled layers: card, generated, batch, half locked, milliseconds."""
    found = []
    for line in (ASSETS / "results" / "gpu" / "gpu.jsonl").read_text("utf-8").splitlines():
        part = json.loads(line)
        if part.get("mode") == "compiled" and "measured_ms" in part:
            found.append(("h100", part["gen"], part["batch"], part["locked"], part["measured_ms"]))
    text = (ROOT / "docs" / "gpu.md").read_text("utf-8").split("## An H200, once")[1]
    rows = re.findall(
        r"^\| (\d+), (\d) \| ([\d,]+) \|.*\| ([\d.]+) ms \| [\d.]+ s \|$", text, re.MULTILINE
    )
    for positions, batch, count, took in rows:
        if count != "1,049":  # read by functions that are no longer taken there
            locked = int(count.replace(",", "")) < int(positions)
            found.append(
                ("h200", int(positions) // int(batch) - PROMPT, int(batch), locked, float(took))
            )
    return found


def test_the_prediction_is_as_near_to_the_measured_steps_as_it_says():
    steps = measured_steps()
    assert [card for card, *_ in steps].count("h100") == 8 and len(steps) == 17
    off = []
    for card, generated, batch, locked, took in steps:
        layout, plan = plan_of(None, generated, batch, locked)  # type: ignore[arg-type]
        predicted = 1e3 * as_launched(layout, plan, LLADA_8B, card)
        off.append(abs(predicted / took - 1))
    assert ERROR - 0.01 < max(off) <= ERROR, off
    text = " ".join((ROOT / "docs" / "gpu.md").read_text("utf-8").split())
    assert f"the model is within {ERROR * 100:.0f} % of all {len(steps)} steps" in text


def test_the_recorded_shares_are_those_of_the_recorded_run():
    run = json.loads((ASSETS / "results" / "locks_stories_256.json").read_text("utf-8"))
    lock = np.array(run["lock"])
    shares = [float(((lock < 0) | (lock >= step)).mean()) for step in range(run["steps"])]
    edges = np.linspace(0, run["steps"], len(pays.RECORDED) + 1).astype(int)
    eighths = [float(np.mean(shares[start:stop])) for start, stop in pairwise(edges)]
    assert pytest.approx(eighths, abs=0.006) == pays.RECORDED


def last_json(text: str) -> dict[str, Any]:
    return json.loads(text.splitlines()[-1])


def test_it_measures_the_embedded_model_and_ends_in_json(
    capsys,
):
    words = "pays --gen-length 16 --batch 2 --threads 1 --device cpu --seconds 4"
    assert main(words.split()) == 0
    out = capsys.readouterr().out
    found = last_json(out)
    assert (found["gen_length"], found["batch"], found["block_length"]) == (16, 2, 16)
    assert len(found["by_rows"]) == 5 and found["rules"].keys() == {
        "surelock",
        "budget",
        "dual_cache",
    }
    rules = found["rules"]
    assert 0 < rules["budget"]["rows"] < 0.5 and rules["dual_cache"]["rows"] < 0.7
    assert all(rule["speedup"] > 0 for rule in rules.values())
    assert found["memory"]["runs"]["surelock"] > found["memory"]["runs"]["everything"] > 0
    known = len(found["sizes"]) - 1 + len(found["left_out"])
    assert (
        known
        == len([length for length in pays.LENGTHS if length <= 1024 - 18]) + len(pays.BATCHES) - 1
    )
    lines = out.splitlines()
    assert lines[0].startswith("stories: 16 tokens after ") and lines[-2].startswith(
        ("Dual cache: ", "sizes left")
    )


def test_a_prediction_names_its_card_and_its_error(capsys):
    words = "pays --shape llada-8b --gen-length 256 --batch 4 --predict h100 --seconds 1e-3"
    assert main(words.split()) == 0
    out = capsys.readouterr().out
    found = last_json(out)
    assert found["predicted"] == "h100" and found["error"] == ERROR and "(a step within 17%)" in out
    assert found["memory"]["weights"] == pytest.approx(16.0e9, rel=0.01)
    assert 1.3 < found["rules"]["surelock"]["speedup"] < 2


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--gen-length", "0"], "--gen-length must be at least 1, not 0"),
        (["--seconds", "0"], "--seconds must be more than 0, not 0"),
        (["--block-length", "7"], "block_length (7) must divide gen_length (128)"),
        (
            ["--gen-length", "9999"],
            "which with gen_length 9999 is more than the 1024 positions of stories",
        ),
        (
            ["--predict", "h100", "--shape", "llada-8b", "--batch", "5000"],
            "does not fit an H100 beside the weights",
        ),
    ],
)
def test_what_cannot_be_answered_is_refused_in_a_sentence(capsys, flags, said):
    assert main(["pays", "--device", "cpu", *flags]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1) and said in err


def test_it_is_compared_with_bench_decode_at_equal_settings(capsys, monkeypatch):
    monkeypatch.setattr(beside, "SETTINGS", ((8, 1),))
    words = "bench pays --device cpu --threads 1 --repeats 1 --seconds 2"
    assert main(words.split()) == 0
    out, err = capsys.readouterr()
    found = last_json(out)
    assert [each["rule"] for each in found["settings"]] == ["surelock", "budget", "dual_cache"]
    for each in found["settings"]:
        assert each["off"] == pytest.approx(each["pays"] / each["bench"] - 1)
        for side in ("pays", "bench"):
            every, rule = each[f"{side}_step_seconds"]
            assert 1e-5 < rule < 1 and each[side] == pytest.approx(every / rule)
        assert f"8 tokens, batch 1, {each['rule']}: pays {each['pays']:.3f} times as fast" in err
    assert found["worst"] == max(abs(each["off"]) for each in found["settings"])


@pytest.mark.parametrize(
    ("speedups", "least"),
    [
        ([0.9, 1.2, 1.3], 2),
        ([1.2, 1.0, 1.3], 3),
        ([1.2, 1.3, 1.0], None),
        ([1.1, 1.1, 1.1], 1),
        ([1.04] * 3, None),
    ],
)
def test_it_pays_from_the_size_behind_the_last_that_does_not(
    speedups: list[float], least: int | None
) -> None:
    assert pays._from(list(enumerate(speedups, 1))) == least
