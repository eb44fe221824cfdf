"""The experiment that chooses the sampler of a model among a few candidates, by faults, repeats and a judge.

It is not an experiment of the paper.
"""

import pandas as pd

from surelock.decoding.compute import BudgetRule
from surelock.decoding.ends import text_of
from surelock.decoding.unmasking import LowConfidence, Margin
from surelock.research import compare, estimates, judged
from surelock.research.experiment import Experiment
from surelock.research.faults import ordinary_words, repeated, strangers
from surelock.research.lab import Lab
from surelock.research.runner import RECOMMENDED, Cell, Record, grid

#: The changes of the candidates to the recommended settings.
CHANGES: list[Cell] = [
    {},
    {"temperature": 0.3},
    {"temperature": 0.7},
    {"temperature": 0.9},
    {"remasking": LowConfidence.kind},
    {"remasking": Margin.kind},
    {"block_length": 8},
    {"block_length": 16},
    {"block_length": None},
    {"no_repeat_ngram_size": 0},
    {"no_repeat_ngram_size": 4},
    {"compute": BudgetRule.kind, "budget": 0.2},
    {"compute": BudgetRule.kind, "budget": 0.3},
    {"compute": BudgetRule.kind, "budget": 0.4},
    {"epsilon": None},
]


def _cells(length: int, prompts: int) -> list[Cell]:
    """Return a cell per candidate: the recommended settings with SureLock, changed as CHANGES says."""
    standing = {
        "source": "sampler_openings",
        **RECOMMENDED,
        "gen_length": length,
        "prompts": prompts,
        "epsilon": 5e-4,
    }
    cells = []
    for change in CHANGES:
        cells += grid(**standing | change)
    return cells


def _measure(lab: Lab, cell: Cell) -> Record:
    """Return the result of a cell: the figures of `compare.measure`, and the faults of its texts."""
    result = compare.measure(lab, cell)
    prompts = [prompt.text for prompt in lab.prompts(cell)]
    texts = [text_of(lab.lm, ids) for ids in result["tokens"]]
    ordinary = ordinary_words([*prompts, *texts])
    unknown = [
        strangers(prompt, text, ordinary) for prompt, text in zip(prompts, texts, strict=True)
    ]
    return result | {"repeated": [repeated(text) for text in texts], "strangers": unknown}


def _changed(cell: Cell, standing: Cell) -> Record:
    """Return the settings in which a cell differs from the recommended settings, as text."""
    names = [name for name in cell if cell[name] != standing.get(name)]
    return {"changed": ", ".join(f"{name} {cell[name]}" for name in names) or "nothing"}


def _table(records: list[Record]) -> pd.DataFrame:
    rows = []
    for record in records:
        result = record["result"]
        figures = {
            "repeated": estimates.mean(result["repeated"]),
            "strangers": estimates.mean([len(names) for names in result["strangers"]]),
            "repeats": estimates.mean(result["repeats"]),
            "bits": compare.bits_per_character(result),
        }
        shown = {"prompts": len(result["tokens"]), "rows": result["active_ratio"]}
        rows.append(_changed(record["cell"], records[0]["cell"]) | shown | estimates.named(figures))
    return pd.DataFrame(rows)


def _judge_table(records: list[Record], scores: list[dict[str, judged.Scores]]) -> pd.DataFrame:
    rows = []
    for record, read in zip(records, scores, strict=True):
        if "" in read:
            scores_of_texts = read[""]
            perplexity = judged.exp(estimates.ratio(scores_of_texts.nats, scores_of_texts.tokens))
            bits = compare.bits_per_character(scores_of_texts._asdict())
            shown = {"prompts": len(scores_of_texts.nats)}
            rows.append(
                _changed(record["cell"], records[0]["cell"])
                | shown
                | estimates.named({"bits": bits, "gen_ppl": perplexity})
            )
    return pd.DataFrame(rows)


SAMPLER = Experiment(
    title="Which sampler suits the model",
    note="""\
changed: of the settings that the model recommends, with SureLock; epsilon None is the baseline. rows: share of the
baseline's. repeated: a text's sentences that it had before, words twice in a row, strings four times in a row
(`faults.repeated`). strangers: names that neither the prompt has nor anything introduces (`faults.strangers`). repeats:
4-grams that occurred before. bits: per character, by the model's own bound. `_se`: standard error over openings.""",
    grids={"stories": _cells(96, 64), "quick": _cells(32, 2)[:2]},
    measure=_measure,
    table=_table,
    texts=judged.texts_of_tokens,
    judge_table=_judge_table,
    judge_note="bits: per character, by the judge; gen_ppl: its perplexity.",
)
