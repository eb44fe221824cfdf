"""Ours: what skipping rows costs, rule by rule, at the same share of rows."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, product
from typing import Any

import numpy as np
import pandas as pd
import plotly.express as px
from plotly.graph_objects import Figure

from surelock.decoding.choices import Decoder, from_flat
from surelock.decoding.compute import BlockCache, ComputeRule, DelayedCache
from surelock.decoding.loop import decode
from surelock.quality.commit_error import Shadow
from surelock.research import estimates, judged
from surelock.research.compare import bits_per_character
from surelock.research.experiment import Experiment, Texts
from surelock.research.lab import Lab
from surelock.research.published import read_rule
from surelock.research.runner import RECOMMENDED, Cell, Record, in_batches
from surelock.research.texts import text_figures

TARGETS = (0.52, 0.56, 0.60, 0.65)
PAPER, AGE, _CHANCE, EVERY = "the paper's rule", "by age", "by chance", "every position"
TODAY, DUAL = "budget, near and steep", "dual cache"
_OTHERS = {"paper": PAPER, "age": AGE, "chance": _CHANCE}  # what every rule is compared with
_BATCH = 8
_DAMAGE = ("error", "regret", "drawn")
LEAST_OPENINGS = 30  # for a verdict: with fewer the tails that it depends on are not known


def _lock(**settings: Any) -> list[Record]:
    """One rule for each value of the setting that is a list."""
    (name, values), *_ = [item for item in settings.items() if isinstance(item[1], list)]
    return [{"kind": "lock", **settings, name: value} for value in values]


#: Rule -> its thresholds, from dear to cheap.
RULES: dict[str, list[Record]] = {
    EVERY: [{"kind": "everything"}],
    PAPER: _lock(epsilon=[5e-6, 5e-5, 5e-4, 5e-3, 5e-2], percentile=20.0, visible_steps=0),
    "wait until seen": _lock(epsilon=[5e-6, 5e-5, 5e-4, 5e-3, 5e-2], percentile=20.0, visible_steps=1),
    "no gate": _lock(epsilon=[1e-6, 5e-6, 2e-5, 5e-5, 2e-4], percentile=None, visible_steps=1),
    "no gate, smoothed": _lock(epsilon=[5e-4, 2e-3, 5e-3, 2e-2, 1e-1], percentile=None, visible_steps=1),
    AGE: [{"kind": "age", "steps": steps} for steps in (32, 24, 16, 12, 8)],
    _CHANCE: [{"kind": "chance", "probability": p} for p in (0.02, 0.05, 0.1, 0.15)],
    "fixed budget": [{"kind": "budget", "share": share} for share in (0.65, 0.6, 0.55, 0.5, 0.4, 0.3)],
    DUAL: [{"kind": "block_cache", "dual": True}],
    "delayed cache": [{"kind": "delayed_cache"}],
}
#: What is compared away from the page's settings: rule -> its thresholds.
FEW: dict[str, list[Record]] = {
    EVERY: RULES[EVERY],
    PAPER: RULES[PAPER],
    AGE: [{"kind": "age", "steps": steps} for steps in (24, 16, 12, 8)],
    "fixed budget": [{"kind": "budget", "share": share} for share in (0.6, 0.5)],
}

#: What leaves out masks, beside what may not: rule -> its thresholds.
RESTING, ALIKE = "the paper's rule, later blocks rest", "budget, all alike"
OLD, MASKS = "by age, later blocks rest", "budget, every mask"
_SHARES = (0.4, 0.3, 0.2, 0.15, 0.1)
NEAR_TARGETS = (0.16, 0.21, 0.28, 0.4)
NEAR: dict[str, list[Record]] = {
    EVERY: RULES[EVERY],
    TODAY: [{"kind": "budget", "share": share, "near": 4.0} for share in _SHARES[:4]],
    "budget, near": [{"kind": "budget", "share": share, "near": 4.0} for share in _SHARES],
    ALIKE: [{"kind": "budget", "share": share} for share in _SHARES],
    DUAL: RULES[DUAL],
    RESTING: _lock(epsilon=[5e-6, 5e-5, 5e-4, 5e-3], percentile=20.0, visible_steps=0, future=True),
    PAPER: _lock(epsilon=[5e-5], percentile=20.0, visible_steps=0),
    AGE: [{"kind": "age", "steps": 12}],
    "ES-dLLM's choice": [{"kind": "es_dllm", "fraction": share} for share in (0.85, 0.5)],
    "d²Cache's choice": [{"kind": "d2_cache", "masks": masks} for masks in (48, 20)],
}

#: The same with the other freedom, on fewer openings: by age may leave out masks, the budget may not.
CONTROLS = {OLD: [{"kind": "resting_age", "steps": 24}], MASKS: [{"kind": "written_budget", "share": 0.1}]}
#: Of the former what is measured on more openings, and what in other settings.
_MORE = {TODAY: NEAR[TODAY][1:3]}
_BESIDE = {DUAL: NEAR[DUAL], RESTING: NEAR[RESTING][1:2]}
_FURTHER = {TODAY: NEAR[TODAY][2:3], **_BESIDE, AGE: NEAR[AGE]}
#: What a judge reads of `near`.
_READ = [
    *(NEAR[EVERY] + NEAR[TODAY][1:3] + NEAR[ALIKE][1:2] + NEAR[DUAL] + NEAR[RESTING][1:2] + NEAR[PAPER] + NEAR[AGE]),
    NEAR["ES-dLLM's choice"][1],
]

#: MT-Bench's prompts are long: what locks by age has spent most of its rows on them.
_LONG = RULES | {AGE: [{"kind": "age", "steps": steps} for steps in (128, 96, 64, 48, 32, 24, 16, 12, 8)]}

_FLAT = {"remasking": "unmask"}  # the flat form's names, where they are others
_PAGE = {"gen_length": 128} | {_FLAT.get(name, name): value for name, value in RECOMMENDED.items()}
#: The page's settings, and what else a decoder is asked for.
SETTINGS: dict[str, dict[str, Any]] = {
    "page": _PAGE,
    "whole canvas": {name: value for name, value in _PAGE.items() if name != "block_length"},
    "greedy": {"gen_length": 128, "unmask": "low_confidence", "block_length": 32},
    "temperature 1": _PAGE | {"temperature": 1.0},
    "256 tokens": _PAGE | {"gen_length": 256},
    "512 tokens": _PAGE | {"gen_length": 512},
    "temperature 0": _PAGE | {"temperature": 0.0},
    "blocks of 16": _PAGE | {"block_length": 16},
    "blocks of 64": _PAGE | {"block_length": 64},
}


def _cells(
    settings: Sequence[str],
    choosing: tuple[int, int],
    reporting: tuple[int, int],
    each: int,
    rules: dict[str, list[Record]] = RULES,
) -> list[Cell]:
    """(first opening, how many) of the two halves; a cell for each few openings, all rules on the same few in turn."""
    cells = []
    for half, (skip, count) in (("choose", choosing), ("report", reporting)):
        for start, setting in product(range(skip, skip + count, each), settings):
            for rule, thresholds in rules.items():
                if half == "choose" and len(thresholds) == 1:
                    continue
                cell = {"source": "openings", "prompts": min(each, skip + count - start), "skip": start, "seed": 0}
                cell |= {"half": half, "setting": setting, "sampler": SETTINGS[setting], "rule": rule}
                cells += [cell | {"compute": compute} for compute in thresholds]
    return cells


_GRIDS: dict[str, list[Cell]] = {
    "stories": [
        *_cells(["page"], (0, 48), (48, 48), 16),
        *_cells(["whole canvas"], (0, 48), (48, 48), 16),
        *_cells(["greedy", "temperature 1", "256 tokens"], (0, 48), (48, 48), 8, FEW),
    ],
    "paper": [
        cell | {"source": "mt_bench", "sampler": {"gen_length": 256, "block_length": 32}}
        for start in range(0, 80, 10)  # the file goes by category, ten each: both halves have of all
        for cell in _cells(["256 tokens"], (start, 5), (start + 5, 5), 5, _LONG)
    ],
    "quick": [
        cell | {"sampler": {"gen_length": 12}}
        for cell in _cells(["page"], (2, 2), (0, 2), 2, {rule: thresholds[-2:] for rule, thresholds in FEW.items()})
    ],
}


_NEAR_GRIDS: dict[str, list[Cell]] = {
    "stories": [
        *_cells(["page"], (0, 32), (32, 64), 8, NEAR),
        *_cells(["page"], (0, 0), (32, 64), 8, CONTROLS),
        *_cells(["whole canvas"], (0, 0), (48, 32), 4, {EVERY: NEAR[EVERY]} | _MORE | _BESIDE),
        *_cells(["256 tokens"], (0, 0), (48, 32), 4, _MORE | _BESIDE),
        *_cells(["temperature 1", "temperature 0", "blocks of 16", "blocks of 64"], (0, 0), (48, 32), 8, _FURTHER),
        *_cells(["512 tokens"], (0, 0), (48, 8), 4, _FURTHER),
    ],
    "paper": [
        cell | {"source": "mt_bench", "sampler": {"gen_length": 256, "block_length": 32}}
        for start in range(0, 80, 10)
        for cell in _cells(["256 tokens"], (start, 5), (start + 5, 5), 5, NEAR | CONTROLS)
    ],
    "quick": [
        cell | {"sampler": {"gen_length": 12}}
        for cell in _cells(["page"], (2, 2), (0, 2), 2, {rule: each[:2] for rule, each in (NEAR | CONTROLS).items()})
    ],
}


def _measure(lab: Lab, cell: Cell) -> Record:
    """Of each opening: rows and positions; in the half that is reported also commit errors and the text's figures."""
    prompts, found = lab.prompts(cell), defaultdict(list)
    for start, batch in in_batches(prompts, _BATCH):
        seeds = [cell["seed"] + cell["skip"] + start + number for number in range(len(batch))]
        decoder = frontier_decoder(cell["sampler"], read_rule(cell["compute"]), seeds)
        ids = [prompt.ids for prompt in batch]
        for name, values in _run(lab, ids, decoder, cell["half"] == "report").items():
            found[name] += values
    if cell["half"] == "report":
        found |= text_figures(lab, prompts, found["tokens"])
    return dict(found)


def frontier_decoder(sampler: Record, compute: ComputeRule, seeds: list[int]) -> Decoder:
    """The decoder of a batch: sampler is of the flat form."""
    decoder = from_flat(sampler | {"compute": "everything"})
    return replace(decoder, compute=compute, settings=replace(decoder.settings, seed=seeds))


def looked_at(step: int, compute: ComputeRule) -> bool:
    """Whether the shadow looks at a step: at every other one, which halves its cost, except that caches begin blocks
    and renew all rows in even steps.
    """
    return step % 2 == 0 or isinstance(compute, BlockCache | DelayedCache)


def _run(lab: Lab, ids: list[list[int]], decoder: Decoder, report: bool) -> dict[str, list[Any]]:
    shadow, rows, step = Shadow(lab.lm, decoder.settings), np.zeros(len(ids), dtype=int), None
    for step in decode(lab.lm, ids, **decoder.keywords(), keep_logits=report):
        rows += step.computed.sum(axis=1) + step.probed.sum(axis=1)
        if report and looked_at(step.index, decoder.compute):
            shadow.add(step)
    assert step is not None
    length = decoder.settings.gen_length
    told = {"rows": rows.tolist(), "positions": [(len(own) + length) * (step.index + 1) for own in ids]}
    if not report:
        return told
    errors = shadow.result()
    for name in ("commits", "error", "large", "changed", "regret", "drawn"):
        told[name] = []
    for b in range(len(ids)):
        own = errors.of(b)
        told["commits"].append(len(own.error))
        told["error"].append(float(own.error.mean()))
        told["large"].append(int((own.error > 0.1).sum()))
        told["changed"].append(int(own.changed.sum()))
        told["regret"].append(float(own.regret.mean()))
        told["drawn"].append(float(own.drawn.mean()) if decoder.settings.temperature else None)
    return told | {"tokens": step.tokens[:, -length:].tolist()}


# --- the table --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a table sets beside each other. targets: shares of the rows. others: short names of the rules that all
    rules are compared with there.
    """

    rules: dict[str, list[Record]]
    targets: tuple[float, ...]
    others: dict[str, str]

    @property
    def columns(self) -> dict[str, None]:
        """Those that only the rows of a target have."""
        first, *_ = self.others
        minus = (f"minus_{name}{end}" for name in self.others for end in ("", "_se", "_openings"))
        return dict.fromkeys(("target", f"over_{first}", f"over_{first}_se", *minus))


def _table(comparison: Comparison, records: list[Record]) -> pd.DataFrame:
    rows, others = [], comparison.others
    for setting, own in _openings(records).groupby("setting", sort=False):
        rows += [{"setting": setting, **row} for row in _setting(own, comparison)]
    frame = pd.DataFrame(rows, columns=list(dict.fromkeys(name for row in rows for name in row) | comparison.columns))
    tried = int(frame[[f"minus_{other}" for other in others]].notna().sum().sum())
    if len(set(frame["openings"])) == 1:
        del frame["openings"]
    for other in others:
        difference, error, openings = (frame.pop(f"minus_{other}{end}") for end in ("", "_se", "_openings"))
        freedom = openings.fillna(0).clip(lower=LEAST_OPENINGS) - 1
        error *= [estimates.student_t(1 - 0.05 / max(1, tried) / 2, each) for each in freedom]
        told = np.where(difference + error < 0, "yes", np.where(difference - error > 0, "worse", "no"))
        frame[f"beats_{other}"] = np.where(difference.notna() & (openings >= LEAST_OPENINGS), told, "")
    return frame


def _openings(records: Sequence[Record]) -> Any:
    """A frame with a row for each opening of each cell: what the cell is of, and what was measured."""
    parts = []
    for record in records:
        cell, told = record["cell"], {name: own for name, own in record["result"].items() if name != "tokens"}
        part = pd.DataFrame(told, dtype=float).assign(threshold=threshold_of(cell["compute"]))
        part["opening"] = part.index + cell.get("skip", 0)
        parts.append(part.assign(**{name: cell[name] for name in ("setting", "rule", "half")}))
    return pd.concat(parts, ignore_index=True)


def threshold_of(compute: Record) -> str:
    return "; ".join(f"{name} {value}" for name, value in compute.items() if name != "kind")


def _setting(own: Any, comparison: Comparison) -> Iterator[Record]:
    """Every threshold as it is, then every rule at every target."""
    rules = {rule: own[own["rule"] == rule] for rule in comparison.rules}
    every = _reported(rules[EVERY])
    for rule, both in rules.items():
        for threshold, reported in _reported(both).groupby("threshold", sort=False):
            yield {"rule": rule, "threshold": threshold, **_figures(reported, every)}
    for target in comparison.targets:
        points = {rule: _mixed(both, target) for rule, both in rules.items() if rule != EVERY}
        reached = {rule: point for rule, point in points.items() if point is not None}
        yield from _beside(reached, target, comparison.others)


def _reported(own: Any) -> Any:
    return own[own["half"] == "report"]


def _figures(own: Any, every: Any) -> Record:
    """every: of the unlocked runs; the bits change on the openings that have both."""
    commits = own["commits"].sum()
    told = {"openings": len(own), **_damage(own)}
    told |= {name: own[name].sum() / commits for name in ("large", "changed")} | {"bits": bits_per_character(own).value}
    if len(every):
        shared = own.set_index("opening").align(every.set_index("opening"), join="inner", axis=0)
        bits = [bits_per_character(each) for each in shared]
        told |= estimates.named({"bits_change": estimates.difference(*bits)})
    return told | {"repeats": estimates.mean(own["repeats"]).value}


def _damage(own: Any) -> Record:
    """The share of the rows, and by opening the error, and the regret where all openings have one."""
    told = {name: estimates.mean(own[name]) for name in _DAMAGE if name in own and own[name].notna().all()}
    rows = {"rows": estimates.ratio(own["rows"], own["positions"]).value}
    return rows | estimates.named(told) | {"median": float(own["error"].median())}


def _mixed(own: Any, target: float) -> Any:
    """The mixture of two neighbouring thresholds that has this share of rows in the choosing half; None outside it."""
    sums = own[own["half"] == "choose"].groupby("threshold", sort=False)[["rows", "positions"]].sum()
    shares = (sums["rows"] / sums["positions"]).sort_values(kind="stable")
    for (low, least), (high, most) in pairwise(shares.items()):
        if least <= target <= most:
            weight = (target - least) / (most - least or 1)
            measured = _reported(own).set_index("opening")
            ends = (measured[measured["threshold"] == each] for each in (low, high))
            cheap, dear = (end.reindex(columns=["rows", "positions", *_DAMAGE]) for end in ends)
            cheap, dear = cheap.align(dear, join="inner", axis=0)
            return (1 - weight) * cheap + weight * dear
    return None


def _beside(points: dict[str, Any], target: float, others: dict[str, str]) -> Iterator[Record]:
    first, *_ = others
    for rule, point in points.items():
        row: Record = {"rule": rule, "target": target, "openings": len(point), **_damage(point)}
        for short, name in others.items():
            if name not in points or name == rule:
                continue
            own, other = point["error"].align(points[name]["error"], join="inner")
            difference = estimates.difference(estimates.mean(own), estimates.mean(other))
            row |= {f"minus_{short}": difference.value, f"minus_{short}_se": difference.error}
            row |= {f"minus_{short}_openings": len(own)}
            if short == first:
                ratio = estimates.ratio(own, other)
                row |= {f"over_{first}": ratio.value, f"over_{first}_se": ratio.error}
        yield row


def _texts(lab: Lab, record: Record) -> Texts:
    return judged.texts_of_tokens(lab, record) if record["cell"]["half"] == "report" else {}


def _near_texts(lab: Lab, record: Record) -> Texts:
    """Those of the page's settings, on the openings that every rule has: to read all of them takes a judge hours."""
    cell = record["cell"]
    asked = cell["compute"] in _READ and cell["setting"] == "page" and cell["skip"] >= 48
    return _texts(lab, record) if asked or cell["source"] != "openings" else {}


def _judge_table(rules: Iterable[str], records: list[Record], scores: list[dict[str, judged.Scores]]) -> pd.DataFrame:
    """What a judge makes of each rule's texts beside those of every position; commit error, the own bound's change and
    the share of texts without a fault stand beside it. A threshold of which it has read other openings than of those is
    left out.
    """
    read = [(record, own[""]) for record, own in zip(records, scores, strict=True) if own]
    rows = []
    for setting in dict.fromkeys(record["cell"]["setting"] for record, _ in read):
        every = _read_texts(read, setting, EVERY)
        if not every:
            continue
        ((openings, own_every, base),) = every.values()
        for rule in rules:
            for threshold, (its, own, found) in _read_texts(read, setting, rule).items():
                if its != openings:
                    continue
                figures = _figures(own, own_every)
                told = {"rows": figures["rows"], "error": figures["error"]}
                told |= {f"own_change{end}": figures[f"bits_change{end}"] for end in ("", "_se")}
                faultless, without = (estimates.mean(each.clean) for each in (found, base))
                change = estimates.difference(faultless, without)
                told |= estimates.named({"clean": faultless, "clean_change": change})
                rows.append(
                    {"setting": setting, "rule": rule, "threshold": threshold, **told, **judged.beside([found], base)}
                )
    return pd.DataFrame(rows)


def _read_texts(
    read: list[tuple[Record, judged.Scores]], setting: str, rule: str
) -> dict[str, tuple[list[int], Any, judged.Scores]]:
    """By threshold: the first openings of the cells that the judge has read, a rule's figures, and the judge's."""
    found: dict[str, list[tuple[Record, judged.Scores]]] = defaultdict(list)
    for record, scores in read:
        if (record["cell"]["setting"], record["cell"]["rule"]) == (setting, rule):
            found[threshold_of(record["cell"]["compute"])].append((record, scores))
    told = {}
    for threshold, pairs in found.items():
        records, scores = zip(*pairs, strict=True)
        openings = [record["cell"]["skip"] for record in records]
        told[threshold] = openings, _openings(records), judged.joined(scores)
    return told


def _picture(frame: pd.DataFrame, records: list[Record]) -> Figure:
    points = frame[frame["target"].isna() & (frame["error"] > 0)]
    return px.line(
        points,
        "rows",
        "error",
        error_y="error_se",
        color="rule",
        facet_col="setting",
        hover_data=["threshold", "median", "changed", "bits_change"],
        markers=True,
        log_y=True,
    )


_JUDGE_NOTE = f"""\
{judged.NOTE}
rows, error, own_change: share of rows, commit error and the change of the model's own bound, as above. clean: share of
the texts without a fault, as in `sampler`; clean_change: paired with the unlocked run's."""

FRONTIER = Experiment(
    title="The frontier: what skipping rows costs, rule by rule",
    note="""\
rows: share of the rows that a run computes (probes count). error: commit error, KL(shadow || run) in nats, of every
other step (of a cache's every step), the mean over openings with its standard error; median: over openings. large:
share of the commits above .1 nats; changed: whose most likely token is another one. At a target share of rows a rule is
a mixture of two of its thresholds, weighted so that the other half of the openings has that share: nothing that is
reported chose anything; a rule whose thresholds do not reach a share has no row there. over_paper: ratio to the paper's
rule on the same openings, with the errors' covariance; beats_paper, beats_age, beats_chance: by a paired difference at
the 95 % level (Student's t), corrected for all comparisons in the table (Bonferroni); empty below 30 openings. regret:
how much less the commits of those steps score than the best that could have been, by the policy's own score of the
posteriors with every row computed (entropy: nats); cells from before it was measured have none. bits: the model's own
bound per character; bits_change: paired with the unlocked run's.""",
    grids=_GRIDS,
    measure=_measure,
    table=partial(_table, Comparison(RULES, TARGETS, _OTHERS)),
    picture=_picture,
    texts=_texts,
    judge_table=partial(_judge_table, RULES),
    judge_note=_JUDGE_NOTE,
)

NEARNESS = Experiment(
    title="Near: small budgets, and what the freedom to leave out masks is worth",
    note="""\
Columns are those of `frontier`, on openings of which none chose anything; openings: how many, differences are over
those that both have. drawn: the commit error at the temperature that the tokens were drawn at, where all cells have it.
over_alike, beats_alike: beside the budget that counts a change alike wherever it is; beats_resting: beside the paper's
rule where the masks of later blocks rest. The paper's rule, the one by age and `budget, every mask` compute every
masked row in every step, the others leave masks out. ES-dLLM's and d²Cache's are choices of rows alone: without
ES-dLLM's early layers of every row of the block, and without the rows that d²Cache takes from attention rollout.""",
    grids=_NEAR_GRIDS,
    measure=_measure,
    table=partial(_table, Comparison(NEAR | CONTROLS, NEAR_TARGETS, {"alike": ALIKE, "resting": RESTING})),
    picture=_picture,
    texts=_near_texts,
    judge_table=partial(_judge_table, NEAR | CONTROLS),
    judge_note=_JUDGE_NOTE,
)
