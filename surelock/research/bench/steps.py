"""`bench steps`: `bench decode` with what explains it, beside the least that the device could take.

Beside each step the forward of the same rows is timed alone, by the same engine: what is left is the price of the rule.
And in each repeat what the commit error of the locked run costs, beside the unlocked run.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from surelock.bench import (
    Figures,
    Lockstep,
    add_subject_flags,
    asked_of,
    load_of_cores,
    prompts_for,
    setup_of,
    subject,
    timed,
)
from surelock.decoding.choices import Decoder
from surelock.decoding.locking import LockRule
from surelock.decoding.loop import decode
from surelock.decoding.run import Run
from surelock.decoding.settings import DecodeSettings
from surelock.decoding.step import Plan, Step
from surelock.engines.cache import Rows
from surelock.engines.flags import add_engine_flag
from surelock.engines.posterior import kl_divergence
from surelock.engines.torch import TorchEngine
from surelock.model.language_model import LanguageModel
from surelock.model.network import Network
from surelock.quality.commit_error import commit_error
from surelock.research.bench.sizes import record, stretch
from surelock.research.lab import weights_of
from surelock.trace.cli import target_file

#: Refused when their spread is wider than their effect.
RATIOS = ("speedup", "forward_speedup", "commit_error_over_baseline")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `bench steps`; sets the parser's `run`."""
    add_subject_flags(parser, gen_length=256)
    add_engine_flag(parser)
    add = parser.add_argument
    add("--record-locks", type=Path, metavar="FILE", help="keep when each position was unmasked and locked")
    add("--replay-locks", type=Path, metavar="FILE", help="unmask and lock as recorded, stretched to this length")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Figures:
    """The benchmark's one JSON object. Raises ValueError for flags that ask for the impossible."""
    locks = arguments.record_locks and target_file("--record-locks", arguments.record_locks)
    load_at_start = load_of_cores()
    lm = subject(arguments, arguments.engine)
    settings = DecodeSettings(gen_length=arguments.gen_length, steps=arguments.steps)
    locked = Decoder(settings=settings, compute=LockRule(epsilon=arguments.epsilon))
    prompts = prompts_for(lm, arguments.batch, arguments.prompt_length)
    if arguments.replay_locks:
        locked = stretch(arguments.replay_locks, locked, prompts, lm.config.vocab_size)
    bench = DecodeBench(lm, prompts, locked)
    figures = bench.run(arguments.repeats)
    if locks:
        locks.write_text(json.dumps(record(bench.steps["locked"], len(prompts[0]), lm.name)) + "\n")
    head = {"load": load_at_start, **setup_of(lm), **weights_of(lm), **asked_of(arguments, settings)}
    rounding = quantisation(lm, bench.positions)
    return {"benchmark": "steps", **head, **figures, **rounding}


class DecodeBench(Lockstep):
    """The samplers in lockstep, each step beside its forward alone."""

    def __init__(self, lm: LanguageModel, prompts: list[list[int]], locked: Decoder) -> None:
        super().__init__(lm, prompts, locked)
        self.commit_errors: list[float] = []
        self.lengths = [len(prompt) + locked.settings.gen_length for prompt in prompts]
        self.positions = max(self.lengths)
        self._run = Run(lm.shape, prompts, locked)
        self._memory = lm.engine.memory(self._run.layout)

    def repeat(self) -> None:
        super().repeat()
        kept = list(decode(self.lm, self.prompts, **self.decoders["locked"].keywords(), keep_logits=True))
        self.commit_errors.append(timed(self.lm.device, lambda: commit_error(self.lm, kept, self.settings))[0])

    def beside(self, name: str, step: Step) -> dict[str, float]:
        return {f"{name} forward": timed(self.lm.device, self._forward_alone(step))[0]}

    def _forward_alone(self, step: Step) -> Callable[[], object]:
        """The layers of all rows of a step, and the logits of those that torch computed or ONNX Runtime read."""
        engine, memory = self.lm.engine, self._memory
        if isinstance(engine, TorchEngine):
            tokens, rows = packed_rows(step, self.lengths, self.lm.device)

            @torch.inference_mode()
            def forward() -> Tensor:
                return engine.network.logits(memory.packed(tokens, rows))

            return forward if len(tokens) else lambda: tokens
        plan, read = forward_plan(self._run, step), np.flatnonzero(np.isfinite(step.confidence[step.computed]))
        return lambda: engine.read(memory, plan) and engine.logits(memory, read)

    def measure(self, repeats: Sequence[int], tokens: int) -> Figures:
        steps = {name: np.median([values[r] for r in repeats], axis=0) for name, values in self.seconds.items()}
        base = steps["baseline"]
        other = {name: (steps[name] - steps[f"{name} forward"]) / np.median(base) for name in self.decoders}
        return super().measure(repeats, tokens) | {
            "forward_speedup": float(steps["baseline forward"].sum() / steps["locked forward"].sum()),
            "baseline_other_share": float(np.median(other["baseline"])),
            "locked_other_share": float(np.mean(other["locked"])),
            "locked_other_share_p90": float(np.quantile(other["locked"], 0.9)),
            "commit_error_over_baseline": float(np.median([self.commit_errors[r] for r in repeats]) / base.sum()),
        }

    def result(self, ratios: Sequence[str] = RATIOS) -> Figures:
        return {**super().result(ratios), **rooflines(self.lm.network, self.steps)}


def packed_rows(step: Step, lengths: list[int], device: torch.device) -> tuple[Tensor, Rows]:
    """Tokens and places of the rows that a step computed."""
    width = step.tokens.shape[1]
    kept = torch.cat([torch.arange(b * width + width - n, (b + 1) * width) for b, n in enumerate(lengths)])
    positions = torch.cat([torch.arange(n) for n in lengths])
    slots = torch.from_numpy(step.computed).flatten()[kept].nonzero()[:, 0]
    rows = Rows(positions[slots].to(device), slots.to(device), step.computed.sum(axis=1).tolist(), lengths)
    return torch.from_numpy(step.tokens).flatten()[kept][slots].to(device), rows


def forward_plan(run: Run, step: Step) -> Plan:
    """A plan of the rows that a step computed, of which none is read."""
    canvas, slots = run.canvas, run.canvas.flat(step.computed)
    first, none, no_rows = run.plan(), np.zeros(len(slots), dtype=bool), slots[:0]
    assert first is not None
    return replace(
        first,
        slots=slots,
        counts=np.bincount(canvas.sequence[slots], minlength=canvas.batch).tolist(),
        tokens=step.tokens[step.computed],
        positions=canvas.position[slots],
        read=no_rows,
        outdated=no_rows,
        **dict.fromkeys(("probed", "watches", "compares", "chooses"), none),
    )


# --- beside it: rounding and the roofline ----------------------------------------------------------------------------


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


_SIZES = {"cuda": (2**32, 8192), "cpu": (2**27, 1024)}  # bytes to copy, side of the square product


@dataclass(frozen=True, slots=True)
class Roofline:
    """bandwidth: measured copy bandwidth (read + write) in bytes/s. rate: measured matrix product rate in FLOP/s.

    weight_bytes: what a forward reads of the weights. head_flops: of one row's logits.
    """

    bandwidth: float
    rate: float
    weight_bytes: int
    head_flops: float

    @classmethod
    def measure(cls, network: Network) -> Roofline:
        """Measure the device of the network's embedding."""
        weight = network.embed.weight
        size, side = _SIZES.get(weight.device.type, _SIZES["cpu"])
        source = torch.ones(size, dtype=torch.uint8, device=weight.device)
        target = torch.empty_like(source)
        a, b = torch.randn(2, side, side, dtype=weight.dtype, device=weight.device)
        used = [p for p in network.parameters() if network.config.tied or p is not weight]
        return cls(
            bandwidth=2 * size / _best(lambda: target.copy_(source), weight.device),
            rate=2 * side**3 / _best(lambda: a @ b, weight.device),
            weight_bytes=sum(p.numel() * p.element_size() for p in used),
            head_flops=2.0 * weight.numel(),
        )

    def seconds(self, flops: float, rows: int) -> float:
        """max(weight bytes / bandwidth, FLOPs / rate) of a step that computes `rows` rows; the head's are added."""
        return max(self.weight_bytes / self.bandwidth, (flops + rows * self.head_flops) / self.rate)


def _best(call: Callable[[], object], device: torch.device, repeats: int = 10) -> float:
    """Median seconds of a call."""
    return sorted(timed(device, call)[0] for _ in range(repeats))[repeats // 2]


def rooflines(network: Network, steps: Mapping[str, Sequence[Step]]) -> Figures:
    """The least that the device could take for each run, from its own measured rates."""
    roofline = Roofline.measure(network)
    figures = {"copy_bandwidth_gb_s": roofline.bandwidth / 1e9, "matmul_tflop_s": roofline.rate / 1e12}
    for name, run in steps.items():
        bounds = [roofline.seconds(float(s.flops.sum()), int(s.computed.sum())) for s in run]
        figures[f"{name}_roofline_step_ms"] = 1e3 * float(np.median(bounds))
        figures[f"{name}_roofline_tps"] = float(sum(int(s.newly_unmasked.sum()) for s in run) / sum(bounds))
    return figures
