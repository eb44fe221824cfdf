"""`bench adapter`: what a call of `surelock.adapter` costs beside a step of `decode`.

The two take turns step by step, under one rule after the other. What `decode` commits is written to the canvas of the
adapter, so both compute the same rows. Their ratio holds what the adapter adds: it compares canvases and keeps logits.
"""

import argparse
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch
from tqdm import tqdm

from surelock.bench import Figures, add_flags, asked_of, load_of_cores, prompts_for, setup_of, subject, timed, told
from surelock.decoding.adapter import adapter
from surelock.decoding.compute import BudgetRule, ComputeRule, Everything
from surelock.decoding.locking import LockRule
from surelock.decoding.loop import decode
from surelock.decoding.settings import DecodeSettings
from surelock.engines.flags import add_engine_flag
from surelock.model.language_model import LanguageModel


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `bench adapter`; sets the parser's `run`."""
    add_flags(parser, gen_length=128)
    add_engine_flag(parser)
    parser.set_defaults(run=run, shape=None, random_weights=False, prompt_length=1)


def run(arguments: argparse.Namespace) -> Figures:
    """Run the benchmark and return its JSON object. Raises ValueError for flags that cannot be met."""
    load_at_start = load_of_cores()
    lm = subject(arguments, arguments.engine)
    settings = DecodeSettings(gen_length=arguments.gen_length, steps=arguments.steps)
    prompts = prompts_for(lm, arguments.batch)
    shortest = min(map(len, prompts))  # the adapter takes prompts of one length
    bench = AdapterBench(lm, [prompt[:shortest] for prompt in prompts], settings, arguments.epsilon)
    head = {"load": load_at_start, **setup_of(lm)}
    return {"benchmark": "adapter", **head, **asked_of(arguments, settings), **bench.run(arguments.repeats)}


class AdapterBench:
    """Runs `decode` and the adapter step by step; they take turns in going first.

    lm: the model.
    prompts: [B] lists of token ids, of one length.
    settings: those of both.
    epsilon: of SureLock, in nats.

    seconds: for each "rule decode" and "rule adapter" [repeats][steps].
    tokens_equal: whether the likeliest token of the adapter's logits was committed everywhere.
    """

    def __init__(
        self, lm: LanguageModel, prompts: list[list[int]], settings: DecodeSettings, epsilon: float = 5e-4
    ) -> None:
        self.lm, self.prompts, self.settings = lm, prompts, settings
        self.rules: dict[str, ComputeRule] = {
            "everything": Everything(),
            "lock": LockRule(epsilon=epsilon),
            "budget": BudgetRule(),
        }
        self.seconds: dict[str, list[list[float]]] = defaultdict(list)
        self.tokens_equal = True

    def run(self, repeats: int) -> Figures:
        """Run the repeats and return the figures."""
        for _ in tqdm(range(repeats), desc="repeats", disable=None):
            for name in self.rules:
                self.repeat(name)
        return {**told(self.measure, repeats), "tokens_equal": self.tokens_equal}

    def repeat(self, name: str) -> None:
        """Run both once under a rule."""
        lm, rule = self.lm, self.rules[name]
        steps, model = decode(lm, self.prompts, self.settings, compute=rule), adapter(lm, rule, self.settings)
        masks = [lm.mask_id] * self.settings.gen_length
        x = torch.tensor([[*prompt, *masks] for prompt in self.prompts], device=lm.device)
        calls = {"adapter": lambda: model(x).logits, "decode": lambda: next(steps)}
        seconds: dict[str, list[float]] = {kind: [] for kind in calls}
        for t in tqdm(range(self.settings.total_steps), unit="step", leave=False, disable=None):
            found = {}
            for kind in sorted(calls, reverse=t % 2 == 0):
                took, found[kind] = timed(lm.device, calls[kind])
                seconds[kind].append(took)
            written, tokens = (
                torch.from_numpy(each) for each in (found["decode"].newly_unmasked, found["decode"].tokens)
            )
            written, tokens = written.to(x.device), tokens.to(x.device)
            self.tokens_equal &= bool((found["adapter"][written].argmax(-1) == tokens[written]).all())
            x[written] = tokens[written]
        for kind, values in seconds.items():
            self.seconds[f"{name} {kind}"].append(values)

    def measure(self, repeats: Sequence[int]) -> Figures:
        """Return the figures of some repeats. The time of a step is its median over the repeats."""
        figures: Figures = {}
        for name in self.rules:
            own, beside = (
                np.median([self.seconds[f"{name} {kind}"][r] for r in repeats], axis=0)
                for kind in ("decode", "adapter")
            )
            figures[f"{name}_decode_step_ms"] = 1e3 * float(np.median(own))
            figures[f"{name}_adapter_step_ms"] = 1e3 * float(np.median(beside))
            figures[f"{name}_adapter_over_decode"] = float(beside.sum() / own.sum())
        return figures
