"""`bench profile`: where the time of a step goes, by part, at a few numbers of rows.

Real steps of a real run under a rule with all of the paper's arithmetic, but which computes exactly as many rows as it
is told and locks none. In each run plain and profiled steps take turns. The library has no instrumentation: while a
step is profiled, and only then, the functions below are wrapped from here. A part's time is its own: what another part
takes inside it is the other's. What none of them takes is `rest`, so the parts always add up to the step; how much the
wrapping costs is told beside them.
"""

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from tqdm import tqdm

from surelock.bench import (
    Figures,
    add_subject_flags,
    asked_of,
    load_of_cores,
    prompts_for,
    setup_of,
    subject,
    timed,
    told,
)
from surelock.decoding.choices import Decoder
from surelock.decoding.compute import ComputeRule, Everything
from surelock.decoding.locking import LockRule
from surelock.decoding.loop import decode
from surelock.decoding.run import Run
from surelock.decoding.settings import DecodeSettings
from surelock.decoding.state import Slots, State
from surelock.decoding.step import Reading
from surelock.engines import posterior
from surelock.engines.cache import KVCache
from surelock.engines.posterior import Reader
from surelock.engines.torch import PackedForward
from surelock.model import network as transformer
from surelock.model.language_model import LanguageModel
from surelock.research.experiment import markdown
from surelock.research.lab import weights_of

ROWS = (1, 8, 32, 128)
FIRST = 2  # the first step computes everything, the second is the first of its size
MOST = 60  # steps of a run that are timed
UNLOCKED = "unlocked"


#: Functions by part, in the order of a step. "products" are all of the layers; "cache" is writing keys and values, and
#: the views that attention reads; "layers" is what these do beside the other parts, the gate's activation included.
#: Those of "rule" are the methods of the rule.
FUNCTIONS: dict[str, tuple[tuple[Any, str], ...]] = {
    "embedding": ((F, "embedding"),),
    "norms": ((transformer.RMSNorm, "forward"),),
    "products": ((F, "linear"),),
    "rotary": ((transformer, "rotate"), (transformer, "rotary_table")),
    "cache": ((KVCache, "attend"),),
    "attention": ((F, "scaled_dot_product_attention"),),
    "layers": ((PackedForward, "__call__"),),
    "head": ((transformer.Network, "logits"),),
    "posterior": ((Reader, "read"),),
    "choosing": ((posterior, "_choose"), (Run, "_repeats")),
    "unmasking": ((Run, "_unmask"),),
    "rule": (),
    "report": ((Run, "_report"),),
}
NAMES = (*FUNCTIONS, "rest")


class Parts:
    """Own seconds by part, of what a step calls; on a GPU each part ends with the device idle."""

    def __init__(self, network: transformer.Network, rule: type[ComputeRule]) -> None:
        self._device = network.embed.weight.device
        self._inside = 0.0  # seconds of the parts that the running one has called
        self.seconds: dict[str, float] = {}
        places = [(owner, name, part) for part, all_of in FUNCTIONS.items() for owner, name in all_of]
        places += [(rule, "rows", "rule"), (rule, "after", "rule")]
        self._patches = [(owner, name, self.wrapped(part, getattr(owner, name))) for owner, name, part in places]

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()

    def wrapped(self, part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The call, with its own time counted to that part."""

        def counted(*given: Any, **named: Any) -> Any:
            before, self._inside = self._inside, 0.0
            begun = self._now()
            result = call(*given, **named)
            took = self._now() - begun
            self.seconds[part] += took - self._inside
            self._inside = before + took
            return result

        return counted

    def step(self, call: Callable[[], Any]) -> tuple[float, dict[str, float]]:
        """The seconds of a call, and those of each part of it, which add up to them. Nothing stays wrapped."""
        self.seconds, self._inside = dict.fromkeys(NAMES, 0.0), 0.0
        with ExitStack() as stack:
            for owner, name, counted in self._patches:
                stack.enter_context(patch.object(owner, name, counted))
            begun = self._now()
            call()
            took = self._now() - begun
        return took, self.seconds | {"rest": took - self._inside}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `bench profile`; sets the parser's `run`."""
    add_subject_flags(parser, gen_length=256)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Figures:
    """The benchmark's one JSON object. Raises ValueError for flags that ask for the impossible."""
    load_at_start = load_of_cores()
    if arguments.batch > 1:
        raise ValueError("bench profile is of one sequence's operations: --batch has no part in it")
    lm = subject(arguments)
    settings = DecodeSettings(gen_length=arguments.gen_length, steps=arguments.steps)
    locked = Decoder(settings=settings, compute=LockRule(epsilon=arguments.epsilon))
    (prompt,) = prompts_for(lm, 1, arguments.prompt_length)
    profiled = profile(lm, prompt, locked, arguments.repeats)
    print(shown(profiled))
    head = {"load": load_at_start, **setup_of(lm), **weights_of(lm), **asked_of(arguments, settings)}
    return {"benchmark": "profile", **head, **profiled}


@dataclass(frozen=True, slots=True, kw_only=True)
class SomeRows(LockRule):
    """The paper's rule with all of its arithmetic, on `count` rows of a sequence in each step but the first.

    Half of them are masked and half written, as far as there are such, the lowest positions first. None ever locks.
    """

    count: int

    def rows(self, state: State, active: Slots) -> Slots:
        if state.step == 0:
            return active
        masked = state.masked[active]
        half = (self.count + 1) // 2
        order = np.concatenate((active[masked][:half], active[~masked], active[masked][half:]))
        return np.sort(order[: self.count])

    def converged(self, state: State, reading: Reading, z: Slots) -> NDArray[np.bool_]:
        return np.zeros_like(LockRule.converged(self, state, reading, z))


def profile(lm: LanguageModel, prompt: list[int], locked: Decoder, repeats: int) -> Figures:
    """The figures at each number of rows of ROWS that there are, of all rows, and of the unlocked sampler's step.

    `profile`: for each its median step_ms, of_unlocked (its ratio to the unlocked one's), parts_ms (means over the
    middle half of the profiled steps by their time), and sum_over_step (their sum to the plain step's time).
    `spread` and `refused` as in `surelock.bench`. Raises ValueError for fewer than four steps.
    """
    assert isinstance(locked.compute, LockRule)
    rule, positions = locked.compute, len(prompt) + locked.settings.gen_length
    if locked.settings.total_steps < FIRST + 2:
        raise ValueError(f"a profile needs at least {FIRST + 2} steps, not {locked.settings.total_steps}")
    rules: dict[str, ComputeRule] = {
        str(count): SomeRows(epsilon=rule.epsilon, count=count) for count in (*ROWS, positions) if count <= positions
    }
    rules[UNLOCKED] = Everything()
    plain: dict[str, list[list[float]]] = defaultdict(list)  # seconds, [repeats][steps]
    parts: dict[str, list[list[float]]] = defaultdict(list)  # those of the profiled steps, [steps][NAMES]
    for repeat in tqdm(range(repeats), desc="repeats", disable=None):
        for name in sorted(rules, reverse=repeat % 2 == 1):
            run, clocked = decode(lm, [prompt], **replace(locked, compute=rules[name]).keywords()), []
            plain[name].append(clocked)
            watched = Parts(lm.network, type(rules[name]))
            for t in range(min(locked.settings.total_steps, FIRST + MOST)):
                if t < FIRST:
                    next(run)
                elif t % 2 == repeat % 2:
                    clocked.append(timed(lm.device, lambda run=run: next(run))[0])
                else:
                    _, seconds = watched.step(lambda run=run: next(run))
                    parts[name].append([seconds[part] for part in NAMES])

    def measure(chosen: Sequence[int]) -> Figures:
        steps = {name: 1e3 * float(np.median(np.concatenate([own[r] for r in chosen]))) for name, own in plain.items()}
        ratios = {f"of_unlocked {name}": step / steps[UNLOCKED] for name, step in steps.items() if name != UNLOCKED}
        return {f"step_ms {name}": step for name, step in steps.items()} | ratios

    figures = told(measure, repeats, ratios=[f"of_unlocked {name}" for name in rules if name != UNLOCKED])
    entries = {}
    for name in rules:
        middle, step = _middle(parts[name]), figures.pop(f"step_ms {name}")
        entries[name] = {
            "step_ms": step,
            "of_unlocked": 1.0 if name == UNLOCKED else figures.pop(f"of_unlocked {name}"),
            "sum_over_step": sum(middle.values()) / step,
            "parts_ms": middle,
        }
    return {"profile": entries, **figures}


def _middle(parts: Sequence[Sequence[float]]) -> dict[str, float]:
    """Mean milliseconds of each part over the half of the steps that are neither fast nor slow: they add up."""
    steps = np.array(parts)
    order, quarter = np.argsort(steps.sum(axis=1)), len(steps) // 4
    return dict(zip(NAMES, (1e3 * steps[order[quarter : len(steps) - quarter]].mean(axis=0)).tolist(), strict=True))


def shown(figures: dict[str, Any]) -> str:
    """A table of the parts, in milliseconds: a line for each, a column for each number of rows."""
    entries = figures["profile"]
    columns = {name: {"step": each["step_ms"], **each["parts_ms"]} for name, each in entries.items()}
    frame = pd.DataFrame({name: {part: f"{ms:.3f}" for part, ms in own.items()} for name, own in columns.items()})
    return markdown(frame.rename_axis("ms").reset_index())
