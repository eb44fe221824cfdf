"""A real size without its weights: a network of known shape with random ones, and a recorded schedule stretched to it.

The schedule, when each position was unmasked and locked, decides which rows lock when, while all of the rule's
arithmetic still runs.
"""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from surelock.bench import add_flags, check_numbers, openings
from surelock.decoding.choices import Decoder
from surelock.decoding.locking import LockRule
from surelock.decoding.state import Slots, State
from surelock.decoding.step import Reading, Step
from surelock.decoding.unmasking import Replay
from surelock.engines.torch import TorchEngine
from surelock.model.config import LLADA_8B, NetworkConfig
from surelock.model.flags import set_threads, told_dtype
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


def add_subject_flags(parser: argparse.ArgumentParser, gen_length: int) -> None:
    """The flags of `bench decode`, and those of a shape."""
    add_flags(parser, gen_length)
    add = parser.add_argument
    add("--shape", choices=SHAPES, help="a network of this shape instead of a model")
    add("--random-weights", action="store_true", help="required with --shape: its weights are random")
    add("--prompt-length", type=int, default=16, help="tokens of a prompt, with --shape (default: %(default)s)")


def subject(arguments: argparse.Namespace, engine: str = "torch") -> LanguageModel:
    """The model that the flags name, torch's threads set. Raises ValueError for flags that ask for the impossible."""
    check_numbers(arguments, "repeats", "batch", "prompt_length")
    set_threads(arguments.threads)
    dtype = told_dtype(arguments)
    if arguments.random_weights != (arguments.shape is not None):
        raise ValueError("--shape and --random-weights belong together")
    if arguments.shape is None:
        return load(arguments.model, device=arguments.device, dtype=dtype, engine=engine)
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
    return LanguageModel(shape, TorchEngine(network), None, mask_id=1, eos_id=0, eot_id=None, pad_id=0)


def with_room(lm: LanguageModel, positions: int) -> LanguageModel:
    """The model, if need be for more positions than it was made for: what it writes there is no text, the time is."""
    if lm.config.max_length >= positions:
        return lm
    engine = copy.copy(lm.engine)
    engine.config = replace(lm.config, max_length=positions)
    return replace(lm, engine=engine)


def prompts_for(lm: LanguageModel, batch: int, prompt_length: int = 16) -> list[list[int]]:
    """Token ids of so many prompts: openings, or, without a tokenizer, random ones of that length."""
    if lm.tokenizer is not None:
        return openings(lm, batch)
    generator = np.random.default_rng(0)
    return generator.integers(2, lm.config.vocab_size, (batch, prompt_length)).tolist()


def record(steps: Sequence[Step], prompt_length: int, model: str) -> dict[str, Any]:
    """The first sequence's schedule. unmask: step of each generated position; lock: of every position, -1 for never."""
    width = len(steps[0].tokens[0])
    first = width - int(steps[0].computed[0].sum())
    unmask, lock = np.full((2, width), -1)
    for step in steps:
        unmask[step.newly_unmasked[0]] = step.index
        lock[step.newly_locked[0]] = step.index
    return {
        "model": model,
        "steps": len(steps),
        "prompt_length": prompt_length,
        "unmask": unmask[first + prompt_length :].tolist(),
        "lock": lock[first:].tolist(),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedLocks(LockRule):
    """The paper's rule with all of its arithmetic, which is what a benchmark times, but for its verdict.

    at: for each sequence the step in which each position locks at the earliest.
    """

    at: tuple[tuple[int, ...], ...]

    def converged(self, state: State, reading: Reading, z: Slots) -> NDArray[np.bool_]:
        LockRule.converged(self, state, reading, z)
        at = state.kept("recorded_locks", -1)
        if state.step == 0:
            if [len(steps) for steps in self.at] != state.canvas.lengths.tolist():
                raise ValueError(f"at must give a step for each of the {state.canvas.lengths.tolist()} positions")
            at[:] = np.concatenate(self.at)
        return at[reading.slots[z]] <= state.step


def stretch(file: Path, decoder: Decoder, prompts: Sequence[Sequence[int]], vocab_size: int) -> Decoder:
    """A decoder that replays the schedule in `file` on prompts and a gen_length of any size; its rule is a LockRule.

    Raises ValueError when the file is not a recorded schedule.
    """
    settings, rule = decoder.settings, decoder.compute
    assert isinstance(rule, LockRule)
    try:
        recorded = json.loads(file.read_text(encoding="utf-8"))
        unmask, lock = np.array(recorded["unmask"]), np.array(recorded["lock"])
        prompt_length, scale = recorded["prompt_length"], settings.total_steps / recorded["steps"]
        if len(lock) != prompt_length + len(unmask) or not len(unmask):
            raise ValueError("'lock' must cover the prompt and all of 'unmask'")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file} is not a recorded lock schedule: {error}") from error
    generated = np.arange(settings.gen_length)
    source = generated * len(unmask) // settings.gen_length
    order = np.lexsort((generated, unmask[source]))
    unmask_at = np.empty_like(generated)
    unmask_at[order] = generated * settings.total_steps // settings.gen_length
    lock_scaled = np.where(lock < 0, settings.total_steps, np.round(lock * scale)).astype(int)
    lock_generated = np.maximum(lock_scaled[prompt_length:][source], unmask_at)
    tokens = np.random.default_rng(0).integers(2, vocab_size, (len(prompts), settings.gen_length))
    replay = [list(zip(unmask_at.tolist(), generated.tolist(), row.tolist(), strict=True)) for row in tokens]
    schedule = []
    for prompt in prompts:
        lock_prompt = lock_scaled[np.arange(len(prompt)) * prompt_length // len(prompt)]
        schedule.append(tuple(np.concatenate((lock_prompt, lock_generated)).tolist()))
    return replace(decoder, unmask=Replay(replay), compute=RecordedLocks(epsilon=rule.epsilon, at=tuple(schedule)))
