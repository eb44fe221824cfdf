"""Lets a judge score the texts of finished cells, without decoding them again.

The scores are written beside the cells, in `judge-NAME/cells.jsonl`, by the same runner. So scoring can be resumed, and
shared by any number of processes. The key of a score is the judge and a hash of prompts and texts: a text that has
changed has no score.
"""

import hashlib
import json
import math
import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from surelock.decoding.ends import text_of
from surelock.research import estimates
from surelock.research.experiment import Texts
from surelock.research.judge import Judge, Score
from surelock.research.lab import Lab
from surelock.research.runner import Record, finished, merge, run_cells

NOTE = """\
bits: bits per character of the generated text given its prompt, by the judge; gen_ppl: its perplexity per token of its
own, all texts together. bits_change, gen_ppl_ratio: beside the baseline's on the same prompts, paired; the ratio's
error is that of the logarithms' difference, by the delta method. repeats: 4-grams that occurred before. bits_repeats:
rank correlation of the two over the texts; where it is negative, the judge likes what repeats itself. bits_change_even:
the change where repeats do not change, by a straight line through the texts' changes. `_se`: standard error over
prompts."""

#: The (prompt, continuation) pairs of a cell, by the name of the decoder.
Pairs = dict[str, list[tuple[str, str]]]


class Scores(NamedTuple):
    """The judge's scores of a decoder's texts. Every list has one value per text."""

    nats: list[float]  # the sum of -log p over the text's tokens
    tokens: list[int]  # the number of the text's tokens, by the judge's tokenizer
    characters: list[int]
    repeats: list[float | None]  # the share of repeated 4-grams, None for a text without 4-grams


class Judged(NamedTuple):
    """The scores by one judge."""

    folder: Path
    setup: Record  # see `Judge.setup`
    scores: list[dict[str, Scores]]  # by cell and decoder; a decoder without scores is missing


def texts_of_tokens(lab: Lab, record: Record) -> Texts:
    """Return the texts of a cell that keeps its tokens: the continuations of the prompts, up to their first EOS."""
    pairs = zip(lab.prompts(record["cell"]), record["result"]["tokens"], strict=True)
    return {"": [text_of(lab.lm, ids, prompt.ids) for prompt, ids in pairs]}


def pairs_of(
    lab: Lab, texts: Callable[[Lab, Record], Texts], records: Sequence[Record]
) -> list[Pairs]:
    """Return the prompts and continuations of every record, for a judge. texts: the field of the Experiment."""
    texts_to_read = []
    for record in records:
        prompts = [prompt.text for prompt in lab.prompts(record["cell"])]
        pairs: Pairs = {}
        for name, written in texts(lab, record).items():
            pairs[name] = list(zip(prompts, written, strict=True))
        texts_to_read.append(pairs)
    return texts_to_read


def score_texts(
    judge: Judge, pairs: Sequence[Pairs], directory: Path, *, rank: int = 0, world: int = 1
) -> None:
    """Score this process's share of the texts without a score. A pair of prompt and text that recurs is read once.

    rank: the number of this process. world: the number of processes.
    """
    wanted = {_key(texts): texts for by_decoder in pairs for texts in by_decoder.values()}
    score_of: dict[tuple[str, str], Score] = {}

    def measure(cell: Record) -> Record:
        texts = wanted[cell["texts"]]
        new = [pair for pair in dict.fromkeys(texts) if pair not in score_of]
        score_of.update(zip(new, judge.scores(new), strict=True))
        scores = [score_of[pair] for pair in texts]
        return {
            "nats": [float(f"{sum(score.nats):.5g}") for score in scores],
            "tokens": [len(score.nats) for score in scores],
            "characters": [score.characters for score in scores],
        }

    run_cells(
        _cells(pairs),
        measure,
        directory / f"judge-{judge.name}",
        judge.setup(),
        rank=rank,
        world=world,
    )


def merge_scores(judge: Judge, pairs: Sequence[Pairs], directory: Path) -> None:
    """Write the scores of all processes into one file. Raises ValueError if a score is missing."""
    merge(_cells(pairs), directory / f"judge-{judge.name}", judge.setup())


def read_scores(lab: Lab, pairs: Sequence[Pairs], directory: Path) -> Iterator[Judged]:
    """Yield the scores by every judge that has scored these cells, with the judge's latest setup.

    Prints how many cells have texts without a score.
    """
    for folder in sorted(directory.glob("judge-*/")):
        records = list(finished(folder).values())
        if not records:
            continue
        setup = records[-1]["setup"]
        results = {
            record["cell"]["texts"]: record["result"]
            for record in records
            if record["setup"] == setup
        }
        judged = Judged(folder, setup, [_scores(lab, pair, results) for pair in pairs])
        by_cell = zip(pairs, judged.scores, strict=True)
        missing = sum(len(texts) > len(scores) for texts, scores in by_cell)
        if missing:
            message = f"the judge {setup['name']} has not read the texts of {missing} of {len(pairs)} cells as they are"
            print(f"{message} now: its table leaves them out, --judge scores them", file=sys.stderr)
        if any(judged.scores):
            yield judged


def _scores(lab: Lab, pairs: Pairs, results: dict[str, Record]) -> dict[str, Scores]:
    by_decoder = {}
    for name, texts in pairs.items():
        if (key := _key(texts)) in results:
            repeats = [repeated(lab.lm.encode(text)) for _, text in texts]
            by_decoder[name] = Scores(**results[key], repeats=repeats)
    return by_decoder


def repeated(ids: Sequence[Hashable], n: int = 4) -> float | None:
    """Return the share of the n-grams that occurred before; None for a text without n-grams."""
    grams = [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else None


def _key(pairs: list[tuple[str, str]]) -> str:
    """Return a hash of prompts and texts."""
    return hashlib.sha256(json.dumps(pairs).encode()).hexdigest()[:16]


def _cells(pairs: Sequence[Pairs]) -> list[Record]:
    """Return the cells of the runner, one for every decoder of every record."""
    texts = [texts for by_decoder in pairs for texts in by_decoder.values()]
    return [{"texts": key} for key in dict.fromkeys(map(_key, texts))]


def joined(parts: Sequence[Scores]) -> Scores:
    """Return the scores of several cells as one."""
    return Scores(*(list(chain.from_iterable(column)) for column in zip(*parts, strict=True)))


def beside(scores: Sequence[Scores], base: Scores) -> Record:
    """Return the figures of decoders together, of the baseline on the same prompts, and of their paired differences.

    scores: by decoder. base: the scores of the baseline.
    """
    bits, log_ppl, repeats = _estimates(scores)
    bits_base, log_ppl_base, repeats_base = _estimates([base])
    figures = {
        "bits_base": bits_base,
        "bits": bits,
        "bits_change": estimates.difference(bits, bits_base),
        "bits_change_even": _change_at_equal_repeats(scores, base),
        "gen_ppl_base": exp(log_ppl_base),
        "gen_ppl": exp(log_ppl),
        "gen_ppl_ratio": exp(estimates.difference(log_ppl, log_ppl_base)),
        "repeats_base": repeats_base,
        "repeats": repeats,
        "repeats_change": estimates.difference(repeats, repeats_base),
    }
    return {
        "prompts": len(scores[0].nats),
        **estimates.named(figures),
        "bits_repeats": _preference(scores),
    }


def _estimates(
    scores: Sequence[Scores],
) -> tuple[estimates.Estimate, estimates.Estimate, estimates.Estimate]:
    """Return bits per character, nats per token and the share of repeated 4-grams.

    scores: by decoder. The texts of all decoders for one prompt count as one text.
    """
    nats = np.sum([score.nats for score in scores], axis=0).tolist()
    tokens = np.sum([score.tokens for score in scores], axis=0).tolist()
    characters = np.sum([score.characters for score in scores], axis=0).tolist()
    repeats = pd.DataFrame([score.repeats for score in scores], dtype=float).mean().tolist()
    bits = estimates.ratio([value / math.log(2) for value in nats], characters)
    return bits, estimates.ratio(nats, tokens), estimates.mean(repeats)


def exp(estimate: estimates.Estimate) -> estimates.Estimate:
    """Return the exponential of an estimate. By the delta method a residual is multiplied by the derivative."""
    value = math.exp(estimate.value)
    return estimates.Estimate(value, value * estimate.error, value * estimate.residuals)


def _per_text(scores: Scores) -> pd.DataFrame:
    """Return bits per character and repeats by text; a value that is undefined is NaN."""
    texts = pd.DataFrame(scores._asdict(), dtype=float)
    return pd.DataFrame(
        {"bits": texts["nats"] / math.log(2) / texts["characters"], "repeats": texts["repeats"]}
    )


def _change_at_equal_repeats(scores: Sequence[Scores], base: Scores) -> estimates.Estimate:
    """Return the change of the bits where repeats do not change: the intercept of a line through all texts' changes."""
    changes = [_per_text(score) - _per_text(base) for score in scores]
    repeats = [change["repeats"].tolist() for change in changes]
    bits = [change["bits"].tolist() for change in changes]
    return estimates.intercept(repeats, bits)


def _preference(scores: Sequence[Scores]) -> float:
    """Return the rank correlation of bits and repeats over all texts."""
    per_text = pd.concat([_per_text(score) for score in scores]).dropna()
    return float(per_text.rank().corr().to_numpy()[0, 1])
