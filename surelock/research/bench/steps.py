"""`bench steps`: `bench decode` with what explains it, beside the least that the device could take.

Beside each step the forward of the same rows is timed alone, by the same engine: what is left is the price of the rule.
And in each repeat what the commit error of the locked run costs, beside the unlocked run.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

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
from surelock.files import write_text
from surelock.model.language_model import LanguageModel
from surelock.model.network import Network
from surelock.quality.commit_error import commit_error
from surelock.research.bench.schedule import stretch
from surelock.research.lab import weights_of
from surelock.trace.cli import target_file


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
        write_text(locks, json.dumps(record(bench.steps["locked"], len(prompts[0]), lm.name)) + "\n")
    head = {"load": load_at_start, **setup_of(lm), **weights_of(lm), **asked_of(arguments, settings)}
    rounding = quantisation(lm, bench.positions)
    return {"benchmark": "steps", **head, **figures, **rounding}


class DecodeBench(Lockstep):
    """The samplers in lockstep, each step beside its forward alone."""

    ratios = ("speedup", "forward_speedup", "commit_error_over_baseline")

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
        engine, memory, plan = self.lm.engine, self._memory, forward_plan(self._run, step)
        if isinstance(engine, TorchEngine):
            given = (plan.tokens, plan.positions, plan.slots)
            tokens, positions, slots = (torch.from_numpy(each).to(self.lm.device) for each in given)
            rows = Rows(positions, slots, plan.counts, self.lengths)

            @torch.inference_mode()
            def forward() -> Tensor:
                return engine.network.logits(memory.packed(tokens, rows))

            return forward if len(tokens) else lambda: tokens
        read = np.flatnonzero(np.isfinite(step.confidence[step.computed]))
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

    def result(self) -> Figures:
        return {**super().result(), **rooflines(self.lm.network, self.steps)}


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


# --- a recorded schedule, stretched to a real size without its weights ------------------------------------------------

# When each position was unmasked and locked decides which rows lock when; all of the rule's arithmetic still runs.


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


def device_rates(weight: Tensor) -> tuple[float, float]:
    """Measure the copy bandwidth (read + write) in bytes/s and the rate of matrix products in FLOP/s, of the dtype and
    on the device of a tensor.
    """
    size, side = _SIZES.get(weight.device.type, _SIZES["cpu"])
    source = torch.ones(size, dtype=torch.uint8, device=weight.device)
    target = torch.empty_like(source)
    a, b = torch.randn(2, side, side, dtype=weight.dtype, device=weight.device)
    copying, multiplying = (
        np.median([timed(weight.device, call)[0] for _ in range(10)])
        for call in (lambda: target.copy_(source), lambda: a @ b)
    )
    return 2 * size / float(copying), 2 * side**3 / float(multiplying)


def rooflines(network: Network, steps: Mapping[str, Sequence[Step]]) -> Figures:
    """The least that the device could take for each run, from its own measured rates: a step reads the weights once,
    and multiplies; the head's FLOPs are added.
    """
    embedding = network.embed.weight
    bandwidth, rate = device_rates(embedding)
    used = [p for p in network.parameters() if network.config.tied or p is not embedding]
    reading = sum(p.numel() * p.element_size() for p in used) / bandwidth
    figures = {"copy_bandwidth_gb_s": bandwidth / 1e9, "matmul_tflop_s": rate / 1e12}
    for name, run in steps.items():
        flops = [float(step.flops.sum()) + 2.0 * embedding.numel() * int(step.computed.sum()) for step in run]
        bounds = [max(reading, own / rate) for own in flops]
        figures[f"{name}_roofline_step_ms"] = 1e3 * float(np.median(bounds))
        figures[f"{name}_roofline_tps"] = float(sum(int(step.newly_unmasked.sum()) for step in run) / sum(bounds))
    return figures
