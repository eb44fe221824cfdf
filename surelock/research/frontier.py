"""Ours: what leaving out rows costs and saves, decoder by decoder, on the same openings."""

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
#: The two controls compute about as many rows as SureLock. Nothing else chose their settings.
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
_LATER = ("local leap", "correct")  # measured after the others, and timed beside every position
# whose commit error is 0
EXACT = {name for name, rule in RULES.items() if rule["kind"] == "everything"}

_RUN = {
    "gen_length": 128,
    **{{"remasking": "unmask"}.get(name, name): value for name, value in RECOMMENDED.items()},
}
#: The recorded run's settings, in the flat form; and the same without blocks.
SETTINGS: dict[str, Record] = {
    "recorded run": _RUN,
    "whole canvas": {name: value for name, value in _RUN.items() if name != "block_length"},
}
#: The rules that take turns in one timed cell.
_TURNS: list[dict[str, Record]] = [
    {name: rule for name, rule in RULES.items() if name not in _LATER},
    {name: RULES[name] for name in (EVERY, *_LATER)},
]
_WARM_UP = 3  # steps


@frozen
class LockByChance(LockingRule):
    """A control: all candidates lock with the same probability in every step, drawn by step and slot of the batch."""

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
    """A cell for each rule and each few openings, by opening; then those that are timed."""
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
    if "timed" in cell:
        return _timed(lab, cell)
    first = cell["seed"] + cell["skip"]
    ids = [prompt.ids for prompt in lab.prompts(cell)]
    result = _run(
        lab, ids, _decoder(cell["sampler"], cell["compute"], range(first, first + len(ids)))
    )
    texts = judged.texts_of_tokens(lab, {"cell": cell, "result": result})[""]
    return result | {"faults": [repeated(text) for text in texts]}


def _decoder(sampler: Record, compute: Record, seeds: Sequence[int]) -> Decoder:
    """sampler: in the flat form. compute: a rule in the plain form, of the package or the control, or with `unmask`."""
    values = dict(compute)
    policy = {"unmask": values.pop("unmask")} if "unmask" in values else {}
    decoder = read_decoder(sampler | {"compute": "everything"} | policy)
    rule = (COMPUTE | {LockByChance.kind: LockByChance})[values.pop("kind")](**values)
    return replace(decoder, compute=rule, settings=replace(decoder.settings, seed=list(seeds)))


def looked_at(step: int, compute: ComputeRule) -> bool:
    """Whether the shadow looks at a step: at every other one, but of caches, which renew all rows in even steps."""
    return step % 2 == 0 or isinstance(compute, BlockCache | DelayedCache)


def _run(lab: Lab, ids: list[list[int]], decoder: Decoder) -> dict[str, list[Any]]:
    """By opening: rows and positions, commit errors and regrets, the tokens."""
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
        of = errors.of_sequence(b)
        figures["rows"].append(int(rows[b]))
        figures["positions"].append((len(prompt) + length) * int(steps[b]))
        figures["commits"].append(len(of.error))
        figures["error"].append(float(of.error.mean()))
        figures["large"].append(int((of.error > 0.1).sum()))
        figures["changed"].append(int(of.changed.sum()))
        figures["regret"].append(float(of.regret.mean()))
    return figures | {"tokens": step.tokens[:, -length:].tolist()}


def _timed(lab: Lab, cell: Cell) -> Record:
    """The rules' processor seconds for the opening; every opening begins with another rule."""
    (prompt,) = lab.prompts(cell)
    seed = cell["seed"] + cell["skip"]
    names = list(cell["timed"])
    first = seed % len(names)
    seconds = {}
    order = [*names[first:], *names[:first]]
    for turn, name in enumerate([order[-1], *order]):  # the first warms up
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
    """A frame with a row per opening and cell: setting and rule, and what was measured but the tokens."""
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
    """The error less SureLock's and its ratio to it, on the same openings."""
    if rule in (SURELOCK, *EXACT):
        return {}
    errors, others = (by_rule[name]["error"].to_numpy() for name in (rule, SURELOCK))
    minus = estimates.difference(estimates.mean(errors), estimates.mean(others))
    return estimates.named(
        {"over_surelock": estimates.ratio(errors, others), "minus_surelock": minus}
    )


def _seconds(records: list[Record]) -> dict[tuple[str, str], Record]:
    """By setting and rule: median seconds, and the share of those of every position with its error over openings.

    A rule is beside every position in the cells in which they took turns; of several kinds of these the first counts.
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
    """What a judge makes of the rules' texts beside the baseline's, on the openings that it has read of all rules."""
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
