"""What benchmarks time by: turns of one call, the spread over repeats, and ratios that it refuses.

The spread of a figure is the range from the first to the third quartile of its values in the single repeats. A ratio is
None, with a sentence why, if its spread is wider than its effect |ratio - 1|, or if there are fewer than three repeats.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch

from surelock.engines.stopwatch import Stopwatch
from surelock.values import Fields, Json

LEAST = 3  # the fewest repeats with a spread
Figures = Json


def load_of_cores() -> float | None:
    """Return the load average of the last minute divided by the number of cores; None on Windows."""
    return os.getloadavg()[0] / (os.cpu_count() or 1) if hasattr(os, "getloadavg") else None


def timed(device: torch.device, call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds that a call takes, and what it returns."""
    watch = Stopwatch(device)
    watch.start()
    result = call()
    return watch.seconds(), result


def quartiles(values: Sequence[float]) -> list[float]:
    """Return the first and the third quartile, interpolated linearly."""
    return np.quantile(values, (0.25, 0.75)).tolist()


def refusal(ratio: float, repeats: Sequence[float]) -> str | None:
    """Return why the ratio of all repeats is refused, by those of single `repeats`; None if it is not."""
    if len(repeats) < LEAST:
        return f"{len(repeats)} of the {LEAST} repeats that a spread takes"
    first, third = quartiles(repeats)
    if third - first > abs(ratio - 1):
        effect = f"the ratio's distance from 1 ({abs(ratio - 1):.3g})"
        return f"the middle half of the repeats spans {first:.3g} to {third:.3g}, which is more than {effect}"
    return None


def summary(
    measure: Callable[[Sequence[int]], Fields], repeats: int, ratios: Iterable[str] = ()
) -> Figures:
    """Return the figures of all repeats, with their spread.

    measure: returns the figures of some repeats.
    ratios: figures that are None if they are refused.

    `spread` holds the quartiles of the figures over the single repeats (empty with fewer than LEAST), `refused` the
    reasons for the refused ratios.
    """
    figures = measure(range(repeats))
    alone = [measure([repeat]) for repeat in range(repeats)]
    single = {name: [single_figures[name] for single_figures in alone] for name in figures}
    why = {name: refusal(figures[name], single[name]) for name in ratios}
    refused = {name: sentence for name, sentence in why.items() if sentence is not None}
    spread = (
        {name: quartiles(values) for name, values in single.items()} if repeats >= LEAST else {}
    )
    return {**figures, **dict.fromkeys(refused), "spread": spread, "refused": refused}
