"""`python -m surelock decode` and `flops`."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import Any

from tqdm import tqdm

from surelock.decoding.ends import text_of
from surelock.decoding.flags import add_decoder_flags, given_settings
from surelock.decoding.flops import baseline_flops, per_position
from surelock.decoding.loop import decode
from surelock.decoding.recommended import recommended
from surelock.decoding.totals import TotalsCounter
from surelock.model.config import NetworkConfig
from surelock.model.flags import add_model_flags, told_dtype
from surelock.model.loading import load


def add_decode_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("prompt", metavar="PROMPT", help="the text to continue")
    add_model_flags(parser)
    parser.add_argument("--device-map", choices=("auto",), help="spread the model over all devices (default: do not)")
    parser.add_argument("--chat", action="store_true", help="put the prompt into the model's chat template")
    add_decoder_flags(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")
    parser.set_defaults(run=run_decode)


def run_decode(arguments: argparse.Namespace) -> dict[str, Any] | None:
    lm = load(arguments.model, device=arguments.device, dtype=told_dtype(arguments), device_map=arguments.device_map)
    decoder = recommended(lm.generation, given_settings(arguments))
    if not arguments.prompt.isprintable() and any("\ud800" <= char <= "\udfff" for char in arguments.prompt):
        raise ValueError("PROMPT is no UTF-8 text")
    prompt = lm.encode(arguments.prompt, chat=arguments.chat)
    settings = decoder.settings
    counter = TotalsCounter(lm.network.config, settings.gen_length, lm.eos_id, guided=settings.cfg_scale > 0)
    step = None
    steps = decode(lm, [prompt], **decoder.keywords())
    with tqdm(steps, total=settings.total_steps, unit="step", leave=False, disable=None) as progress:
        for step in progress:
            counter.add(step)
            progress.set_postfix(locked=int(step.locked.sum()), masked=int(step.masked.sum()))
    assert step is not None
    ids = step.tokens[0, len(prompt) :].tolist()
    text, totals = text_of(lm, ids), counter.totals()
    print(arguments.prompt + text if not arguments.chat else text)
    if arguments.json:
        asked = {"lock": decoder.compute.locks, "compute": decoder.compute.kinds, "unmask": decoder.unmask.kind}
        return {"model": lm.name, "prompt": arguments.prompt, "text": text, **asked, **asdict(totals)}
    print(
        f"{totals.steps} steps in {totals.seconds:.2f} s; {totals.flops_ratio:.0%} of the baseline's FLOPs, "
        f"active ratio {totals.active_ratio:.3f}, {totals.locked:.0%} of the positions locked",
        file=sys.stderr,
    )
    return None


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
