"""Algorithmic FLOPs (Sec. 2.4 of the paper): matrix products of the blocks only, as pure functions.

The output head, norms, rotary embeddings and softmax are not counted, as in the paper.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from surelock.model.config import NetworkConfig


def attended(config: NetworkConfig, positions: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many positions rows at `positions` attend to in sequences of `lengths` positions, int64, all of one
    shape.
    """
    size = config.block_size
    return lengths if size is None else np.minimum(lengths, (positions // size + 1) * size)


def row_flops(config: NetworkConfig, length: int | NDArray[np.int64], *, probed: bool = False) -> Any:
    """Return the FLOPs of one row that attends to `length` positions, in all layers: float64 in the shape of `length`.

    With H heads, H_kv key/value heads of size d_h: attention 4 N H d_h, Q and Out 2 d H d_h each, K and V 4 d H_kv d_h
    (a probed row has none), feed-forward 6 d d_ff; the paper's H d_h is d.
    """
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
