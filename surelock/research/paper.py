"""The paper's experiments on cost and quality: experiments 1, 2, 3 and 6, and unlocking from the appendix."""

from itertools import pairwise

import pandas as pd

from surelock.research import compare
from surelock.research.charts import Line, Panel
from surelock.research.compare import comparison
from surelock.research.experiment import Experiment, row
from surelock.research.lab import decode_cell
from surelock.research.runner import PAPER, RECOMMENDED, Cell, Record, grid

EPSILONS = [5e-4, 5e-3, 5e-2]
_FIGURES = ("active_ratio", "active_ratio_to_eos", "f_base_padded", "f_base", "f_locked")
_FIGURES += ("flops_ratio", "flops_ratio_padded")

FLOPS = Experiment(
    title="Algorithmic FLOPs (Experiment 1, Table 1)",
    shows="Table 1",
    note="""\
f_base, f_locked: FLOPs of whole runs per position of the batch, as the paper's tables print them, with pads neither
computed nor counted. f_base_padded: the baseline as the paper counts it, every sequence padded to N_b, the longest of
its batch. active_ratio: r, micro-averaged. `_to_eos`: without the positions after each sequence's first EOS, which lock
early and flatter the ratio.""",
    grids={
        "stories": grid(gen_length=[64, 128, 256], epsilon=EPSILONS, prompts=16, batch=4),
        "paper": grid(
            source="mt_bench_subset",
            gen_length=[64, 256, 1024],
            epsilon=EPSILONS,
            prompts=32,
            **PAPER,
        ),
        "quick": grid(gen_length=[8, 16], epsilon=[5e-4, 5e-2], prompts=3, batch=2),
    },
    measure=lambda lab, cell: decode_cell(lab, cell).figures,
    table=lambda records: pd.DataFrame(
        [row(record, ("gen_length", "epsilon"), _FIGURES) for record in records]
    ),
)


# --- Experiment 2: the step-wise FLOPs ratio as decoding proceeds, for m = 10, 20 and 40 % ----------------------------

_VARIED = ("percentile", "gen_length", "epsilon")
_SHARES = {"percentile": [10.0, 20.0, 40.0]}


def _progress(records: list[Record]) -> pd.DataFrame:
    """Return the table: a row per cell with the FLOPs ratio at four places of the run."""
    rows = []
    for record in records:
        ratio = record["result"]["flops_ratio"]
        line = row(record, _VARIED)
        line |= {
            f"at_{p}": ratio[max(0, round(p / 100 * len(ratio)) - 1)] for p in (25, 50, 75, 100)
        }
        rows.append(
            line
            | {"mean": sum(ratio) / len(ratio), "rises": sum(b > a for a, b in pairwise(ratio))}
        )
    return pd.DataFrame(rows)


def _ratio_panels(records: list[Record]) -> list[Panel]:
    """Return a panel per length and epsilon, with a line per percentile."""
    lines: dict[tuple[int, float], list[Line]] = {}
    for record in records:
        cell = record["cell"]
        ratio = record["result"]["flops_ratio"]
        line = Line(f"m = {cell['percentile']:g} %", range(1, len(ratio) + 1), ratio)
        lines.setdefault((cell["gen_length"], cell["epsilon"]), []).append(line)
    titles = {place: f"N = {place[0]}, epsilon = {place[1]:g}" for place in lines}
    return [
        Panel(titles[place], "step", "FLOPs / baseline", drawn) for place, drawn in lines.items()
    ]


DYNAMICS = Experiment(
    title="Step-wise FLOPs ratio (Experiment 2)",
    shows="Figures 2, 6 and 7",
    note="""\
at_25 ... at_100: FLOPs of the step at that percentage of the run over the baseline's; mean: over the whole run; rises:
steps in which the ratio was above the step before it (permanent locks allow none).""",
    grids={
        "stories": grid(**_SHARES, gen_length=[64, 256], epsilon=EPSILONS, prompts=8, batch=4),
        "paper": grid(
            source="mt_bench_subset",
            **_SHARES,
            gen_length=[64, 256, 1024],
            epsilon=EPSILONS,
            prompts=32,
            **PAPER,
        ),
        "quick": grid(**_SHARES, gen_length=16, epsilon=[5e-3], prompts=2, batch=2),
    },
    measure=lambda lab, cell: {"flops_ratio": decode_cell(lab, cell).curve},
    table=_progress,
    panels=_ratio_panels,
    columns=3,
)


# --- Experiment 3: over length, steps and epsilon ---------------------------------------------------------------------

_SIZES = [(64, 32), (64, 64), (128, 64), (128, 128), (256, 128), (256, 256), (512, 256), (512, 512)]
_QUALITY = (
    "source",
    "gen_length",
    "steps",
    "block_length",
    "remasking",
    "temperature",
    "no_repeat_ngram_size",
)


def _sized(sizes: list[tuple[int, int]], **fixed: object) -> list[Cell]:
    """Return the cells of several sizes (gen_length, steps). fixed: further axes of the grid."""
    axes = {"epsilon": [None, 5e-4, 5e-3], **fixed}
    cells = []
    for length, steps in sizes:
        cells += grid(gen_length=length, steps=steps, **axes)
    return cells


QUALITY = comparison(
    (*_QUALITY, "epsilon"),
    title="Quality and cost (Experiment 3)",
    shows="Tables 2, 3 and 6",
    note=compare.NOTE,
    grids={
        "stories": _sized([(32, 16), (32, 32), (64, 32), (64, 64), (128, 64), (128, 128)])
        + _sized([(128, 128)], **RECOMMENDED),
        "paper": _sized(_SIZES, source="wikitext", prompts=120, **PAPER)
        + _sized(_SIZES, source="mt_bench", prompts=80, **PAPER)
        + _sized([(256, 256)], source="humaneval", prompts=70, **PAPER),
        "quick": _sized([(12, 6), (12, 12)], prompts=2),
    },
)


# --- Experiment 6: quality against epsilon, from 5e-8 to 5e-2, on short generations -----------------------------------

_MANY = {"epsilon": [None, 5e-8, 5e-7, 5e-6, 5e-5, 5e-4, 5e-3, 5e-2]}
EPSILON = comparison(
    ("gen_length", "epsilon"),
    title="Quality against epsilon (Experiment 6)",
    shows="Table 5",
    note=compare.NOTE,
    grids={
        "stories": grid(gen_length=64, **_MANY),
        "paper": grid(source="wikitext", prompts=120, gen_length=64, **_MANY, **PAPER),
        "quick": grid(gen_length=12, epsilon=[None, 5e-4, 5e-2], prompts=2),
    },
)


# --- the appendix: optional unlocking, with and without probes of the locked positions --------------------------------


def _probed(epsilons: list[float], periods: list[int | None], **fixed: object) -> list[Cell]:
    """Return the baseline's cell, and the cells of all epsilons and unlock periods."""
    return grid(**fixed, epsilon=None) + grid(**fixed, epsilon=epsilons, unlock_period=periods)


UNLOCK = comparison(
    ("epsilon", "unlock_period"),
    title="Optional unlocking (appendix)",
    shows="appendix, Optional Unlocking",
    note=f"""\
unlock_period: steps between probes of 8 locked positions per sequence; empty: locks are permanent.
{compare.NOTE}""",
    grids={
        "stories": _probed([5e-3, 5e-2], [None, 8, 4], gen_length=64),
        "paper": _probed(
            [5e-4, 5e-3], [None, 8, 4], source="wikitext", prompts=120, gen_length=128, **PAPER
        ),
        "quick": _probed([5e-2], [None, 2], gen_length=12, prompts=2),
    },
)
