"""Ours: which sampler suits the model (temperature, policy, blocks, n-grams): faults counted in its continuations."""

import re
from typing import Any

import numpy as np
import pandas as pd

from surelock.decoding.ends import text_of
from surelock.research import estimates, judged
from surelock.research.experiment import Experiment, drawn, row
from surelock.research.lab import Lab, decode_cell
from surelock.research.runner import PAPER, Cell, Record, grid
from surelock.research.texts import count_faults, repeated, shares

_SETTINGS = ("temperature", "remasking", "block_length", "no_repeat_ngram_size")
#: Seeds of the first opening with which the embedded model's sampler was chosen.
_CHOICE = (0, 1000)
_BOTH = " and ".join(map(str, _CHOICE))

_SIZES = {"prompts": 96, "batch": 24, "gen_length": 96, "epsilon": 5e-4}
_ENTROPY = _SIZES | {"remasking": "entropy"}

_GRIDS: dict[str, list[Cell]] = {
    "stories": grid(temperature=[0.6, 0.5, 0.7], block_length=[16, 8, 32], no_repeat_ngram_size=[0, 5], **_ENTROPY)
    + grid(temperature=0.6, block_length=16, no_repeat_ngram_size=[4, 6, 8], **_ENTROPY)
    + grid(temperature=0.8, block_length=16, no_repeat_ngram_size=[0, 5], **_ENTROPY)
    + grid(temperature=[0.5, 0.6], block_length=[8, 16, 32], no_repeat_ngram_size=5, seed=1000, **_ENTROPY)
    + grid(temperature=0.5, block_length=32, no_repeat_ngram_size=[0, 5], seed=2000, **_ENTROPY)
    + grid(temperature=0.4, block_length=[32, 16], no_repeat_ngram_size=5, seed=[0, 1000], **_ENTROPY)
    + grid(temperature=0.3, block_length=32, no_repeat_ngram_size=5, seed=[0, 1000], **_ENTROPY)
    + grid(temperature=[0.6, 0.7], remasking="margin", block_length=16, **_SIZES)
    + grid(temperature=0.6, remasking="low_confidence", block_length=16, **_SIZES)
    + grid(temperature=0.5, remasking=["low_confidence", "margin"], block_length=32, no_repeat_ngram_size=5, **_SIZES)
    + grid(temperature=0.7, remasking=["low_confidence", "margin"], block_length=16, no_repeat_ngram_size=5, **_SIZES),
    "paper": grid(
        **PAPER,
        source="mt_bench",
        prompts=80,
        gen_length=256,
        epsilon=5e-4,
        temperature=[0.0, 0.6, 1.0],
        remasking=["low_confidence", "entropy", "margin"],
        block_length=[32, 256],
    ),
    "quick": grid(
        temperature=[0.7, 1.0],
        remasking="entropy",
        block_length=6,
        no_repeat_ngram_size=2,
        gen_length=12,
        prompts=2,
        epsilon=5e-4,
    ),
}


def _measure(lab: Lab, cell: Cell) -> Record:
    """The texts of the cell's continuations, up to their first EOS, and the faults of each."""
    lm = lab.lm
    texts = [text_of(lm, ids) for ids in decode_cell(lab, cell).tokens]
    return {"texts": texts, "faults": count_faults(lm, [prompt.text for prompt in lab.prompts(cell)], texts)}


def _table(records: list[Record]) -> pd.DataFrame:
    settings: dict[tuple[Any, ...], dict[int, Record]] = {}
    rows = []
    for record in records:
        own, seed = tuple(record["cell"][name] for name in _SETTINGS), record["cell"]["seed"]
        rows.append((own, seed, [record["result"]]))
        settings.setdefault(own, {})[seed] = record["result"]
    for own, runs in settings.items():
        if runs.keys() >= set(_CHOICE):
            rows.append((own, _BOTH, [runs[seed] for seed in _CHOICE]))
    frame = pd.DataFrame(
        [dict(zip(_SETTINGS, own, strict=True)) | {"seed": seed} | _shares(runs) for own, seed, runs in rows]
    )
    return frame.sort_values("clean", ascending=False, kind="stable", ignore_index=True)


def _judge_table(records: list[Record], scores: list[dict[str, judged.Scores]]) -> pd.DataFrame:
    told = [
        row(record, (*_SETTINGS, "seed")) | judged.beside([own[""]])
        for record, own in zip(records, scores, strict=True)
        if own
    ]
    return pd.DataFrame(told).sort_values("bits", kind="stable", ignore_index=True)


def _shares(runs: list[Record]) -> Record:
    """Of one run over the openings, or of several."""
    new = np.array([[_new_trigrams(text) for text in run["texts"]] for run in runs], dtype=float)
    trigrams = estimates.mean(np.ma.masked_invalid(new).mean(axis=0).filled(np.nan).tolist())
    faults = [fault for run in runs for fault in run["faults"]]
    counts = {"prompts": new.size, "sentences": sum(fault["sentences"] for fault in faults)}
    counts |= shares(*(run["faults"] for run in runs))
    return counts | estimates.named({"trigrams": trigrams})


def _new_trigrams(text: str) -> float | None:
    old = repeated(re.findall(r"\w+", text.lower()), 3)
    return None if old is None else 1 - old


SAMPLER = Experiment(
    title="Which sampler suits the model",
    note="""\
Shares of the continuations, each with its standard error over prompts, under the default lock rule. again: at least one
sentence is said twice; strangers: a name that neither the opening nor the text introduced, or a broken one; stuck: a
word said twice in a row, or a string four times. clean: none of these. trigrams: share of a continuation's word
trigrams that are new in it. seed: of the first opening; what leads with one seed is flattered and needs another. Rows
of two seeds are both together, an opening counting once; seed 2000 had no part in the choice. The counting is by rule
(`surelock/research/texts.py`): it finds what is plainly wrong, not what is dull, and strangers mean something in
stories only.""",
    grids=_GRIDS,
    measure=_measure,
    table=_table,
    picture=drawn(
        *("scatter", "again", "strangers"),
        **{"color": "remasking", "symbol": "block_length", "text": "temperature", "hover_data": [*_SETTINGS, "seed"]},
    ),
    texts=lambda lab, record: {"": record["result"]["texts"]},
    judge_table=_judge_table,
    judge_note=judged.NOTE,
)
