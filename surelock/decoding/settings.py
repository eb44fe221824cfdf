"""What a run is asked to do. Values are checked where they are made; an error is one sentence that names the field."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from operator import index
from typing import Any

#: How the sampler picks the positions to unmask (`surelock.decoding.unmasking`).
REMASKING = ("low_confidence", "random", "entropy", "margin", "threshold", "replay")

#: (step, position within the generated part, token): what a replay commits.
Commit = tuple[int, int, int]


def _whole(name: str, value: Any, least: int) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _number(name: str, value: Any, low: float, high: float, what: str) -> None:
    if not _is_number(value) or not low <= value <= high:
        raise ValueError(f"{name} must be {what}, not {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeSettings:
    """The baseline sampler (LLaDA's): how many tokens, in how many steps and blocks, chosen how.

    gen_length: positions to generate. steps: denoising steps, None for gen_length. block_length: semi-autoregressive
    blocks, left to right, None for one block. temperature: of the Gumbel-max choice of tokens; 0 takes the argmax.
    cfg_scale: classifier-free guidance, 0 is off. remasking: one of REMASKING. seed: whole number (sequence b of a
    batch gets seed + b) or one per sequence. suppress_eos: EOS is never chosen. suppress_eos_confidence: positions that
    would become EOS or end-of-turn are committed last. no_repeat_ngram_size: a token with which an n-gram of this
    size would stand in the sequence twice, prompt included, is not chosen; 0 is off. EOS and end-of-turn always may be,
    and tokens committed in the same step do not know of each other. select_fraction: share of the active rows
    computed in a step (Experiment 5). threshold: with remasking="threshold", commit all whose confidence exceeds it.
    replay: with remasking="replay", for each sequence its (step, position, token) triples.
    """

    gen_length: int = 128
    steps: int | None = None
    block_length: int | None = None
    temperature: float = 0.0
    cfg_scale: float = 0.0
    remasking: str = "low_confidence"
    seed: int | Sequence[int] = 0
    suppress_eos: bool = False
    suppress_eos_confidence: bool = False
    no_repeat_ngram_size: int = 0
    select_fraction: float = 1.0
    threshold: float = 0.9
    replay: Sequence[Sequence[Commit]] | None = None

    def __post_init__(self) -> None:
        _whole("gen_length", self.gen_length, 1)
        self._check_schedule()
        _number("temperature", self.temperature, 0.0, sys.float_info.max, "a finite number of at least 0")
        _number("cfg_scale", self.cfg_scale, 0.0, sys.float_info.max, "a finite number of at least 0")
        if self.remasking not in REMASKING:
            raise ValueError(f"remasking must be one of {', '.join(REMASKING)}, not {self.remasking!r}")
        if isinstance(self.seed, Sequence) and not isinstance(self.seed, str):
            object.__setattr__(self, "seed", tuple(self.seed))
        if self.seed == ():
            raise ValueError("seed must be a whole number or one per sequence, not ()")
        for seed in self.seed if isinstance(self.seed, tuple) else (self.seed,):
            _whole("seed", seed, 0)
        if isinstance(self.seed, Integral):
            object.__setattr__(self, "seed", int(self.seed))
        for name in ("suppress_eos", "suppress_eos_confidence"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False, not {getattr(self, name)!r}")
        _whole("no_repeat_ngram_size", self.no_repeat_ngram_size, 0)
        if not _is_number(self.select_fraction) or not 0 < self.select_fraction <= 1:
            raise ValueError(f"select_fraction must be above 0 and at most 1, not {self.select_fraction!r}")
        _number("threshold", self.threshold, 0.0, 1.0, "a probability from 0 to 1")
        if (self.replay is None) == (self.remasking == "replay"):
            raise ValueError("replay must be given exactly when remasking is 'replay'")
        if self.replay is not None:
            self._check_replay(self.replay)

    def _check_schedule(self) -> None:
        if self.block_length is not None:
            _whole("block_length", self.block_length, 1)
            if self.gen_length % self.block_length:
                raise ValueError(f"block_length ({self.block_length}) must divide gen_length ({self.gen_length})")
        if self.steps is not None:
            _whole("steps", self.steps, 1)
            if self.steps > self.gen_length:
                raise ValueError(f"steps ({self.steps}) must be at most gen_length ({self.gen_length})")
            if self.steps % self.blocks:
                raise ValueError(f"steps ({self.steps}) must be a multiple of the number of blocks ({self.blocks})")

    def _check_replay(self, replay: Sequence[Sequence[Commit]]) -> None:
        try:
            frozen = tuple(tuple((index(s), index(p), index(v)) for s, p, v in commits) for commits in replay)
        except (TypeError, ValueError):
            raise ValueError("replay must be (step, position, token) triples of whole numbers per sequence") from None
        if not frozen:
            raise ValueError("replay must hold the triples of at least one sequence")
        for b, commits in enumerate(frozen):
            if sorted(position for _, position, _ in commits) != list(range(self.gen_length)):
                raise ValueError(f"replay of sequence {b} must commit each of the {self.gen_length} positions once")
            if any(not 0 <= step < self.total_steps for step, _, _ in commits):
                raise ValueError(f"replay of sequence {b} must keep to steps 0 to {self.total_steps - 1}")
        object.__setattr__(self, "replay", frozen)

    @property
    def blocks(self) -> int:
        return self.gen_length // (self.block_length or self.gen_length)

    @property
    def total_steps(self) -> int:
        return self.steps or self.gen_length

    def seed_of(self, sequence: int) -> int:
        """The seed of one sequence of the batch."""
        return self.seed + sequence if isinstance(self.seed, int) else self.seed[sequence]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlockRule:
    """Optional unlocking (the paper's appendix of that name).

    Every `period` steps, `budget` locked rows of each sequence are probed. A probed row is unlocked when its
    uncertainty is above the active rows' percentile, its KL from the posterior at its lock is above `epsilon_unlock`
    (nats), and more than `min_interval` steps have passed since. It does not lock again for `cooldown` steps, and then
    only at D <= rho * epsilon.
    """

    period: int = 8
    budget: int = 8
    epsilon_unlock: float = 5e-2
    min_interval: int = 4
    cooldown: int = 4
    rho: float = 0.5

    def __post_init__(self) -> None:
        _whole("period", self.period, 1)
        _whole("budget", self.budget, 1)
        _number("epsilon_unlock", self.epsilon_unlock, 0.0, math.inf, "a number of at least 0")
        _whole("min_interval", self.min_interval, 0)
        _whole("cooldown", self.cooldown, 0)
        _number("rho", self.rho, 0.0, 1.0, "a number from 0 to 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class LockRule:
    """When a position locks (Algorithm 1, lines 18-24).

    epsilon: largest step-wise KL in nats; below 0 never locks. percentile: m of the confidence gate, 0-100, None turns
    the gate off. visible_steps: forward passes that must have had the position's real token as input; 0 is Algorithm 1
    to the letter. unlock: an UnlockRule, None for the paper's permanent locks. schedule: for measurements, for each
    sequence the step in which each position locks at the earliest: all of the rule's arithmetic runs, but its verdict
    is replaced.
    """

    epsilon: float = 5e-4
    percentile: float | None = 20.0
    visible_steps: int = 1
    unlock: UnlockRule | None = None
    schedule: Sequence[Sequence[int]] | None = None

    def __post_init__(self) -> None:
        if not _is_number(self.epsilon) or math.isnan(self.epsilon):
            raise ValueError(f"epsilon must be a number (below 0 to never lock), not {self.epsilon!r}")
        if self.percentile is not None:
            _number("percentile", self.percentile, 0.0, 100.0, "a number from 0 to 100, or None for no gate")
        _whole("visible_steps", self.visible_steps, 0)
        if self.unlock is not None and not isinstance(self.unlock, UnlockRule):
            raise ValueError(f"unlock must be an UnlockRule or None, not {self.unlock!r}")
        if self.schedule is not None:
            self._check_schedule(self.schedule)

    def _check_schedule(self, schedule: Sequence[Sequence[int]]) -> None:
        try:
            frozen = tuple(tuple(index(step) for step in steps) for steps in schedule)
        except TypeError:
            raise ValueError("schedule must be a list of whole numbers for each sequence") from None
        if not frozen or any(step < 0 for steps in frozen for step in steps):
            raise ValueError("schedule must hold at least one sequence, and steps of at least 0")
        object.__setattr__(self, "schedule", frozen)
