"""A text that is over (`stop_at_end`): when it is, what is filled, what it saves, and where that is said."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import surelock
from surelock import Decoder, DecodeSettings, Event, Everything, Remask, Threshold
from surelock.__main__ import main
from surelock.config import LLADA_8B, NetworkConfig, Shape
from surelock.decoding.algorithm import Run
from surelock.decoding.step import Plan, Reading, Step
from surelock.decoding.totals import Totals, TotalsCounter
from surelock.record import record_run
from surelock.trace.format import check_document
from surelock.trace.lanes import Lane, alone

MASK = 1
END = 0
TURN = 2
WORD = 5
SMALL = NetworkConfig(29, 8, 1, 1, 1, 8, 8, 64, 1e4, 1e-5, True)
PROMPT = [7, 8, 9]
STEPS = 8


def through(
    words: list[int],
    *,
    network: NetworkConfig = SMALL,
    prompts: list[list[int]] | None = None,
    **choices: Any,
) -> tuple[Run, list[Step], Totals]:
    """A run on readings of no network, which want so many words in each sequence and ends behind them, the first
    positions first.
    """
    choices["settings"] = DecodeSettings(
        **{"gen_length": STEPS, "stop_at_end": True, **choices.get("settings", {})}
    )
    prompts = prompts or [PROMPT] * len(words)
    shape = Shape(network, mask_id=MASK, pad_id=0, ends=(END, TURN))
    run = Run(shape, prompts, Decoder(compute=Everything(), **choices))
    begins = np.array([len(prompt) for prompt in prompts])
    counter = TotalsCounter(network, (END, TURN))
    steps = []
    while (plan := run.plan()) is not None:
        sequence = run.canvas.sequence[plan.slots]
        position = plan.positions
        is_word = position - begins[sequence] < np.array(words)[sequence]
        steps.append(run.take(_reading(plan, np.where(is_word, WORD, END), 1 / (1 + position))))
        counter.add(steps[-1])
    return run, steps, counter.totals()


def _reading(plan: Plan, tokens: np.ndarray, score: np.ndarray) -> Reading:
    reading = Reading.empty(plan)
    reading.tokens = tokens[plan.choice.rows]
    reading.score = score[plan.choice.rows]
    return reading


def test_a_canvas_of_llada_with_forty_words_stops_after_the_block_of_its_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """256 positions in blocks of 32, a prompt of 100 tokens, LLaDA-8B's shape: 41 of 256 steps."""
    chosen = {"gen_length": 256, "block_length": 32}
    prompts = [[7] * 100]
    _, steps, totals = through([40], network=LLADA_8B, prompts=prompts, settings=chosen)
    _, every, whole = through(
        [40], network=LLADA_8B, prompts=prompts, settings=chosen | {"stop_at_end": False}
    )
    assert (len(steps), len(every)) == (41, 256)
    assert (steps[-1].tokens == every[-1].tokens).all(), (
        "the same text, and the same ends behind it"
    )
    assert totals.spared == 215 and whole.spared == 0
    assert totals.baseline_flops == whole.baseline_flops == whole.flops
    assert totals.padded_baseline_flops == whole.padded_baseline_flops
    assert totals.flops_ratio == pytest.approx(41 / 256)
    assert totals.active_ratio == pytest.approx(41 / 256)
    with capsys.disabled():
        print(
            f"\nLLaDA-8B, 256 positions, 40 words: {len(steps)} of {len(every)} steps, {totals.spared} spared,"
        )
        print(f"{totals.flops:.3e} of {whole.flops:.3e} FLOPs ({totals.flops_ratio:.1%})")


def test_it_is_off_by_default() -> None:
    assert not DecodeSettings().stop_at_end
    _, steps, totals = through([2], settings={"stop_at_end": False})
    assert len(steps) == STEPS and totals.spared == 0
    assert all(step.ended is None for step in steps)


def test_each_sequence_of_a_batch_ends_by_itself() -> None:
    run, steps, totals = through([1, 5], prompts=[PROMPT, [*PROMPT, 7]])
    assert len(steps) == 6
    assert [step.computed.sum(axis=1).tolist() for step in steps] == [[11, 12]] * 2 + [[0, 12]] * 4
    first = steps[1].ended
    last = steps[5].ended
    assert first is not None and last is not None
    assert all(step.ended is None for step in (steps[0], *steps[2:5]))
    assert first.steps.tolist() == [6, 0] and last.steps.tolist() == [0, 2]
    assert first.filled.sum(axis=1).tolist() == [6, 0] and last.filled.sum(axis=1).tolist() == [
        0,
        2,
    ]
    assert not (first.filled & steps[1].newly_unmasked).any()
    assert not steps[5].masked.any()
    assert (steps[5].tokens[0, -7:] == END).all()
    assert totals.spared == 8
    assert totals.tokens == 2 + 6
    assert totals.active_ratio == pytest.approx((2 * 11 + 6 * 12) / (8 * 11 + 8 * 12))
    assert run.plan() is None


def test_what_is_filled_is_the_end_that_stands() -> None:
    event = Event(1, "write", len(PROMPT) + 2, TURN)
    _, steps, _ = through([8], events=(event,))
    assert len(steps) == 2
    assert steps[-1].tokens[0, len(PROMPT) :].tolist() == [WORD, WORD, *[TURN] * 6]


@pytest.mark.parametrize(("written", "masks"), [([], [6, 5, 4, 3, 2, 0]), ([5], [5, 4, 3, 2, 0])])
def test_an_end_before_which_a_word_is_missing_ends_nothing(
    written: list[int], masks: list[int]
) -> None:
    """Wherever it is missing: `written` are positions that have their word from the first step on."""
    words = [Event(0, "write", len(PROMPT) + position, WORD) for position in written]
    _, steps, _ = through([8], events=(*words, Event(0, "write", len(PROMPT) + 6, END)))
    assert [int(step.masked.sum()) for step in steps] == masks


def test_an_end_in_the_prompt_or_before_given_words_ends_nothing() -> None:
    _, steps, _ = through([STEPS], prompts=[[7, END, 9]])
    assert len(steps) == STEPS
    blanks = [7, MASK, 9]
    _, steps, _ = through([0], prompts=[blanks], settings={"gen_length": 4})
    assert len(steps) == 2, "the blank is a word of its text, and is written first"
    _, steps, _ = through([0], prompts=[[7, MASK, MASK, 9]], settings={"gen_length": 0})
    assert len(steps) == 2 and all(step.ended is None for step in steps), "no end is free"


def test_what_an_event_asks_of_a_text_that_is_over_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no such step, the run ended before step 3"):
        through([2], events=(Event(5, "lock", 0),))
    with pytest.raises(ValueError, match="sequence 0 has ended before"):
        through([2, 7], events=(Event(5, "lock", 0, sequence=0),))


def test_a_policy_that_ends_early_is_spared_one_step() -> None:
    _, steps, totals = through([2], unmask=Threshold(0.24))
    assert len(steps) == 3
    assert totals.spared == 1


def test_a_block_that_may_be_taken_back_is_not_over() -> None:
    chosen = {"gen_length": 8, "block_length": 4}
    _, steps, totals = through([2], settings=chosen, unmask=Remask(begins=0.5))
    assert len(steps) == 8, "both laps of the first block"
    assert totals.spared == 8
    _, steps, totals = through([2], unmask=Remask())
    assert len(steps) == 16 and totals.spared == 0, "one block is over with the run"


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
    last = document["records"][-1]
    count = len(document["records"])
    assert count < 16 and last["spared"] == 16 - count
    assert {token for _, token in last["filled"]} == {stories.eos_id}
    assert len(last["commit_error"]) == len(last["unmasked"])
    assert [record for record in document["records"][:-1] if "filled" in record] == []
    frame = surelock.read_trace(document)
    assert not frame.positions["token"].isna().any()
    assert (
        surelock.table(document)["masked"].groupby(surelock.table(document)["step"]).sum().iloc[-1]
        == 0
    )
    again = Lane.from_plain(json.loads(json.dumps(document["header"]["lanes"][0])))
    assert again == lane
    repeated = record_run(stories, "Tom had a ball. He", [again])
    assert [record["unmasked"] for record in repeated["records"]] == [
        r["unmasked"] for r in document["records"]
    ]
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
