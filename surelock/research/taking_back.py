"""The experiment on fewer steps, with and without taking tokens back. It is not an experiment of the paper."""

from collections.abc import Sequence
from itertools import product

import pandas as pd

from surelock.decoding.ends import text_of
from surelock.decoding.unmasking import Entropy, LowConfidence, Remask
from surelock.research import compare, estimates, judged
from surelock.research.estimates import Estimate
from surelock.research.experiment import Experiment
from surelock.research.faults import repeated
from surelock.research.lab import Lab
from surelock.research.runner import RECOMMENDED, Cell, Record, grid

_PLAIN = (LowConfidence.kind, Entropy.kind)


def _cells(steps: Sequence[int], prompts: int) -> list[Cell]:
    """Return cells with all numbers of steps without taking back, and with all but the first with taking back."""
    shared = {**RECOMMENDED, "gen_length": steps[0], "prompts": prompts, "skip": 32}
    plain = grid(**shared | {"steps": [*steps], "remasking": [*_PLAIN]})
    return plain + grid(**shared | {"steps": [*steps[1:]], "remasking": Remask.kind})


def _measure(lab: Lab, cell: Cell) -> Record:
    figures = compare.measure(lab, cell)
    return figures | {"faults": [repeated(text_of(lab.lm, ids)) for ids in figures["tokens"]]}


def _table(records: list[Record]) -> pd.DataFrame:
    results = [record["result"] for record in records]
    figures = []
    for result in results:
        # f_locked is the FLOPs per position of a run
        rows = [result["f_locked"] / results[0]["f_locked"]] * len(result["tokens"])
        means = {"rows": rows, "faults": result["faults"], "repeats": result["repeats"]}
        figures.append(
            {name: estimates.mean(values) for name, values in means.items()} | _bits(result)
        )
    return _compared(records, figures)


def _judge_table(records: list[Record], scores: list[dict[str, judged.Scores]]) -> pd.DataFrame:
    figures: list[dict[str, Estimate]] = []
    for by_decoder in scores:
        read = by_decoder.get("")
        if read is None:
            figures.append({})
            continue
        perplexity = judged.exp(estimates.ratio(read.nats, read.tokens))
        figures.append(_bits(read._asdict()) | {"gen_ppl": perplexity})
    return _compared(records, figures)


def _bits(result: Record) -> dict[str, Estimate]:
    return {"bits": compare.bits_per_character(result)}


def _compared(records: list[Record], figures: Sequence[dict[str, Estimate]]) -> pd.DataFrame:
    """Return a table row per decoder, and then rows with differences between decoders.

    A decoder that takes tokens back is compared with decoders of as many steps, and with decoders of twice as many
    steps, which compute as many rows.

    figures: the estimates by record, {} for a record without any.
    """
    cells = [record["cell"] for record in records]
    by = {
        (cell["steps"], cell["remasking"]): values
        for cell, values in zip(cells, figures, strict=True)
        if values
    }
    rows = [(*key, "", values) for key, values in by.items()]
    for (steps, policy), values in by.items():
        if policy != Remask.kind:
            continue
        for times, plain in product((1, 2), _PLAIN):
            base = (steps * times, plain)
            if other := by.get(base):
                differences = {
                    name: estimates.difference(values[name], other[name]) for name in values
                }
                rows.append((steps, policy, "{1} in {0}".format(*base), differences))
    names = ("steps", "policy", "less")
    keys = [
        dict(zip(names, row, strict=False)) | {"prompts": len(row[3]["bits"].residuals)}
        for row in rows
    ]
    return pd.DataFrame(
        [key | estimates.named(values) for key, (*_, values) in zip(keys, rows, strict=True)]
    )


TAKING_BACK = Experiment(
    title="Fewer steps, with tokens that are taken back and without",
    note="""\
At the recorded run's settings, every row computed. remask writes by low_confidence in as many steps, and has as many
again in which it takes back a token and writes one, so that it computes the rows of twice the steps. rows: share of
those of the first line. faults: a text's, as counted by `faults.repeated`. repeats: 4-grams that occurred before.
bits: per character, by the model's own bound. A line with `less` holds differences from that decoder on the same
openings. `_se`: standard error over openings.""",
    grids={"stories": _cells([128, 64, 32], 64), "quick": _cells([64, 32, 16], 2)},
    measure=_measure,
    table=_table,
    texts=judged.texts_of_tokens,
    judge_table=_judge_table,
    judge_note="bits: per character, by the judge; gen_ppl: its perplexity. With `less` differences, as above.",
)
