"""Ours: what moves after a position has locked. The keys and values that were kept, beside those it would have now."""

from collections import defaultdict
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from surelock.decoding.choices import read_compute
from surelock.decoding.loop import decode
from surelock.decoding.step import Step
from surelock.engines.cache import Rows
from surelock.engines.torch import PackedForward
from surelock.model.language_model import LanguageModel
from surelock.research import estimates
from surelock.research.experiment import Experiment, drawn
from surelock.research.frontier import SETTINGS, frontier_decoder
from surelock.research.lab import Lab
from surelock.research.runner import Cell, Record, in_parts

AHEAD = 16
_LOCK = ("drift", "kl", "confidence", "age")
_EACH = 4  # the dense forwards are of every fourth step

RULES: dict[str, Record] = {
    "the paper's rule": {"kind": "lock", "epsilon": 5e-4, "percentile": 20.0, "visible_steps": 1},
    "no gate": {"kind": "lock", "epsilon": 3e-5, "percentile": None, "visible_steps": 1},
    "by age": {"kind": "age", "steps": 14},
    "at once": {"kind": "age", "steps": 1},
}


def _cells(prompts: int, each: int, **more: Any) -> list[Cell]:
    return [c for name, rule in RULES.items() for c in in_parts(prompts, each, rule=name, compute=rule, **more)]


_GRIDS: dict[str, list[Cell]] = {
    "stories": _cells(16, 8, sampler=SETTINGS["page"]),
    "paper": _cells(16, 4, sampler={"gen_length": 256, "block_length": 32}, source="mt_bench"),
    "quick": _cells(2, 2, sampler={"gen_length": 24}),
}


def _measure(lab: Lab, cell: Cell) -> Record:
    """Of each opening: rows and positions; of each lock of a generated position that was followed for 16 steps its
    drift, confidence, KL and age.
    """
    found = defaultdict(list)
    for number, prompt in enumerate(lab.prompts(cell), start=cell["seed"] + cell["skip"]):
        decoder = frontier_decoder(cell["sampler"], read_compute(cell["compute"]), [number])
        steps = list(decode(lab.lm, [prompt.ids], **decoder.keywords(), observe=True))
        found["rows"].append(sum(int(step.computed.sum()) for step in steps))
        found["positions"].append(len(steps) * steps[0].tokens.shape[1])
        for name, values in _locks(lab.lm, steps, len(prompt.ids)).items():
            found[name].append(values)
    return dict(found)


def _locks(lm: LanguageModel, steps: list[Step], prompt: int) -> dict[str, list[float]]:
    kept = {t: keys_and_values(lm, torch.from_numpy(steps[t].tokens)) for t in range(0, len(steps), _EACH)}
    told: dict[str, list[float]] = {name: [] for name in _LOCK}
    unmasked_at = np.zeros(steps[0].tokens.shape[1], dtype=int)
    for t, step in enumerate(steps):
        unmasked_at[np.flatnonzero(step.newly_unmasked[0])] = t
        begin = -(-t // _EACH) * _EACH
        if begin + AHEAD not in kept:
            continue
        for i in np.flatnonzero(step.newly_locked[0]):
            if i < prompt:
                continue
            then, now = kept[begin][i], kept[begin + AHEAD][i]
            told["drift"].append(float(np.linalg.norm(now - then) / np.linalg.norm(then)))
            told["confidence"].append(float(step.confidence[0, i]))
            told["kl"].append(float(step.kl[0, i]))
            told["age"].append(float(t - unmasked_at[i]))
    return told


@torch.inference_mode()
def keys_and_values(lm: LanguageModel, tokens: torch.Tensor) -> NDArray[np.float32]:
    """[N, layers * 2 * width] of a forward that computes every row of tokens [1, N]."""
    length = tokens.shape[1]
    packed, every = PackedForward(lm.network, length), torch.arange(length, device=lm.device)
    packed(tokens[0].to(lm.device), Rows(every, every, [length], [length]))
    pairs = zip(packed.cache.keys, packed.cache.values, strict=True)
    return np.concatenate([each.flatten(1).float().numpy(force=True) for pair in pairs for each in pair], axis=1)


def _table(records: list[Record]) -> pd.DataFrame:
    rows = []
    for rule in dict.fromkeys(record["cell"]["rule"] for record in records):
        own: dict[str, list[Any]] = defaultdict(list)
        for record in records:
            if record["cell"]["rule"] == rule:
                for name, values in record["result"].items():
                    own[name] += values
        joined = pd.DataFrame({name: [v for values in own[name] for v in values] for name in _LOCK})
        drift = estimates.mean([float(np.mean(values)) if values else None for values in own["drift"]])
        row: Record = {"rule": rule, "rows": sum(own["rows"]) / sum(own["positions"]), "locks": len(joined["drift"])}
        row |= estimates.named({"drift": drift})
        row |= {"confidence": joined["confidence"].mean(), "kl": joined["kl"].median(), "age": joined["age"].median()}
        ranks = joined.rank().corr().to_numpy()[0]
        rows.append(row | {f"drift_{name}": float(r) for name, r in zip(_LOCK[1:], ranks[1:], strict=True)})
    return pd.DataFrame(rows)


DRIFT = Experiment(
    title="Drift: what keys and values do after a lock",
    note="""\
At its lock a position's keys and values are kept. drift: how far those that a forward of the whole sequence gives
move in 16 steps, |now - then| / |then| over all layers, mean over the locks of generated positions; such forwards are
of every fourth step, so then is up to four steps after the lock. rows: share of the rows computed. At the lock: mean
confidence, median KL (nats) and median age, passes that had seen the token. The last three columns are rank
correlations with the drift over the rule's own locks. Errors are over openings. Had the gate chosen what has come to
rest, its drift would be the smallest.""",
    grids=_GRIDS,
    measure=_measure,
    table=_table,
    picture=drawn("bar", "rule", "drift", hover_data=["rows", "confidence", "kl", "age"]),
)
