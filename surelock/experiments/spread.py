"""What repeats of a measurement say: figures, their spread, and a ratio only where the spread leaves one to tell.

The subjects of a benchmark take turns within each repeat, so a repeat's own ratio is one of neighbours in time. The
spread of a figure is the range from the first to the third quartile of what the single repeats say, each by itself. A
ratio is refused, told as None with a sentence why, when its spread is wider than its effect |ratio - 1|, or when there
were fewer than three repeats, of which no spread can be told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

LEAST = 3
Figures = dict[str, Any]


def quartiles(values: Sequence[float]) -> list[float]:
    """The first and the third, linear between the values."""
    return np.quantile(values, (0.25, 0.75)).tolist()


def refusal(ratio: float, repeats: Sequence[float]) -> str | None:
    """Why a ratio cannot be told, given what each repeat by itself says; None where it can."""
    if len(repeats) < LEAST:
        return f"{len(repeats)} of the {LEAST} repeats that a spread takes"
    first, third = quartiles(repeats)
    if third - first > abs(ratio - 1):
        return f"the quartiles, {first:.3g} and {third:.3g}, lie further apart than {ratio:.3g} from 1"
    return None


def told(measure: Callable[[Sequence[int]], Figures], repeats: int, ratios: Iterable[str] = ()) -> Figures:
    """The figures that `measure` makes of all repeats, ratios that cannot be told among them None.

    Beside them `spread`, for each figure the quartiles of `measure([r])` over the repeats r (empty where there are too
    few), and `refused`, for each such ratio the sentence why.
    """
    figures = measure(range(repeats))
    alone = [measure([repeat]) for repeat in range(repeats)]
    single = {name: [each[name] for each in alone] for name in figures}
    why = {name: refusal(figures[name], single[name]) for name in ratios}
    refused = {name: sentence for name, sentence in why.items() if sentence is not None}
    spread = {name: quartiles(values) for name, values in single.items()} if repeats >= LEAST else {}
    return {**figures, **dict.fromkeys(refused), "spread": spread, "refused": refused}


def joined(*parts: Figures) -> Figures:
    """Figures from several `told`, their spreads and refusals together."""
    together: Figures = {}
    for part in parts:
        together |= part | {name: together.get(name, {}) | part.get(name, {}) for name in ("spread", "refused")}
    return together
