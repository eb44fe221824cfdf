"""Algorithmic FLOPs (Sec. 2.4 of the paper): matrix products of the blocks only, as pure functions.

The output head, norms, rotary embeddings and softmax are not counted, as in the paper.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from surelock.model.config import NetworkConfig


def row_flops(
    config: NetworkConfig,
    length: int | NDArray[np.int64],
    positions: NDArray[np.int64] | None = None,
    *,
    probed: bool = False,
) -> Any:
    """Return the FLOPs of one row of a sequence of `length` positions, in all layers: float64 in the shape of `length`.

    positions: where the rows lie, in the shape of `length`. In a block-causal network a row attends to the positions up
    to the end of its block; without positions to all.
    probed: whether the row's keys and values are not computed.

    With N attended positions and H heads, H_kv key/value heads of size d_h: attention 4 N H d_h, Q and Out 2 d H d_h
    each, K and V 4 d H_kv d_h, feed-forward 6 d d_ff; the paper's H d_h is d.
    """
    if positions is not None and config.block_size is not None:
        length = np.minimum(length, (positions // config.block_size + 1) * config.block_size)
    d, width = config.d_model, config.n_heads * config.head_size
    attention = 4 * length * width
    projections = 4 * d * width
    keys_values = 0 if probed else 4 * d * config.n_kv_heads * config.head_size
    return float(config.n_layers) * (attention + projections + keys_values + 6 * d * config.d_ff)


def baseline_flops(config: NetworkConfig, length: int, steps: int) -> float:
    """Return the FLOPs of a run on one sequence that computes every row in every step."""
    return steps * length * row_flops(config, length)


def per_position(flops: float, positions: int) -> float:
    """Return FLOPs divided by the positions of the batch, B * N_b, as the paper's tables print them."""
    return flops / positions
