"""A recorded schedule stretched to a real size without its weights, or with room for more positions.

The schedule, when each position was unmasked and locked, decides which rows lock when, while all of the rule's
arithmetic still runs.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surelock.decoding.choices import Decoder
from surelock.decoding.locking import LockRule
from surelock.decoding.state import Slots, State
from surelock.decoding.step import Reading, Step
from surelock.decoding.unmasking import Replay
from surelock.model.language_model import LanguageModel


def with_room(lm: LanguageModel, positions: int) -> LanguageModel:
    """The model, if need be for more positions than it was made for: what it writes there is no text, the time is."""
    if lm.config.max_length >= positions:
        return lm
    engine = copy.copy(lm.engine)
    engine.config = replace(lm.config, max_length=positions)
    return replace(lm, engine=engine)


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
