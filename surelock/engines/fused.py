"""Functions that `torch.compile` fuses into few GPU kernels. They are compiled once, before the first run.

Reading many posteriors with fused kernels takes three passes over the logits, instead of one pass per operator. In a
layer, two fused kernels replace six kernels. Torch would run most of the six without vector instructions, because their
operands are strided or have two dtypes.

The compiled functions must accept any number of rows, without a new compilation. All other sizes and strides should be
constants. When code compares a size with a number of its module, torch makes that size a constant. This is the only
purpose of the `if`s below, whose two branches are equal. Without the `if`s, torch compiles for the first sizes, and
again for every dimension that changes: five functions for one step of 1,049 rows that is read in parts of 262 and 263
rows, and another function if the next run has another number of slots.
"""

import shutil
import sysconfig
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from tqdm import tqdm

from surelock.config import NetworkConfig
from surelock.environment import value_of
from surelock.model.network import Elementwise, gated, rotate

#: Number of rows of an example input. It must not be 1, nor equal another size of an example: torch takes equal sizes
#: for the same variable.
_ROWS = 257

Backend = str | Callable[..., Any]  # of torch.compile


class Reads(NamedTuple):
    """Compiled functions: `read` is `read_posteriors`, `diverge` is `divergences`."""

    read: Callable[..., tuple[Tensor, Tensor, Tensor, Tensor, Tensor]]
    diverge: Callable[..., Tensor]


@cache
def can_fuse(device: torch.device) -> bool:
    """Return whether torch can compile for the device.

    It can for a GPU, with Triton, a C compiler and Python.h, but not on ZeroGPU.
    """
    compiler = value_of("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    folders = [sysconfig.get_path("include", scheme) for scheme in sysconfig.get_scheme_names()]
    headers = any(Path(folder, "Python.h").exists() for folder in folders)
    has_tools = find_spec("triton") is not None and compiler is not None and headers
    return device.type == "cuda" and has_tools and not value_of("SPACES_ZERO_GPU")


def read_posteriors(
    logits: Tensor, banned: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return five tensors [R] for logits [R, V].

    They are the sum of the logits, the largest probability, the log-sum-exp, the most likely token that is not banned,
    and the probability of that token.

    banned: [V], -inf at tokens that are never chosen, otherwise 0. The computation is in the dtype of `banned`.
    """
    z = logits.to(banned.dtype)
    highest = z.amax(dim=-1)
    lse = (z - highest[:, None]).exp().sum(dim=-1).log() + highest
    chosen, tokens = (z + banned).max(dim=-1)
    return z.sum(dim=-1), (highest - lse).exp(), lse, tokens, (chosen - lse).exp()


def divergences(
    logits: Tensor, lse: Tensor, rows: Tensor, kept: Tensor, slots: Tensor, kept_lse: Tensor
) -> Tensor:
    """Return `kl_divergence` [K], in nats, of posteriors of this step from kept posteriors.

    logits: [R, V], logits of this step. lse: [R], their log-sum-exp.
    rows: [K] int64, the compared rows of `logits`.
    kept: [S, V], logits of kept posteriors. slots: [K] int64, the rows of `kept` to compare with.
    kept_lse: [K], the log-sum-exp of `kept[slots]`.
    """
    z = logits[rows].to(lse.dtype)
    lse = lse[rows]
    minus_delta = (kept[slots].to(lse.dtype) - z) + (lse - kept_lse)[:, None]
    return (exp_without_two_terms(minus_delta) * (z - lse[:, None]).exp()).sum(dim=-1)


def exp_without_two_terms(x: Tensor) -> Tensor:
    """Return exp(x) - 1 - x with a relative error of 1e-5 in float32.

    `expm1` is not used, because torch may compile it to exp(x) - 1, which loses digits.
    """
    series = torch.full_like(x, 1 / 5040)
    for factorial in (720, 120, 24, 6, 2):
        series = series * x + 1 / factorial
    return torch.where(x.abs() < 0.25, series * x * x, x.exp() - 1 - x)


class _Read(nn.Module):
    """`read_posteriors` for a vocabulary size."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.width = vocab_size

    def forward(
        self, logits: Tensor, banned: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        if not _is_wide(logits, self.width):
            return read_posteriors(logits, banned)
        return read_posteriors(logits, banned)


class _Diverge(nn.Module):
    """`divergences` for a vocabulary size."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.width = vocab_size

    def forward(
        self,
        logits: Tensor,
        lse: Tensor,
        rows: Tensor,
        kept: Tensor,
        slots: Tensor,
        kept_lse: Tensor,
    ) -> Tensor:
        if not (_is_wide(logits, self.width) and _is_wide(kept, self.width)):
            return divergences(logits, lse, rows, kept, slots, kept_lse)
        return divergences(logits, lse, rows, kept, slots, kept_lse)


class _Rotate(nn.Module):
    """`rotate` for the queries and keys of a network.

    They are a part of a table that also has the values, unless norms have copied the queries and keys.
    """

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.heads = config.n_heads + config.n_kv_heads
        self.size = config.head_size
        self.table_heads = self.heads
        if not config.qk_norm:
            self.table_heads += config.n_kv_heads
        self.row = self.table_heads * self.size

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        if x.shape[1:] != (self.heads, self.size) or x.stride() != (self.row, self.size, 1):
            return rotate(x, cos, sin)
        return rotate(x, cos, sin)


class _Gated(nn.Module):
    """`gated` for the feed-forward width of a network."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.width = 2 * config.d_ff

    def forward(self, gate_up: Tensor) -> Tensor:
        if not _is_wide(gate_up, self.width):
            return gated(gate_up)
        return gated(gate_up)


def _is_wide(rows: Tensor, width: int) -> bool:
    return rows.shape[1] == width and rows.stride(0) == width


@cache
def compiled_reading(
    vocab_size: int, dtype: torch.dtype, device: torch.device, backend: Backend = "inductor"
) -> Reads:
    """Return `read_posteriors` and `divergences` for logits of a dtype, compiled.

    The compiled functions require inputs of at least two rows.
    """
    # Three different numbers of rows, since torch takes equal sizes for the same variable.
    some = _ROWS // 2
    other = _ROWS + 2
    wide = torch.promote_types(dtype, torch.float32)
    with torch.inference_mode():
        logits, kept = (
            torch.zeros(rows, vocab_size, dtype=dtype, device=device) for rows in (_ROWS, other)
        )
        banned, lse = (torch.zeros(size, dtype=wide, device=device) for size in (vocab_size, _ROWS))
        rows, slots = (torch.arange(some, device=device) for _ in range(2))
        kept_lse = torch.zeros(some, dtype=wide, device=device)
    modules = _Read(vocab_size), _Diverge(vocab_size)
    examples = (logits, banned), (logits, lse, rows, kept, slots, kept_lse)
    return Reads(*_compiled(modules, examples, backend))


@cache
def compiled_elementwise(
    config: NetworkConfig, dtype: torch.dtype, device: torch.device, backend: Backend = "inductor"
) -> Elementwise:
    """Return the elementwise functions of the layers of a network, compiled.

    The compiled functions require inputs of at least two rows.
    """
    wide = torch.promote_types(dtype, torch.float32)
    rotates = _Rotate(config)
    gates = _Gated(config)
    with torch.inference_mode():
        table = torch.zeros(_ROWS, rotates.table_heads, rotates.size, dtype=dtype, device=device)
        x = table[:, : rotates.heads]
        cos, sin = (
            torch.zeros(_ROWS, 1, rotates.size, dtype=wide, device=device) for _ in range(2)
        )
        gate_up = torch.zeros(_ROWS, gates.width, dtype=dtype, device=device)
    return Elementwise(*_compiled((rotates, gates), ((x, cos, sin), (gate_up,)), backend))


def _compiled(
    modules: Sequence[nn.Module], examples: Sequence[tuple[Tensor, ...]], backend: Backend
) -> list[Callable]:
    """Return the modules compiled, by calling them with their examples. A terminal shows the progress."""
    functions = []
    pairs = zip(modules, examples, strict=True)
    with torch.inference_mode():
        for module, example in tqdm(
            pairs, "compiling", len(modules), unit="function", leave=False, disable=None
        ):
            function = torch.compile(module, dynamic=True, backend=backend)
            function(*example)
            functions.append(function)
    return functions
