"""The flags of `python -m surelock train` and `python -m surelock evaluate`, and what they run."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path
from typing import Any

from surelock.model.flags import add_model_flags, set_threads, told_dtype
from surelock.model.loading import load
from surelock.training import group
from surelock.training.data import read_stories
from surelock.training.evaluate import evaluate
from surelock.training.options import TrainOptions
from surelock.training.state import read_summary, write_summary
from surelock.training.trainer import Trainer

_DEFAULTS: dict[str, Any] = {field.name: field.default for field in fields(TrainOptions)}


def add_train_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `train`, one per field of TrainOptions; sets the parser's `run` to `train`."""
    add = parser.add_argument
    add("--data", type=Path, nargs="+", required=True, help="text files of stories, each closed by <|endoftext|>")
    add("--valid", type=Path, required=True, help="held-out stories: validated on, never trained on")
    add("--out", type=Path, required=True, help="directory for the run's state, its log and the best model so far")
    add("--init", type=Path, help="start from this checkpoint: its weights, shape and tokenizer")
    add("--resume", action="store_true", help="continue the interrupted run in --out")
    add("--minutes", type=float, help="lay a complete schedule into this much time")
    add("--steps", type=int, help="lay a complete schedule into this many steps")
    what = (
        f"lengths of the training windows, one per step in turn (default: {' '.join(map(str, _DEFAULTS['windows']))})"
    )
    add("--windows", type=int, nargs="+", help=what)
    add("--device", help="cpu or cuda (default: CUDA if there is one)")
    what = "of the matrix products; weights stay float32 (default: %(default)s)"
    add("--dtype", choices=("bfloat16", "float32"), help=what)
    add("--compile", action="store_true", help="compile forward and backward (needs a C++ compiler; a minute to start)")
    for name, kind, text in _NUMBERS:
        named = text if "default" in text else f"{text} (default: %(default)s)"
        add(f"--{name.replace('_', '-')}", type=kind, help=named)
    parser.set_defaults(run=train, **{k: v for k, v in _DEFAULTS.items() if k not in ("data", "valid", "out")})


_NUMBERS: tuple[tuple[str, Any, str], ...] = (
    ("pieces", int, "entries of a new tokenizer"),
    ("d_model", int, "width of a new network"),
    ("layers", int, "blocks of a new network"),
    ("heads", int, "attention heads of a new network"),
    ("ffn", int, "feed-forward width of a new network"),
    ("max_length", int, "positions that a new network is made for"),
    ("batch_tokens", int, "tokens per step"),
    ("renamed", int, "copies of every story with other names for its characters, beside the story itself"),
    ("prompted", float, "share of windows with a beginning that is never masked, as a prompt"),
    ("muon_rate", float, "peak learning rate of the matrices"),
    ("adam_rate", float, "peak learning rate of embedding and norms"),
    ("weight_decay", float, "decoupled decay of the matrices per unit of learning rate"),
    ("warm_up", float, "share of the schedule in which the learning rate rises"),
    ("seed", int, "of weights, order and masks"),
    ("threads", int, "threads of each process (default: torch's)"),
    ("processes", int, "processes on the CPU, each with its share of every batch"),
    ("evaluate_minutes", float, "minutes between validations"),
    ("evaluate_draws", int, "masks per window in a validation"),
    ("save_minutes", float, "minutes between saved states"),
)


def train(arguments: argparse.Namespace) -> dict[str, Any]:
    """Train as told and return the run's summary. Raises ValueError for flags that cannot be."""
    values: dict[str, Any] = {name: getattr(arguments, name) for name in _DEFAULTS}
    values |= {"data": tuple(arguments.data), "windows": tuple(arguments.windows)}
    options = TrainOptions(**values)
    if options.out.exists() and any(options.out.iterdir()) and not options.resume:
        raise ValueError(f"out: {options.out} is not empty (--resume continues the run in it)")
    group.run(_work, options.processes, options)
    return read_summary(options.out)


def _work(rank: int, world: int, options: TrainOptions) -> None:
    summary = Trainer(options, rank, world).run()
    if rank == 0:
        write_summary(options.out, summary)


def add_evaluate_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `evaluate`; sets the parser's `run` to `evaluate_text`."""
    add = parser.add_argument
    add_model_flags(parser)
    add("--text", type=Path, required=True, help="a text file of stories, each closed by <|endoftext|>")
    what = "longer stories are cut into equal parts of at most so many tokens (default: %(default)s)"
    add("--window", type=int, default=256, help=what)
    what = "masks per window; the standard error falls with their root (default: %(default)s)"
    add("--draws", type=int, default=16, help=what)
    add("--seed", type=int, default=0, help="of the masks (default: %(default)s)")
    add("--stories", type=int, help="only the first so many stories (default: all)")
    add("--threads", type=int, help="CPU threads (default: torch's)")
    add("--json", action="store_true", help="print one JSON object on the last line too")
    parser.set_defaults(run=evaluate_text)


def evaluate_text(arguments: argparse.Namespace) -> dict[str, Any] | None:
    """Print the upper bound on the text's nats per token and bits per character, with Monte Carlo standard errors.

    Returns all of it with --json, else None. Raises ValueError for a model without tokenizer and for unreadable text.
    """
    set_threads(arguments.threads)
    lm = load(arguments.model, device=arguments.device, dtype=told_dtype(arguments))
    if lm.tokenizer is None or lm.eos_id is None:
        raise ValueError(f"model: {arguments.model} has no tokenizer or no end-of-text token")
    texts = read_stories(arguments.text)[: arguments.stories]
    bound = evaluate(
        lm.network,
        [lm.encode(text) for text in texts],
        sum(map(len, texts)),
        mask_id=lm.mask_id,
        eos_id=lm.eos_id,
        window=arguments.window,
        draws=arguments.draws,
        seed=arguments.seed,
        show_progress=True,
    )
    print(f"at most {bound.nats_per_token:.4f} nats/token, Monte Carlo standard error {bound.nats_per_token_error:.4f}")
    print(f"at most {bound.bits_per_character:.4f} bits/character ({bound.bits_per_character_error:.4f})")
    return bound.as_dict() if arguments.json else None
