"""The experiment that compares decoders on the same openings: errors of leaving out rows, and rows and time saved.

It is not an experiment of the paper.
"""

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch

from surelock.bench.timing import load_of_cores
from surelock.decoding.compute import BlockCache, Changes, ComputeRule, DelayedCache
from surelock.decoding.decoder import Decoder, read_decoder
from surelock.decoding.locking import LockingRule
from surelock.decoding.loop import decode
from surelock.decoding.rules import COMPUTE
from surelock.model.machine import processor
from surelock.quality.commit_error import Shadow
from surelock.research import estimates, judged
from surelock.research.experiment import Experiment
from surelock.research.faults import repeated
from surelock.research.lab import Lab
from surelock.research.runner import RECOMMENDED, Cell, Record
from surelock.values import Flags, Json, frozen

EVERY = "every position"
SURELOCK = "SureLock"
_LOCK = {"kind": "lock", "epsilon": 5e-4, "percentile": 20.0}
#: The compute rules by name. The settings of the controls "by age" and "by chance" were chosen only so that they
#: compute about as many rows as SureLock.
RULES: dict[str, Record] = {
    EVERY: {"kind": "everything"},
    SURELOCK: _LOCK | {"visible_steps": 1},
    "Algorithm 1 to the letter": _LOCK | {"visible_steps": 0},
    "by age": {"kind": "age", "steps": 10},
    "by chance": {"kind": "chance", "probability": 0.092},
    "budget": {"kind": "budget", "share": 0.3},
    "dual cache": {"kind": "block_cache", "dual": True},
    "delayed cache": {"kind": "delayed_cache", "refresh": 8},
    "entropy cache": {"kind": "entropy_cache"},
    "early finish": {"kind": "everything", "unmask": "early_finish"},
    "local leap": {"kind": "everything", "unmask": "local_leap"},
    "correct": {"kind": "everything", "unmask": "correct"},
}
_LATER = ("local leap", "correct")  # timed in cells of their own, beside EVERY
# rules that compute every row, so that their commit error is 0
EXACT = {name for name, rule in RULES.items() if rule["kind"] == "everything"}

_RUN = {
    "gen_length": 128,
    **{{"remasking": "unmask"}.get(name, name): value for name, value in RECOMMENDED.items()},
}
#: The settings of the recorded run by their short names; and the same settings without blocks.
SETTINGS: dict[str, Record] = {
    "recorded run": _RUN,
    "whole canvas": {name: value for name, value in _RUN.items() if name != "block_length"},
}
#: The rules that take turns in a timed cell, by kind of timed cell.
_TURNS: list[dict[str, Record]] = [
    {name: rule for name, rule in RULES.items() if name not in _LATER},
    {name: RULES[name] for name in (EVERY, *_LATER)},
]
_WARM_UP = 3  # steps


@frozen
class LockByChance(LockingRule):
    """A control: in every step all candidates lock with the same probability.

    The random number depends on the step and on the slot in the batch.
    """

    kind: ClassVar[str] = "chance"

    probability: float = 0.1

    def after(self, state: Any, reading: Any) -> Changes:
        return Changes(locked=self.locked(state, reading, 1))

    def converged(self, state: Any, reading: Any, z: Any) -> Flags:
        drawn = [
            np.random.default_rng([state.step, slot]).random() for slot in reading.slots[z].tolist()
        ]
        return np.array(drawn) < self.probability


def _cells(
    openings: range,
    openings_a_cell: int,
    timed: int,
    settings: dict[str, Record] = SETTINGS,
    **more: Any,
) -> list[Cell]:
    """Return the cells: for every group of openings, setting and rule a cell with errors; then the timed cells.

    openings_a_cell: the openings of a cell. timed: the number of openings that are timed.
    """
    cells = []
    for start, (setting, sampler) in product(openings[::openings_a_cell], settings.items()):
        cell = {
            "source": "openings",
            "prompts": openings_a_cell,
            "skip": start,
            "seed": 0,
            "setting": setting,
        } | more
        cells += [
            cell | {"sampler": sampler, "rule": rule, "compute": compute}
            for rule, compute in RULES.items()
        ]
    for turns, start, (setting, sampler) in product(_TURNS, openings[:timed], settings.items()):
        cell = {
            "source": "openings",
            "prompts": 1,
            "skip": start,
            "seed": 0,
            "setting": setting,
        } | more
        cells.append(cell | {"sampler": sampler, "timed": turns})
    return cells


_LONG = {
    "blocks of 32": {"gen_length": 256, "block_length": 32},
    "whole canvas": {"gen_length": 256},
}


def _measure(lab: Lab, cell: Cell) -> Record:
    """Return the result of a cell: seconds of a timed cell, else figures by opening."""
    if "timed" in cell:
        return _timed(lab, cell)
    first = cell["seed"] + cell["skip"]
    ids = [prompt.ids for prompt in lab.prompts(cell)]
    seeds = range(first, first + len(ids))
    result = _run(lab, ids, _decoder(cell["sampler"], cell["compute"], seeds))
    texts = judged.texts_of_tokens(lab, {"cell": cell, "result": result})[""]
    return result | {"faults": [repeated(text) for text in texts]}


def _decoder(sampler: Record, compute: Record, seeds: Sequence[int]) -> Decoder:
    """Return the decoder of a cell.

    sampler: settings by their short names.
    compute: a value of RULES: a rule in nested form, of the package or LockByChance, and optionally `unmask`.
    """
    values = dict(compute)
    policy = {"unmask": values.pop("unmask")} if "unmask" in values else {}
    decoder = read_decoder(sampler | {"compute": "everything"} | policy)
    rule = (COMPUTE | {LockByChance.kind: LockByChance})[values.pop("kind")](**values)
    return replace(decoder, compute=rule, settings=replace(decoder.settings, seed=list(seeds)))


def looked_at(step: int, compute: ComputeRule) -> bool:
    """Return whether commit errors of a step are measured.

    They are measured in every other step. Caches renew all rows in even steps, so every step of a cache is measured.
    """
    return step % 2 == 0 or isinstance(compute, BlockCache | DelayedCache)


def _run(lab: Lab, ids: list[list[int]], decoder: Decoder) -> dict[str, list[Any]]:
    """Return the figures of a run, lists with one value per opening: rows, commit errors, regrets and tokens."""
    shadow = Shadow(lab.lm, decoder.settings)
    step = None
    rows, steps = np.zeros((2, len(ids)), dtype=int)
    for step in decode(lab.lm, ids, **decoder.keywords(), keep_logits=True):
        rows += step.computed.sum(axis=1) + step.probed.sum(axis=1)
        steps += step.baseline_flops > 0
        if looked_at(step.index, decoder.compute):
            shadow.add(step)
    assert step is not None
    length = decoder.settings.gen_length
    errors = shadow.result()
    figures = defaultdict(list)
    for b, prompt in enumerate(ids):
        commits = errors.of_sequence(b)
        figures["rows"].append(int(rows[b]))
        figures["positions"].append((len(prompt) + length) * int(steps[b]))
        figures["commits"].append(len(commits.error))
        figures["error"].append(float(commits.error.mean()))
        figures["large"].append(int((commits.error > 0.1).sum()))
        figures["changed"].append(int(commits.changed.sum()))
        figures["regret"].append(float(commits.regret.mean()))
    return figures | {"tokens": step.tokens[:, -length:].tolist()}


def _timed(lab: Lab, cell: Cell) -> Record:
    """Return the processor seconds of all rules for one opening. The opening decides which rule goes first."""
    (prompt,) = lab.prompts(cell)
    seed = cell["seed"] + cell["skip"]
    names = list(cell["timed"])
    first = seed % len(names)
    seconds = {}
    order = [*names[first:], *names[:first]]
    for turn, name in enumerate([order[-1], *order]):  # turn 0 is a short run that warms up
        decoder = _decoder(cell["sampler"], cell["timed"][name], [seed])
        begun = time.process_time()
        for step in decode(lab.lm, [prompt.ids], **decoder.keywords()):
            if not turn and step.index == _WARM_UP:
                break
        seconds[name] = time.process_time() - begun
    machine = {
        "threads": torch.get_num_threads(),
        "processor": processor(),
        "load": load_of_cores(),
    }
    return machine | {"seconds": seconds}


# --- the tables -------------------------------------------------------------------------------------------------------


def _table(records: list[Record]) -> pd.DataFrame:
    runs = _openings(records)
    times = _seconds(records)
    rows = []
    for setting in dict.fromkeys(runs["setting"]):
        of_setting = runs[runs["setting"] == setting]
        by_rule = {
            rule: of_setting[of_setting["rule"] == rule].sort_values("opening")
            for rule in dict.fromkeys(of_setting["rule"])
        }
        for rule, of_rule in by_rule.items():
            figures = {
                "setting": setting,
                "rule": rule,
                **_figures(of_rule, by_rule[EVERY]),
                **_beside(rule, by_rule),
            }
            rows.append(figures | times[setting, rule])
    frame: Any = pd.DataFrame(rows)
    tried = frame["minus_surelock"].count()
    corrected = [
        estimates.student_t(1 - 0.05 / tried / 2, max(count, 30) - 1) for count in frame["openings"]
    ]
    low, high = (
        frame["minus_surelock"] + sign * frame["minus_surelock_se"] * corrected for sign in (-1, 1)
    )
    frame["errs"] = np.where(
        high < 0, "less", np.where(low > 0, "more", np.where(low.notna(), "not shown", ""))
    )
    return frame


def _openings(records: Sequence[Record]) -> Any:
    """Return a frame with a row per opening and cell: setting, rule, and all figures except the tokens."""
    parts = []
    for record in records:
        cell = record["cell"]
        if "timed" not in cell:
            part = pd.DataFrame(
                {name: values for name, values in record["result"].items() if name != "tokens"}
            )
            part = part.astype(float).assign(opening=part.index + cell["skip"])
            parts.append(part.assign(setting=cell["setting"], rule=cell["rule"]))
    return pd.concat(parts, ignore_index=True)


def _figures(of_rule: Any, every: Any) -> Record:
    """Return the figures of a rule. of_rule: the rule's openings. every: the openings of the baseline EVERY."""
    every_row = every["positions"]
    figures: Record = {
        "openings": len(of_rule),
        "rows": estimates.ratio(of_rule["rows"], every_row).value,
    }
    figures |= {"steps": estimates.ratio(of_rule["positions"], every_row).value}
    figures |= estimates.named(
        {name: estimates.mean(of_rule[name]) for name in ("error", "regret")}
    )
    figures |= {"median": float(of_rule["error"].median())}
    figures |= {
        name: of_rule[name].sum() / of_rule["commits"].sum() for name in ("large", "changed")
    }
    more = of_rule["faults"].to_numpy() - every["faults"].to_numpy()
    return figures | estimates.named(
        {"faults": estimates.mean(of_rule["faults"]), "more_faults": estimates.mean(more)}
    )


def _beside(rule: str, by_rule: Json) -> Record:
    """Return the difference and the ratio of a rule's error and SureLock's error, on the same openings."""
    if rule in (SURELOCK, *EXACT):
        return {}
    errors, others = (by_rule[name]["error"].to_numpy() for name in (rule, SURELOCK))
    minus = estimates.difference(estimates.mean(errors), estimates.mean(others))
    return estimates.named(
        {"over_surelock": estimates.ratio(errors, others), "minus_surelock": minus}
    )


def _seconds(records: list[Record]) -> dict[tuple[str, str], Record]:
    """Return by setting and rule the median seconds, and their ratio to the seconds of the baseline EVERY.

    A rule is compared with EVERY in the cells in which the two took turns. If there are several kinds of such cells,
    the first kind counts.
    """
    by_turns: dict[tuple[str, tuple[str, ...]], list[dict[str, float]]] = defaultdict(list)
    for record in records:
        if "timed" in record["cell"]:
            turns = record["cell"]["setting"], tuple(record["cell"]["timed"])
            by_turns[turns].append(record["result"]["seconds"])
    figures: dict[tuple[str, str], Record] = {}
    for (setting, rules), timed in by_turns.items():
        for rule in rules:
            seconds_of_rule, every = (
                [seconds[name] for seconds in timed] for name in (rule, EVERY)
            )
            time_ratio = estimates.named({"time": estimates.ratio(seconds_of_rule, every)})
            timing = {
                "timed": len(seconds_of_rule),
                "seconds": float(np.median(seconds_of_rule)),
            } | time_ratio
            figures.setdefault((setting, rule), timing)
    return figures


def _judge_table(records: list[Record], scores: list[dict[str, judged.Scores]]) -> pd.DataFrame:
    """Return a table of a judge's scores of the rules' texts, compared with the baseline's texts.

    Only openings count of which the judge has read the texts of all rules.
    """
    read: dict[tuple[str, str], dict[int, judged.Scores]] = defaultdict(dict)
    for record, by_decoder in zip(records, scores, strict=True):
        if by_decoder:
            cell = record["cell"]
            read[cell["setting"], cell["rule"]][cell["skip"]] = by_decoder[""]
    rows = []
    for setting in dict.fromkeys(setting for setting, _ in read):
        rules = [rule for where, rule in read if where == setting]
        shared = sorted(set.intersection(*(set(read[setting, rule]) for rule in rules)))
        by_rule = {
            rule: judged.joined([read[setting, rule][skip] for skip in shared])
            for rule in rules
            if shared
        }
        rows += [
            {"setting": setting, "rule": rule, **judged.beside([of_rule], by_rule[EVERY])}
            for rule, of_rule in by_rule.items()
        ]
    return pd.DataFrame(rows)


FRONTIER = Experiment(
    title="The frontier: what leaving out rows costs and saves",
    note="""\
rows, steps: share of those of every position (probes count). error: commit error, KL(shadow || run) in nats, of every
other step (of a cache's every step), the mean over openings with its standard error; median: over openings. large:
share of the commits above .1 nats; changed: whose most likely token is another one. regret: how much less the commits
of those steps score than the best that could have been, by the policy's own score of the posteriors with every row
computed (entropy: nats). over_surelock, minus_surelock: ratio and difference of the errors on the same
openings. errs: less or more than SureLock at the 95 % level (Student's t), corrected for all rows that were compared
(Bonferroni). The controls, by age and by chance, were set to compute as many rows as SureLock. Caches and the budget
may leave out masked rows, the others may not. faults: a text's sentences that it had before, words twice in a row,
strings four times in a row, the mean over openings; more_faults: less those of every position, paired. seconds:
processor seconds of one text, the median over `timed` openings on which the rules took turns; time: their share of
those of every position. On one thread (`--threads 1`) they are the seconds of a quiet machine; other work lengthens
them, less than the time that passes.""",
    grids={
        "stories": _cells(range(32, 96), 8, 8),
        "paper": _cells(range(80), 4, 8, _LONG, source="mt_bench"),
        "quick": _cells(range(2), 2, 1, {"short": {"gen_length": 12}}),
    },
    measure=_measure,
    table=_table,
    texts=lambda lab, record: (
        {} if "timed" in record["cell"] else judged.texts_of_tokens(lab, record)
    ),
    judge_table=_judge_table,
    judge_note=judged.NOTE,
)
