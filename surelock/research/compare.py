"""Locked runs beside the baseline with the same prompts, sampler and seeds: what was saved, and what it changed."""

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
    """An experiment whose grid holds baselines; its table begins with the settings that its cells vary."""
    return Experiment(
        measure=measure,
        table=partial(table, settings=settings),
        texts=judged.texts_of_tokens,
        judge_table=partial(judge_table, settings=settings),
        judge_note=JUDGE_NOTE,
        **more,
    )


def measure(lab: Lab, cell: Cell) -> Record:
    """Decode the cell and describe its texts; the tokens are kept, so that cells can be compared afterwards."""
    decoded = decode_cell(lab, cell)
    return {
        **decoded.figures,
        **text_figures(lab, lab.prompts(cell), decoded.tokens),
        "tokens": decoded.tokens,
    }


def text_figures(
    lab: Lab, prompts: Sequence[Prompt], tokens: Sequence[list[int]]
) -> dict[str, list[Any]]:
    """Figures of the prompts' continuations, up to its first EOS.

    ends: tokens before the first EOS; nats: the bound, EOS included; repeats: share of 4-grams that are not new.
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
    """The masks depend on the prompt's number alone: equal texts get equal values, so differences are not noise."""
    rng = np.random.default_rng([0, number])
    tokens = np.array([*prompt, *ids], dtype=np.int64)
    draws = conditional_bound(
        lab.lm.network, tokens, len(prompt), draws=16, rng=rng, mask_id=lab.lm.mask_id
    )
    return float(draws.mean())


def table(records: Sequence[Record], settings: Sequence[str]) -> pd.DataFrame:
    """One row per locked cell: its `settings`, what it cost, and its texts beside those of its baseline."""
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
    """What a judge makes of the locked cells, beside their baselines; then of all values of epsilon together."""
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
    """What a locked cell shares with its baseline."""
    return json.dumps(
        {name: value for name, value in cell.items() if name not in _RULE}, sort_keys=True
    )


def _beside(result: Record, base: Record) -> dict[str, Any]:
    bits, bits_base = (bits_per_character(r) for r in (result, base))
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
    """Share of equal tokens up to `end`, the later of the two first EOS: what follows would be equal for free."""
    return float(np.mean(np.asarray(ids[: end + 1]) == np.asarray(baseline[: end + 1])))


def bits_per_character(result: Record) -> estimates.Estimate:
    """The bound of all texts together, sum of bits over sum of characters."""
    return estimates.ratio([nats / math.log(2) for nats in result["nats"]], result["characters"])
