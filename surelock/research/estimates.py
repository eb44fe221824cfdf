"""Means and ratios over prompts, with standard errors."""

from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from surelock.values import Floats


class Estimate(NamedTuple):
    """A figure over prompts."""

    value: float  # the figure of all prompts together
    error: float  # its standard error
    residuals: Floats  # [prompts], the contribution of a prompt to the value, with mean 0


def mean(values: Sequence[float | None] | Floats) -> Estimate:
    """Return the mean. Prompts without a value (None) do not count. The error of a single value is NaN."""
    x = np.asarray(values, dtype=float)
    present = ~np.isnan(x)
    if not present.any():
        return Estimate(np.nan, np.nan, np.zeros(len(x)))
    value = float(x[present].mean())
    if present.sum() == 1:
        return _estimate(value, np.where(present, np.nan, 0.0))
    count = present.sum()
    # the factor makes the error that of the present values alone
    scale = np.sqrt(len(x) * (len(x) - 1) / (count * (count - 1)))
    return _estimate(value, np.where(present, (x - value) * scale, 0.0))


def ratio(numerators: Sequence[float] | Floats, denominators: Sequence[float] | Floats) -> Estimate:
    """Return sum(numerators) / sum(denominators). Its error is computed by linearisation."""
    over = np.asarray(numerators, dtype=float)
    under = np.asarray(denominators, dtype=float)
    value = float(over.sum() / under.sum())
    return _estimate(value, (over - value * under) / under.mean())


def difference(first: Estimate, second: Estimate) -> Estimate:
    """Return first - second. The prompts must be the same.

    The difference is paired: a prompt that is hard for both does not raise the error.
    """
    return _estimate(first.value - second.value, first.residuals - second.residuals)


def named(estimates: Mapping[str, Estimate]) -> dict[str, float]:
    """Return estimates as figures of a table: NAME is the value, NAME_se its standard error."""
    row = {}
    for name, estimate in estimates.items():
        row |= {name: estimate.value, f"{name}_se": estimate.error}
    return row


def intercept(x: Sequence[Sequence[float]], y: Sequence[Sequence[float]]) -> Estimate:
    """Return the intercept of the least-squares line through all points (x, y).

    x, y: [sequences][prompts], NaN for a missing point. The residuals of a prompt are summed over its sequences. The
    value is NaN if the points do not determine a line.
    """
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
    """Return the quantile p of Student's t distribution by Abramowitz and Stegun, 26.7.5.

    freedom: the degrees of freedom; from 29 on the error is below 1e-5.
    """
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
