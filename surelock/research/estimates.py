"""Means and ratios over prompts, with standard errors."""

from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from surelock.values import Floats


class Estimate(NamedTuple):
    """value: over all prompts. error: its standard error. residuals [prompts]: what a prompt adds to value, mean 0."""

    value: float
    error: float
    residuals: Floats


def mean(values: Sequence[float | None] | Floats) -> Estimate:
    """The mean; prompts without a value (None) do not count. The error of a single value is NaN."""
    x = np.asarray(values, dtype=float)
    present = ~np.isnan(x)
    if not present.any():
        return Estimate(np.nan, np.nan, np.zeros(len(x)))
    value = float(x[present].mean())
    if present.sum() == 1:
        return _estimate(value, np.where(present, np.nan, 0.0))
    count = present.sum()
    # the error is that of those present, by themselves
    scale = np.sqrt(len(x) * (len(x) - 1) / (count * (count - 1)))
    return _estimate(value, np.where(present, (x - value) * scale, 0.0))


def ratio(numerators: Sequence[float] | Floats, denominators: Sequence[float] | Floats) -> Estimate:
    """sum(numerators) / sum(denominators), its error by linearisation."""
    over = np.asarray(numerators, dtype=float)
    under = np.asarray(denominators, dtype=float)
    value = float(over.sum() / under.sum())
    return _estimate(value, (over - value * under) / under.mean())


def difference(first: Estimate, second: Estimate) -> Estimate:
    """first - second, over the same prompts: paired, so that what is hard in both does not count as error."""
    return _estimate(first.value - second.value, first.residuals - second.residuals)


def named(estimates: Mapping[str, Estimate]) -> dict[str, float]:
    """A table's figures: the values, with their standard errors behind them as `_se`."""
    row = {}
    for name, estimate in estimates.items():
        row |= {name: estimate.value, f"{name}_se": estimate.error}
    return row


def intercept(x: Sequence[Sequence[float]], y: Sequence[Sequence[float]]) -> Estimate:
    """Of the least-squares line through all (x, y) [sequences][prompts], NaN for none; residuals add up by prompt."""
    over = np.asarray(y, dtype=float)
    under = np.asarray(x, dtype=float)
    present = ~np.isnan(over + under)
    design = np.stack([present, np.where(present, under, 0.0)], axis=-1)  # [sequences, prompts, 2]
    over = np.where(present, over, 0.0)
    moments = np.einsum("spi,spj->ij", design, design)
    if np.linalg.matrix_rank(moments) < 2:  # the line may have any slope
        return Estimate(np.nan, np.nan, np.zeros(over.shape[1]))
    line = np.linalg.solve(moments, np.einsum("spi,sp->i", design, over))
    scores = np.einsum("spi,sp->pi", design, over - design @ line)
    return _estimate(float(line[0]), np.linalg.solve(moments, scores.T)[0] * over.shape[1])


def student_t(p: float, freedom: float) -> float:
    """The quantile p of Student's t, by Abramowitz and Stegun, 26.7.5: to 1e-5 from 29 degrees of freedom on."""
    z = NormalDist().inv_cdf(p)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom ** (power + 1) for power, term in enumerate(terms))


def _estimate(value: float, residuals: Floats) -> Estimate:
    count = len(residuals)
    error = float(np.sqrt((residuals**2).sum() / (count * (count - 1)))) if count > 1 else np.nan
    return Estimate(value, error, residuals)
