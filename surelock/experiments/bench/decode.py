"""`bench decode`: the locked sampler beside the unlocked one; with --profile, where the time of a step goes."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from surelock.decoding.choices import Decoder
from surelock.decoding.locking import LockRule
from surelock.decoding.posterior import kl_divergence
from surelock.decoding.settings import DecodeSettings
from surelock.experiments.bench.lockstep import DecodeBench, timed
from surelock.experiments.bench.step_profile import profile, shown
from surelock.experiments.bench.subjects import add_subject_flags, asked_of, prompts_for, setup_of, subject
from surelock.experiments.lock_schedule import record, stretch
from surelock.experiments.machine import load
from surelock.experiments.spread import Figures, joined, told
from surelock.model.cache import Rows
from surelock.model.language_model import LanguageModel
from surelock.trace.cli import target_file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `bench decode`; sets the parser's `run`."""
    add_subject_flags(parser, gen_length=256)
    add = parser.add_argument
    add("--record-locks", type=Path, metavar="FILE", help="keep when each position was unmasked and locked")
    add("--replay-locks", type=Path, metavar="FILE", help="unmask and lock as recorded, stretched to this length")
    add(
        "--buckets",
        type=int,
        nargs="+",
        default=(),
        metavar="ROWS",
        help="compute so many rows of a sequence, filled up",
    )
    add("--profile", action="store_true", help="instead: a step's time by part, at 1, 8, 32, 128 and all rows")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """The benchmark's one JSON object. Raises ValueError for flags that ask for the impossible."""
    locks = arguments.record_locks and target_file("--record-locks", arguments.record_locks)
    load_at_start = load()
    if arguments.buckets and min(arguments.buckets) < 1:
        raise ValueError(f"--buckets must be at least 1, not {min(arguments.buckets)}")
    lm = replace(subject(arguments), buckets=tuple(arguments.buckets))
    settings = DecodeSettings(gen_length=arguments.gen_length, steps=arguments.steps)
    locked = Decoder(settings=settings, compute=LockRule(epsilon=arguments.epsilon))
    prompts = prompts_for(lm, arguments.batch, arguments.prompt_length)
    head = {"load": load_at_start, **setup_of(lm), **asked_of(arguments, settings), "buckets": lm.buckets}
    if arguments.profile:
        if arguments.batch > 1 or arguments.record_locks or arguments.replay_locks or arguments.compile:
            raise ValueError(
                "--profile is of one sequence's operations, one by one: --batch, --record-locks, --replay-locks and "
                "--compile have no part in it"
            )
        profiled = profile(lm, prompts[0], locked, arguments.repeats)
        print(shown(profiled))
        return {"benchmark": "decode --profile", **head, **profiled}
    if arguments.replay_locks:
        locked = stretch(arguments.replay_locks, locked, prompts, lm.network.config.vocab_size)
    bench = DecodeBench(lm, prompts, locked)
    figures = bench.run(arguments.repeats)
    if locks:
        locks.write_text(json.dumps(record(bench.steps["locked"], len(prompts[0]), lm.name)) + "\n")
    dense = dense_comparison(lm, bench.positions, arguments.batch, 10 * arguments.repeats)
    return {"benchmark": "decode", **head, **joined(figures, dense), **quantisation(lm, bench.positions)}


@torch.inference_mode()
def dense_comparison(lm: LanguageModel, length: int, batch: int, repeats: int) -> Figures:
    """The packed forward with all rows active beside the plain dense forward of the same network."""
    network = lm.network
    tokens = torch.randint(network.config.vocab_size, (batch, length), device=lm.device)
    positions = torch.arange(length, device=lm.device).repeat(batch)
    rows = Rows(positions, torch.arange(batch * length, device=lm.device), [length] * batch, [length] * batch)
    packed = lm.packed(batch * length)
    calls: dict[str, Callable[[], Tensor]] = {
        "dense_ms": lambda: network(tokens),
        "packed_ms": lambda: network.logits(packed(tokens.flatten(), rows)),
    }
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for repeat in range(repeats):
        for name in sorted(calls, reverse=repeat % 2 == 0):
            seconds[name].append(timed(lm.device, calls[name])[0])

    def measure(chosen: Sequence[int]) -> Figures:
        medians = {name: 1e3 * float(np.median([values[r] for r in chosen])) for name, values in seconds.items()}
        return medians | {"packed_over_dense": medians["packed_ms"] / medians["dense_ms"]}

    return told(measure, repeats, ratios=("packed_over_dense",))


@torch.inference_mode()
def quantisation(lm: LanguageModel, length: int) -> dict[str, float]:
    """For half-precision logits: the KL (nats) that rounding them alone makes, beside which epsilon must be read."""
    network = lm.network
    if network.dtype.itemsize > 2:
        return {}
    tokens = torch.randint(network.config.vocab_size, (1, min(length, 64)), device=lm.device)
    exact = F.linear(network.hidden(tokens)[0].float(), network.head_weight.float())
    rounded = exact.to(network.dtype).float()
    kl = kl_divergence(exact.softmax(-1), exact, exact.logsumexp(-1), rounded.clone(), rounded.logsumexp(-1))
    return {"rounding_kl_median": float(kl.median()), "rounding_kl_max": float(kl.max())}
