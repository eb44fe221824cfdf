"""What `bench decode` times: the locked sampler and the unlocked one, step by step in turn, in one process.

Beside each run the network's forward alone is timed on the same rows: what is left is the price of the rule. And in
each repeat what the commit error of the locked run costs, beside the unlocked run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from surelock.decoding.choices import Decoder
from surelock.decoding.compute import Everything
from surelock.decoding.loop import Step, decode
from surelock.decoding.stopwatch import Stopwatch
from surelock.experiments.bench.figures import costs, rooflines, speeds
from surelock.experiments.spread import Figures
from surelock.model.cache import Rows
from surelock.model.language_model import LanguageModel
from surelock.quality.commit_error import commit_error


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
        self._packed = lm.packed(sum(self.lengths))
        if lm.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(lm.device)

    def run(self, repeats: int) -> Figures:
        """That many repeats, and what they say."""
        for _ in tqdm(range(repeats), desc="repeats", disable=None):
            self.repeat()
        return self.result()

    def repeat(self) -> None:
        """One run of both samplers."""
        runs = {name: decode(self.lm, self.prompts, **asked.keywords()) for name, asked in self.decoders.items()}
        seconds: dict[str, list[float]] = {name: [] for name in self.seconds}
        steps: dict[str, list[Step]] = {name: [] for name in runs}
        for t in tqdm(range(self.settings.total_steps), unit="step", leave=False, disable=None):
            for name in sorted(runs, reverse=t % 2 == 0):
                took, step = timed(self.lm.device, lambda run=runs[name]: next(run))
                seconds[name].append(took)
                steps[name].append(step)
                seconds[f"{name} forward"].append(timed(self.lm.device, self._forward_alone(step))[0])
        runs.clear()  # what they hold would count as memory of the run below
        self.steps = steps
        for name, values in seconds.items():
            self.seconds[name].append(values)
        kept = list(decode(self.lm, self.prompts, **self.decoders["locked"].keywords(), keep_logits=True))
        self.commit_errors.append(timed(self.lm.device, lambda: commit_error(self.lm, kept, self.settings))[0])

    def _forward_alone(self, step: Step) -> Callable[[], Tensor]:
        tokens, rows = packed_rows(step, self.lengths, self.lm.device)

        @torch.inference_mode()
        def forward() -> Tensor:
            return self.lm.network.logits(self._packed(tokens, rows))

        return forward if len(tokens) else lambda: tokens

    def result(self) -> Figures:
        """Of all repeats so far."""
        told = costs(self.lm, self.settings, self.steps)
        return {
            **speeds(self.seconds, self.commit_errors, told["tokens"], told["flops_ratio"]),
            **told,
            **rooflines(self.lm.network, self.steps),
            **self._memory(),
        }

    def _memory(self) -> dict[str, int]:
        """Peak device memory beyond weights and three caches (both runs' and this benchmark's); CUDA only."""
        if self.lm.device.type != "cuda":
            return {}
        weights = sum(p.numel() * p.element_size() for p in self.lm.network.parameters())
        own = self._packed.cache
        cache = sum(t.numel() * t.element_size() for t in (*own.keys, *own.values))
        peak = torch.cuda.max_memory_allocated(self.lm.device)
        return {"peak_bytes": peak, "peak_bytes_beyond_weights_and_caches": peak - weights - 3 * cache}


def timed(device: torch.device, call: Callable[[], Any]) -> tuple[float, Any]:
    """The seconds that a call takes, and what it returns."""
    watch = Stopwatch(device)
    watch.start()
    result = call()
    return watch.seconds(), result


def packed_rows(step: Step, lengths: list[int], device: torch.device) -> tuple[Tensor, Rows]:
    """Tokens and places of the rows that a step computed."""
    width = step.tokens.shape[1]
    kept = torch.cat([torch.arange(b * width + width - n, (b + 1) * width) for b, n in enumerate(lengths)])
    positions = torch.cat([torch.arange(n) for n in lengths])
    slots = step.computed.flatten()[kept].nonzero()[:, 0]
    rows = Rows(positions[slots].to(device), slots.to(device), step.computed.sum(dim=1).tolist(), lengths)
    return step.tokens.flatten()[kept][slots].to(device), rows
