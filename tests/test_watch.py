"""`surelock decode --watch`: what it draws of a run, how often, and what it leaves in the terminal."""

import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest
from rich.console import Console

import surelock
from surelock.__main__ import main
from surelock.decoding.step import Step
from surelock.trace.watch import END, FRAME_SECONDS, MASK, Watch

PROMPT = "Tom had a ball. He"
SHOW_CURSOR = "\x1b[?25h"


@pytest.fixture(scope="module")
def lm() -> surelock.LanguageModel:
    return surelock.load("stories")


def steps_of(lm: surelock.LanguageModel, length: int = 16) -> list[Step]:
    settings = surelock.DecodeSettings(gen_length=length)
    return list(surelock.decode(lm, [PROMPT], settings))


def screen(width: int) -> Console:
    return Console(
        file=io.StringIO(), force_terminal=True, color_system="standard", width=width, height=40
    )


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def plain(console: Console) -> str:
    return re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", printed(console))


class Clock:
    """Seconds that pass only while somebody sleeps, and a little with every look."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept = 0.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += seconds


def watched(
    lm: surelock.LanguageModel, console: Console, *runs: list[Step], clock: Clock | None = None
) -> list[Step]:
    clock = clock or Clock()
    names = [f"lane {number}" for number, _ in enumerate(runs, 1)]
    with Watch(lm, names, console, sleep=clock.sleep, clock=clock) as watch:
        return list(watch.follow(*runs))


def test_every_step_is_drawn_at_most_twenty_times_a_second(lm: surelock.LanguageModel) -> None:
    steps = steps_of(lm)
    console = screen(80)
    clock = Clock()
    assert watched(lm, console, steps, clock=clock) == steps
    assert all(f"step {number}, " in printed(console) for number in range(1, 17))
    assert clock.now >= 15 * FRAME_SECONDS


def test_masks_are_dots_fresh_words_bright_and_locked_ones_dim(lm: surelock.LanguageModel) -> None:
    step = steps_of(lm)[-6]
    assert step.masked.sum() == 5 and step.locked.any()
    console = screen(200)
    watched(lm, console, [step])
    drawn = printed(console)
    frame = plain(console).split("lane 1")[1]
    assert frame.count(MASK) == 5
    fresh = lm.decode(step.tokens[0][step.newly_unmasked[0]].tolist())
    assert f"\x1b[1m{fresh}" in drawn, "bright"
    assert "\x1b[2m" in drawn


def test_lines_of_the_text_and_its_end_are_kept(lm: surelock.LanguageModel) -> None:
    step = steps_of(lm)[-1]
    tokens = step.tokens.copy()
    tokens[0, -4:-1] = lm.encode("a\nb")[-3:]
    tokens[0, -1] = lm.ends[0]
    console = screen(200)
    watched(lm, console, [replace(step, tokens=tokens)])
    assert f"a\nb{END}" in re.sub(r" *\r?\n", "\n", plain(console))


@pytest.mark.parametrize(("width", "beside"), [(100, True), (60, False)])
def test_two_lanes_stand_beside_each_other_where_the_width_allows(
    lm: surelock.LanguageModel, width: int, beside: bool
) -> None:
    console = screen(width)
    watched(lm, console, steps_of(lm, 4), steps_of(lm, 8))
    lines = printed(console).splitlines()
    assert any("lane 1" in line and "lane 2" in line for line in lines) == beside
    assert any("step 4, " in line for line in lines), "the shorter run ends first"


def interrupted(steps: list[Step]) -> Iterator[Step]:
    yield steps[0]
    raise KeyboardInterrupt


def test_an_interruption_leaves_a_clean_terminal(lm: surelock.LanguageModel) -> None:
    console = screen(80)
    steps: Iterable[Step] = interrupted(steps_of(lm, 4))
    with pytest.raises(KeyboardInterrupt), Watch(lm, ["lane 1"], console) as watch:
        list(watch.follow(steps))
    assert printed(console).rstrip("\r\x1b[12KA\n").count(SHOW_CURSOR) == 1


def test_where_nothing_can_be_drawn_lines_count_the_steps(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = ["--gen-length", "20", "--watch", "--beside", "everything"]
    assert main(["decode", PROMPT, *flags]) == 0
    lines = capsys.readouterr().out.splitlines()
    counted = [line for line in lines if line.startswith("Every token: step ")]
    assert [int(line.split()[3].rstrip(",")) for line in counted] == list(range(2, 21, 2))
    assert all("100% of the FLOPs" in line and "\x1b" not in line for line in counted)
    text = lines[lines.index(counted[-1]) + 1]
    assert text.startswith(PROMPT), "the text stands below"


def test_a_run_that_ends_before_the_other_prints_no_more_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = [
        "--gen-length",
        "20",
        "--watch",
        "--beside",
        "everything",
        "--unmask",
        "threshold,p=0.01",
    ]
    assert main(["decode", PROMPT, *flags]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("Lock what has converged: step ") for line in lines) == 2
    assert sum(line.startswith("Every token: step ") for line in lines) == 10
