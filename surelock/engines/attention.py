"""Attention of a step's rows. The sequences of a batch may have different numbers of rows."""

import inspect
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from surelock.config import NetworkConfig
from surelock.values import Json, Whole, frozen

_LEAST_CAPABILITY = (8, 0)  # of a GPU that has flash attention
_LARGEST_HEAD = 256


@frozen
class Segments:
    """S segments: groups of neighbouring rows that attend to the same positions.

    A segment contains the rows of a sequence; in a block-causal network, the rows of a block.
    """

    rows: Tensor  # [S + 1] int32, the first row of every segment, then the number of rows
    # [S + 1] int32, the first slot of every segment's sequence, then the number of slots
    starts: Tensor
    # [S] int32, by segment, the number of slots that it attends to; None: all slots of its sequence
    seen: Tensor | None
    most_rows: int  # upper bound of the number of rows of a segment
    most_seen: int  # upper bound of the number of slots that a segment attends to


def varlen_attn(*tensors: Any, **more: Any) -> Tensor:
    """Call torch's `varlen_attn`, which is imported here because the import is slow and a CPU never needs it."""
    from torch.nn.attention import varlen

    return cast("Tensor", varlen.varlen_attn(*tensors, **more))


@lru_cache
def parameters() -> frozenset[str]:
    """Return the names of the parameters of torch's `varlen_attn`. Newer releases of torch have more of them."""
    from torch.nn.attention import varlen

    return frozenset(inspect.signature(varlen.varlen_attn).parameters)


@lru_cache(maxsize=16)
def has_varlen(config: NetworkConfig, dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether torch has a kernel on the device for sequences with different numbers of rows."""
    if dtype.itemsize > 2 or config.head_size > _LARGEST_HEAD or config.head_size % 8:
        return False
    if device.type not in ("cuda", "meta") or (
        config.block_size is not None and "seqused_k" not in parameters()
    ):
        return False
    return device.type == "meta" or torch.cuda.get_device_capability(device) >= _LEAST_CAPABILITY


def segment_arrays(
    config: NetworkConfig, positions: Whole, counts: Sequence[int], lengths: Sequence[int]
) -> dict[str, NDArray[np.int32]]:
    """Return the arrays of `Segments`, by name, int32.

    positions: [R] int64, positions of the rows. counts: by sequence, its number of rows. lengths: by sequence, its
    number of slots.
    """
    rows = np.cumsum([0, *counts])
    starts = np.cumsum([0, *lengths])
    if config.block_size is None:
        return {"rows": rows.astype(np.int32), "starts": starts.astype(np.int32)}
    sequence = np.repeat(np.arange(len(counts)), counts)
    block_end = (positions // config.block_size + 1) * config.block_size
    seen = np.minimum(block_end, np.array(lengths)[sequence])
    begins = (np.diff(sequence, prepend=-1) != 0) | (np.diff(seen, prepend=0) != 0)
    first = np.flatnonzero(begins)  # the first row of every segment
    arrays = {
        "rows": np.append(first, len(positions)),
        "starts": np.append(starts[sequence[first]], starts[-1]),
        "seen": seen[first],
    }
    return {name: array.astype(np.int32) for name, array in arrays.items()}


def attend_segments(q: Tensor, keys: Tensor, values: Tensor, segments: Segments) -> Tensor:
    """Attend from q [R, n_heads, head_size] to keys and values [slots, n_kv_heads, head_size], in one kernel.

    Returns a tensor in the shape of q.
    """
    more: Json = {} if segments.seen is None else {"seqused_k": segments.seen}
    # without this parameter, torch takes any number of key/value heads
    if "enable_gqa" in parameters():
        more["enable_gqa"] = q.shape[1] != keys.shape[1]
    most = segments.most_rows, segments.most_seen
    return varlen_attn(q, keys, values, segments.rows, segments.starts, *most, **more)


def attend_sequences(
    q: Tensor, keys: Tensor, values: Tensor, batch: int, gqa: bool, mask: Tensor | None
) -> Tensor:
    """Attend within `batch` sequences of equal length N, which lie one after the other.

    q: [batch * Q, n_heads, head_size]. keys, values: [batch * N, n_kv_heads, head_size].
    gqa: whether there are fewer key/value heads than query heads.
    mask: [batch * Q, at least N] bool, the positions that a row sees; None: all positions.

    Returns a tensor in the shape of q.
    """
    length = len(keys) // batch
    seen = None if mask is None else mask[:, :length].view(batch, 1, -1, length)
    q, keys, values = (x.view(batch, -1, *x.shape[1:]).transpose(1, 2) for x in (q, keys, values))
    attended = F.scaled_dot_product_attention(q, keys, values, seen, enable_gqa=gqa)
    return attended.transpose(1, 2).flatten(0, 1)
