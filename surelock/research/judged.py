"""A judge on what exists: the texts of finished cells are scored without decoding anything again.

Scores lie beside the cells, in `judge-NAME/cells.jsonl`, as records of the same runner: resumable, over any number of
processes. Each is kept under its judge and a hash of what that read, prompts and texts: a text that changed has none.
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

#: (prompt, continuation) by the name of the decoder.
Pairs = dict[str, list[tuple[str, str]]]


class Scores(NamedTuple):
    """By text of a decoder. nats: sum over its `tokens`, the judge's. repeats: None where there is no 4-gram."""

    nats: list[float]
    tokens: list[int]
    characters: list[int]
    repeats: list[float | None]


class Judged(NamedTuple):
    """What one judge made of some cells. setup: the judge's. scores: by cell and decoder, as far as there are."""

    folder: Path
    setup: Record
    scores: list[dict[str, Scores]]


def texts_of_tokens(lab: Lab, record: Record) -> Texts:
    """The texts of a cell that keeps its tokens, as they stand behind their prompts, up to their first EOS."""
    pairs = zip(lab.prompts(record["cell"]), record["result"]["tokens"], strict=True)
    return {"": [text_of(lab.lm, ids, prompt.ids) for prompt, ids in pairs]}


def pairs_of(
    lab: Lab, texts: Callable[[Lab, Record], Texts], records: Sequence[Record]
) -> list[Pairs]:
    """What a judge reads of the records. texts: of the experiment."""
    texts_to_read = []
    for record in records:
        prompts = [prompt.text for prompt in lab.prompts(record["cell"])]
        texts_to_read.append(
            {
                name: list(zip(prompts, written, strict=True))
                for name, written in texts(lab, record).items()
            }
        )
    return texts_to_read


def score_texts(
    judge: Judge, pairs: Sequence[Pairs], directory: Path, *, rank: int = 0, world: int = 1
) -> None:
    """Score this process's share of what has no score yet; equal texts after equal prompts are read once."""
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
    """The scores of all processes in one file. Raises ValueError when one is missing."""
    merge(_cells(pairs), directory / f"judge-{judge.name}", judge.setup())


def read_scores(lab: Lab, pairs: Sequence[Pairs], directory: Path) -> Iterator[Judged]:
    """What every judge that has been here made of the texts, by its last setup. Says which texts have no score."""
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
        if missing := sum(
            len(texts) > len(scores) for texts, scores in zip(pairs, judged.scores, strict=True)
        ):
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
    """Share of the n-grams that occurred before; None where there is no n-gram."""
    grams = [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else None


def _key(pairs: list[tuple[str, str]]) -> str:
    return hashlib.sha256(json.dumps(pairs).encode()).hexdigest()[:16]


def _cells(pairs: Sequence[Pairs]) -> list[Record]:
    return [
        {"texts": key}
        for key in dict.fromkeys(_key(texts) for pair in pairs for texts in pair.values())
    ]


def joined(parts: Sequence[Scores]) -> Scores:
    """A decoder's scores over the prompts of several cells."""
    return Scores(*(list(chain.from_iterable(column)) for column in zip(*parts, strict=True)))


def beside(scores: Sequence[Scores], base: Scores) -> Record:
    """A table's figures: of the texts of decoders together, of the baseline on the same prompts, and paired."""
    (bits, log_ppl, repeats) = _estimates(scores)
    (bits_base, log_ppl_base, repeats_base) = _estimates([base])
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
    """Bits per character, nats per token, share of repeated 4-grams: a prompt's texts count together."""
    nats, tokens, characters = (
        np.sum([getattr(score, name) for score in scores], axis=0).tolist()
        for name in ("nats", "tokens", "characters")
    )
    repeats = pd.DataFrame([score.repeats for score in scores], dtype=float).mean().tolist()
    bits = estimates.ratio([value / math.log(2) for value in nats], characters)
    return bits, estimates.ratio(nats, tokens), estimates.mean(repeats)


def exp(estimate: estimates.Estimate) -> estimates.Estimate:
    """By the delta method: a residual grows by the derivative."""
    value = math.exp(estimate.value)
    return estimates.Estimate(value, value * estimate.error, value * estimate.residuals)


def _per_text(scores: Scores) -> pd.DataFrame:
    """Bits per character and repeats by text, NaN where there is none."""
    texts = pd.DataFrame(scores._asdict(), dtype=float)
    return pd.DataFrame(
        {"bits": texts["nats"] / math.log(2) / texts["characters"], "repeats": texts["repeats"]}
    )


def _change_at_equal_repeats(scores: Sequence[Scores], base: Scores) -> estimates.Estimate:
    changes = [_per_text(score) - _per_text(base) for score in scores]
    return estimates.intercept(
        *([change[name].tolist() for change in changes] for name in ("repeats", "bits"))
    )


def _preference(scores: Sequence[Scores]) -> float:
    per_text = pd.concat([_per_text(score) for score in scores]).dropna()
    return float(per_text.rank().corr().to_numpy()[0, 1])
