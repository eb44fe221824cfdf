"""What the documents say of the committed tables, each sentence computed from them: a line of CLAIMS."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from test_figures import text

from surelock.research import estimates
from surelock.research.frontier import AGE, ALIKE, DUAL, MASKS, OLD, PAPER, RESTING, TODAY
from surelock.research.tables import JUDGE, RESULTS, SAMPLER, TABLES, by_opening, less, pooled
from surelock.research.tables import cells as read_cells
from surelock.research.texts import clean

records = cache(read_cells)


@cache
def table(folder: str) -> pd.DataFrame:
    return pd.read_csv(RESULTS / folder / "table.csv")


def judged(folder: str) -> pd.DataFrame:
    return table(f"{folder}/{JUDGE}")


def words(name: str) -> str:
    """Without line breaks, so that a sentence is found wherever its lines end."""
    return " ".join(text(name).split())


def z(frame: pd.DataFrame, name: str = "bits_change") -> pd.Series:
    return frame[name] / frame[f"{name}_se"]


def corrected() -> pd.Series:
    """p of the two-sided sign test of continuations without a fault, against the first contestant's, by Bonferroni."""
    results = [record["result"] for record in records("arena")]
    found = {}
    for name in table("arena")["contestant"][1:]:
        own, base = (clean(f for r in results for f in r[each]["faults"]) for each in (name, "Every position"))
        pairs = list(zip(base, own, strict=True))
        lost, won = pairs.count((1, 0)), pairs.count((0, 1))
        tail = sum(math.comb(lost + won, more) for more in range(max(lost, won), lost + won + 1))
        found[name] = min(1.0, (len(table("arena")) - 1) * 2 * tail / 2 ** (lost + won))
    return pd.Series(found)


def arena() -> pd.DataFrame:
    return table("arena").set_index("contestant")


def skipping() -> pd.DataFrame:
    """The contestants that leave rows out, and do not leave out steps."""
    own = arena()
    return own[(own["rows"] < 0.9) & (own["steps"] > 100)]


def extremes() -> bool:
    own, least = skipping(), {*skipping()["rows"].nsmallest(2).index}
    fastest = own["speed"].nlargest(4).index.tolist()
    return least == {*own["error"].nlargest(2).index} == {*fastest[:2]} and {*fastest[2:]} == {
        "Dual cache",
        "Dual cache and parallel threshold",
    }


def falls() -> list[float]:
    (row,) = table("dynamics").query("gen_length == 256 and epsilon == .005 and percentile == 20").to_dict("records")
    return [-step for step in np.diff([1, *(row[f"at_{share}"] for share in (25, 50, 75, 100))])]


def chosen(seed: str, ngram: int = 5) -> float:
    page = {"temperature": 0.5, "remasking": "entropy", "block_length": 32, "no_repeat_ngram_size": ngram, "seed": seed}
    own = table("sampler").astype({"seed": str})
    (value,) = own[np.all([own[key] == value for key, value in page.items()], axis=0)]["clean"]
    return value


def ordered(values: Iterable[float]) -> bool:
    return all(a > b for a, b in pairwise(values))


def drifts() -> pd.Series:
    return table("drift").set_index("rule")["drift"]


def over_alike(rule: str) -> pd.Series:
    """A rule's error beside that of the budget that counts every change alike, by share of the rows."""
    return table("near").query("rule == @rule and over_alike.notna()").set_index("target")["over_alike"]


def of_near(rule: str, threshold: str, name: str) -> float:
    """A figure of a threshold at the page's settings."""
    near = table("near").query("rule == @rule and setting == 'page'")
    return near[near["threshold"].str.startswith(threshold, na=False)][name].item()


def side_by_side(*asked: tuple[str, str]) -> list[estimates.Estimate]:
    """Errors of two rules, each with what its threshold begins with, at the page's settings on the same openings."""
    page = [record for record in records("near") if record["cell"]["setting"] == "page"]
    found = [by_opening(page, *each) for each in asked]
    shared = sorted(found[0].keys() & found[1].keys())
    return [estimates.mean([own[opening][0] for opening in shared]) for own in found]


def rests() -> bool:
    """Whether the paper's rule errs no more, beyond two errors, where the masks of later blocks rest."""
    more = estimates.difference(*side_by_side((RESTING, "epsilon 5e-05"), (PAPER, "epsilon 5e-05")))
    return more.value < 2 * more.error


def tenfold() -> bool:
    """Whether a budget that computes every mask errs ten times less than the paper's rule with more rows."""
    own, paper = side_by_side((MASKS, "share 0.1"), (PAPER, "epsilon 5e-05"))
    fewer = of_near(MASKS, "share 0.1", "rows") < of_near(PAPER, "epsilon 5e-05", "rows")
    return fewer and 10 * (own.value + 2 * own.error) < paper.value - 2 * paper.error


def away(setting: str) -> pd.DataFrame:
    """Thresholds of `near` in a setting: of today's budget that of a fifth, and of other rules."""
    own = table("near").query("setting == @setting and target.isna() and rule != 'every position'")
    return own[(own["rule"] != TODAY) | own["threshold"].str.startswith("share 0.2")].set_index("rule")


def least_away() -> bool:
    settings = set(table("near")["setting"]) - {"page"}
    return len(settings) > 5 and all(away(setting)["error"].idxmin() == TODAY for setting in settings)


def less_of(name: str, setting: str) -> bool:
    """Whether a figure of the dual cache is less than today's budget's."""
    return away(setting)[name][DUAL] < away(setting)[name][TODAY]


def below(first: pd.Series, second: pd.Series) -> bool:
    """Whether the first is less at every share of the rows that both have."""
    both = pd.concat((first, second), axis=1, join="inner")
    return len(both) > 1 and bool((both.iloc[:, 0] < both.iloc[:, 1]).all())


def far_from(frame: pd.DataFrame, name: str) -> float:
    """The largest deviation of what was measured from what is assumed, as a share."""
    return float((frame[name] / frame[f"{name}_assumed"] - 1).abs().max())


def least_at_any_time() -> bool:
    """Whether of each rule that takes longer than one of today's budgets that budget errs less."""
    near, pace = table("near").query("setting == 'page'"), table("pace").query("gen_length == 128")
    own = near.merge(pace[["rule", "threshold", "seconds"]])
    ours, others = (own[(own["rule"] == TODAY) == is_ours] for is_ours in (True, False))
    others = others[(others["rule"] != "every position") & (others["seconds"] > ours["seconds"].min())]
    slower = (ours[ours["seconds"] <= row["seconds"]]["error"].min() < row["error"] for _, row in others.iterrows())
    return all(slower)


def verdicts(setting: str = "page") -> dict[tuple[str, str], tuple[str, str]]:
    """By the other rule and its rows: whether today's budget errs less beyond chance, with a third and with a fifth."""
    told = [line.strip("| ").split(" | ") for line in TABLES["near-paired"]().splitlines()[2:]]
    return {(name, its): (third, fifth) for where, name, its, _, _, _, third, _, fifth in told if where == setting}


def seen() -> dict[str, list[str]]:
    """By measure: rules whose texts it sees beyond chance, of those that the judge read of `near`."""
    own = judged("near").query("rule != 'every position'").set_index("rule")
    measures = ("own_change", "bits_change", "bits_change_even", "clean_change")
    t = estimates.student_t(1 - 0.05 / (len(measures) * len(own)) / 2, own["prompts"].min() - 1)
    return {name: [*own.index[z(own, name).abs() > t]] for name in measures}


BUDGET, CHANCE = "fixed budget", "by chance"
OTHERWISE = ("whole canvas", "256 tokens", "temperature 1", "temperature 0", "blocks of 16", "blocks of 64")
ALL, R, CARD = (8, 8), "docs/results.md", "assets/stories/README.md"
CLAIMS: list[tuple[str, str, Callable[[], Any]]] = [
    ("README.md", "5.9 M parameters", lambda: round(parameters() / 1e6, 1) == 5.9),
    (
        "README.md",
        "locking by age and a fixed budget had a lower commit error than the paper's rule at every cost that",
        lambda: less(AGE, "paper") == less(BUDGET, "paper") == ALL and everywhere(AGE) and everywhere(BUDGET),
    ),
    (
        "README.md",
        "at no cost did the paper's rule err less than locking by chance",
        lambda: less(PAPER, "chance") == (0, 8),
    ),
    (R, "measured on the embedded model, on CPUs", lambda: devices() == {"cpu"}),
    (R, "locking by age and a fixed budget err less than the rule", lambda: less(AGE, "paper") == ALL),
    (R, "that errs nowhere less than locking by chance", lambda: less(PAPER, "chance") == (0, 8)),
    (R, "The two are nearly equal", lambda: (gap("arena", "rows", "flops") < 1e-4).all()),
    (R, "without it KL does no better than age", lambda: less("no gate", "age") == (0, 8)),
    (R, "the eight places above", lambda: less(BUDGET, "paper") == ALL),
    (R, "The three ways to tell what a rule costs agree", lambda: agreement().min().min() > 0.75),
    (
        R,
        "locking by age and a fixed budget err less than the paper's rule at every share of the rows that was compared",
        lambda: less(AGE, "paper") == less(BUDGET, "paper") == ALL and everywhere(AGE) and everywhere(BUDGET),
    ),
    (R, "the paper's rule errs nowhere less than locking by chance", lambda: less(PAPER, "chance") == (0, 8)),
    (
        R,
        "errs more than ten times less than the paper's rule, both where neither may leave out masks and where both",
        lambda: tenfold() and below(10 * over_alike(TODAY), over_alike(RESTING)),
    ),
    (R, "halves its rows", lambda: of_near(TODAY, "share 0.3", "rows") < 0.6 * of_near(MASKS, "share 0.1", "rows")),
    (
        R,
        "the paper's rule needs less than half of its rows at the same ε, and errs no more beyond chance",
        lambda: of_near(RESTING, "epsilon 5e-05", "rows") < 0.5 * of_near(PAPER, "epsilon 5e-05", "rows") and rests(),
    ),
    (
        R,
        "Where it computes every mask, too, it errs more than ten times less than the paper's rule with more rows",
        lambda: tenfold(),
    ),
    (
        R,
        "It errs more there than with a third of the rows, whose budget leaves masks out, beyond chance",
        lambda: [told[0] for (name, _), told in verdicts().items() if name == MASKS] == ["yes"],
    ),
    (
        R,
        "Where both leave out masks, it errs more than ten times less at equal rows",
        lambda: below(10 * over_alike(TODAY), over_alike(RESTING)),
    ),
    (
        R,
        "At equal rows today's budget errs less than the one that counts all changes alike; with a fifth of the rows",
        lambda: (
            set(table("near").query("rule == @TODAY and over_alike.notna()")["beats_alike"]) == {"yes"}
            and verdicts()[ALIKE, "0.31"][0] == "yes"
            and verdicts()[ALIKE, "0.41"][1] == "worse"
        ),
    ),
    (
        R,
        "With fewer rows it errs less than the dual cache and than the paper's rule, whether that may leave out masks",
        lambda: (
            [
                (float(its) > 0.21, fifth)
                for (name, its), (_, fifth) in verdicts().items()
                if name in (DUAL, RESTING, PAPER)
            ]
            == [(True, "yes")] * 3
        ),
    ),
    (
        R,
        "beyond chance where the masks of later blocks rest; where they do not, so unevenly",
        lambda: (
            [[told for (name, _), told in verdicts().items() if name == asked] for asked in (OLD, AGE)]
            == [[("yes", "yes")], [("no", "no")]]
        ),
    ),
    (
        R,
        "In each of these settings today's budget with a fifth of the rows errs least on average",
        lambda: least_away(),
    ),
    (
        R,
        "Beside the dual cache and the paper's rule that is beyond chance in each of them that has enough openings",
        lambda: (
            [fifth for setting in OTHERWISE for (name, _), (_, fifth) in verdicts(setting).items() if name != AGE]
            == ["yes"] * 2 * len(OTHERWISE)
        ),
    ),
    (
        R,
        "Beside age it is so at temperature one; at temperature zero, in shorter blocks and in longer ones",
        lambda: (
            {
                setting: fifth
                for setting in OTHERWISE
                for (name, _), (_, fifth) in verdicts(setting).items()
                if name == AGE
            }
            == {"temperature 1": "yes", "temperature 0": "no", "blocks of 16": "no", "blocks of 64": "no"}
        ),
    ),
    (
        R,
        "For the longest texts there are too few openings for a verdict",
        lambda: not verdicts("512 tokens") and set(table("near")["setting"]) - {"page", "512 tokens"} == {*OTHERWISE},
    ),
    (
        R,
        "On longer texts the dual cache computes fewer rows than this budget",
        lambda: less_of("rows", "256 tokens") and less_of("rows", "512 tokens"),
    ),
    (
        R,
        "where it leaves out next to nothing, its regret is the smaller one on average",
        lambda: less_of("regret", "whole canvas") and away("whole canvas")["rows"][DUAL] > 0.9,
    ),
    (
        R,
        "own bound and the judge see the rule that errs by more than a tenth of a nat, and no other. Faults see none",
        lambda: [*seen().values()] == [judged("near").query("error > .1")["rule"].tolist()] * 3 + [[]],
    ),
    (
        R,
        "on twice as many they see that one, too",
        lambda: corrected()["ES-dLLM's choice"] < 0.05 and seen()["bits_change"] == ["ES-dLLM's choice"],
    ),
    (R, "falls with one over the distance, over the whole canvas", lambda: far_from(table("reach"), "moved") < 0.25),
    (R, "at every time the fixed budget errs least", lambda: least_at_any_time()),
    (
        R,
        "With the gate they move more than without it, by age the least of the rules that wait",
        lambda: ordered(drifts()[[PAPER, "no gate", AGE]]),
    ),
    (R, "the surer ones move more", lambda: table("drift")["drift_confidence"][0] > 0.4),
    (R, "Ninety-six openings", lambda: sum(r["cell"]["prompts"] for r in records("arena")) == 96),
    (R, "with a core each", lambda: {record["result"]["threads"] for record in records("arena")} == {1}),
    (
        R,
        "Of those that leave rows out the fixed budget has the smallest commit error and the smallest regret",
        lambda: {skipping()["error"].idxmin(), skipping()["regret"].idxmin()} == {"Fixed budget"},
    ),
    (R, "The two that compute least are the fastest and err most; then come the dual caches", lambda: extremes()),
    (
        R,
        "Selection and KLASS take longer than every position",
        lambda: (arena().loc[["Selection", "KLASS"]].eval("speed + 2 * speed_se") < 1).all(),
    ),
    (R, "Writing in parallel hardly shortens a run", lambda: arena()["steps"]["Parallel threshold"] > 120),
    (
        R,
        "only half the steps and ES-dLLM's importance write worse beyond chance",
        lambda: corrected()[corrected() < 0.05].index.tolist() == ["Half the steps", "ES-dLLM's choice"],
    ),
    (
        R,
        "The same trend and order",
        lambda: all(map(ordered, (g for _, g in by("flops", "gen_length", "flops_ratio")))),
    ),
    (R, "The ratio is the active ratio", lambda: (gap("flops", "flops_ratio", "active_ratio") < 5e-4).all()),
    (R, "It falls steadily, not faster and faster", lambda: 0.23 < min(falls()) < max(falls()) < 0.26),
    (R, "never rises", lambda: table("dynamics")["rises"].sum() == 0),
    (R, "no single change is beyond three errors", lambda: max(abs(z(f)).max() for f in qualities()) < 3),
    (R, "together they point upwards", lambda: all(own.mean() > 0 for own in pooled().values())),
    (R, "in four repeats", lambda: {len(r["result"]["tps_ratios"]) for r in records("runtime")} == {4}),
    (R, "gains most at its end", lambda: (table("runtime").eval("step_ratio_last / step_ratio_first") > 1.8).all()),
    (R, "not told", lambda: not any(r["result"]["refused"] for r in records("runtime") + records("selection"))),
    (
        R,
        "Computing a share of the rows costs that share",
        lambda: table("selection").query("method == 'selection k=0.8'")["flops_ratio"].between(0.8, 0.81).all(),
    ),
    (
        R,
        "selection alone costs more than it saves",
        lambda: (table("selection").query("method == 'selection k=0.8'")["tps_ratio"] < 1).all(),
    ),
    (R, "All changes point upwards", lambda: min(f["bits_change"].min() for f in epsilons()) > 0),
    (R, "by the own bound none by two errors of its own", lambda: z(table("epsilon")).max() < 2),
    (R, "About half of what the judge sees goes with fewer repeats", lambda: 0.4 < even_share() < 0.6),
    (R, "never stop moving by the least ε", lambda: table("epsilon")["flops_ratio"][0] > 0.9),
    (R, "it rises in nearly half of the steps", lambda: table("contraction")["mean_rises"].between(0.45, 0.5).all()),
    (R, "so do single positions", lambda: table("contraction")["rises"].between(0.45, 0.5).all()),
    (R, "hardly any of which never rises", lambda: table("contraction")["positions_ok"].max() < 0.02),
    (R, "The theorem's sum holds at every locked position", lambda: sums("all").min() == 1),
    (R, "by far too loosely", lambda: table("bound")["loose"].min() > 1000),
    (R, "KL at the lock hardly predicts", lambda: table("bound")["rank_correlation"].max() < 0.3),
    (
        R,
        "The letter costs most at temperature `1` and the loosest ε",
        lambda: (
            table("seen")
            .loc[table("seen")["bits_change"].idxmax(), ["temperature", "epsilon", "visible_steps"]]
            .tolist()
            == [1, 5e-2, 0]
        ),
    ),
    (R, "over all settings there is no clear difference", lambda: abs(literal()) < 2),
    (R, "Probes cost little and change nothing", lambda: probes() == (True, True)),
    (CARD, "has the most clean ones", lambda: chosen("0 and 1000") == most_clean()),
    (CARD, "it is [nearly as clean]", lambda: 0 <= chosen("0 and 1000") - chosen("2000") < 0.05),
    (CARD, "`no_repeat_ngram_size` 5 ends repetition", lambda: paid(5, "again") < 0.03 < paid(0, "again")),
    (CARD, "pays a little of it back in names", lambda: 0 < paid(5, "strangers") - paid(0, "strangers") < 0.05),
    (CARD, "is less clean on these weights", lambda: former() < chosen("0 and 1000")),
]


def everywhere(rule: str) -> bool:
    """Whether its mean error is less than the paper's in every setting, at every share that both have."""
    own = table("frontier").query("target.notna()").pivot_table("error", ["setting", "target"], "rule")
    both = own[own[rule].notna() & own[PAPER].notna()]
    return len(both) > 15 and bool((both[rule] < both[PAPER]).all())


def parameters() -> float:
    return json.loads(text("assets/stories/model.safetensors.index.json"))["metadata"]["total_size"] / 2  # in bfloat16


def devices() -> set[str]:
    return {
        *table("runtime")["device"],
        *table("selection")["device"],
        *(r["setup"]["device"] for r in records("bench")),
    }


def agreement() -> pd.DataFrame:
    own = judged("frontier")
    own = own[own["setting"].isin(["page", "whole canvas"]) & (own["rule"] != "every position")]
    return own[["error", "own_change", "bits_change"]].rank().corr()


def by(folder: str, group: str, name: str) -> list[tuple[Any, list[float]]]:
    return [(key, own[name].tolist()) for key, own in table(folder).groupby(group)]


def gap(folder: str, one: str, other: str) -> pd.Series:
    return (table(folder)[one] - table(folder)[other]).abs()


def qualities() -> tuple[pd.DataFrame, pd.DataFrame]:
    return table("quality"), judged("quality")


def epsilons() -> tuple[pd.DataFrame, pd.DataFrame]:
    return table("epsilon"), judged("epsilon")


def even_share() -> float:
    own = judged("epsilon")
    assert (own["repeats_change"] < 0).all() and (own["bits_repeats"] < 0).all()
    (row,) = own[own["epsilon"].isna()].to_dict("records")
    return row["bits_change_even"] / row["bits_change"]


def sums(steps: str) -> pd.Series:
    return table("bound").query("steps == @steps")["holds"]


def literal() -> float:
    own = pooled()["`seen`, to the letter less waiting for one step"]
    return float(own.mean() / np.std(own, ddof=1) * math.sqrt(len(own)))


def probes() -> tuple[bool, bool]:
    """Whether probing costs little, and changes nothing."""
    plain, probed = (table("unlock")[table("unlock")["unlock_period"].isna() == which] for which in (True, False))
    both = probed.merge(plain, on="epsilon", suffixes=("", "_plain"))
    cost = both["flops_ratio"] - both["flops_ratio_plain"]
    return bool(cost.max() < 0.025), bool((both["bits_change"] - both["bits_change_plain"]).abs().max() < 0.001)


def most_clean() -> float:
    return table("sampler").query("seed == '0 and 1000'")["clean"].max()


def paid(ngram: int, kind: str) -> float:
    """The mean share of a fault over the samplers that were compared with and without `no_repeat_ngram_size`."""
    own = table("sampler").query("seed == '0'").set_index(SAMPLER[:3])
    five, none = (own[own["no_repeat_ngram_size"] == size] for size in (5, 0))
    both = five.index.intersection(none.index)
    return {5: five, 0: none}[ngram].loc[both, kind].mean()


def former() -> float:
    own = table("sampler").query("temperature == .6 and remasking == 'entropy' and block_length == 16 and seed == '0'")
    (value,) = own[own["no_repeat_ngram_size"] == 0]["clean"]
    return value


@pytest.mark.parametrize(("name", "sentence", "holds"), CLAIMS, ids=[sentence[:60] for _, sentence, _ in CLAIMS])
def test_what_is_said_holds(name: str, sentence: str, holds: Callable[[], Any]) -> None:
    assert sentence in words(name) and holds()


def test_the_pages_about_says_what_was_measured() -> None:
    own = table("frontier").query("setting == 'page' and target == .56").set_index("rule")["error"]
    told = {rule: f"{value:.{max(3, math.ceil(-math.log10(value)))}f}".lstrip("0") for rule, value in own.items()}
    openings = sum(
        record["cell"]["prompts"]
        for record in records("frontier")
        if record["cell"]["setting"] == "page" and record["cell"]["rule"] == "every position" and is_reported(record)
    )
    assert (
        f"What leaving rows out changes was measured here, exactly (commit error at .56 of the rows, {openings} "
        f"openings that no setting was chosen on): the rule of the paper errs by {told[PAPER]} nats a choice, without "
        f"its percentile gate by {told['no gate']}, locking by age alone by {told[AGE]}, by chance by {told[CHANCE]}, "
        f"and a fixed budget spent where most has just changed by {told[BUDGET]}. The gate is what costs: it takes the "
        "positions that the model is surest of, and without it KL does no better than age. This is one very small model"
    ) in text("assets/js/panels/about.js")


def is_reported(record: dict[str, Any]) -> bool:
    return record["cell"]["half"] == "report"
