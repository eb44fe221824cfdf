"""Grids of settings. A cell is a flat dict of JSON values: all that its result depends on, but the model."""

from __future__ import annotations

from itertools import product
from typing import Any

Cell = dict[str, Any]


def file_of(source: str) -> str:
    """The name of a source's data: both MT-Bench sources read the same file."""
    return "mt_bench" if source == "mt_bench_subset" else source


#: What a grid does not name. epsilon None is the baseline; seed: of the first prompt, the next has the next.
DEFAULTS: Cell = {
    "source": "openings",
    "prompts": 64,
    "batch": 8,
    "gen_length": 64,
    "steps": None,
    "block_length": None,
    "remasking": "low_confidence",
    "temperature": 0.0,
    "no_repeat_ngram_size": 0,
    "epsilon": None,
    "percentile": 20.0,
    "visible_steps": 1,
    "select_fraction": 1.0,
    "unlock_period": None,
    "seed": 0,
}

#: The paper's own: batches of 4, and Algorithm 1 to the letter, which lets a position lock in the step that unmasks it.
PAPER: Cell = {"batch": 4, "visible_steps": 0}

#: What the embedded model's own generation_config.json recommends, and the page starts with.
RECOMMENDED: Cell = {"temperature": 0.5, "remasking": "entropy", "block_length": 32, "no_repeat_ngram_size": 5}


def grid(**axes: Any) -> list[Cell]:
    """The cells of a grid: axes given as lists are crossed, the last one fastest; other values hold in every cell."""
    choices = [value if isinstance(value, list) else [value] for value in axes.values()]
    return [DEFAULTS | dict(zip(axes, values, strict=True)) for values in product(*choices)]
