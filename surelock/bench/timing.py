"""Times calls, summarizes repeats, and refuses ratios that the repeats do not support.

The spread of a figure is the range from the first to the third quartile of its values in the single repeats. A ratio is
refused if its spread is wider than its effect |ratio - 1|, or if there are fewer than three repeats. A refused ratio is
None, and a sentence gives the reason.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch

from surelock.engines.stopwatch import Stopwatch
from surelock.values import Fields, Json

LEAST = 3  # the fewest repeats that have a spread
Figures = Json


def load_of_cores() -> float | None:
    """Return the load average of the last minute divided by the number of cores; None on Windows."""
    if not hasattr(os, "getloadavg"):
        return None
    last_minute, _, _ = os.getloadavg()
    return last_minute / (os.cpu_count() or 1)


def timed(device: torch.device, call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds that a call takes, and the call's result. device: the device that computes."""
    watch = Stopwatch(device)
    watch.start()
    result = call()
    return watch.seconds(), result


def quartiles(values: Sequence[float]) -> list[float]:
    """Return the first and the third quartile, interpolated linearly."""
    return np.quantile(values, (0.25, 0.75)).tolist()


def refusal(ratio: float, repeats: Sequence[float]) -> str | None:
    """Return the reason why a ratio is refused, None if it is not.

    ratio: the ratio of all repeats together.
    repeats: the ratios of the single repeats.
    """
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
    """Return the figures of all repeats together, with their spread.

    measure: a function from the numbers of repeats to the figures of these repeats.
    repeats: the number of repeats.
    ratios: the names of figures that are None if they are refused.

    The field `spread` has the first and third quartile of every figure over the single repeats; it is empty if there
    are fewer than LEAST repeats. The field `refused` has the reasons for the refused ratios.
    """
    figures = measure(range(repeats))
    by_repeat = [measure([repeat]) for repeat in range(repeats)]
    single = {}
    for name in figures:
        single[name] = [figures_of_repeat[name] for figures_of_repeat in by_repeat]
    why = {name: refusal(figures[name], single[name]) for name in ratios}
    refused = {name: sentence for name, sentence in why.items() if sentence is not None}
    spread = {}
    if repeats >= LEAST:
        spread = {name: quartiles(values) for name, values in single.items()}
    return {**figures, **dict.fromkeys(refused), "spread": spread, "refused": refused}
