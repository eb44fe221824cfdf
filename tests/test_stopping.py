"""A text that is over (`stop_at_end`): when it is, what is filled, what it saves, and where that is said."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import surelock
from surelock import Decoder, DecodeSettings, Event, Everything
from surelock.__main__ import main
from surelock.config import LLADA_8B, Shape
from surelock.decoding.algorithm import Run
from surelock.decoding.step import Reading, Step
from surelock.decoding.totals import Totals, TotalsCounter
from surelock.record import record_run
from surelock.trace.format import check_document
from surelock.trace.lanes import Lane, alone

MASK = 1
END = 0
WORD = 5
PROMPT = [7] * 100


def through(words: list[int], chosen: dict[str, Any], **choices: Any) -> tuple[list[Step], Totals]:
    """A run on readings of no network, which want so many words in each sequence and ends behind them, the first
    positions first.
    """
    settings = DecodeSettings(**{"gen_length": 8, "stop_at_end": True} | chosen)
    shape = Shape(LLADA_8B, mask_id=MASK, pad_id=0, ends=(END,))
    decoder = Decoder(compute=Everything(), settings=settings, **choices)
    run = Run(shape, [PROMPT] * len(words), decoder)
    counter = TotalsCounter(LLADA_8B, (END,))
    steps = []
    while (plan := run.plan()) is not None:
        sequence = run.canvas.sequence[plan.slots]
        is_word = plan.positions - len(PROMPT) < np.array(words)[sequence]
        reading = Reading.empty(plan)
        reading.tokens = np.where(is_word, WORD, END)[plan.choice.rows]
        reading.score = 1 / (1 + plan.positions[plan.choice.rows])
        steps.append(run.take(reading))
        counter.add(steps[-1])
    present = counter.rows().present
    totals = counter.totals()
    assert np.array_equal(counter.rows().present, present), "a count up to the ends is apart"
    return steps, totals


def test_a_canvas_of_llada_with_forty_words_stops_after_the_block_of_its_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """256 positions in blocks of 32, a prompt of 100 tokens, LLaDA-8B's shape: 41 of 256 steps."""
    chosen = {"gen_length": 256, "block_length": 32}
    steps, totals = through([40], chosen)
    every, whole = through([40], chosen | {"stop_at_end": False})
    assert (len(steps), len(every)) == (41, 256)
    assert (steps[-1].tokens == every[-1].tokens).all(), "the same ends behind the same text"
    assert (totals.spared, whole.spared) == (215, 0)
    assert totals.baseline_flops == whole.baseline_flops == whole.flops
    assert totals.padded_baseline_flops == whole.padded_baseline_flops
    assert totals.flops_ratio == pytest.approx(41 / 256)
    assert totals.active_ratio == pytest.approx(41 / 256)
    with capsys.disabled():
        print(f"\n256 positions, 40 words: {len(steps)} steps, {totals.flops_ratio:.1%} of FLOPs")


def test_what_an_event_asks_of_a_text_that_is_over_is_refused() -> None:
    event = Event(5, "lock", 0)
    with pytest.raises(ValueError, match="there is no such step, the run ended before step 3"):
        through([2], {}, events=(event,))
    with pytest.raises(ValueError, match="sequence 0 has ended before"):
        through([2, 7], {}, events=(event,))


def test_a_replay_is_refused(stories: surelock.LanguageModel) -> None:
    replay = surelock.Replay([[(0, 0, 5)]])
    with pytest.raises(ValueError, match="stop_at_end must be False under the policy 'replay'"):
        surelock.decode(
            stories, [[5]], DecodeSettings(gen_length=1, stop_at_end=True), unmask=replay
        )


@pytest.fixture(scope="module")
def lane(stories: surelock.LanguageModel) -> Lane:
    """Its end stands from step 3 on at the fifth position behind the prompt."""
    place = len(stories.encode("Tom had a ball. He")) + 4
    chosen = DecodeSettings(gen_length=16, block_length=8, stop_at_end=True)
    return alone(Decoder(settings=chosen, events=(Event(3, "write", place, stories.eos_id),)))


def test_a_trace_says_what_was_filled_and_reads_back(
    stories: surelock.LanguageModel, lane: Lane
) -> None:
    document = record_run(stories, "Tom had a ball. He", [lane])
    check_document(document)
    *before, last = document["records"]
    assert last["spared"] == 16 - len(document["records"]) > 0
    assert {token for _, token in last["filled"]} == {stories.eos_id}
    assert len(last["commit_error"]) == len(last["unmasked"])
    assert not any("filled" in record for record in before)
    assert not surelock.read_trace(document).positions["token"].isna().any()
    table = surelock.table(document)
    assert table["masked"].groupby(table["step"]).sum().iloc[-1] == 0
    again = Lane.from_plain(json.loads(json.dumps(document["header"]["lanes"][0])))
    assert again == lane
    commits = sum(len(record["unmasked"]) for record in document["records"])
    assert len(surelock.commit_error(stories, document).error) == commits


def test_the_text_is_that_of_a_run_to_its_last_step(
    stories: surelock.LanguageModel, lane: Lane
) -> None:
    stopped = lane.decoder
    whole = replace(stopped, settings=replace(stopped.settings, stop_at_end=False))
    texts = [
        surelock.generate(stories, ["Tom had a ball. He"], **each.keywords())
        for each in (stopped, whole)
    ]
    assert texts[0] == texts[1]


def test_the_command_says_what_was_spared(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--gen-length", "256", "--block-length", "32", "--stop-at-end", "--json"]
    assert main(["decode", "Tom and Lily played all day. Then they went home.", *flags]) == 0
    printed = capsys.readouterr()
    line = json.loads(printed.out.splitlines()[-1])
    assert line["settings"]["settings"]["stop_at_end"] is True
    assert line["spared"] == 256 - line["steps"] > 0
    assert f"{line['spared']} steps spared by the end" in printed.err
