"""A run as a Plotly figure: of a trace and of the steps the same, in the colours of the page. Which times compare."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import surelock
from surelock.__main__ import main
from surelock.places import ASSETS
from surelock.record import record_run
from surelock.trace.format import TraceError
from surelock.trace.lanes import Lane
from surelock.trace.table import STATES
from surelock.trace.timing import paces, speed_of

HOSTILE = ['"><script>alert(1)</script>', "<a href='x'>&amp;{{x}}</a>", "%{y}$x$", "W" * 80]
PROMPT = "Tom had a <red> ball. He"
DECODERS = {
    "locks, probed": {"compute": surelock.LockRule(epsilon=0.05, unlock=surelock.UnlockRule(period=2))},
    "selection": {"compute": surelock.LockRule(epsilon=0.05) & surelock.SelectRule(0.5)},
    "several at once": {"compute": surelock.BlockCache(), "unmask": surelock.Threshold(0.3)},
    "by hand": {
        "compute": surelock.LockByAge(3),  # it locks anew in the step that unlocks
        "events": (
            surelock.Event(2, "lock", 1), surelock.Event(4, "write", 12, 9), surelock.Event(5, "mask", 12),
            surelock.Event(12, "unlock", 1),
        ),
    },
}  # fmt: skip


def saved(name: str) -> dict[str, Any]:
    return json.loads((ASSETS / "runs" / f"{name}.json").read_text("utf-8"))


def shown(figure: Any) -> list[dict[str, Any]]:
    """What it shows of each lane."""
    rasters, medians, savings = (figure.data[i::3] for i in range(3))
    texts = figure.layout.annotations[len(rasters) + 2 :]  # after the titles
    return [
        {"states": cells.z, "words": cells.y, "kl": cells.customdata, "text": text.text}
        | {"median": kl.y, "saved": saved.y}
        for cells, text, kl, saved in zip(rasters, texts, medians, savings, strict=True)
    ]


def test_a_trace_is_drawn_as_the_steps_of_its_run(stories):
    """Four lanes that differ in everything: what is read from records equals what the steps hold."""
    settings = surelock.DecodeSettings(gen_length=16, block_length=8, temperature=0.7, seed=3)
    decoders = {
        name: surelock.Decoder(settings=settings, **more) for name, more in DECODERS.items()
    }
    document = record_run(
        stories, PROMPT, [Lane(id=name, name=name, decoder=decoders[name]) for name in decoders]
    )
    drawn = surelock.figure(json.loads(json.dumps(document)))
    seen = set()
    assert [each.name for each in drawn.data[1::3]] == list(DECODERS)
    for decoder, lane in zip(decoders.values(), shown(drawn), strict=True):
        steps = surelock.decode(stories, [PROMPT], **decoder.keywords(), observe=True)
        (alike,) = shown(surelock.figure(steps, stories))
        for name in ("states", "words", "text"):
            assert np.array_equal(alike[name], lane[name]), name
        for name in ("kl", "median", "saved"):
            np.testing.assert_allclose(
                np.array(alike[name], float), np.array(lane[name], float), rtol=1e-6
            )
        seen |= set(np.unique(lane["states"]))
    assert seen == set(range(len(STATES)))


def test_a_shorter_prompt_of_a_batch_is_drawn_as_it_is_alone(lm):
    prompts = [[5, 9, 3, 8], [4]]
    settings = surelock.DecodeSettings(gen_length=4)
    together = surelock.figure(surelock.decode(lm, prompts, settings), lm)
    for b, lane in enumerate(shown(together)):
        (alone,) = shown(surelock.figure(surelock.decode(lm, [prompts[b]], settings), lm))
        assert (lane["text"], list(lane["words"])) == (alone["text"], list(alone["words"]))
        assert np.array_equal(lane["states"], alone["states"])
    lines = [shape.y0 for shape in together.layout.shapes]
    assert lines == [len(prompt) - 0.5 for prompt in prompts]


def test_nothing_in_a_trace_is_markup():
    document = saved("rules")
    for lane, name in zip(document["header"]["lanes"], HOSTILE, strict=True):
        lane["name"] = name
    document["pieces"] = {token: HOSTILE[i % 4] for i, token in enumerate(document["pieces"])}
    drawn = surelock.figure(document)
    texts = [each.text for each in drawn.layout.annotations] + [
        each.name for each in drawn.data[1::3]
    ]
    texts += [word for cells in drawn.data[::3] for word in cells.y]
    assert {tag for text in texts for tag in re.findall("<[^>]*>", text)} == {"<b>", "</b>", "<br>"}
    assert f"<b>{'W' * 80}</b>" in drawn.layout.annotations[3].text


def test_a_lane_that_ends_early_is_drawn_as_far_as_it_came():
    document = saved("stories")
    document["records"] = [each for each in document["records"] if each["lane"] == "everything"][
        :100
    ]
    one, none = shown(surelock.figure(document))
    assert one["states"].shape == (142, 100) and none["states"].shape == (142, 0)
    for empty in (document | {"records": []}, []):
        with pytest.raises(ValueError, match="a figure needs a run of at least one step"):
            surelock.figure(empty)


def test_only_what_was_timed_together_has_a_ratio_and_it_is_told_beyond_its_spread():
    def told(seconds: Any = None, **header: Any) -> str:
        document = saved("stories")
        document["header"] |= header
        for each in document["records"] if seconds else ():
            each["seconds"] = seconds(each["lane"] == "surelock", each["step"])
        found = paces(document)
        assert found["everything"] == ""
        return found["surelock"]

    seconds: Counter[str] = Counter()
    for record in saved("stories")["records"]:
        seconds[record["lane"]] += record["seconds"]
    faster = f"{seconds['everything'] / seconds['surelock']:.1f} times as fast"
    assert told() == f"{faster} as “Every token”" and told(timed_together=[]) == ""
    assert faster in surelock.figure(saved("stories")).layout.annotations[1].text
    assert told(lambda own, _: 1 + own) == "2.0 times as long as “Every token”"
    assert (
        told(lambda own, step: 1 + 0.5 * ((step + 3 * own) % 4))
        == "too close to tell which was faster, it or “Every token”"
    )


@pytest.mark.parametrize(
    "case",
    json.loads(Path(__file__).with_name("traces").joinpath("speeds.json").read_text("utf-8")),
    ids=lambda case: case["name"],
)
def test_a_ratio_of_times_is_further_from_1_than_its_spread(case):
    """The same table holds the page's rule: see tests/js/timing.test.js."""
    assert speed_of(case["own"], case["other"]) == (case["speed"] and pytest.approx(case["speed"]))


def test_a_header_times_each_lane_once_and_knows_it():
    for groups, problem in (
        ([["nobody"]], "'nobody' that is not there"),
        ([["surelock"], ["surelock"]], "two of its timing groups"),
    ):
        document = saved("stories")
        document["header"]["timed_together"] = [{"lanes": lanes} for lanes in groups]
        with pytest.raises(TraceError, match=problem):
            surelock.figure(document)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--out", "none/run.json"], "--out must lie in a folder that exists"),
        (["--out", "run.json", "--gen-length", "8", "--block-length", "3"], "block_length"),
    ],
)
def test_a_recording_that_cannot_be_is_one_sentence(tmp_path, monkeypatch, capsys, flags, said):
    monkeypatch.chdir(tmp_path)
    assert main(["record", "--prompt", "Once", "--device", "cpu", *flags]) == 2
    assert said in capsys.readouterr().err.splitlines()[-1] and not list(tmp_path.iterdir())
