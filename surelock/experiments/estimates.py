"""Means and ratios over prompts, with standard errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Estimate(NamedTuple):
    """value: over all prompts. error: its standard error. residuals [prompts]: what each adds to value, mean 0."""

    value: float
    error: float
    residuals: NDArray[np.float64]


def mean(values: Sequence[float | None] | NDArray[np.float64]) -> Estimate:
    """The mean; prompts without a value (None) do not count."""
    x = np.asarray(values, dtype=float)
    present = ~np.isnan(x)
    if not present.any():
        return Estimate(np.nan, np.nan, np.zeros(len(x)))
    value = float(x[present].mean())
    return _estimate(value, np.where(present, (x - value) * len(x) / present.sum(), 0.0))


def ratio(
    numerators: Sequence[float] | NDArray[np.float64], denominators: Sequence[float] | NDArray[np.float64]
) -> Estimate:
    """sum(numerators) / sum(denominators), its error by linearisation."""
    over, under = np.asarray(numerators, dtype=float), np.asarray(denominators, dtype=float)
    value = float(over.sum() / under.sum())
    return _estimate(value, (over - value * under) / under.mean())


def difference(first: Estimate, second: Estimate) -> Estimate:
    """first - second, over the same prompts: paired, so that what is hard in both does not count as error."""
    return _estimate(first.value - second.value, first.residuals - second.residuals)


def _estimate(value: float, residuals: NDArray[np.float64]) -> Estimate:
    count = len(residuals)
    error = float(np.sqrt((residuals**2).sum() / (count * (count - 1)))) if count > 1 else np.nan
    return Estimate(value, error, residuals)
