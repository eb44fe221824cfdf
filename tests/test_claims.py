"""What the documents say of the committed tables, each sentence computed from them: a line of CLAIMS."""

import json
from collections.abc import Callable, Iterable
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from test_tables import text

import surelock
from surelock.research import estimates
from surelock.research.runner import fingerprint
from surelock.research.tables import JUDGE, RESULTS, pooled, printed
from surelock.research.tables import cells as read_cells

records = cache(read_cells)


@cache
def table(folder: str) -> pd.DataFrame:
    return pd.read_csv(RESULTS / folder / "table.csv")


def judged(folder: str) -> pd.DataFrame:
    return table(f"{folder}/{JUDGE}")


def words(name: str) -> str:
    """Without line breaks, so that a sentence is found wherever its lines end."""
    return " ".join(text(name).split())


def z(frame: pd.DataFrame) -> pd.Series:
    return frame["bits_change"] / frame["bits_change_se"]


def falls() -> list[float]:
    (row,) = (
        table("dynamics")
        .query("gen_length == 256 and epsilon == .005 and percentile == 20")
        .to_dict("records")
    )
    return [-step for step in np.diff([1, *(row[f"at_{share}"] for share in (25, 50, 75, 100))])]


def ordered(values: Iterable[float]) -> bool:
    return all(a > b for a, b in pairwise(values))


def parameters() -> float:
    # in bfloat16
    return (
        json.loads(text("assets/stories/model.safetensors.index.json"))["metadata"]["total_size"]
        / 2
    )


def devices() -> set[str]:
    timed = {*table("runtime")["device"], *table("selection")["device"]}
    return timed | {record["setup"]["device"] for record in records("bench")}


def measured_weights() -> set[str]:
    folders = [
        folder.name for folder in RESULTS.iterdir() if folder.is_dir() and folder.name != "gpu"
    ]
    return {record["setup"]["weights"] for folder in folders for record in records(folder)}


def embedded_weights() -> str:
    return fingerprint(surelock.load("stories", engine="torch").network)


def where_repeats_stay() -> pd.Series:
    own = judged("epsilon")
    return own["bits_change_even"] / own["bits_change_even_se"]


def largest_epsilons() -> pd.DataFrame:
    return judged("epsilon").nlargest(4, "epsilon")


def both(folder: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    return table(folder), judged(folder)


def probes() -> tuple[bool, bool]:
    """Whether probing costs little, and changes nothing."""
    plain, probed = (
        table("unlock")[table("unlock")["unlock_period"].isna() == which] for which in (True, False)
    )
    pairs = probed.merge(plain, on="epsilon", suffixes=("", "_plain"))
    cost = pairs["flops_ratio"] - pairs["flops_ratio_plain"]
    return bool(cost.max() < 0.025), bool(
        (pairs["bits_change"] - pairs["bits_change_plain"]).abs().max() < 0.001
    )


def selection(name: str) -> pd.Series:
    return table("selection").query("method == 'selection k=0.8'")[name]


def beside_surelock(setting: str = "recorded run") -> pd.DataFrame:
    return table("frontier").query("setting == @setting").set_index("rule")


def lower() -> bool:
    """Whether the three err less than SureLock, beyond chance, with no more than a thousandth of the rows more."""
    own = beside_surelock()
    less = own["errs"].eq("less")
    rows = own["rows"] <= own.loc["SureLock", "rows"] + 1e-3
    return set(own.index[less & rows]) == {"by age", "budget", "dual cache"}


def taken_back(name: str, policy: str, times: int, folder: str = "taking_back") -> list[float]:
    """What taking back differs by from a policy in as many steps, or in twice as many, in errors: of half the steps,
    then of a quarter.
    """
    own = table(folder)
    rows = [
        own[(own["steps"] == steps) & (own["less"] == f"{policy} in {steps * times}")]
        for steps in (64, 32)
    ]
    return [float((row[name] / row[f"{name}_se"]).iloc[0]) for row in rows]


def bits_taken_back(policy: str, times: int) -> list[float]:
    """By the own bound, then by the judge."""
    judge = f"taking_back/{JUDGE}"
    return taken_back("bits", policy, times) + taken_back("bits", policy, times, judge)


def beside_entropy() -> list[float]:
    """Faults, then bits, in as many rows: of half the steps and of a quarter in turn."""
    return taken_back("faults", "entropy", 2) + bits_taken_back("entropy", 2)


def settings() -> list[pd.DataFrame]:
    return [beside_surelock(setting) for setting in table("frontier")["setting"].unique()]


def far_less() -> bool:
    both = settings()
    fewer = [own.loc["budget", "rows"] < 0.6 * own.loc["SureLock", "rows"] for own in both]
    bounds = [
        own.loc["budget", "over_surelock"] + 2 * own.loc["budget", "over_surelock_se"]
        for own in both
    ]
    return len(both) == 2 and all(fewer) and max(bounds) < 0.1


def saved(rule: str) -> list[bool]:
    """Whether a rule takes less time than the baseline by more than two errors, in blocks and without."""
    rows = [own.loc[rule] for own in settings()]
    return [bool(row["time"] + 2 * row["time_se"] < 1) for row in rows]


def beyond_by_the_judge() -> list[str]:
    """The rules whose bits are fewer by more than two errors, of both settings, by name."""
    frame = judged("frontier")
    far = frame[z(frame).abs() > 2]
    assert (far["bits_change"] < 0).all()
    return [rule for _, rows in far.groupby("setting", sort=False) for rule in sorted(rows["rule"])]


def more_faults(rule: str) -> list[bool]:
    """Whether a rule has more faults than the baseline by more than two errors, in blocks and without."""
    rows = [own.loc[rule] for own in settings()]
    assert min(row["more_faults"] for row in rows) > 0
    return [bool(row["more_faults"] > 2 * row["more_faults_se"]) for row in rows]


def steps(sampler: str, engine: str = "onnx") -> dict[str, float]:
    """Seconds of a step of the shapes of real models."""
    lines = [line for line in printed("laptop", "decode") if line["engine"].startswith(engine)]
    return {line["model"]: line[f"{sampler}_step_ms"] / 1e3 for line in lines}


def unlocked() -> list[float]:
    """A step of SureLock where nothing locks over one of the baseline."""
    return [
        took / steps("baseline", engine)[name]
        for engine in ("onnx", "torch")
        for name, took in steps("locked", engine).items()
    ]


R = "docs/results.md"
LAPTOP = "docs/command-line.md"
CLAIMS: list[tuple[str, str, Callable[[], Any]]] = [
    ("README.md", "5.9 M parameters", lambda: round(parameters() / 1e6, 1) == 5.9),
    (
        "README.md",
        "locking by age, a fixed budget and the dual cache have a lower commit error than SureLock",
        lower,
    ),
    (
        "README.md",
        "no difference from locking by chance is shown",
        lambda: beside_surelock().loc["by chance", "errs"] == "not shown",
    ),
    (
        R,
        "By age, budget and dual cache err less than SureLock",
        lambda: all(
            own.loc[["by age", "budget", "dual cache"], "errs"].eq("less").all()
            for own in settings()
        ),
    ),
    (
        "README.md",
        "0.08 and 0.23 s](docs/command-line.md#a-real-model-on-a-laptop) on two cores, Qwen3-0.6B's 0.39 s",
        lambda: [round(took, 2) for took in steps("baseline").values()] == [0.39, 0.08, 0.23],
    ),
    (
        LAPTOP,
        "1.4 to 1.8 times the",
        lambda: [round(f(unlocked()), 1) for f in (min, max)] == [1.4, 1.8],
    ),
    (
        R,
        "In both settings the budget errs more than ten times less than SureLock, with less than three fifths",
        far_less,
    ),
    (
        R,
        "fewer faults and fewer bits than `low_confidence`, with a half and with a quarter of the steps",
        lambda: (
            max(*taken_back("faults", "low_confidence", 1), *bits_taken_back("low_confidence", 1))
            < -2
        ),
    ),
    (
        R,
        "`low_confidence` in twice the steps has fewer bits, and with a quarter fewer faults",
        lambda: (
            min(taken_back("faults", "low_confidence", 2)[1], *bits_taken_back("low_confidence", 2))
            > 2
        ),
    ),
    (
        R,
        "taking back has more faults and more bits where it has half of the steps; where it has a quarter, no",
        lambda: (
            min(beside_entropy()[0::2]) > 2
            and max(abs(difference) for difference in beside_entropy()[1::2]) < 2
        ),
    ),
    (
        R,
        "this model is rarely certain, so it errs hardly and saves little",
        lambda: (
            max(own.loc["entropy cache", "error"] for own in settings()) < 5e-4
            and min(own.loc["entropy cache", "rows"] for own in settings()) > 0.83
        ),
    ),
    (
        R,
        "Chance errs no more than SureLock: in one setting no difference is shown, in the other it errs less",
        lambda: [own.loc["by chance", "errs"] for own in settings()] == ["not shown", "less"],
    ),
    (
        R,
        "the delayed cache, which errs more than SureLock here",
        lambda: all(own.loc["delayed cache", "errs"] == "more" for own in settings()),
    ),
    (
        R,
        "Early finish takes more time than it saves",
        lambda: min(own.loc["early finish", "time"] for own in settings()) > 1,
    ),
    (
        R,
        "takes nine tenths of the baseline's steps",
        lambda: {round(own.loc["local leap", "steps"], 1) for own in settings()} == {0.9},
    ),
    (
        R,
        "still more",
        lambda: all(
            own.loc["correct", "steps"] > own.loc["local leap", "steps"] for own in settings()
        ),
    ),
    (
        R,
        "saves a tenth of the time in blocks; without blocks no",
        lambda: saved("local leap") == [True, False],
    ),
    (R, "`Correct` saves none", lambda: saved("correct") == [False, False]),
    (
        R,
        "Of twenty-two changes by the judge theirs alone, all four, are beyond two",
        lambda: (
            z(judged("frontier")).count() == 22
            and beyond_by_the_judge() == ["correct", "local leap"] * 2
        ),
    ),
    (
        R,
        "Both also have more faults, beyond two errors without blocks",
        lambda: [more_faults(rule) for rule in ("local leap", "correct")] == [[False, True]] * 2,
    ),
    (R, "on CPUs. No published checkpoint", lambda: devices() == {"cpu"}),
    (R, "the small model that is embedded", lambda: measured_weights() == {embedded_weights()}),
    (
        R,
        "The same trend and order",
        lambda: table("flops").groupby("gen_length")["flops_ratio"].apply(ordered).all(),
    ),
    (
        R,
        "The ratio is the active ratio",
        lambda: table("flops").eval("abs(flops_ratio - active_ratio) < 5e-4").all(),
    ),
    (
        R,
        "It falls steadily, not faster and faster",
        lambda: 0.23 < min(falls()) < max(falls()) < 0.27,
    ),
    (R, "never rises", lambda: table("dynamics")["rises"].sum() == 0),
    (
        R,
        "is a change beyond three errors",
        lambda: max(abs(z(f)).max() for f in both("quality")) < 3,
    ),
    (
        R,
        "together they show no direction; those of the former weights pointed upwards",
        lambda: all(
            abs(estimates.mean(own).value) < 2 * estimates.mean(own).error
            for own in pooled().values()
        ),
    ),
    (
        R,
        "in four repeats",
        lambda: {len(r["result"]["tps_ratios"]) for r in records("runtime")} == {4},
    ),
    (
        R,
        "gains most at its end",
        lambda: (table("runtime").eval("step_ratio_last / step_ratio_first") > 1.8).all(),
    ),
    (
        R,
        "is refused",
        lambda: not any(r["result"]["refused"] for r in records("runtime") + records("selection")),
    ),
    (
        R,
        "Computing a share of the rows costs that share",
        lambda: selection("flops_ratio").between(0.8, 0.81).all(),
    ),
    (R, "selection alone costs more than it saves", lambda: (selection("tps_ratio") < 1).all()),
    (
        R,
        "By the own bound no change is beyond two errors of its own",
        lambda: z(table("epsilon")).abs().max() < 2,
    ),
    (
        R,
        "By the judge the four largest ε lower the bits, and one of them by more than two errors",
        lambda: z(largest_epsilons()).max() < 0 and (z(largest_epsilons()) < -2).sum() == 1,
    ),
    (
        R,
        "texts that locked repeat more, which the judge likes",
        lambda: (
            largest_epsilons()["repeats_change"].min() > 0
            and judged("epsilon")["bits_repeats"].max() < 0
        ),
    ),
    (
        R,
        "where repeats stay no change is beyond two errors",
        lambda: where_repeats_stay().abs().max() < 2,
    ),
    (R, "never stop moving by the least ε", lambda: table("epsilon")["flops_ratio"][0] > 0.9),
    (
        R,
        "it rises in 42 to 48 % of the steps",
        lambda: (
            [round(f(table("contraction")["mean_rises"]), 2) for f in (min, max)] == [0.42, 0.48]
        ),
    ),
    (
        R,
        "single positions rise in nearly half",
        lambda: table("contraction")["rises"].between(0.45, 0.5).all(),
    ),
    (
        R,
        "hardly any of them never rises",
        lambda: table("contraction")["positions_ok"].max() < 0.02,
    ),
    (
        R,
        "The theorem's sum holds at every locked position",
        lambda: table("bound").query("steps == 'all'")["holds"].min() == 1,
    ),
    (R, "by far too loosely", lambda: table("bound")["loose"].min() > 1000),
    (R, "KL at the lock hardly predicts", lambda: table("bound")["rank_correlation"].max() < 0.3),
    (R, "Probes cost little and change nothing", lambda: probes() == (True, True)),
]


@pytest.mark.parametrize(
    ("name", "sentence", "holds"), CLAIMS, ids=[sentence[:60] for _, sentence, _ in CLAIMS]
)
def test_what_is_said_holds(name, sentence, holds):
    assert sentence in words(name) and holds()
