"""`bench decode`: the locked sampler and the unlocked one, step by step in turn, in one process.

Both are timed as the paper's appendix on runtime metrics defines them: E2E-TPS is unmasked tokens over the wall-clock
time of the decoding calls. A step's time is its median over the repeats, so that outliers do not count.
Beside each run the network's forward alone is timed on the same rows: what is left is the price of the rule.
And in each repeat what the commit error of the locked run costs, beside the unlocked run.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm

from surelock.decoding.choices import Decoder
from surelock.decoding.compute import Everything
from surelock.decoding.locking import LockRule
from surelock.decoding.loop import Step, decode
from surelock.decoding.posterior import kl_divergence
from surelock.decoding.settings import DecodeSettings
from surelock.decoding.stopwatch import Stopwatch
from surelock.decoding.totals import TotalsCounter
from surelock.experiments.lab import fingerprint
from surelock.experiments.lock_schedule import record, stretch
from surelock.experiments.roofline import Roofline
from surelock.experiments.timing import device_name
from surelock.model.cache import Rows
from surelock.model.config import LLADA_8B, NetworkConfig
from surelock.model.flags import add_model_flags, set_threads, told_dtype
from surelock.model.language_model import LanguageModel
from surelock.model.loading import find_device, load
from surelock.model.network import Network
from surelock.quality.commit_error import commit_error

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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_flags(parser)
    add = parser.add_argument
    add("--shape", choices=SHAPES, help="a network of this shape instead of a model")
    add("--random-weights", action="store_true", help="required with --shape: its weights are random")
    add("--gen-length", type=int, default=256, help="positions to generate (default: %(default)s)")
    add("--steps", type=int, help="denoising steps (default: gen-length)")
    add("--batch", type=int, default=1, help="sequences decoded together (default: %(default)s)")
    add("--prompt-length", type=int, default=16, help="tokens of a prompt, with --shape (default: %(default)s)")
    add("--epsilon", type=float, default=5e-4, help="KL in nats at which a position locks (default: %(default)s)")
    add("--repeats", type=int, default=3, help="runs of each sampler (default: %(default)s)")
    add("--threads", type=int, help="CPU threads (default: torch's)")
    add("--record-locks", type=Path, metavar="FILE", help="keep when each position was unmasked and locked")
    add("--replay-locks", type=Path, metavar="FILE", help="unmask and lock as recorded, stretched to this length")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    for name in ("repeats", "batch", "prompt_length"):
        if not 1 <= getattr(arguments, name) <= MOST:
            raise ValueError(f"--{name.replace('_', '-')} must be from 1 to {MOST}, not {getattr(arguments, name)}")
    set_threads(arguments.threads)
    lm = _model(arguments)
    settings = DecodeSettings(gen_length=arguments.gen_length, steps=arguments.steps)
    locked = Decoder(settings=settings, compute=LockRule(epsilon=arguments.epsilon))
    prompts = _prompts(lm, arguments)
    if arguments.replay_locks:
        locked = stretch(arguments.replay_locks, locked, prompts, lm.network.config.vocab_size)
    if lm.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(lm.device)
    bench = DecodeBench(lm, prompts, locked)
    for _ in tqdm(range(arguments.repeats), desc="repeats", disable=None):
        bench.repeat()
    if arguments.record_locks:
        arguments.record_locks.write_text(json.dumps(record(bench.steps["locked"], len(prompts[0]), lm.name)) + "\n")
    return {
        "benchmark": "decode",
        "model": lm.name,
        "weights": fingerprint(lm),
        "device": device_name(lm.device),
        "threads": torch.get_num_threads(),
        "dtype": str(lm.network.dtype).removeprefix("torch."),
        "torch": torch.__version__,
        "gen_length": settings.gen_length,
        "steps": settings.total_steps,
        "batch": arguments.batch,
        "epsilon": arguments.epsilon,
        "repeats": arguments.repeats,
        **bench.result(),
        **_dense_comparison(lm, bench.positions, arguments.batch, 10 * arguments.repeats),
        **_quantisation(lm, bench.positions),
    }


def _model(arguments: argparse.Namespace) -> LanguageModel:
    dtype = told_dtype(arguments)
    if arguments.random_weights != (arguments.shape is not None):
        raise ValueError("--shape and --random-weights belong together")
    if arguments.shape is None:
        return load(arguments.model, device=arguments.device, dtype=dtype)
    device = find_device(arguments.device)
    dtype = dtype or (torch.bfloat16 if device.type == "cuda" else torch.float32)
    torch.manual_seed(0)
    with torch.device("meta"):
        network = Network(SHAPES[arguments.shape])
    network = network.to(dtype).to_empty(device=device).eval().requires_grad_(False)
    for name, parameter in network.named_parameters():
        if name.endswith("norm.weight"):
            parameter.fill_(1.0)
        else:
            parameter.normal_(std=0.02)
    return LanguageModel(arguments.shape, network, None, mask_id=1, eos_id=0, eot_id=None, pad_id=0)


def _prompts(lm: LanguageModel, arguments: argparse.Namespace) -> list[list[int]]:
    if lm.tokenizer is not None:
        return [lm.encode(OPENINGS[b % len(OPENINGS)]) for b in range(arguments.batch)]
    generator = np.random.default_rng(0)
    shape = (arguments.batch, arguments.prompt_length)
    return generator.integers(2, lm.network.config.vocab_size, shape).tolist()


class DecodeBench:
    """Baseline and locked run in lockstep, alternating which goes first, each beside its forward alone."""

    def __init__(self, lm: LanguageModel, prompts: list[list[int]], locked: Decoder) -> None:
        self.lm, self.prompts, self.settings = lm, prompts, locked.settings
        self.decoders = {"baseline": replace(locked, compute=Everything()), "locked": locked}
        self.steps: dict[str, list[Step]] = {}
        self.seconds: dict[str, list[list[float]]] = {
            name: [] for run in self.decoders for name in (run, f"{run} forward")
        }
        self.commit_errors: list[float] = []
        self.lengths = [len(prompt) + locked.settings.gen_length for prompt in prompts]
        self.positions = max(self.lengths)
        decode(lm, prompts, **locked.keywords())  # what the model cannot do is refused before anything is allocated
        self._cache = lm.network.make_cache(sum(self.lengths))

    def repeat(self) -> None:
        """One run of both samplers."""
        runs = {name: decode(self.lm, self.prompts, **asked.keywords()) for name, asked in self.decoders.items()}
        seconds: dict[str, list[float]] = {name: [] for name in self.seconds}
        steps: dict[str, list[Step]] = {name: [] for name in runs}
        for t in tqdm(range(self.settings.total_steps), unit="step", leave=False, disable=None):
            for name in sorted(runs, reverse=t % 2 == 0):
                took, step = self._timed(lambda run=runs[name]: next(run))
                seconds[name].append(took)
                steps[name].append(step)
                forward = self._forward_alone(step)
                seconds[f"{name} forward"].append(self._timed(forward)[0])
        self.steps = steps
        for name, values in seconds.items():
            self.seconds[name].append(values)
        kept = list(decode(self.lm, self.prompts, **self.decoders["locked"].keywords(), keep_logits=True))
        self.commit_errors.append(self._timed(lambda: commit_error(self.lm, kept, self.settings))[0])

    def _timed(self, call: Callable[[], Any]) -> tuple[float, Any]:
        watch = Stopwatch(self.lm.device)
        watch.start()
        result = call()
        return watch.seconds(), result

    def _forward_alone(self, step: Step) -> Callable[[], Tensor]:
        tokens, rows = packed_rows(step, self.lengths, self.lm.device)
        network = self.lm.network

        @torch.inference_mode()
        def forward() -> Tensor:
            return network.logits(network.forward_rows(tokens, rows, self._cache))

        return forward if len(tokens) else lambda: tokens

    def result(self) -> dict[str, float]:
        medians = {name: np.median(values, axis=0) for name, values in self.seconds.items()}
        base, locked = medians["baseline"], medians["locked"]
        totals = {}
        for name, steps in self.steps.items():
            counter = TotalsCounter(self.lm.network.config, self.settings.gen_length, self.lm.eos_id)
            for step in steps:
                counter.add(step)
            totals[name] = counter.totals()
        ratio = totals["locked"].flops_ratio
        tps = {name: totals[name].tokens / medians[name].sum() for name in totals}
        other = {name: (medians[name] - medians[f"{name} forward"]) / np.median(base) for name in totals}
        return {
            "baseline_step_ms": 1e3 * float(np.median(base)),
            "locked_step_ms": 1e3 * float(np.median(locked)),
            "locked_last_step_ms": 1e3 * float(np.median(locked[-len(locked) // 8 :])),
            "baseline_tps": float(tps["baseline"]),
            "locked_tps": float(tps["locked"]),
            "speedup": float(tps["locked"] / tps["baseline"]),
            "flops_ratio": ratio,
            "active_ratio": totals["locked"].active_ratio,
            "active_ratio_to_eos": totals["locked"].active_ratio_to_eos,
            "efficiency": float(tps["locked"] / tps["baseline"] * ratio),
            "forward_speedup": float(medians["baseline forward"].sum() / medians["locked forward"].sum()),
            "baseline_other_share": float(np.median(other["baseline"])),
            "locked_other_share": float(np.mean(other["locked"])),
            "commit_error_over_baseline": float(np.median(self.commit_errors) / base.sum()),
            "locked_other_share_p90": float(np.quantile(other["locked"], 0.9)),
            **self._rooflines(),
            **self._memory(),
        }

    def _rooflines(self) -> dict[str, float]:
        roofline = Roofline.measure(self.lm.network)
        figures = {"copy_bandwidth_gb_s": roofline.bandwidth / 1e9, "matmul_tflop_s": roofline.rate / 1e12}
        for name, steps in self.steps.items():
            bounds = [roofline.seconds(float(s.flops.sum()), int(s.computed.sum())) for s in steps]
            figures[f"{name}_roofline_step_ms"] = 1e3 * float(np.median(bounds))
            figures[f"{name}_roofline_tps"] = float(sum(int(s.newly_unmasked.sum()) for s in steps) / sum(bounds))
        return figures

    def _memory(self) -> dict[str, int]:
        """Peak device memory beyond weights and the two caches (the runs' and this benchmark's); CUDA only."""
        if self.lm.device.type != "cuda":
            return {}
        weights = sum(p.numel() * p.element_size() for p in self.lm.network.parameters())
        cache = sum(t.numel() * t.element_size() for t in (*self._cache.keys, *self._cache.values))
        peak = torch.cuda.max_memory_allocated(self.lm.device)
        return {"peak_bytes": peak, "peak_bytes_beyond_weights_and_caches": peak - weights - 3 * cache}


def packed_rows(step: Step, lengths: list[int], device: torch.device) -> tuple[Tensor, Rows]:
    """Tokens and places of the rows that a step computed."""
    width = step.tokens.shape[1]
    kept = torch.cat([torch.arange(b * width + width - n, (b + 1) * width) for b, n in enumerate(lengths)])
    positions = torch.cat([torch.arange(n) for n in lengths])
    slots = step.computed.flatten()[kept].nonzero()[:, 0]
    rows = Rows(positions[slots].to(device), slots.to(device), step.computed.sum(dim=1).tolist(), lengths)
    return step.tokens.flatten()[kept][slots].to(device), rows


@torch.inference_mode()
def _dense_comparison(lm: LanguageModel, length: int, batch: int, repeats: int) -> dict[str, float]:
    """The packed forward with all rows active beside the plain dense forward of the same network."""
    network = lm.network
    tokens = torch.randint(network.config.vocab_size, (batch, length), device=lm.device)
    positions = torch.arange(length, device=lm.device).repeat(batch)
    rows = Rows(positions, torch.arange(batch * length, device=lm.device), [length] * batch, [length] * batch)
    cache = network.make_cache(batch * length)
    calls: dict[str, Callable[[], Tensor]] = {
        "dense_ms": lambda: network(tokens),
        "packed_ms": lambda: network.logits(network.forward_rows(tokens.flatten(), rows, cache)),
    }
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    watch = Stopwatch(lm.device)
    for repeat in range(repeats):
        for name in sorted(calls, reverse=repeat % 2 == 0):
            watch.start()
            calls[name]()
            seconds[name].append(watch.seconds())
    medians = {name: 1e3 * float(np.median(values)) for name, values in seconds.items()}
    return medians | {"packed_over_dense": medians["packed_ms"] / medians["dense_ms"]}


@torch.inference_mode()
def _quantisation(lm: LanguageModel, length: int) -> dict[str, float]:
    """For half-precision logits: the KL (nats) that rounding them alone makes, beside which epsilon must be read."""
    network = lm.network
    if network.dtype.itemsize > 2:
        return {}
    tokens = torch.randint(network.config.vocab_size, (1, min(length, 64)), device=lm.device)
    exact = F.linear(network.hidden(tokens)[0].float(), network.head_weight.float())
    rounded = exact.to(network.dtype).float()
    kl = kl_divergence(exact.softmax(-1), exact, exact.logsumexp(-1), rounded.clone(), rounded.logsumexp(-1))
    return {"rounding_kl_median": float(kl.median()), "rounding_kl_max": float(kl.max())}
