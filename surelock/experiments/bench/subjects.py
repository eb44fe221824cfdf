"""What a benchmark decodes with: a model, or a network of a known shape with random weights, and its prompts."""

from __future__ import annotations

import argparse
import copy
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from surelock.decoding.settings import DecodeSettings
from surelock.experiments.lab import weights_of
from surelock.experiments.machine import machine
from surelock.model.config import LLADA_8B, NetworkConfig
from surelock.model.flags import add_compile_flag, add_model_flags, set_threads, told_dtype
from surelock.model.language_model import LanguageModel
from surelock.model.loading import find_device, load
from surelock.model.network import Network

SHAPES = {
    "llada-8b": LLADA_8B,
    "tiny": NetworkConfig(
        vocab_size=512, d_model=32, n_layers=2, n_heads=2, n_kv_heads=2, head_size=16, d_ff=64,
        max_length=1024, rope_theta=1e4, norm_eps=1e-5, tied=True,
    ),
}  # fmt: skip
MOST = 10_000  # repeats, sequences, tokens of a prompt
OPENINGS = (
    "Once upon a time there was a little girl named Mia who wanted to see the sea.",
    "Ben had a small blue boat. One windy morning he took it down to",
    "The old dog slept by the door all day, until",
    "It was raining, and Grandma said that nobody could go out to play. So Tom and Ada",
)


def add_subject_flags(parser: argparse.ArgumentParser, gen_length: int) -> None:
    """The flags of every benchmark that decodes with one model and one length."""
    add_model_flags(parser)
    add_compile_flag(parser)
    add = parser.add_argument
    add("--shape", choices=SHAPES, help="a network of this shape instead of a model")
    add("--random-weights", action="store_true", help="required with --shape: its weights are random")
    add("--gen-length", type=int, default=gen_length, help="positions to generate (default: %(default)s)")
    add("--steps", type=int, help="denoising steps (default: gen-length)")
    add("--batch", type=int, default=1, help="sequences decoded together (default: %(default)s)")
    add("--prompt-length", type=int, default=16, help="tokens of a prompt, with --shape (default: %(default)s)")
    add("--epsilon", type=float, default=5e-4, help="KL in nats at which a position locks (default: %(default)s)")
    add("--repeats", type=int, default=3, help="runs of each; fewer than 3 tell no ratio (default: %(default)s)")
    add("--threads", type=int, help="CPU threads (default: torch's)")


def subject(arguments: argparse.Namespace) -> LanguageModel:
    """The model that the flags name, torch's threads set. Raises ValueError for flags that ask for the impossible."""
    for name in ("repeats", "batch", "prompt_length"):
        if not 1 <= getattr(arguments, name) <= MOST:
            raise ValueError(f"--{name.replace('_', '-')} must be from 1 to {MOST}, not {getattr(arguments, name)}")
    set_threads(arguments.threads)
    dtype = told_dtype(arguments)
    if arguments.random_weights != (arguments.shape is not None):
        raise ValueError("--shape and --random-weights belong together")
    if arguments.shape is None:
        return load(arguments.model, device=arguments.device, dtype=dtype, compiled=arguments.compile)
    if arguments.compile:
        raise ValueError("--compile is of a model: --shape has no part in it")
    device = find_device(arguments.device)
    return random_model(arguments.shape, device, dtype or (torch.bfloat16 if device.type == "cuda" else torch.float32))


def random_model(shape: str, device: torch.device, dtype: torch.dtype) -> LanguageModel:
    """A network of one of SHAPES whose weights are noise, made where it runs; no tokenizer."""
    torch.manual_seed(0)
    with torch.device("meta"):
        network = Network(SHAPES[shape])
    network = network.to(dtype).to_empty(device=device).eval().requires_grad_(False)
    for name, parameter in network.named_parameters():
        if name.endswith("norm.weight"):
            parameter.fill_(1.0)
        else:
            parameter.normal_(std=0.02)
    return LanguageModel(shape, network, None, mask_id=1, eos_id=0, eot_id=None, pad_id=0)


def with_room(lm: LanguageModel, positions: int) -> LanguageModel:
    """The model, if need be for more positions than it was made for: what it writes there is no text, the time is."""
    if lm.network.config.max_length >= positions:
        return lm
    network = copy.copy(lm.network)
    network.config = replace(network.config, max_length=positions)
    return replace(lm, network=network)


def prompts_for(lm: LanguageModel, batch: int, prompt_length: int = 16) -> list[list[int]]:
    """Token ids of so many prompts: the openings in turn, or, without a tokenizer, random ones of that length."""
    if lm.tokenizer is not None:
        return [lm.encode(OPENINGS[b % len(OPENINGS)]) for b in range(batch)]
    generator = np.random.default_rng(0)
    return generator.integers(2, lm.network.config.vocab_size, (batch, prompt_length)).tolist()


def setup_of(lm: LanguageModel) -> dict[str, Any]:
    """What every benchmark says of its model and its machine."""
    return {"model": lm.name, **weights_of(lm), **machine(lm.device)}


def asked_of(arguments: argparse.Namespace, settings: DecodeSettings) -> dict[str, Any]:
    """What every benchmark says of what it was asked for."""
    return {
        "gen_length": settings.gen_length,
        "steps": settings.total_steps,
        "batch": arguments.batch,
        "epsilon": arguments.epsilon,
        "repeats": arguments.repeats,
        "compiled": arguments.compile,
    }
