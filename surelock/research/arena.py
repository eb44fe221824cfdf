"""Ours: all decoders on the same openings, in turn: what they compute, how long they take, what they write."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch

from surelock.decoding.choices import Decoder, from_flat
from surelock.decoding.ends import text_of
from surelock.decoding.loop import decode
from surelock.decoding.presets import PRESETS, Preset
from surelock.decoding.totals import TotalsCounter
from surelock.model.machine import device_name
from surelock.quality.commit_error import Shadow
from surelock.research import estimates, judged
from surelock.research.experiment import Experiment, drawn
from surelock.research.frontier import SETTINGS, looked_at
from surelock.research.lab import Lab
from surelock.research.prompts import Prompt
from surelock.research.published import read_rule
from surelock.research.runner import Cell, Record, in_parts
from surelock.research.texts import clean, count_faults, shares

_EVERY = "Every position"
_FAST_DLLM = {"unmask": "threshold", "compute": "block_cache"}
#: Beside the presets: other settings of theirs, what their papers combine, and half the steps, the plainest saving.
_MORE = {
    "Half the steps": {"compute": "everything", "half": True},
    "SureLock, later blocks rest": {"compute": "lock", "future": True},
    "SureLock, ε 5e-3": {"compute": "lock", "epsilon": 5e-3},
    "SureLock, no gate": {"compute": "lock", "percentile": None},
    "Lock by age, 24": {"compute": "age", "age": 24},
    "Prefix cache": {"compute": "block_cache", "dual": False},
    "Prefix cache and parallel threshold": _FAST_DLLM | {"dual": False},
    "Dual cache and parallel threshold": _FAST_DLLM,
    "SureLock and KLASS": {"compute": "lock", "unmask": "klass"},
    "Bounded entropy": {"compute": "everything", "unmask": "entropy_bound"},
}
#: Choices of rows of other papers, as far as they are choices (`published`); all else is the first contestant's.
_CHOICES = {
    "ES-dLLM's choice": {"kind": "es_dllm", "fraction": 0.5},
    "d²Cache's choice": {"kind": "d2_cache", "masks": 20},
}
#: Policies that write many tokens at once, beside one token a step; what computes the rows of each.
_POLICIES: dict[str, dict[str, Any]] = {
    "": {},
    ", threshold .6": {"unmask": "threshold", "threshold": 0.6},
    ", entropy bound .3": {"unmask": "entropy_bound", "gamma": 0.3},
    ", entropy bound 1": {"unmask": "entropy_bound", "gamma": 1.0},
}
_WORK = {_EVERY: {"compute": "everything"}, "A fifth": {"compute": "budget", "budget": 0.2}}

PAGE = SETTINGS["page"]
_TIMES = ["seconds", "tokens_per_s", "speed", "speed_se"]


def contestants(shared: dict[str, Any], names: list[str] | None = None) -> dict[str, Any]:
    """The contestants by name, in plain form: all that a decoder depends on stands in the cell."""
    field = {}
    for preset in [*PRESETS.values(), *(Preset("", name, "", given) for name, given in _MORE.items())]:
        given = dict(preset.given)
        steps = shared["gen_length"] // 2 if given.pop("half", False) else shared["gen_length"]
        decoder = replace(preset, given=given).decoder(shared | {"steps": steps})
        field[_EVERY if preset.id == "everything" else preset.name] = decoder.to_plain()
    field |= {name: field[_EVERY] | {"compute": compute} for name, compute in _CHOICES.items()}
    return {name: plain for name, plain in field.items() if names is None or name in names}


def decoder_of(plain: Record) -> Decoder:
    """The decoder of a plain form; its rule may be one of the experiments'."""
    everything = Decoder.from_plain(plain | {"compute": {"kind": "everything"}})
    return replace(everything, compute=read_rule(plain["compute"]))


def _parallel(shared: dict[str, Any]) -> dict[str, Any]:
    """The contestants of `parallel`, in plain form; what every judge sees, half the steps, comes last."""
    given = {work + policy: own | rows for policy, own in _POLICIES.items() for work, rows in _WORK.items()}
    given["Half the steps"] = _WORK[_EVERY] | {"steps": shared["gen_length"] // 2}
    return {name: from_flat(shared | {"steps": shared["gen_length"]} | own).to_plain() for name, own in given.items()}


_LONG = {"gen_length": 256, "block_length": 32}
_FEW = contestants(PAGE | {"gen_length": 12, "block_length": 6}, [_EVERY, "SureLock", "KLASS"])
_GRIDS: dict[str, list[Cell]] = {
    "stories": in_parts(96, 8, contestants=contestants(PAGE)),
    "paper": in_parts(80, 4, contestants=contestants(_LONG), source="mt_bench"),
    "quick": in_parts(2, 1, contestants=_FEW),
}


def _measure(lab: Lab, cell: Cell) -> Record:
    """Each contestant's steps, rows, FLOPs, seconds, commit error, text and faults for each of the cell's openings, in
    order.
    """
    field = {name: decoder_of(plain) for name, plain in cell["contestants"].items()}
    prompts, names = lab.prompts(cell), list(field)
    for name in names:  # what a first call costs is not the contestant's
        next(decode(lab.lm, [prompts[0].ids], **field[name].keywords(), keep_logits=True))
    told: dict[str, list[Record]] = {name: [] for name in names}
    for number, prompt in enumerate(prompts, start=cell["skip"]):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            told[name].append(_run(lab, prompt, field[name], cell["seed"] + number))
    result: Record = {"threads": torch.get_num_threads(), "device": device_name(lab.lm.device)}
    for name in names:
        runs = {key: [run[key] for run in told[name]] for key in told[name][0]}
        runs["faults"] = count_faults(lab.lm, [prompt.text for prompt in prompts], runs["texts"])
        result[name] = runs
    return result


def _run(lab: Lab, prompt: Prompt, decoder: Decoder, seed: int) -> Record:
    lm, settings = lab.lm, replace(decoder.settings, seed=seed)
    counter, shadow = TotalsCounter(lm.config, settings.gen_length, lm.eos_id), Shadow(lm, settings)
    run, last = replace(decoder, settings=settings).keywords(), None
    for last in decode(lm, [prompt.ids], **run, keep_logits=True):
        counter.add(last)
        if looked_at(last.index, decoder.compute):
            shadow.add(last)
    assert last is not None
    totals = counter.totals()
    generated, errors = last.tokens[0, -settings.gen_length :].tolist(), shadow.result()
    return {
        "steps": totals.steps,
        "rows": int(counter.rows().computed.sum()),
        "flops": totals.flops,
        "seconds": totals.seconds,
        "error": float(errors.error.mean()),
        "regret": float(errors.regret.mean()),
        "tokens": totals.tokens,
        "texts": text_of(lm, generated),
    }


def _table(records: list[Record]) -> pd.DataFrame:
    runs = {name: _joined(records, name) for name in records[0]["cell"]["contestants"]}
    every = runs[_EVERY]
    rows = []
    for name, own in runs.items():
        speed = estimates.ratio(every["seconds"], own["seconds"])
        row: Record = {
            "contestant": name,
            "steps": float(np.mean(own["steps"])),
            "rows": sum(own["rows"]) / sum(every["rows"]),
            "flops": sum(own["flops"]) / sum(every["flops"]),
            "seconds": float(np.mean(own["seconds"])),
            "tokens_per_s": sum(own["tokens"]) / sum(own["seconds"]),
            **estimates.named({"speed": speed, "error": estimates.mean(own["error"])}),
            **estimates.named({"regret": estimates.mean(own["regret"])}),
            **shares(own["faults"]),
        }
        change = estimates.difference(*(estimates.mean(clean(each["faults"])) for each in (own, every)))
        rows.append(row | estimates.named({"clean_change": change}))
    return pd.DataFrame(rows)


def _judge_table(records: list[Record], scores: list[dict[str, judged.Scores]]) -> pd.DataFrame:
    """Of the contestants that all cells have scores of, beside the first."""
    read = [name for name in records[0]["cell"]["contestants"] if all(name in own for own in scores)]
    runs = {name: judged.joined([own[name] for own in scores]) for name in read}
    every = runs.get(_EVERY)
    return pd.DataFrame([{"contestant": name} | judged.beside([own], every) for name, own in runs.items()])


def _joined(records: list[Record], name: str) -> dict[str, list[Any]]:
    """A contestant's figures over the openings of all cells."""
    parts = [record["result"][name] for record in records]
    return {key: [value for part in parts for value in part[key]] for key in parts[0]}


_PICTURE = drawn("scatter", "flops", "clean", text="contestant", hover_data=["rows", "error"], log_x=True)

ARENA = Experiment(
    title="The arena: any decoders on the same openings",
    note="""\
rows, flops: share of what computing every position in every step costs, one token a step, by the paper's count (which
knows no rows that nobody reads). speed: ratio of the total times of the steps, its error over openings; contestants
take turns in going first, and make posteriors only of what they decide by, as `generate` does. error: commit error,
KL(shadow || run) in nats, of every other step (of a cache's every step), the mean over openings with its standard
error; it knows nothing of writing many tokens at once. regret: how much less the commits of those steps score than the
best that could have been, by the policy's own score of the posteriors with every row computed. clean, again, strangers,
stuck: shares of the continuations as in `sampler`, with their standard errors; clean_change: paired with the first
contestant's. The table compares every row with the first: with so many, one or two differences of two standard errors
are chance.""",
    grids=_GRIDS,
    measure=_measure,
    table=_table,
    picture=_PICTURE,
    texts=lambda lab, record: {name: record["result"][name]["texts"] for name in record["cell"]["contestants"]},
    judge_table=_judge_table,
    judge_note=f"{judged.NOTE}\nThe baseline is the first contestant.",
)

PARALLEL = Experiment(
    title="Parallel: a fifth of the rows, and many tokens at once",
    note="""\
Columns are those of `arena`, without times. Policies write all tokens that are surer than a threshold, or as many as
have so many nats of entropy together, the largest left out (entropy bound); one at least. Commit error and regret know
nothing of writing many tokens at once: faults and the judge do.""",
    grids={
        "stories": in_parts(16, 2, first=48, contestants=_parallel(PAGE)),
        "paper": in_parts(80, 4, contestants=_parallel(_LONG), source="mt_bench"),
        "quick": in_parts(2, 1, contestants=_parallel(PAGE | {"gen_length": 8, "block_length": 4})),
    },
    measure=_measure,
    table=lambda records: _table(records).drop(columns=_TIMES),
    picture=_PICTURE,
    texts=ARENA.texts,
    judge_table=_judge_table,
    judge_note=ARENA.judge_note,
)
