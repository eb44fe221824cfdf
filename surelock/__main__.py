"""The command line: `python -m surelock COMMAND`. Flags mirror the arguments of the functions behind them."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any


def main(argv: list[str] | None = None) -> int:
    """Run a command; errors a user can mend are one sentence on standard error and exit status 2."""
    arguments = _parser().parse_args(argv)
    try:
        result = arguments.run(arguments)
    except (ValueError, ArithmeticError, OSError) as error:
        print(f"surelock: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("surelock: interrupted", file=sys.stderr)
        return 130
    if result is not None:
        print(json.dumps(result), flush=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="surelock", description="Locked decoding of masked diffusion language models."
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_decode(commands.add_parser("decode", help="continue a prompt, with or without locking"))
    _add_flops(commands.add_parser("flops", help="algorithmic FLOPs of the unlocked sampler for a network's shape"))
    bench = commands.add_parser("bench", help="benchmarks; each prints one JSON line last")
    benches = bench.add_subparsers(title="benchmarks", metavar="BENCHMARK", required=True)
    decode = benches.add_parser("decode", help="time the locked sampler beside the unlocked one")

    from surelock.experiments.bench import add_arguments
    from surelock.experiments.cli import add_arguments as add_experiment_arguments
    from surelock.training.cli import add_evaluate_arguments, add_train_arguments

    add_arguments(decode)
    add_experiment_arguments(commands.add_parser("experiment", help="one of the paper's experiments, resumable"))
    add_train_arguments(commands.add_parser("train", help="train a small model in the LLaDA layout"))
    add_evaluate_arguments(commands.add_parser("evaluate", help="held-out bound in nats per token, bits per character"))
    return parser


def _percentile(text: str) -> float | None:
    return None if text.lower() == "none" else float(text)


def _add_decode(parser: argparse.ArgumentParser) -> None:
    from surelock.decoding.settings import REMASKING
    from surelock.model.flags import add_model_flags

    parser.add_argument("prompt", metavar="PROMPT", help="the text to continue")
    add_model_flags(parser)
    parser.add_argument("--device-map", choices=("auto",), help="spread the model over all devices")
    parser.add_argument("--chat", action="store_true", help="put the prompt into the model's chat template")
    policies = [name for name in REMASKING if name != "replay"]  # a replay takes no flags
    # Left out (None) means: what the model's generation_config.json says, else the library's default.
    settings = parser.add_argument_group("sampler")
    settings.add_argument("--gen-length", type=int, help="positions to generate")
    settings.add_argument("--steps", type=int, help="denoising steps (default: gen-length)")
    settings.add_argument("--block-length", type=int, help="length of semi-autoregressive blocks (default: gen-length)")
    settings.add_argument("--temperature", type=float, help="of the Gumbel-max choice of tokens; 0 takes the likeliest")
    settings.add_argument("--cfg-scale", type=float, help="classifier-free guidance; 0 is off")
    settings.add_argument("--remasking", choices=policies, help="which positions are unmasked first")
    settings.add_argument("--threshold", type=float, help="confidence to commit at, for --remasking threshold")
    settings.add_argument("--seed", type=int)
    settings.add_argument("--suppress-eos", action="store_true", default=None, help="never generate EOS")
    settings.add_argument("--suppress-eos-confidence", action="store_true", default=None, help="commit EOS last")
    settings.add_argument(
        "--no-repeat-ngram-size", type=int, help="no phrase of so many tokens comes twice; 0 allows it"
    )
    settings.add_argument("--select-fraction", type=float, help="share of the active rows computed in a step")
    rule = parser.add_argument_group("lock rule")
    rule.add_argument("--epsilon", type=float, help="lock at a step-wise KL of at most this many nats")
    rule.add_argument(
        "--percentile", type=_percentile, default=argparse.SUPPRESS, help="confidence gate, 0-100 or none"
    )
    rule.add_argument(
        "--visible-steps", type=int, help="steps a token must have been seen; 0 is Algorithm 1 to the letter"
    )
    rule.add_argument("--unlock", action="store_true", help="probe locked positions and unlock those that drift")
    rule.add_argument("--no-lock", action="store_true", help="the baseline: never lock")
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")
    parser.set_defaults(run=run_decode)


def run_decode(arguments: argparse.Namespace) -> dict[str, Any] | None:
    from tqdm import tqdm

    from surelock.decoding.loop import cut_at_eos, decode
    from surelock.decoding.recommended import recommended_rule, recommended_settings
    from surelock.decoding.totals import TotalsCounter
    from surelock.model.flags import told_dtype
    from surelock.model.loading import load

    lm = load(arguments.model, device=arguments.device, dtype=told_dtype(arguments), device_map=arguments.device_map)
    given = {name: value for name, value in vars(arguments).items() if value is not None or name == "percentile"}
    settings = recommended_settings(lm.generation, given)
    lock = None if arguments.no_lock else recommended_rule(lm.generation, given)
    prompt = lm.encode(arguments.prompt, chat=arguments.chat)
    counter = TotalsCounter(lm.network.config, settings.gen_length, lm.eos_id, guided=settings.cfg_scale > 0)
    steps = decode(lm, [prompt], settings, lock=lock)
    step = None
    with tqdm(steps, total=settings.total_steps, unit="step", leave=False, disable=None) as progress:
        for step in progress:
            counter.add(step)
            progress.set_postfix(locked=int(step.locked.sum()), masked=int(step.masked.sum()))
    assert step is not None
    ids = step.tokens[0, len(prompt) :].tolist()
    text, totals = lm.decode(cut_at_eos(ids, lm.eos_id)), counter.totals()
    print(arguments.prompt + text if not arguments.chat else text)
    if arguments.json:
        return {"model": lm.name, "prompt": arguments.prompt, "text": text, "lock": lock is not None, **asdict(totals)}
    print(
        f"{totals.steps} steps in {totals.seconds:.2f} s; {totals.flops_ratio:.0%} of the baseline's FLOPs, "
        f"active ratio {totals.active_ratio:.3f}, {totals.locked:.0%} of the positions locked",
        file=sys.stderr,
    )
    return None


def _add_flops(parser: argparse.ArgumentParser) -> None:
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
    from surelock.decoding.flops import baseline_flops, per_position
    from surelock.model.config import NetworkConfig

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


if __name__ == "__main__":
    sys.exit(main())
