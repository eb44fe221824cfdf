"""`python -m surelock.research.tables FILE ...`: write the tables of results that stand in documents.

A table stands between the lines `<!-- table NAME -->` and `<!-- end of table -->`. It is made of what is committed in
assets/results: the tables that the experiments left there (table.csv), and the cells for what pools several of them.
"""

import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from surelock.decoding.presets import PRESETS
from surelock.research import estimates, runner
from surelock.research.compare import bits_per_character, sampler_of
from surelock.research.frontier import (
    AGE,
    ALIKE,
    DUAL,
    LEAST_OPENINGS,
    MASKS,
    OLD,
    PAPER,
    RESTING,
    TODAY,
    threshold_of,
)

RESULTS = Path(__file__).resolve().parents[2] / "assets" / "results"
JUDGE = "judge-SmolLM2-135M-Instruct.Q4_1"
_CHOICES = {
    "ES-dLLM's choice": "ES-dLLM's importance, without early layers",
    "d²Cache's choice": "d²Cache's masks, without rollout",
}
RENAMED = {"contestant": _CHOICES, "rule": _CHOICES}
PLACE = re.compile(r"(<!-- table ([\w-]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows and columns of an experiment's table: the folder, what `query` keeps, a format for each heading. Where
    `largest` is given, the rows with the largest of it come first.
    """

    folder: str
    columns: dict[str, str]
    query: str = ""
    largest: str = ""

    def __call__(self) -> str:
        frame = read(self.folder)
        frame = frame.query(self.query) if self.query else frame
        frame = frame.sort_values(self.largest, ascending=False, kind="stable") if self.largest else frame
        rows = frame.replace(RENAMED).to_dict("records")
        return markdown(list(self.columns), [[written(form, row) for form in self.columns.values()] for row in rows])


def read(folder: str) -> Any:
    """An experiment's table; what has no value in a row is empty text, an epsilon reads 5e-4."""
    frame = pd.read_csv(RESULTS / folder / "table.csv").astype(object)
    if "epsilon" in frame:
        frame["epsilon"] = [short(value) for value in frame["epsilon"]]
    return frame.where(frame.notna(), "")


def short(epsilon: float) -> str:
    """5e-4, and "all" where a row is of every epsilon together."""
    return "all" if math.isnan(epsilon) else f"{epsilon:.0e}".replace("e-0", "e-")


def written(form: str, row: dict[str, Any]) -> str:
    """A cell; empty where a figure is missing in its row."""
    names = re.findall(r"\{(\w+)", form)
    return "" if any(row[name] == "" for name in names) else form.format(**row)


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def listed(columns: dict[str, str], rows: Iterable[dict[str, Any]]) -> str:
    """A table with a format for each heading."""
    return markdown(list(columns), [[written(form, row) for form in columns.values()] for row in rows])


# --- what is made of cells --------------------------------------------------------------------------------------------

Values = NDArray[np.float64]  # [prompts]: their mean is the figure, their scatter its error


def cells(experiment: str) -> list[dict[str, Any]]:
    return list(runner.finished(RESULTS / experiment).values())


def bits(result: dict[str, Any]) -> Values:
    """Bits per character of all texts together, linearised at each prompt."""
    told = bits_per_character(result)
    return told.value + told.residuals


def changes(experiment: str) -> list[tuple[dict[str, Any], Values]]:
    """(cell, change of the bits against the same sampler's baseline) of the locked cells."""
    every = cells(experiment)
    bases = {sampler_of(r["cell"]): bits(r["result"]) for r in every if r["cell"]["epsilon"] is None}
    locked = [r for r in every if r["cell"]["epsilon"] is not None]
    return [(r["cell"], bits(r["result"]) - bases[sampler_of(r["cell"])]) for r in locked]


def pooled() -> dict[str, Values]:
    """Changes that several cells share the prompts of, each the mean over its cells."""
    quality, seen = changes("quality"), changes("seen")
    literal = [sign * own for sign, v in ((2, 0), (-2, 1)) for c, own in seen if c["visible_steps"] == v]
    groups = {
        "`quality`, all cells": [own for _, own in quality],
        "`quality`, ε 5e-3": [own for cell, own in quality if cell["epsilon"] == 5e-3],
        "`epsilon`, all cells": [own for _, own in changes("epsilon")],
        "`seen`, all cells": [own for _, own in seen],
        "`seen`, to the letter less waiting for one step": literal,
    }
    return {name: np.mean(own, axis=0) for name, own in groups.items()}


def together() -> str:
    columns = {"cells": "{name}", "bits per character": change("bits", 4), "z": "{z:.1f}"}
    told = {name: estimates.mean(own) for name, own in pooled().items()}
    named = ({"name": name, "z": own.value / own.error} | estimates.named({"bits": own}) for name, own in told.items())
    return listed(columns, named)


# --- what is made of tables -------------------------------------------------------------------------------------------


def seen() -> str:
    """A line for each temperature and epsilon, a column for each `visible_steps`."""
    frame, form = read("seen"), "{bits_change:+.3f} ({bits_change_se:.3f}) at {active_ratio:.3f}"
    rows = [
        [f"{t:g}", e, *(written(form, row) for row in own.to_dict("records"))]
        for (t, e), own in frame.sort_values("visible_steps", kind="stable").groupby(["temperature", "epsilon"])
    ]
    return markdown(["temperature", "ε", "0", "1", "2"], sorted(rows, key=lambda row: (row[0], float(row[1]))))


SPEEDS = ["gen_length, batch", "step, unlocked and locked", "tokens/s", "speed-up", "FLOPs", "efficiency", "load"]
SAMPLER = ["temperature", "remasking", "block_length", "no_repeat_ngram_size"]
CHOSEN_BY, FRESH = ("0 and 1000", "0"), "2000"  # seeds


def sampler() -> str:
    """The samplers by the seeds that the choice was made by: the two together where there are two."""
    frame = read("sampler")
    own = frame[frame["seed"].isin(CHOSEN_BY)].sort_values("seed", ascending=False, kind="stable")
    own = own.drop_duplicates(SAMPLER).sort_values("clean", ascending=False, kind="stable")
    columns = {"temperature": "{temperature:g}", "policy": "`{remasking}`", "blocks": "{block_length}"}
    columns |= {"ngram": "{no_repeat_ngram_size}", "continuations": "{prompts}"}
    told = {"again": "a sentence again", "strangers": "a stranger", "stuck": "stuck", "clean": "clean"}
    columns |= {head: f"{{{kind}:.0%}} ({{{kind}_se:.0%}})" for kind, head in told.items()}
    return listed(columns | {"new trigrams": "{trigrams:.2f}"}, own.to_dict("records"))


BOTH = ("page", "whole canvas")
FORMER = "the near budget as it was"  # in `weightings`


def targets() -> Any:
    """The rules of `frontier` at equal shares of the rows."""
    return read("frontier").query("target != ''")


def at_shares(*settings: str) -> Callable[[], str]:
    """Commit errors of a setting or several: a line for each rule, a column for each share of the rows."""

    def table() -> str:
        own = targets()
        own = own[own["setting"].isin(settings)]
        wide = own.pivot_table("error", ["setting", "rule"], "target", aggfunc="first", sort=False)
        cells = [[nats(value) for value in row] for row in wide.to_numpy()]
        rows = [[*names, *row] for names, row in zip(wide.index, cells, strict=True)]
        return markdown(["setting", "rule", *(f"{share:.2f}" for share in wide.columns)], rows)

    return table


def nats(value: float) -> str:
    """Three digits, or the first that is not 0."""
    return "" if math.isnan(value) else f"{value:.{max(3, math.ceil(-math.log10(value)))}f}"


def less(rule: str, other: str, settings: Sequence[str] = BOTH) -> tuple[int, int]:
    """(at how many places a rule errs less than another, corrected for all comparisons; of how many)."""
    every = targets()
    own = every[(every["rule"] == rule) & every["setting"].isin(settings)][f"beats_{other}"]
    return int((own == "yes").sum()), int((own != "").sum())


def beaten() -> str:
    others = {"paper": "the paper's rule", "age": "by age", "chance": "by chance"}
    rows = []
    for rule in targets()["rule"].unique():
        counts = [less(rule, other) for other in others]
        rows.append([rule, *("{} of {}".format(*count) if count[1] else "" for count in counts)])
    return markdown(["errs less than", *others.values()], rows)


def agreement() -> str:
    """Rank correlations over the thresholds of the page's settings and the whole canvas."""
    every = read(f"frontier/{JUDGE}")
    own = every[every["setting"].isin(BOTH) & (every["rule"] != "every position")]
    named = {"error": "commit error", "own_change": "own bound", "bits_change": "judge"}
    ranks = own[list(named)].astype(float).corr("spearman")
    pairs = [("error", "own_change"), ("error", "bits_change"), ("own_change", "bits_change")]
    told = [[f"{named[a]}, {named[b]}", f"{ranks.loc[a, b]:.2f}"] for a, b in pairs]
    return markdown([f"over {len(own)} thresholds", "rank correlation"], told)


def speeds() -> str:
    """For every machine and checkpoint what they are, and a table of their rows."""
    records = cells("bench")
    setups = {json.dumps(record["setup"]): record["setup"] for record in records}
    parts = []
    for setup in setups.values():
        own = [record for record in records if record["setup"] == setup]
        own.sort(key=lambda record: (record["cell"]["batch"], record["cell"]["gen_length"]))
        days = sorted({date.fromisoformat(record["result"]["measured"]) for record in own})
        spans = " to ".join(dict.fromkeys(f"{day:%-d %B %Y}" for day in (days[0], days[-1])))
        where = setup["processor"] if setup["device"] == "cpu" else "{device}, {processor}".format(**setup)
        told = "`{model}` (weights {weights}, {dtype}) on {cores} cores of {where}, {threads} thread{s}, {engine}, "
        named = {"engine": "torch {torch}".format(**setup), **setup}  # the oldest cells do not name it
        parts.append(told.format(where=where, s="s" * (setup["threads"] > 1), **named) + f"{spans}:")
        parts.append(markdown(SPEEDS, [_speed(record["cell"], record["result"]) for record in own]))
    return "\n\n".join(parts)


def _speed(cell: dict[str, Any], told: dict[str, Any]) -> list[str]:
    spread, ratio = told["spread"].get("speedup"), told["speedup"]
    between = f" ({spread[0]:.2f} to {spread[1]:.2f})" if spread else ""
    return [
        "{gen_length}".format(**cell) + (f" in {cell['steps']} steps" if cell["steps"] else "") + f", {cell['batch']}",
        "{baseline_step_ms:.3g} and {locked_step_ms:.3g} ms".format(**told),
        "{baseline_tps:.3g} and {locked_tps:.3g}".format(**told),
        ("refused" if ratio is None else f"{ratio:.2f}x") + between,
        f"{told['flops_ratio']:.2f}x",
        "" if ratio is None else f"{told['efficiency']:.2f}",
        "" if told["load"] is None else f"{told['load']:.1f}",
    ]


def speed_parts() -> str:
    """Beside the table of speeds: what the forward alone gains, and the share of a step that is beside it."""
    every = sorted(cells("bench"), key=lambda r: (r["setup"]["processor"], r["cell"]["batch"]), reverse=True)
    columns = {"gen_length, batch": "{gen_length}, {batch}", "processor": "{processor}"}
    columns |= {"the forward's speed-up": "{forward_speedup:.2f}x"}
    columns |= {"beside it, unlocked and locked": "{baseline_other_share:.0%} and {locked_other_share:.0%}"}
    return listed(columns, (record["setup"] | record["cell"] | record["result"] for record in every))


def printed(name: str) -> list[dict[str, Any]]:
    """The objects of a file of lines."""
    return [json.loads(line) for line in (RESULTS / f"{name}.jsonl").read_text("utf-8").splitlines()]


def laptop() -> str:
    """What `bench decode` printed of a real model's shape, a line an engine; of `bench loading`, a second loading."""
    lines = printed("laptop")
    again = {told["engine"]: told["loading_seconds"] for told in lines if told["benchmark"] == "loading"}
    rows = [
        told
        | {"seconds": ", again ".join(f"{own:.1f} s" for own in again.get(told["engine"], [told["loading_seconds"]]))}
        | {"gigabytes": told["peak_memory"] / 1e9}
        | {name: told[f"{name}_step_ms"] / 1e3 for name in ("baseline", "locked")}
        for told in lines
        if told["benchmark"] == "decode"
    ]
    columns = {"engine": "{engine}", "loading": "{seconds}", "memory at most": "{gigabytes:.2f} GB"}
    columns |= {"a step": "{baseline:.2f} s", "of SureLock, nothing locked": "{locked:.2f} s"}
    return listed(columns | {"processor": "{processor}, {threads} threads"}, rows)


def in_browser(benchmark: str) -> list[dict[str, Any]]:
    """What `python -m tests.browser.measure_here` or `measure_engines` printed, a line a time."""
    return [told for told in printed("browser") if told["benchmark"] == benchmark]


def weightings() -> str:
    """Every weighting of a budget's rows that was tried, beside the one that the tries began with."""
    told = printed("weightings")
    (former,) = (each for each in told if each["weighting"] == FORMER)
    rows = []
    for each in told:
        ratio = estimates.ratio(each["error"], former["error"])
        beside = "" if each is former else f"{ratio.value:.2f} ({ratio.error:.2f})"
        error, regret = (estimates.mean(each[name]) for name in ("error", "regret"))
        figures = [f"{error.value:.4f} ({error.error:.4f})", beside, f"{regret.value:.4f} ({regret.error:.4f})"]
        rows.append([each["weighting"], *figures])
    return markdown(["what was changed", "commit error", "beside the former", "regret"], rows)


#: Rule -> what its threshold begins with; what may not leave out masks comes first.
BELIEVED = (
    (PAPER, "epsilon 5e-05"),
    (AGE, "steps 12"),
    (MASKS, "share 0.1"),
    (RESTING, "epsilon 5e-05"),
    (OLD, "steps 24"),
    (DUAL, "dual True"),
    (ALIKE, "share 0.3"),
    (TODAY, "share 0.3"),
)


def believed() -> str:
    """One threshold of each rule of `near` at the page's settings, beside its seconds in `pace`."""
    near, pace = read("near"), read("pace")
    near = near[(near["setting"] == "page") & (near["target"] == "")]
    both = near.merge(pace[pace["gen_length"] == 128][["rule", "threshold", "time_ratio"]], "left").fillna("")
    forms = ["{rows:.2f}", plain("error", 4), "{changed:.1%}", plain("regret", 4), "{openings}", "{time_ratio:.2f}"]
    rows = []
    for rule, threshold in BELIEVED:
        (row,) = both[(both["rule"] == rule) & both["threshold"].str.startswith(threshold)].to_dict("records")
        masks = "no" if rule in (PAPER, AGE, MASKS) else "yes"
        rows.append([rule, masks, *(written(form, row) for form in forms)])
    head = ["rows", "commit error", "top words changed", "regret", "openings", "time, of every position's"]
    return markdown(["rule", "may leave out masks", *head], rows)


OURS = ("share 0.3", "share 0.2")
OTHERS = (
    (ALIKE, "share 0.4"),
    (ALIKE, "share 0.3"),
    (DUAL, "dual True"),
    (RESTING, "epsilon 5e-05"),
    (OLD, "steps 24"),
    (AGE, "steps 12"),
    (PAPER, "epsilon 5e-05"),
    (MASKS, "share 0.1"),
)


def by_opening(records: list[dict[str, Any]], rule: str, threshold: str) -> dict[int, tuple[float, int, int]]:
    """Commit error, rows and positions by opening, of what these records report of a rule."""
    found = {}
    for record in records:
        cell, told = record["cell"], record["result"]
        if (cell["half"], cell["rule"]) == ("report", rule) and threshold_of(cell["compute"]).startswith(threshold):
            values = zip(told["error"], told["rows"], told["positions"], strict=True)
            found |= dict(enumerate(values, start=cell["skip"]))
    return found


def paired() -> str:
    """Today's budgets beside other rules of `near`, wherever enough openings have both: by a paired difference
    (Student's t), at the 95 % level, corrected for all comparisons of the table (Bonferroni).
    """
    records, pairs = cells("near"), []
    for setting in dict.fromkeys(record["cell"]["setting"] for record in records):
        own = [record for record in records if record["cell"]["setting"] == setting]
        for other, ours in product(OTHERS, OURS):
            both = [by_opening(own, *key) for key in ((TODAY, ours), other)]
            if len(shared := sorted(both[0].keys() & both[1].keys())) >= LEAST_OPENINGS:
                pairs.append((setting, other, ours, [np.array([each[opening] for opening in shared]) for each in both]))
    rows: dict[tuple[str, Any], list[str]] = {}
    for setting, other, ours, values in pairs:
        means, count = [estimates.mean(each[:, 0]) for each in values], len(values[0])
        less, ratio = estimates.difference(*means), estimates.ratio(values[0][:, 0], values[1][:, 0])
        t = estimates.student_t(1 - 0.05 / len(pairs) / 2, count - 1)
        told = "yes" if less.value + t * less.error < 0 else "worse" if less.value - t * less.error > 0 else "no"
        share = f"{values[1][:, 1].sum() / values[1][:, 2].sum():.2f}"
        begun = [setting, other[0], share, f"{means[1].value:.4f} ({means[1].error:.4f})", str(count)]
        row, place = rows.setdefault((setting, other), begun + [""] * 4), len(begun) + 2 * OURS.index(ours)
        row[place : place + 2] = f"{ratio.value:.3f} ({ratio.error:.3f})", told
    head = [
        "setting",
        "beside",
        "its rows",
        "its error",
        "openings",
        "ratio, a third",
        "less",
        "ratio, a fifth",
        "less",
    ]
    return markdown(head, list(rows.values()))


def parallel() -> str:
    """Of each contestant of `parallel` what it computes and writes, and what the judge makes of that."""
    judged = read(f"parallel/{JUDGE}")[["contestant", "bits_change", "bits_change_se"]]
    columns = {"decoder": "{contestant}", "steps": "{steps:.0f}", "rows": "{rows:.2f}"}
    columns |= {"commit error": plain("error", 4), "regret": plain("regret", 4)}
    columns |= {"without a fault": "{clean:.0%} ({clean_se:.0%})", "change": change("clean_change", 2)}
    columns |= {"bits per character, by the judge": change("bits_change")}
    return listed(columns, read("parallel").merge(judged).to_dict("records"))


def browser() -> str:
    """Of each decoder alone in a browser, beside the one that computes every position."""
    rows = [
        found | {"length": length, "decoder": PRESETS[preset].name, "ratio": found["flops"] / found["baseline_flops"]}
        for told in in_browser("browser")
        for length, lanes in told["alone"].items()
        for preset, found in lanes.items()
    ]
    columns = {
        "tokens": "{length}",
        "decoder": "{decoder}",
        "time, of every word's": "{seconds:.1f} s, {time_ratio:.2f}",
    }
    return listed(columns | {"of its FLOPs": "{ratio:.2f}", "efficiency": "{efficiency:.2f}"}, rows)


def browser_page() -> str:
    """What a visitor whose browser decodes waits for, and what the tab takes."""
    rows = [
        {"by": "{browser}, {processor}".format(**told), **told["first_step_s"], **told["frames"]}
        | {"memory": ", ".join(f"{mb:.0f} MB at {length} tokens" for length, mb in told["tab_mb"].items())}
        for told in in_browser("browser")
    ]
    columns = {"browser": "{by}", "first step, first visit": "{first_visit:.1f} s"}
    columns |= {"second visit": "{second_visit:.1f} s", "memory": "{memory}"}
    return listed(columns | {"frames, 95 % within": "{per_second:.0f} a second, {p95_ms:.0f} ms"}, rows)


def browser_engines() -> str:
    """Of each way to compute in a browser, the seconds of a run."""
    rows = []
    for told in in_browser("browser-engines"):
        for engine, seconds in told["seconds"].items():
            why_not = isinstance(seconds, str)
            cells = [seconds, "", ""] if why_not else [f"{value:.1f} s" for value in seconds.values()]
            rows.append([f"{told['browser']}, {told['processor']}", str(told["tokens"]), engine, *cells])
    decoders = [PRESETS[name].name for name in ("everything", "surelock", "budget")]
    return markdown(["browser", "tokens", "engine", *decoders], rows)


def change(name: str, digits: int = 3) -> str:
    return f"{{{name}:+.{digits}f}} ({{{name}_se:.{digits}f}})"


def plain(name: str, digits: int = 2) -> str:
    return f"{{{name}:.{digits}f}} ({{{name}_se:.{digits}f}})"


SETTING = {"new tokens": "{gen_length}", "steps": "{steps}", "policy": "`{remasking}`", "ε": "{epsilon}"}
OWN = {"FLOPs": "{flops_ratio:.3f}x", "bits per character": change("bits_change"), "tokens kept": "{equal:.0%}"}
BY_JUDGE = {
    "bits per character": change("bits_change"),
    "where repeats stay": change("bits_change_even"),
    "Gen.-PPL": plain("gen_ppl_ratio") + " times",
    "bits with repeats": "{bits_repeats:.2f}",
}
COST = {
    "openings": "{openings}",
    "rows": "{rows:.2f}",
    "commit error": plain("error", 4),
    "top words changed": "{changed:.1%}",
    "regret": plain("regret", 4),
}
DRAWN = {"at the drawing temperature": plain("drawn", 4)}
TABLES: dict[str, Callable[[], str]] = {
    "flops": Table(
        "flops",
        {"new tokens": "{gen_length}", "ε": "{epsilon}", "FLOPs": "{flops_ratio:.3f}x"}
        | {"as the paper counts": "{flops_ratio_padded:.3f}x", "active ratio": "{active_ratio:.3f}"},
    ),
    "dynamics": Table(
        "dynamics",
        {"m": "{percentile:.0f} %", "ε": "{epsilon}"}
        | {f"at {share} %": f"{{at_{share}:.2f}}" for share in (25, 50, 75, 100)}
        | {"in all": "{mean:.2f}x", "rises": "{rises}"},
        "gen_length == 256",
    ),
    "quality": Table("quality", SETTING | OWN),
    "quality-judge": Table(f"quality/{JUDGE}", SETTING | BY_JUDGE),
    "together": together,
    "runtime": Table(
        "runtime",
        {"new tokens": "{gen_length}", "batch": "{batch}", "ε": "{epsilon}"}
        | {"speed-up": "{tps_ratio:.2f}x ({tps_ratio_min:.2f} to {tps_ratio_max:.2f})"}
        | {"FLOPs": "{flops_ratio:.2f}x", "efficiency": "{efficiency:.2f}"}
        | {"first and last steps": "{step_ratio_first:.1f}x and {step_ratio_last:.1f}x"},
    ),
    "selection": Table(
        "selection",
        {"new tokens": "{gen_length}", "rule": "{method}", "speed-up": "{tps_ratio:.2f}x"}
        | {"FLOPs": "{flops_ratio:.2f}x"},
    ),
    "epsilon": Table("epsilon", {"ε": "{epsilon}"} | OWN),
    "epsilon-judge": Table(f"epsilon/{JUDGE}", {"ε": "{epsilon}"} | BY_JUDGE),
    "contraction": Table(
        "contraction",
        {"new tokens": "{gen_length}", "temperature": "{temperature:g}", "prompts": "{prompts}"}
        | {"mean KL, a step": "{rho_mean:.3f}x", "it rises in": "{mean_rises:.0%}"}
        | {"single positions rise in": "{rises:.0%}", "of them never rise": "{positions_ok:.1%}"},
    ),
    "bound": Table(
        "bound",
        {"new tokens": "{gen_length}", "ε": "{epsilon}", "L": "{smooth}", "steps": "{steps}", "holds": "{holds:.1%}"}
        | {"too loose": "{loose:.0e} times", "KL and error, rank correlation": "{rank_correlation:.2f}"},
    ),
    "seen": seen,
    "seen-judge": Table(
        f"seen/{JUDGE}",
        {"temperature": "{temperature:g}", "`visible_steps`": "{visible_steps}"} | BY_JUDGE,
        "epsilon == 'all'",
    ),
    "sampler": sampler,
    "sampler-chosen": Table(
        "sampler",
        {"ngram": "{no_repeat_ngram_size}", "seeds": "{seed}"}
        | {name: f"{{{name}:.0%}} ({{{name}_se:.0%}})" for name in ("clean", "again", "strangers", "stuck")},
        "temperature == .5 and remasking == 'entropy' and block_length == 32 and seed in ['0 and 1000', '0', '2000']",
    ),
    "arena": Table(
        "arena",
        {"lane": "{contestant}", "rows": "{rows:.2f}", "speed": "{speed:.2f}x", "commit error": "{error:.4f}"}
        | {"regret": "{regret:.4f}"}
        | {"without a fault": "{clean:.0%} ({clean_se:.0%})", "change": "{clean_change:+.2f} ({clean_change_se:.2f})"},
    ),
    "readme": Table(
        "arena",
        {"decoder": "{contestant}", "rows computed": "{rows:.0%}", "commit error": "{error:.4f}"},
        "contestant in ['Every position', 'SureLock', 'Lock by age', 'Fixed budget', 'Dual cache']",
    ),
    "parallel": parallel,
    "arena-judge": Table(f"arena/{JUDGE}", {"lane": "{contestant}"} | BY_JUDGE),
    "frontier": at_shares(*BOTH),
    "frontier-away": at_shares("greedy", "temperature 1", "256 tokens"),
    "frontier-beaten": beaten,
    "frontier-agreement": agreement,
    "believed": believed,
    "near": Table("near", {"rule": "{rule}"} | COST | DRAWN, "target == '' and setting == 'page'"),
    "near-equal": Table(
        "near",
        {"rows": "{target:.2f}", "rule": "{rule}", "commit error": plain("error", 4), "regret": plain("regret", 4)}
        | {"error beside all alike": plain("over_alike"), "less than all alike": "{beats_alike}"}
        | {"less than the paper's, later blocks rest": "{beats_resting}"},
        "target != ''",
    ),
    "near-paired": paired,
    "near-texts": Table(
        f"near/{JUDGE}",
        {"rule": "{rule}", "rows": "{rows:.2f}", "commit error": "{error:.4f}", "own bound": change("own_change")}
        | {"judge": change("bits_change"), "judge, where repeats stay": change("bits_change_even")}
        | {"without a fault": "{clean:.0%} ({clean_se:.0%})", "change": change("clean_change", 2)},
        "setting == 'page'",
        largest="error",
    ),
    "near-away": Table(
        "near",
        {"setting": "{setting}", "rule": "{rule}"} | COST | DRAWN,
        "target == '' and setting != 'page' and rule != 'every position'",
    ),
    "weightings": weightings,
    "pace": Table(
        "pace",
        {"tokens": "{gen_length}", "rule": "{rule}", "rows": "{rows:.2f}"}
        | {"seconds": "{seconds:.2f} ({seconds_25:.2f} to {seconds_75:.2f})"}
        | {"of every position's": "{time_ratio:.2f}"},
    ),
    "reach": Table(
        "reach",
        {"distance": "{distance}", "a written token moves": plain("moved", 4), "one over it": "{moved_assumed:.4f}"}
        | {"a late row misleads": "{misled:.1e} ({misled_se:.0e})", "weight squared": "{misled_assumed:.1e}"},
    ),
    "drift": Table(
        "drift",
        {"rule": "{rule}", "rows": "{rows:.2f}", "drift": plain("drift", 3), "median KL at the lock": "{kl:.0e}"}
        | {"confidence at the lock": "{confidence:.2f}", "drift with confidence": "{drift_confidence:.2f}"},
    ),
    "unlock": Table("unlock", {"ε": "{epsilon}", "probes every": "{unlock_period:.0f}"} | OWN),
    "speeds": speeds,
    "speed-parts": speed_parts,
    "laptop": laptop,
    "browser": browser,
    "browser-page": browser_page,
    "browser-engines": browser_engines,
}


def filled(text: str) -> str:
    """A document with its tables made anew. Raises ValueError for the name of no table."""

    def place(found: re.Match[str]) -> str:
        if found[2] not in TABLES:
            raise ValueError(f"there is no table {found[2]!r}: there are {', '.join(TABLES)}")
        return f"{found[1]}\n{TABLES[found[2]]()}\n\n{found[3]}"

    return PLACE.sub(place, text)


def main(files: Sequence[str]) -> None:
    """Write the tables of these files; ends the process with a sentence when one cannot be."""
    if not files:
        sys.exit("tables: name the documents to write, such as docs/results.md")
    try:
        for file in map(Path, files):
            file.write_text(filled(file.read_text("utf-8")), "utf-8")
    except (ValueError, OSError) as error:
        sys.exit(f"tables: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
