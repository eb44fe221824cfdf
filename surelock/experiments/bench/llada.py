"""`bench llada`: LLaDA's own loop on plain modelling code beside our sampler, unlocked and locked, run by run in turn.

The weights are the same memory. At temperature 0 the unlocked tokens must be LLaDA's own, and the benchmark says
whether they were.
"""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from surelock.decoding.compute import ComputeRule, Everything
from surelock.decoding.locking import LockRule
from surelock.decoding.loop import decode
from surelock.decoding.settings import DecodeSettings
from surelock.experiments.bench.llada_loop import llada_generate
from surelock.experiments.bench.lockstep import timed
from surelock.experiments.bench.plain_llada import PlainLlada
from surelock.experiments.bench.subjects import add_subject_flags, asked_of, prompts_for, setup_of, subject
from surelock.experiments.machine import load
from surelock.experiments.spread import Figures, told
from surelock.model.language_model import LanguageModel

#: How many times as fast ours are as LLaDA's, and as "speedup" the locked one as the unlocked one.
RATIOS = ("unlocked_over_llada", "locked_over_llada", "speedup")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `bench llada`; sets the parser's `run`."""
    add_subject_flags(parser, gen_length=128)
    add = parser.add_argument
    add("--block-length", type=int, help="semi-autoregressive blocks (default: one block)")
    add("--temperature", type=float, default=0.0, help="above 0 tokens cannot be compared (default: %(default)s)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """The benchmark's one JSON object. Raises ValueError for flags that ask for the impossible."""
    load_at_start = load()
    lm = subject(arguments)
    settings = DecodeSettings(
        gen_length=arguments.gen_length,
        steps=arguments.steps,
        block_length=arguments.block_length,
        temperature=arguments.temperature,
    )
    prompts = prompts_for(lm, arguments.batch, arguments.prompt_length)
    shortest = min(map(len, prompts))  # LLaDA's loop takes prompts of one length
    bench = LladaBench(lm, [ids[:shortest] for ids in prompts], settings, LockRule(epsilon=arguments.epsilon))
    for _ in tqdm(range(arguments.repeats), desc="repeats", disable=None):
        bench.repeat()
    head = {"load": load_at_start, **setup_of(lm), **asked_of(arguments, settings)}
    return {"benchmark": "llada", **head, "temperature": settings.temperature, **bench.result()}


class LladaBench:
    """Three subjects that take turns, each repeat beginning with the next of them."""

    def __init__(
        self, lm: LanguageModel, prompts: list[list[int]], settings: DecodeSettings, locked: ComputeRule
    ) -> None:
        self.temperature = settings.temperature
        network, canvas = PlainLlada(lm.network), torch.tensor(prompts, device=lm.device)
        rules = {"unlocked": Everything(), "locked": locked}

        def ours(rule: ComputeRule) -> Callable[[], Tensor]:
            def decoded() -> Tensor:
                (last,) = deque(decode(lm, prompts, settings, compute=rule, lean=True), maxlen=1)
                return last.tokens

            return decoded

        for rule in rules.values():  # what a first call costs is not throughput
            next(decode(lm, prompts, settings, compute=rule, lean=True))
        with torch.no_grad():
            network(canvas)
        self._device = lm.device
        self._calls = {"llada": lambda: llada_generate(network, canvas, settings, lm.mask_id).cpu()}
        self._calls |= {name: ours(rule) for name, rule in rules.items()}
        self.seconds: dict[str, list[float]] = {name: [] for name in self._calls}
        self.tokens: dict[str, Tensor] = {}

    def repeat(self) -> None:
        """One run of each."""
        names, done = list(self._calls), len(self.seconds["llada"])
        first = done % len(names)
        for name in names[first:] + names[:first]:
            seconds, self.tokens[name] = timed(self._device, self._calls[name])
            self.seconds[name].append(seconds)

    def result(self) -> Figures:
        """Of all repeats so far. tokens_equal: ours, unlocked, are LLaDA's; None where noise was drawn."""

        def measure(repeats: Sequence[int]) -> Figures:
            medians = {name: float(np.median([values[r] for r in repeats])) for name, values in self.seconds.items()}
            return {f"{name}_seconds": value for name, value in medians.items()} | {
                "unlocked_over_llada": medians["llada"] / medians["unlocked"],
                "locked_over_llada": medians["llada"] / medians["locked"],
                "speedup": medians["unlocked"] / medians["locked"],
            }

        equal = bool((self.tokens["llada"] == self.tokens["unlocked"]).all()) if self.temperature == 0 else None
        return {**told(measure, len(self.seconds["llada"]), RATIOS), "tokens_equal": equal}
