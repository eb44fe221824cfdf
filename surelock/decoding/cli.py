"""`python -m surelock flops`."""

from __future__ import annotations

import argparse

from surelock.decoding.flops import baseline_flops, per_position
from surelock.model.config import NetworkConfig


def add_flops_arguments(parser: argparse.ArgumentParser) -> None:
    for flag, what in (
        ("--d-model", "width"),
        ("--layers", "blocks"),
        ("--heads", "attention heads"),
        ("--kv-heads", "key/value heads"),
        ("--ffn", "width of the feed-forward layer"),
        ("--seq-len", "positions, prompt and generated"),
        ("--steps", "denoising steps"),
    ):
        parser.add_argument(flag, type=int, required=True, help=what)
    parser.add_argument("--head-size", type=int, help="width of a head (default: d-model / heads)")
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")
    parser.set_defaults(run=run_flops)


def run_flops(arguments: argparse.Namespace) -> dict[str, float] | None:
    for name in ("seq_len", "steps"):
        if getattr(arguments, name) < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be at least 1, not {getattr(arguments, name)}")
    if arguments.head_size is None and (arguments.heads < 1 or arguments.d_model % arguments.heads):
        raise ValueError(
            f"--heads ({arguments.heads}) must divide --d-model ({arguments.d_model}), or give --head-size"
        )
    config = NetworkConfig(
        vocab_size=1,
        d_model=arguments.d_model,
        n_layers=arguments.layers,
        n_heads=arguments.heads,
        n_kv_heads=arguments.kv_heads,
        head_size=arguments.head_size or arguments.d_model // arguments.heads,
        d_ff=arguments.ffn,
        max_length=arguments.seq_len,
        rope_theta=1.0,
        norm_eps=1.0,
        tied=True,
    )
    run = baseline_flops(config, arguments.seq_len, arguments.steps)
    result = {"flops_per_run": run, "flops_per_position": per_position(run, arguments.seq_len)}
    if arguments.json:
        return result
    print(f"{run:.4e} FLOPs per run, {result['flops_per_position']:.4e} per position (as the paper's tables print it)")
    return None
