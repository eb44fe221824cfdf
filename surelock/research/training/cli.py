"""The flags of `python -m surelock train` and `python -m surelock evaluate`, and what they run."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from surelock.model.flags import add_model_flags, set_threads, told_dtype
from surelock.model.loading import load
from surelock.research.training import group
from surelock.research.training.data import read_stories
from surelock.research.training.objective import evaluate
from surelock.research.training.options import TrainOptions
from surelock.research.training.trainer import Trainer

SUMMARY = "summary.json"


def add_train_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `train`; sets the parser's `run`."""
    TrainOptions.add_flags(parser)
    parser.set_defaults(run=train)


def train(arguments: argparse.Namespace) -> dict[str, Any]:
    """Train as told and return the run's summary. Raises ValueError for flags that cannot be."""
    values: dict[str, Any] = {each.name: getattr(arguments, each.name) for each in fields(TrainOptions)}
    values |= {"data": tuple(arguments.data), "windows": tuple(arguments.windows)}
    options = TrainOptions(**values)
    if options.out.exists() and any(options.out.iterdir()) and not options.resume:
        raise ValueError(f"out: {options.out} is not empty (--resume continues the run in it)")
    group.run(_work, options.processes, options)
    return json.loads((options.out / SUMMARY).read_text(encoding="utf-8"))


def _work(rank: int, world: int, options: TrainOptions) -> None:
    summary = Trainer(options, rank, world).run()
    if rank == 0:
        (options.out / SUMMARY).write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")


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
    lm = load(arguments.model, device=arguments.device, dtype=told_dtype(arguments), engine="torch")
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
    return asdict(bound) if arguments.json else None
