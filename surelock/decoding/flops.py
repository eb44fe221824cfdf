"""Algorithmic FLOPs (Sec. 2.4 of the paper), matrix products of the blocks only; and the command `surelock flops`.

The output head, norms, rotary embeddings and softmax are not counted, as in the paper.
"""

import argparse
from typing import Any

import numpy as np

from surelock.config import NetworkConfig
from surelock.values import Whole


def row_flops(
    config: NetworkConfig,
    length: int | Whole,
    positions: Whole | None = None,
    *,
    probed: bool = False,
) -> Any:
    """Return the FLOPs of one row of a sequence of `length` positions, in all layers: float64 in the shape of `length`.

    positions: positions of the rows in their sequences, in the shape of `length`. In a block-causal network a row
    attends to the positions up to the end of its block. If `positions` is None, it attends to all.
    probed: whether the rows are probed, which saves the products of keys and values.

    Sec. 2.4 of the paper, where H d_h is d. With N attended positions, H heads and H_kv key/value heads of size d_h:
    - attention: 4 N H d_h;
    - Q and Out: 4 d H d_h;
    - K and V: 4 d H_kv d_h;
    - feed-forward: 6 d d_ff, or 4 d d_ff without a gate.

    A layer that is a convolution has products of the width d: B and X 4 d^2, C and Out 4 d^2.
    """
    if positions is not None and config.block_size is not None:
        length = np.minimum(length, (positions // config.block_size + 1) * config.block_size)
    d = config.d_model
    width = config.n_heads * config.head_size
    convs = len(config.conv_layers)
    keys_values = 0 if probed else 4 * d * config.n_kv_heads * config.head_size
    attention = (config.n_layers - convs) * (4 * length * width + 4 * d * width + keys_values)
    per_weight = 4 if config.gelu else 6
    feed_forward = config.n_layers * per_weight * d * config.d_ff
    conv_products = 4 if probed else 8
    return 1.0 * (attention + feed_forward + convs * conv_products * d * d)


def baseline_flops(config: NetworkConfig, length: int, steps: int) -> float:
    """Return the FLOPs of a run on one sequence that computes every row in every step."""
    return steps * length * row_flops(config, length)


def add_flops_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `surelock flops`."""
    flags = {
        "--d-model": "width",
        "--layers": "blocks",
        "--heads": "attention heads",
        "--kv-heads": "key/value heads",
    }
    flags |= {
        "--ffn": "width of the feed-forward layer",
        "--seq-len": "positions, prompt and generated",
    }
    for flag, what in (flags | {"--steps": "denoising steps"}).items():
        parser.add_argument(flag, type=int, required=True, help=what)
    parser.add_argument("--head-size", type=int, help="width of a head (default: d-model / heads)")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object on the last line"
    )
    parser.set_defaults(run=run_flops)


def run_flops(arguments: argparse.Namespace) -> dict[str, float] | None:
    """Print the FLOPs of a run without locks, or return them for --json. Raises ValueError for an impossible shape."""
    d_model = arguments.d_model
    heads = arguments.heads
    length = arguments.seq_len
    for flag, value in (("--seq-len", length), ("--steps", arguments.steps)):
        if value < 1:
            raise ValueError(f"{flag} must be at least 1, not {value}")
    if arguments.head_size is None and (heads < 1 or d_model % heads):
        raise ValueError(
            f"--heads ({heads}) must divide --d-model ({d_model}), or give --head-size"
        )
    shape = {
        "d_model": d_model,
        "n_layers": arguments.layers,
        "n_heads": heads,
        "n_kv_heads": arguments.kv_heads,
    }
    shape |= {
        "head_size": arguments.head_size or d_model // heads,
        "d_ff": arguments.ffn,
        "max_length": length,
    }
    run = baseline_flops(
        NetworkConfig(vocab_size=1, rope_theta=1.0, norm_eps=1.0, tied=True, **shape),
        length,
        arguments.steps,
    )
    result = {"flops_per_run": run, "flops_per_position": run / length}
    if arguments.json:
        return result
    print(
        f"{run:.4e} FLOPs per run, {result['flops_per_position']:.4e} per position (as the paper's tables print it)"
    )
    return None
