"""A trace in pandas and on the page is the same run: lanes differ in everything, precision and times included."""

import json
import math
from dataclasses import replace
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from checkpoints import write_hf
from test_figure import DECODERS, PROMPT
from test_javascript import needs_node, node

import surelock
from surelock.quality.commit_error import Shadow
from surelock.record import record_run
from surelock.trace.lanes import Lane
from surelock.trace.pieces import running_text
from surelock.trace.race import race
from surelock.trace.recorder import Recorder, make_header
from surelock.trace.table import lane_cells, positions_of, read_trace
from surelock.trace.timing import clocked, paces, speed_of

MANY = 20


@pytest.fixture(scope="module")
def recorder(stories):
    settings = surelock.DecodeSettings(gen_length=62, steps=31, temperature=0.7, seed=3)
    lanes = [
        Lane(id=name, name=name, decoder=surelock.Decoder(settings=settings, **more))
        for name, more in DECODERS.items()
    ]
    tokens = stories.encode(f"{PROMPT} ___ and", blanks=True)
    made = Recorder(make_header(stories, PROMPT, tokens, lanes), stories.tokenizer)
    for items in race(stories, tokens, lanes, shadow=Shadow):
        made.take(items)
    return made


def varied(recorder: Recorder, seed: int) -> tuple[dict[str, Any], list[bool]]:
    """A document of some lanes, cut short, coded, timed, or without errors, and whether each of them is exact."""
    rng = np.random.default_rng(seed)
    forms = [json.loads(json.dumps(recorder.document(exact=exact))) for exact in (False, True)]
    header = forms[0]["header"]
    lanes = [header["lanes"][i] for i in rng.permutation(4)[: rng.integers(1, 5)]]
    ids = [lane["id"] for lane in lanes]
    exact = {own: bool(rng.integers(2)) for own in ids}
    stops = {own: int(rng.choice([31, 31, 31, 20, 16, 5])) for own in ids}
    pace = {own: rng.choice([1.0, 1.1, 2.0, 0.4]) for own in ids}
    slow = {own: rng.choice([1.0, 1.0, 5.0]) for own in ids}  # the last steps of a lane
    known = {own: bool(rng.integers(2)) for own in ids}
    records = [
        each for each in (r for pair in zip(*(form["records"] for form in forms), strict=True) for r in pair)
        if each["lane"] in ids and exact[each["lane"]] != isinstance(each["kl"], str)
    ]  # fmt: skip
    records = [each for each in records if each["step"] < stops[each["lane"]]]
    for each in records:
        own = each["lane"]
        late = slow[own] if each["step"] >= 29 else 1
        each["seconds"] = float(pace[own] * late * (1 + 0.02 * rng.random()))
        for name in () if known[own] else ("commit_error", "changed", "regret"):
            each.pop(name, None)
    split = int(rng.integers(1, len(ids) + 1))
    groups = [
        {"lanes": part, "machine": "m"}
        for part in (ids[:split], ids[split:])
        if part and rng.integers(4)
    ]
    header |= {"lanes": lanes, "timed_together": groups, "reference": str(rng.choice(ids))}
    return forms[0] | {"header": header, "records": records}, [exact[own] for own in ids]


def listed(values: Any) -> list[Any]:
    return [None if np.isnan(value) else value for value in values]


@needs_node
def test_python_and_the_page_read_the_same(recorder):
    made = [varied(recorder, seed) for seed in range(MANY)]
    pages = json.loads(
        node("tests/js/read.js", given=json.dumps([document for document, _ in made]))
    )
    kinds = set()
    speeds = 0
    for (document, exact), page in zip(made, pages, strict=True):
        header = document["header"]
        trace = read_trace(document)
        ids = trace.lanes.lane.tolist()
        assert trace.lanes.exact.tolist() == exact and [lane["id"] for lane in page["lanes"]] == ids
        assert (page["clocked"], page["reference"]) == (clocked(header), header["reference"])
        assert page["again"] == written_again(document)
        timed = clocked(header)
        beside = {
            own for own in timed if own != header["reference"] and header["reference"] in timed
        }
        assert {own for own, words in paces(document).items() if words} == beside
        together = {
            own: group["lanes"] for group in header["timed_together"] for own in group["lanes"]
        }
        seconds = {own: trace.steps[trace.steps.lane == own].seconds.tolist() for own in ids}
        for own, lane in zip(ids, page["lanes"], strict=True):
            for t, there in lane["after"]:
                tops = [recorder.top(own, t, at) for at in range(header["length"])]
                assert [[[token, round(p, 4)] for token, p in top] for top in there["top"]] == [
                    [[token, p] for token, _, p in top] for top in tops
                ]
                assert any(tops)
            compare(document, trace, own, lane)
            expected = [
                speed_of(seconds[own], seconds[other])
                if other in together.get(own, [own])
                else None
                for other in ids
            ]
            assert lane["speeds"] == pytest.approx(expected)
            speeds += sum(speed is not None for speed in expected)
        kinds.add(tuple(sorted(set(exact))))
    assert kinds == {(False,), (True,), (False, True)} and speeds > MANY / 2


def written_again(document: dict[str, Any]) -> dict[str, Any]:
    """A document as the page writes it: records in order, and of timing groups those of several lanes."""
    header = document["header"]
    ids = [lane["id"] for lane in header["lanes"]]
    groups = [
        group | {"lanes": [own for own in ids if own in group["lanes"]]}
        for group in header["timed_together"]
    ]
    groups = [group for group in groups if len(group["lanes"]) > 1]
    groups.sort(key=lambda group: ids.index(group["lanes"][0]))
    known = {name: value for name, value in header.items() if name != "timed_together"}
    records = sorted(
        document["records"], key=lambda record: (record["step"], ids.index(record["lane"]))
    )
    return document | {
        "header": known | ({"timed_together": groups} if groups else {}),
        "records": records,
    }


def block_causal(stories: surelock.LanguageModel, path: Path) -> surelock.LanguageModel:
    """A network of random weights and blocks of 8, with the words of the embedded model."""
    sizes = {
        "layers": 2,
        "d_model": 32,
        "heads": 2,
        "kv_heads": 2,
        "head_dim": 16,
        "d_ff": 48,
        "tied": False,
    }
    write_hf(
        path, "sdar", **sizes, vocab=stories.config.vocab_size, seed=3, max_length=64, block_size=8
    )
    ids = {name: getattr(stories, name) for name in ("tokenizer", "mask_id", "pad_id", "ends")}
    return replace(surelock.load(path, tokenizer=""), **ids)


def changed_by_hand(
    lm: surelock.LanguageModel, visible: int, percentile: float | None
) -> dict[str, Any]:
    """A document of two lanes of a rule: one is changed by hand, the other leaves rows out."""
    rule = surelock.LockRule(epsilon=0.3, percentile=percentile, visible_steps=visible)
    settings = surelock.DecodeSettings(gen_length=24, seed=1)
    decoder = surelock.Decoder(settings=settings, compute=rule)
    *_, half = islice(surelock.decode(lm, [PROMPT], **decoder.keywords()), 12)
    prompt = half.tokens.shape[1] - 24
    written = [at for at in range(prompt, prompt + 24) if not half.masked[0, at]]
    events = [surelock.Event(12, "mask", at) for at in written[::3]]
    events += [surelock.Event(13, "write", at, 400) for at in written[1::3]]
    events += [
        surelock.Event(12, "unlock" if half.locked[0, at] else "lock", at) for at in written[2::3]
    ]
    decoders = {
        "by hand": replace(decoder, events=tuple(events)),
        "selected": replace(decoder, compute=rule & surelock.SelectRule(0.6)),
    }
    lanes = [Lane(id=name, name=name, decoder=made) for name, made in decoders.items()]
    return record_run(lm, PROMPT, lanes)


@needs_node
def test_the_pages_estimate_at_a_runs_epsilon_is_the_run(stories, tmp_path):
    """Also where positions were masked, written, locked and unlocked by hand, where rows were left out, and where the
    locked rows of a finished block are computed once more.
    """
    networks = (stories, block_causal(stories, tmp_path))
    cases = product(networks, (1, 2, 4), (None, 50))
    made = [changed_by_hand(*case) for case in cases]
    for page in json.loads(node("tests/js/read.js", given=json.dumps(made))):
        for found in page["lanes"]:
            assert found["estimate"] == found["locked"] and 1 in found["locked"]


def compare(
    document: dict[str, Any], trace: surelock.trace.table.Trace, own: str, lane: dict[str, Any]
) -> None:
    n = document["header"]["length"]
    steps, values, positions = (
        each[each.lane == own] for each in (trace.steps, trace.values, trace.positions)
    )
    states = lane_cells(document, own).states.T
    assert lane["states"] == states.T.tolist()
    for name in ("kl", "confidence"):
        cells = np.full((len(steps), n), np.nan)
        cells[values.step.astype(int), values.position.astype(int)] = values[name]
        theirs = [[float("nan" if value is None else value) for value in row] for row in lane[name]]
        np.testing.assert_allclose(theirs, cells, rtol=1e-6)
    guesses = np.full((len(steps), n), -1)
    guesses[values.step.astype(int), values.position.astype(int)] = values.guess.fillna(-1)
    assert lane["guesses"] == guesses.tolist() and guesses.max() > 0
    for t, there in lane["after"]:
        check_after(document, own, t, there, values[values.step <= t])
    tokens = positions.token.fillna(-1).tolist()
    assert lane["after"][0][1]["tokens"] == tokens and lane["text"] == running_text(
        document["pieces"], tokens
    )
    assert lane["steps"] == steps[["computed", "locked", "unmasked"]].values.tolist()
    records = [r for r in document["records"] if r["lane"] == own]
    known = all("commit_error" in r for r in records)
    sums = [
        np.cumsum([each(r) for r in records]).tolist() if known else [None] * len(records)
        for each in (
            lambda r: sum(filter(None, r["commit_error"])), lambda r: math.nan if r["regret"] is None else r["regret"],
            lambda r: len(r["commit_error"]), lambda r: len(r["changed"]),
        )
    ]  # fmt: skip
    assert [listed(each) if known else each for each in sums] == [
        pytest.approx(each) for each in lane["damage"]
    ]
    finite = [
        np.array([v for v in each.kl if np.isfinite(v)] or [np.nan])
        for _, each in values.groupby("step")
    ]
    bands = [np.quantile(each, [0.1, 0.5, 0.9]) for each in finite]
    np.testing.assert_allclose(np.array(lane["bands"], float), bands, rtol=1e-5)
    sums = steps[["seconds", "flops", "baseline_flops"]].cumsum().values.tolist()
    assert [each for row in lane["totals"] for each in row] == pytest.approx(
        [each for row in sums for each in row]
    )


def check_after(
    document: dict[str, Any], own: str, t: int, there: dict[str, Any], values: pd.DataFrame
) -> None:
    """What stood after a step, beside a trace that ends with it."""
    header = document["header"]
    records = [r for r in document["records"] if r["lane"] == own and r["step"] <= t]
    positions = positions_of(header, document["pieces"], records, own)
    prompt = len(header["prompt_tokens"])
    assert there["tokens"] == positions.token.fillna(-1).tolist()
    assert there["unmasked"][prompt:] == listed(positions.unmask_step.astype(float))[prompt:]
    assert [None if s < 0 else s for s in there["locked"]] == listed(
        positions.lock_step.astype(float)
    )
    last = values.groupby("position").step.max()
    assert there["seen"] == [int(last.get(position, -1)) for position in range(header["length"])]
    steps = next(lane["settings"]["steps"] for lane in header["lanes"] if lane["id"] == own)
    of_lane = sum(r["lane"] == own for r in document["records"])
    assert there["ends"] == (t + 1 == steps or (t + 1 == of_lane and -1 not in there["tokens"]))
