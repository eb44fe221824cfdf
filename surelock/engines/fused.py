"""Functions that `torch.compile` makes kernels of on a GPU: once for all numbers of rows, before the first run.

Reading of many posteriors takes three passes over the logits, and not one for each operator. In a layer two kernels
take the place of six, most of which torch runs without vector instructions: operands are strided or of two dtypes.

What is compiled takes the numbers of rows as variables and all other sizes and strides as constants. Left to itself
torch compiles for the first size, then for each dimension that changes: five functions for one step of 1,049 rows,
which is read in parts of 262 and 263, and one more where the next run has another number of slots.
"""

import os
import shutil
import sysconfig
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from tqdm import tqdm

from surelock.config import NetworkConfig
from surelock.model.network import Elementwise, gated, rotate

#: Of examples: neither another size of theirs nor 1, with either of which torch would take it for a constant.
_ROWS = 257

Backend = str | Callable[..., Any]  # of torch.compile
Widths = tuple[tuple[torch.Size, tuple[int, ...]], ...]  # of tensors: their sizes without the first, and their strides


class Reads(NamedTuple):
    """The functions that read posteriors, compiled."""

    read: Callable[..., tuple[Tensor, Tensor, Tensor, Tensor, Tensor]]
    diverge: Callable[..., Tensor]


@cache
def can_fuse(device: torch.device) -> bool:
    """Return whether torch can compile for the device: with Triton, a C compiler and Python.h, not on ZeroGPU."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    folders = [sysconfig.get_path("include", scheme) for scheme in sysconfig.get_scheme_names()]
    headers = any(Path(folder, "Python.h").exists() for folder in folders)
    found = find_spec("triton") is not None and compiler is not None and headers
    return device.type == "cuda" and found and not os.environ.get("SPACES_ZERO_GPU")


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
def compiled_reading(vocab_size: int, dtype: torch.dtype, device: torch.device, backend: Backend = "inductor") -> Reads:
    """Return `read_posteriors` and `divergences` of logits of a dtype, compiled. All inputs have at least two rows."""
    slots, compared = _ROWS - 1, _ROWS // 2
    with torch.inference_mode():
        logits, kept = (torch.zeros(rows, vocab_size, dtype=dtype, device=device) for rows in (_ROWS, slots))
        wide = torch.promote_types(dtype, torch.float32)
        banned, lse = (torch.zeros(size, dtype=wide, device=device) for size in (vocab_size, _ROWS))
        rows = torch.arange(compared, device=device)
    of_read = logits, banned
    of_diverge = logits, lse, rows, kept, rows, lse[:compared]
    read_widths, diverge_widths = _widths(of_read), _widths(of_diverge)
    functions = [
        (lambda *given: read_posteriors(*_fixed(given, read_widths)), of_read),
        (lambda *given: divergences(*_fixed(given, diverge_widths)), of_diverge),
    ]
    return Reads(*_compiled(functions, backend))


@cache
def compiled_elementwise(
    config: NetworkConfig, dtype: torch.dtype, device: torch.device, backend: Backend = "inductor"
) -> Elementwise:
    """Return the elementwise functions of the layers of a network, compiled. All inputs have at least two rows."""
    heads, size = config.n_heads + config.n_kv_heads, config.head_size
    with torch.inference_mode():
        qkv = torch.zeros(_ROWS, heads + config.n_kv_heads, size, dtype=dtype, device=device)
        normed = qkv[:, :heads].contiguous() if config.qk_norm else qkv[:, :heads]
        angles = torch.zeros(_ROWS, 1, size, dtype=torch.promote_types(dtype, torch.float32), device=device)
        gate_up = torch.zeros(_ROWS, 2 * config.d_ff, dtype=dtype, device=device)
    of_rotate, of_gated = (normed, angles, angles.clone()), (gate_up,)
    rotate_widths, gated_widths = _widths(of_rotate), _widths(of_gated)
    functions = [
        (lambda *given: rotate(*_fixed(given, rotate_widths)), of_rotate),
        (lambda *given: gated(*_fixed(given, gated_widths)), of_gated),
    ]
    return Elementwise(*_compiled(functions, backend))


def _widths(tensors: Sequence[Tensor]) -> Widths:
    return tuple((tensor.shape[1:], tensor.stride()) for tensor in tensors)


def _fixed(tensors: tuple[Tensor, ...], widths: Widths) -> tuple[Tensor, ...]:
    """Return tensors whose widths torch takes for constants, since it has compared them with numbers."""
    for tensor, (sizes, strides) in zip(tensors, widths, strict=True):
        if tensor.shape[1:] != sizes or tensor.stride() != strides:
            return tensors  # compiled once more, for any
    return tensors


def _compiled(functions: Sequence[tuple[Callable, Sequence[Tensor]]], backend: Backend) -> list[Callable]:
    """Compile functions by calling each with its examples. A terminal shows how many are done."""
    found = []
    with torch.inference_mode():
        for function, examples in tqdm(functions, desc="compiling", unit="function", delay=0.5, leave=False):
            made = torch.compile(function, dynamic=True, backend=backend)
            made(*examples)
            found.append(made)
    return found
