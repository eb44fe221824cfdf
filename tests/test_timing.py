"""What is timed, on a clock that only moves when a test moves it: every figure below is worked out by hand."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from labs import HandClock, IdsLab

import surelock
from surelock import DecodeSettings, Everything, LockRule
from surelock.bench import decode as bench
from surelock.decoding import loop
from surelock.decoding.decoder import Decoder
from surelock.decoding.loop import decode
from surelock.engines import stopwatch
from surelock.engines.posterior import Reader
from surelock.research import speed
from surelock.research.runner import grid

CPU = torch.device("cpu")


@pytest.fixture
def clock(monkeypatch):
    own = HandClock()
    monkeypatch.setattr(stopwatch, "time", own)
    monkeypatch.setattr(loop, "time", own)
    monkeypatch.setattr(speed, "time", own)
    return own


def test_the_stopwatch_leaves_out_what_is_excluded(clock):
    watch = stopwatch.Stopwatch(CPU)
    clock.now = 10.0
    watch.start()
    clock.now += 1
    with watch.excluded():
        clock.now += 20
    clock.now += 4
    assert watch.seconds() == 5
    watch.start()
    clock.now += 2
    assert watch.seconds() == 2


def test_observation_is_not_a_steps_time(lm, clock, monkeypatch):
    """KLs take 7 s, finding the likely tokens 100 s: the first count where the rule goes by them."""
    follow = Reader._follow
    topk = torch.Tensor.topk

    def slow_follow(reader: Reader, group: str, *given: Any) -> None:
        clock.now += 7 * (group == "observed " or isinstance(rule, LockRule))
        follow(reader, group, *given)

    def slow_topk(*given: Any, **more: Any) -> Any:
        clock.now += 100
        return topk(*given, **more)

    monkeypatch.setattr(Reader, "_follow", slow_follow)
    monkeypatch.setattr(torch.Tensor, "topk", slow_topk)
    settings = DecodeSettings(gen_length=3)
    for rule, seconds in ((Everything(), 0.0), (LockRule(epsilon=-1.0), 7.0)):
        steps = list(decode(lm, [[5, 6]], settings, compute=rule, observe=True, top_k=2))
        assert [step.seconds for step in steps] == [seconds] * 3
    # under the second rule masks have KLs that are only observed
    assert clock.now == 2 * 3 * (7 + 100) + 3 * 7


class Scripted:
    """Decoding whose time is written down: before the first step of a batch 0.5 s, then each step's, doubled from the
    second repeat on. Every step unmasks two tokens of each sequence and costs 30 FLOPs of 100.
    """

    seconds = {"baseline": (1.0, 3.0), "locked": (1.0, 1.0)}  # noqa: RUF012
    flops = {"baseline": 100.0, "locked": 30.0}  # noqa: RUF012

    def __init__(self, clock: HandClock) -> None:
        self.clock = clock
        self.order = []
        self.started = {"baseline": 0, "locked": 0}

    def __call__(
        self, lm: surelock.LanguageModel, ids: list[list[int]], **decoder: Any
    ) -> Iterator[Any]:
        name = "baseline" if decoder["compute"] == Everything() else "locked"
        self.order.append(name)
        self.started[name] += 1
        slow = 2 if self.started[name] > 3 else 1  # one start to warm up, then two batches a repeat
        self.clock.now += 0.5
        for index, seconds in enumerate(self.seconds[name]):
            self.clock.now += slow * seconds
            every = torch.full((len(ids),), 100.0)
            yield SimpleNamespace(
                index=index,
                newly_unmasked=torch.ones(len(ids), 2, dtype=torch.bool),
                flops=every * self.flops[name] / 100,
                baseline_flops=every,
            )


def test_throughput_is_tokens_over_the_seconds_of_all_batches(lm, clock, monkeypatch):
    scripted = Scripted(clock)
    monkeypatch.setattr(speed, "decode", scripted)
    monkeypatch.setattr(speed, "load_of_cores", lambda: 0.25)
    cell = grid(
        prompts=3, batch=2, gen_length=4, steps=2, epsilon=0.1, select_fraction=0.8, repeats=4
    )[0]
    told = speed.compare_speed(IdsLab(lm, ids=[[5, 6], [7], [8, 9, 3]]), cell)
    # a repeat is two batches. baseline: 2 (.5 + 1 + 3) s, then 2 (.5 + 2 + 6); locked: 2 (.5 + 1 + 1), then 2 (4.5)
    assert told["e2e_tps_base"] == pytest.approx(48 / (9 + 3 * 17))
    assert told["e2e_tps"] == pytest.approx(48 / (5 + 3 * 9))
    assert told["tps_ratio"] == pytest.approx(60 / 32)
    assert told["tps_ratios"] == pytest.approx([9 / 5, *[17 / 9] * 3])
    assert told["spread"]["tps_ratio"] == pytest.approx([9 / 5 + 0.75 * (17 / 9 - 9 / 5), 17 / 9])
    assert told["spread"]["e2e_tps"] == pytest.approx([12 / 9, 12 / 9 + 0.25 * (12 / 5 - 12 / 9)])
    assert (told["load"], told["refused"]) == (0.25, {})
    assert told["flops_ratio"] == pytest.approx(0.3)
    # tokens of a step, 3 x 2 in each repeat, over its seconds; what passes before a batch counts to its first step
    assert told["step_tps_base"] == pytest.approx([24 / (2 * 1.5 + 6 * 2.5), 24 / (2 * 3 + 6 * 6)])
    assert told["step_tps"] == pytest.approx([24 / (2 * 1.5 + 6 * 2.5), 24 / (2 * 1 + 6 * 2)])
    base = ["baseline"] * 2
    ours = ["locked"] * 2
    assert scripted.order[2:] == base + ours + ours + base + base + ours + ours + base
    assert (told["threads"], told["device"]) == (torch.get_num_threads(), "cpu")


@pytest.fixture
def benched(lm):
    """A benchmark of two sequences that has run once."""
    rule = LockRule(epsilon=5.0, percentile=None)
    made = bench.Lockstep(
        lm, [[5, 6, 7], [8]], Decoder(settings=DecodeSettings(gen_length=4), compute=rule)
    )
    made.repeat()
    return made


@pytest.mark.parametrize(
    ("policy", "steps"), [(surelock.Remask(), 8), (surelock.Threshold(0.0), 1)]
)
def test_bench_times_all_steps_of_a_policy(lm, policy, steps):
    """Twice as many as there are masks, and fewer where it ends early."""
    made = bench.Lockstep(
        lm, [[5, 6, 7]], Decoder(settings=DecodeSettings(gen_length=4), unmask=policy)
    )
    made.repeat()
    assert {name: len(each) for name, (each,) in made.seconds.items()} == {
        "baseline": steps,
        "locked": steps,
    }
    assert made.result()["tokens"] == 4


def test_bench_figures_by_hand(benched):
    benched.seconds = {
        "baseline": [[4.0] * 4, [5.0] * 4, [99.0, 5.0, 5.0, 5.0], [5.0] * 4, [5.0] * 4],
        "locked": [
            [4.0, 3.0, 2.0, 1.0],
            [4.0, 3.0, 2.0, 1.0],
            [0.0, 0.0, 9.0, 9.0],
            *[[4.0, 3.0, 2.0, 1.0]] * 2,
        ],
    }
    told = benched.result()
    own = {
        name: float(sum(step.flops.sum() for step in steps))
        for name, steps in benched.steps.items()
    }
    ratio = own["locked"] / own["baseline"]
    assert 0.2 < ratio < 0.9
    assert told["flops_ratio"] == pytest.approx(ratio)
    assert (
        told["baseline_step_ms"] == 5000
        and told["locked_step_ms"] == 2500
        and told["locked_last_step_ms"] == 1000
    )
    assert told["baseline_tps"] == pytest.approx(8 / 20) and told["locked_tps"] == pytest.approx(
        8 / 10
    )
    assert told["speedup"] == pytest.approx(2.0)
    assert told["efficiency"] == pytest.approx(2.0 * ratio)
    computed = sum(int(step.computed.sum()) for step in benched.steps["locked"])
    assert told["active_ratio"] == pytest.approx(computed / (4 * 12))
    # the repeats by themselves: 16, 20, 114, 20, 20 s beside 10, 10, 18, 10, 10
    assert told["spread"]["speedup"] == pytest.approx([2.0, 2.0])
    assert told["spread"]["baseline_step_ms"] == [5000, 5000] and told["spread"][
        "baseline_tps"
    ] == [8 / 20, 8 / 20]
    assert told["refused"] == {}

    benched.seconds["locked"] = [[each] * 4 for each in (1.0, 6.0, 2.0, 7.0, 5.0)]
    told = benched.result()
    assert told["spread"]["locked_step_ms"] == [2000, 6000]
    assert told["speedup"] is None and "spans" in told["refused"]["speedup"]
