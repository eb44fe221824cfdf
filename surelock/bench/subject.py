"""The subject of a benchmark: the flags that name a model, the model itself, its prompts, and the reported setup."""

import argparse
import os
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from surelock.bench.random_weights import SHAPES, random_model, write_random
from surelock.bench.timing import Figures
from surelock.engines.flags import add_model_flags
from surelock.loading import find_device, load_by, read_dtype
from surelock.model.language_model import LanguageModel
from surelock.model.machine import device_name, processor, set_threads

MOST = 10_000  # the greatest number of repeats, the greatest batch, and the greatest number of tokens of a prompt
OPENINGS = (
    "Once upon a time there was a little girl named Mia who wanted to see the sea.",
    "Ben had a small blue boat. One windy morning he took it down to",
    "The old dog slept by the door all day, until",
    "It was raining, and Grandma said that nobody could go out to play. So Tom and Ada",
)


def add_subject_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of a benchmark that decodes with one model, or with random weights of a shape."""
    add_size_flags(parser)
    what = "runs of each; fewer than 3 tell no ratio (default: %(default)s)"
    parser.add_argument("--repeats", type=int, default=3, help=what)


def add_size_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that choose a model or a shape, the batch, the threads and the length of prompts."""
    add_model_flags(parser)
    add = parser.add_argument
    add("--batch", type=int, default=1, help="sequences decoded together (default: %(default)s)")
    add("--threads", type=int, help="CPU threads (default: torch's)")
    add("--shape", choices=SHAPES, help="a network of this shape instead of a model")
    add(
        "--random-weights",
        action="store_true",
        help="required with --shape: its weights are random",
    )
    add(
        "--prompt-length",
        type=int,
        default=16,
        help="tokens of a prompt, with --shape (default: %(default)s)",
    )


def subject(arguments: argparse.Namespace) -> tuple[LanguageModel, float]:
    """Set the number of torch's threads, load the model, and return it with the seconds that loading took.

    On a CPU the random weights of a shape are first written to files, which are then loaded like a model. On a GPU they
    are made on the device. A shape recommends no settings.

    Raises ValueError for flags that cannot be followed.
    """
    for name in ("repeats", "batch", "prompt_length"):
        if not 1 <= (value := getattr(arguments, name, 1)) <= MOST:
            raise ValueError(f"--{name.replace('_', '-')} must be from 1 to {MOST}, not {value}")
    shape = arguments.shape
    device = find_device(arguments.device)
    dtype = read_dtype(arguments.dtype)
    if arguments.random_weights != (shape is not None):
        raise ValueError("--shape and --random-weights belong together")
    set_threads(arguments.threads)
    with TemporaryDirectory() as folder:
        if shape is not None and device.type == "cpu":
            write_random(SHAPES[shape], Path(folder))
            arguments = argparse.Namespace(**vars(arguments) | {"model": folder, "tokenizer": ""})
        begun = time.perf_counter()
        if shape is None or device.type == "cpu":
            lm = load_by(arguments)
        elif arguments.engine == "onnx":
            raise ValueError(
                "--shape is computed by engine 'torch' on a GPU: leave --engine onnx out"
            )
        else:
            lm = random_model(shape, device, dtype or torch.bfloat16)
        seconds = time.perf_counter() - begun
        if shape is not None:
            lm = replace(lm, name=shape, generation={})
        return lm, seconds


def prompts_for(lm: LanguageModel, batch: int, prompt_length: int = 16) -> list[list[int]]:
    """Return the token ids of `batch` prompts.

    They are the texts of OPENINGS; for a model without a tokenizer they are `prompt_length` random tokens.
    """
    if lm.tokenizer is not None:
        return [lm.encode(OPENINGS[b % len(OPENINGS)]) for b in range(batch)]
    generator = np.random.default_rng(0)
    return generator.integers(2, lm.config.vocab_size, (batch, prompt_length)).tolist()


def setup_of(lm: LanguageModel) -> Figures:
    """Return the properties that times depend on: model, dtype, device, processor, cores, threads, torch, engine."""
    return {
        "model": lm.name,
        "dtype": lm.dtype,
        "device": device_name(lm.device),
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "engine": lm.engine.name,
    }
