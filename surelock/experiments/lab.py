"""What an experiment measures with: the model, the data, a judge; and the decoding of a cell's prompts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from surelock.decoding.flops import row_flops
from surelock.decoding.loop import Step, decode
from surelock.decoding.settings import DecodeSettings, LockRule, UnlockRule
from surelock.decoding.totals import TotalsCounter
from surelock.experiments.grid import Cell
from surelock.experiments.prompts import OPENINGS, Prompt, load_prompts
from surelock.experiments.runner import in_batches
from surelock.model.language_model import LanguageModel


@dataclass(frozen=True, slots=True)
class Lab:
    """data: files by source. categories: of MT-Bench, none for all. judge: a causal model for Gen.-PPL, by name."""

    lm: LanguageModel
    data: dict[str, Path] = field(default_factory=dict)
    categories: Sequence[str] = ()
    judge: str | None = None

    def prompts(self, cell: Cell) -> list[Prompt]:
        return load_prompts(self.lm, cell, self.data, self.categories)

    def batches(self, cell: Cell) -> Iterator[tuple[list[list[int]], DecodeSettings]]:
        """Each batch's prompts and settings; a prompt's seed does not depend on the batch it is in."""
        for start, batch in in_batches(self.prompts(cell), cell["batch"]):
            yield [prompt.ids for prompt in batch], settings_of(cell, start)

    def setup(self) -> dict[str, Any]:
        """What results depend on besides the cell."""
        files = {"openings": OPENINGS} | self.data
        hashes = {name: hashlib.sha256(path.read_bytes()).hexdigest()[:16] for name, path in files.items()}
        return {
            "model": Path(self.lm.name).name,
            "weights": _fingerprint(self.lm),
            "dtype": str(self.lm.network.dtype).removeprefix("torch."),
            "data": hashes,
            "categories": list(self.categories),
            "judge": self.judge,
        }


def _fingerprint(lm: LanguageModel) -> str:
    """Tells one checkpoint from another of the same name: a hash of its norms and of some embeddings."""
    digest = hashlib.sha256()
    for name, parameter in lm.network.named_parameters():
        if name.endswith("norm.weight") or name == "embed.weight":
            digest.update(parameter.flatten()[:4096].float().numpy(force=True).tobytes())
    return digest.hexdigest()[:16]


def settings_of(cell: Cell, first: int = 0) -> DecodeSettings:
    """The sampler of a cell, for a batch that begins with prompt number `first`."""
    names = (
        "gen_length",
        "steps",
        "block_length",
        "remasking",
        "temperature",
        "no_repeat_ngram_size",
        "select_fraction",
    )
    return DecodeSettings(**{name: cell[name] for name in names}, seed=cell["seed"] + first)


def rule_of(cell: Cell) -> LockRule | None:
    """The lock rule of a cell, None for the baseline."""
    if cell["epsilon"] is None:
        return None
    unlock = None if cell["unlock_period"] is None else UnlockRule(period=cell["unlock_period"])
    return LockRule(**{name: cell[name] for name in ("epsilon", "percentile", "visible_steps")}, unlock=unlock)


@dataclass(frozen=True, slots=True)
class Decoded:
    """What decoding a cell gave. tokens: generated ids of each prompt. figures: of the whole cell. curve: per step."""

    tokens: list[list[int]]
    figures: dict[str, float]
    curve: dict[str, list[float]]


def decode_cell(lab: Lab, cell: Cell) -> Decoded:
    """Decode the cell's prompts, with FLOPs counted as Sec. 2.4 and Table 1 do, micro-averaged over the batches."""
    tokens: list[list[int]] = []
    sums: dict[str, float] = {}
    curve = {name: [0.0] * settings_of(cell).total_steps for name in ("flops", "baseline_flops", "active", "present")}
    for ids, settings in lab.batches(cell):
        counter = TotalsCounter(lab.lm.network.config, cell["gen_length"], lab.lm.eos_id)
        computed, probed, last = *torch.zeros(2, len(ids), 1, dtype=torch.int64), None
        positions = sum(map(len, ids)) + len(ids) * settings.gen_length
        for last in decode(lab.lm, ids, settings, lock=rule_of(cell)):
            counter.add(last)
            computed, probed = computed + last.computed, probed + last.probed
            for name, value in _step_sums(last, positions).items():
                curve[name][last.index] += value
        assert last is not None
        generated = last.tokens[:, -settings.gen_length :].tolist()
        totals = counter.totals()
        for name, value in (
            ("flops", totals.flops),
            ("baseline", totals.baseline_flops),
            ("padded", totals.padded_baseline_flops),
            ("positions", positions),
            ("padded_positions", last.tokens.numel()),
            ("computed", float(computed.sum())),
            ("rows", positions * totals.steps),
            ("locked", totals.locked * positions),
            *_to_eos(lab.lm, ids, generated, computed, probed, totals.steps),
        ):
            sums[name] = sums.get(name, 0.0) + value
        tokens += generated
    return Decoded(tokens, _figures(sums), curve)


def _step_sums(step: Step, positions: int) -> dict[str, float]:
    return {
        "flops": float(step.flops.sum()),
        "baseline_flops": float(step.baseline_flops.sum()),
        "active": int(step.computed.sum()),
        "present": positions,
    }


def first_end(ids: Sequence[int], eos_id: int | None) -> int:
    """How many of the ids come before the first EOS."""
    return next((i for i, token in enumerate(ids) if token == eos_id), len(ids))


def _to_eos(
    lm: LanguageModel,
    prompts: list[list[int]],
    generated: list[list[int]],
    computed: Tensor,
    probed: Tensor,
    steps: int,
) -> list[tuple[str, float]]:
    """Rows and FLOPs without the positions after each sequence's first EOS, which lock early and flatter the ratio."""
    sums = dict.fromkeys(("eos_computed", "eos_rows", "eos_flops", "eos_baseline"), 0.0)
    config, width = lm.network.config, computed.shape[1]
    for prompt, ids, rows, looks in zip(prompts, generated, computed, probed, strict=True):
        length = len(prompt) + len(ids)
        kept = len(prompt) + min(len(ids), first_end(ids, lm.eos_id) + 1)
        done, looked = (float(counts[width - length :][:kept].sum()) for counts in (rows, looks))
        sums["eos_computed"] += done
        sums["eos_rows"] += kept * steps
        sums["eos_flops"] += done * row_flops(config, length) + looked * row_flops(config, length, probed=True)
        sums["eos_baseline"] += kept * steps * row_flops(config, length)
    return list(sums.items())


def _figures(sums: dict[str, float]) -> dict[str, float]:
    return {
        "active_ratio": sums["computed"] / sums["rows"],
        "active_ratio_to_eos": sums["eos_computed"] / sums["eos_rows"],
        "f_base": sums["baseline"] / sums["positions"],
        "f_base_padded": sums["padded"] / sums["padded_positions"],
        "f_locked": sums["flops"] / sums["positions"],
        "flops_ratio": sums["flops"] / sums["baseline"],
        "flops_ratio_padded": sums["flops"] / sums["padded"],
        "flops_ratio_to_eos": sums["eos_flops"] / sums["eos_baseline"],
        "locked": sums["locked"] / sums["positions"],
    }
