"""Functions that `torch.compile` makes kernels of on a GPU. That takes seconds, once in a process.

Reading of many posteriors takes three passes over the logits, and not one for each operator. In a layer two kernels
take the place of six, most of which torch runs without vector instructions: operands are strided or of two dtypes.
"""

import shutil
import sysconfig
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from surelock.environment import value_of
from surelock.model.network import Elementwise, gated, rotate

_FROM = 1024  # read rows of a step


@cache
def can_fuse(device: torch.device) -> bool:
    """Return whether torch can compile for the device: with Triton, a C compiler and Python.h, not on ZeroGPU."""
    compiler = value_of("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    folders = [sysconfig.get_path("include", scheme) for scheme in sysconfig.get_scheme_names()]
    headers = any(Path(folder, "Python.h").exists() for folder in folders)
    found = find_spec("triton") is not None and compiler is not None and headers
    return device.type == "cuda" and found and not value_of("SPACES_ZERO_GPU")


def worth_fusing(rows: int) -> bool:
    """Return whether a step that reads so many rows is read by compiled functions."""
    return rows >= _FROM


def read_posteriors(logits: Tensor, banned: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return of logits [R, V]: their sums, the largest probability, the log-sum-exp, the likeliest token that is not
    banned and its probability, [R] each.

    banned: [V], -inf at tokens that are never chosen, else 0.
    """
    z = logits.to(banned.dtype)
    highest = z.amax(dim=-1)
    lse = (z - highest[:, None]).exp().sum(dim=-1).log() + highest
    chosen, tokens = (z + banned).max(dim=-1)
    return z.sum(dim=-1), (highest - lse).exp(), lse, tokens, (chosen - lse).exp()


def divergences(logits: Tensor, lse: Tensor, rows: Tensor, kept: Tensor, slots: Tensor, kept_lse: Tensor) -> Tensor:
    """Return the KLs [K] of the posteriors of rows of `logits` from those of slots of `kept`, see `kl_divergence`."""
    z, lse = logits[rows].to(lse.dtype), lse[rows]
    minus_delta = (kept[slots].to(lse.dtype) - z) + (lse - kept_lse)[:, None]
    return (exp_without_two_terms(minus_delta) * (z - lse[:, None]).exp()).sum(dim=-1)


def exp_without_two_terms(x: Tensor) -> Tensor:
    """Return exp(x) - 1 - x, to a relative 1e-5 in float32: compiled, expm1 may be exp(x) - 1, which loses digits."""
    series = torch.full_like(x, 1 / 5040)
    for factorial in (720, 120, 24, 6, 2):
        series = series * x + 1 / factorial
    return torch.where(x.abs() < 0.25, series * x * x, x.exp() - 1 - x)


@cache
def compiled() -> tuple:
    return torch.compile(read_posteriors), torch.compile(divergences)


@cache
def compiled_elementwise() -> Elementwise:
    """Return the elementwise functions of a layer, compiled at the first call and at the next number of rows."""
    return Elementwise(torch.compile(rotate), torch.compile(gated))
