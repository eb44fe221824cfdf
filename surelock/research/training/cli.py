"""The flags of `python -m surelock train` and `python -m surelock evaluate`, and what they run."""

import argparse
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from surelock.model.flags import add_model_flags, set_threads, told_dtype
from surelock.model.loading import load
from surelock.research.runner import launched
from surelock.research.training.data import read_stories
from surelock.research.training.objective import evaluate
from surelock.research.training.trainer import MAX_LENGTH, Trainer

_MOST_PARAMETERS = 10**10  # beyond these nothing here could be allocated


def add_train_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `train`; sets the parser's `run`."""
    add, told = parser.add_argument, " (default: %(default)s)"
    above_0, size = _from(float, 1e-9), _from(int, 1)
    stories = "text files of stories, each closed by <|endoftext|>"
    add("--data", type=Path, nargs="+", required=True, help=stories)
    add("--valid", type=Path, required=True, help="held-out stories: validated on, never trained on")
    add("--out", type=Path, required=True, help="directory for the run's state, its log and the best model so far")
    add("--init", type=Path, help="start from this checkpoint: its weights, shape and tokenizer")
    add("--resume", action="store_true", help="continue the interrupted run in --out")
    add("--minutes", type=above_0, help="lay a complete schedule into this much time")
    add("--steps", type=size, help="lay a complete schedule into this many steps; whichever ends first")
    what = "lengths of the training windows, one per step in turn (default: 192 256)"
    add("--windows", type=_from(int, 2, MAX_LENGTH), nargs="+", default=[192, 256], help=what)
    add("--device", help="cpu or cuda (default: CUDA if there is one)")
    add("--compile", action="store_true", help="compile forward and backward (needs a C++ compiler; a minute to start)")
    add("--pieces", type=_from(int, 1, 10**6), default=4096, help="entries of a new tokenizer" + told)
    add("--d-model", type=size, default=256, help="width of a new network" + told)
    add("--layers", type=_from(int, 1, 1000), default=6, help="blocks of a new network" + told)
    add("--heads", type=size, default=4, help="attention heads of a new network" + told)
    add("--ffn", type=size, default=704, help="feed-forward width of a new network" + told)
    add("--batch-tokens", type=_from(int, 1, 10**8), default=12288, help="tokens per step" + told)
    what = "copies of every story with other names for its characters, beside the story itself"
    add("--renamed", type=_from(int, 0, 1000), default=0, help=what + told)
    what = "share of windows with a beginning, of random length, that is never masked, as a prompt"
    add("--prompted", type=_from(float, 0, 1), default=0.0, help=what + told)
    add("--muon-rate", type=above_0, default=0.02, help="peak learning rate of the matrices" + told)
    add("--adam-rate", type=above_0, default=3e-3, help="peak learning rate of embedding and norms" + told)
    what = "share of the schedule in which the learning rate rises"
    add("--warm-up", type=_from(float, 0, 1), default=0.02, help=what + told)
    add("--seed", type=_from(int, 0), default=0, help="of weights, order and masks" + told)
    add("--threads", type=int, help="threads of each process (default: torch's)")
    add("--evaluate-minutes", type=above_0, default=10.0, help="minutes between validations" + told)
    add("--evaluate-draws", type=size, default=8, help="masks per window in a validation" + told)
    parser.set_defaults(run=train)


def _from(kind: type, low: float, high: float = 1e9) -> Callable[[str], Any]:
    """What reads the value of a flag: a number from `low` to `high`."""

    def read(text: str) -> Any:
        value = kind(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"must be from {low:g} to {high:g}, not {text}")
        return value

    read.__name__ = kind.__name__  # what argparse calls it
    return read


def train(arguments: argparse.Namespace) -> dict[str, Any] | None:
    """Train as told; the first of the processes that `accelerate launch` started returns the run's summary.

    Raises ValueError for flags that cannot be.
    """
    with launched(arguments.device) as processes:
        _check(arguments, processes.num_processes)
        processes.wait_for_everyone()  # the first begins to fill --out
        arguments.device = arguments.device or str(processes.device)
        summary = Trainer(arguments, processes.process_index, processes.num_processes).run()
        return summary if processes.is_main_process else None


def _check(flags: argparse.Namespace, processes: int) -> None:
    if flags.minutes is None and flags.steps is None:
        raise ValueError("give --minutes, --steps or both")
    if flags.d_model % flags.heads:
        raise ValueError(f"--heads must divide --d-model ({flags.d_model}), {flags.heads} does not")
    if flags.batch_tokens // max(flags.windows) < processes:
        raise ValueError("--batch-tokens are too few for a window in each process")
    parameters = flags.d_model * (flags.pieces + flags.layers * (4 * flags.d_model + 3 * flags.ffn))
    if parameters > _MOST_PARAMETERS:
        raise ValueError(f"--d-model makes a network of {parameters:.1e} parameters with these layers and ffn")
    if flags.out.exists() and any(flags.out.iterdir()) and not flags.resume:
        raise ValueError(f"--out: {flags.out} is not empty (--resume continues the run in it)")


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
