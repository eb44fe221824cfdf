"""Compares locked runs with the baseline on the same prompts, with the same sampler and seeds: costs and texts."""

import json
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from surelock.decoding.ends import cut_at_end
from surelock.model.bound import conditional_bound
from surelock.research import estimates, judged
from surelock.research.experiment import Experiment, row
from surelock.research.lab import Lab, decode_cell
from surelock.research.prompts import Prompt
from surelock.research.runner import Cell, Record

NOTE = """\
bits, bits_base: upper bound on the bits per character of the generated text given its prompt, by the model itself;
bits_change: of the same prompts, paired. equal: tokens equal to the baseline's up to the later first EOS. repeats:
4-grams that occurred before. Each `_se` is a standard error over prompts. None of them shows that a text is good: the
model's own bound favours what it is prone to write, repetition included; unequal tokens may be as good or better."""
JUDGE_NOTE = f"{judged.NOTE}\nA row without epsilon is of all its values together."
_RULE = ("epsilon", "percentile", "visible_steps", "unlock_period")


def comparison(settings: Sequence[str], **more: Any) -> Experiment:
    """Return an experiment that compares locked cells with baselines; its grid must contain both.

    settings: the settings that vary, the first columns of the table.
    more: further fields of the Experiment.
    """
    return Experiment(
        measure=measure,
        table=partial(table, settings=settings),
        texts=judged.texts_of_tokens,
        judge_table=partial(judge_table, settings=settings),
        judge_note=JUDGE_NOTE,
        **more,
    )


def measure(lab: Lab, cell: Cell) -> Record:
    """Return the figures of a decoded cell and of its texts, with the tokens, so that tables can compare cells."""
    decoded = decode_cell(lab, cell)
    return {
        **decoded.figures,
        **text_figures(lab, lab.prompts(cell), decoded.tokens),
        "tokens": decoded.tokens,
    }


def text_figures(
    lab: Lab, prompts: Sequence[Prompt], tokens: Sequence[list[int]]
) -> dict[str, list[Any]]:
    """Return figures of the prompts' continuations, up to their first EOS: lists with one value per prompt.

    ends: the number of tokens before the first EOS.
    nats: the model's bound on the continuation, EOS included.
    characters: the number of characters.
    repeats: the share of 4-grams that occurred before, None if there are no 4-grams.

    tokens: the generated token ids by prompt.
    """
    kept = [cut_at_end(ids, lab.lm.ends) for ids in tokens]
    numbered = enumerate(zip(prompts, tokens, kept, strict=True))
    return {
        "ends": [len(ids) for ids in kept],
        "nats": [
            _bound(lab, prompt.ids, ids[: len(part) + 1], number)
            for number, (prompt, ids, part) in numbered
        ],
        "characters": [len(lab.lm.decode(ids)) for ids in kept],
        "repeats": [judged.repeated(ids) for ids in kept],
    }


def _bound(lab: Lab, prompt: list[int], ids: list[int], number: int) -> float:
    """Return the model's bound on a continuation in nats.

    number: the number of the prompt, which alone decides the masks. So equal texts have equal bounds, and differences
        between decoders are not noise of the masks.
    """
    rng = np.random.default_rng([0, number])
    tokens = np.array([*prompt, *ids], dtype=np.int64)
    draws = conditional_bound(
        lab.lm.network, tokens, len(prompt), draws=16, rng=rng, mask_id=lab.lm.mask_id
    )
    return float(draws.mean())


def table(records: Sequence[Record], settings: Sequence[str]) -> pd.DataFrame:
    """Return a table row per locked cell: its settings, its costs, and its texts compared with the baseline's."""
    baselines = {
        sampler_of(r["cell"]): r["result"] for r in records if r["cell"]["epsilon"] is None
    }
    costs = ("active_ratio", "active_ratio_to_eos", "flops_ratio")
    locked = [r for r in records if r["cell"]["epsilon"] is not None]
    return pd.DataFrame(
        [
            row(r, settings, costs) | _beside(r["result"], baselines[sampler_of(r["cell"])])
            for r in locked
        ]
    )


def judge_table(
    records: Sequence[Record], scores: Sequence[dict[str, judged.Scores]], settings: Sequence[str]
) -> pd.DataFrame:
    """Return a table of a judge's scores: a row per locked cell, compared with its baseline.

    After them, a row per group of cells that differ in epsilon alone has the scores of the whole group.

    scores: by record and decoder, the judge's scores; {} for a record without scores.
    """
    judged_cells = [
        (record["cell"], result[""])
        for record, result in zip(records, scores, strict=True)
        if result
    ]
    baselines = {
        sampler_of(cell): result for cell, result in judged_cells if cell["epsilon"] is None
    }
    alone = []
    together = {}
    for cell, result in judged_cells:
        if cell["epsilon"] is not None and (base := baselines.get(sampler_of(cell))):
            shown = {name: cell[name] for name in settings}
            alone.append(shown | judged.beside([result], base))
            rule = json.dumps(cell | {"epsilon": None}, sort_keys=True)
            together.setdefault(rule, (shown | {"epsilon": None}, base, []))[2].append(result)
    pooled = [
        shown | judged.beside(group, base)
        for shown, base, group in together.values()
        if len(group) > 1
    ]
    return pd.DataFrame(alone + pooled)


def sampler_of(cell: Cell) -> str:
    """Return the settings that a locked cell shares with its baseline, as JSON."""
    return json.dumps(
        {name: value for name, value in cell.items() if name not in _RULE}, sort_keys=True
    )


def _beside(result: Record, base: Record) -> dict[str, Any]:
    bits = bits_per_character(result)
    bits_base = bits_per_character(base)
    ends = map(max, result["ends"], base["ends"])
    same = [_equal(*texts) for texts in zip(result["tokens"], base["tokens"], ends, strict=True)]
    figures = {
        "bits_base": bits_base,
        "bits": bits,
        "bits_change": estimates.difference(bits, bits_base),
        "equal": estimates.mean(same),
        "repeats_base": estimates.mean(base["repeats"]),
        "repeats": estimates.mean(result["repeats"]),
    }
    return {"prompts": len(result["tokens"]), **estimates.named(figures)}


def _equal(ids: Sequence[int], baseline: Sequence[int], end: int) -> float:
    """Return the share of equal tokens of two texts up to position `end`, the later of their first EOS.

    Positions after both EOS are left out, since they would always be equal.
    """
    return float(np.mean(np.asarray(ids[: end + 1]) == np.asarray(baseline[: end + 1])))


def bits_per_character(result: Record) -> estimates.Estimate:
    """Return the bits per character of all texts together: the sum of bits divided by the sum of characters.

    result: an object with lists `nats` and `characters`, one value per text.
    """
    return estimates.ratio([nats / math.log(2) for nats in result["nats"]], result["characters"])
