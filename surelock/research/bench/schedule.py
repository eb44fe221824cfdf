"""A recorded schedule of commits and locks, for benchmarks of networks with random weights.

The schedule says in which step every position of a text of the embedded model was committed and locked. It is stretched
to the size of a benchmark and decides which rows lock when. All of the lock rule's arithmetic still runs.
`python -m surelock.research.bench.schedule` records the schedule again.
"""

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from surelock.decoding.decoder import Decoder
from surelock.decoding.locking import LockRule
from surelock.decoding.loop import decode
from surelock.decoding.recommended import recommended
from surelock.decoding.state import Slots, State
from surelock.decoding.step import Reading
from surelock.decoding.unmasking import Replay
from surelock.loading import load
from surelock.model.language_model import LanguageModel
from surelock.places import ASSETS
from surelock.values import Flags, Json, frozen

#: The schedule of one text of 256 tokens, which the embedded model wrote under SureLock.
RECORDED = ASSETS / "results" / "locks_stories_256.json"
OPENING = "Once upon a time, there was a little girl named Lily. She"


def record(lm: LanguageModel) -> Json:
    """Decode OPENING as the model recommends, and return the schedule.

    model: the name of the model.
    steps: the number of steps.
    prompt_length: the number of tokens of the prompt.
    unmask: [gen_length], the step in which a position was committed.
    lock: [prompt_length + gen_length], the step in which a position was locked, -1 for a position that never was.
    """
    decoder = recommended(lm.generation, {"gen_length": 256, "steps": 256})
    prompt = lm.encode(OPENING)
    steps = decode(lm, [prompt], **decoder.keywords())
    unmask = [-1] * decoder.settings.gen_length
    lock = [-1] * (len(prompt) + len(unmask))
    for step in steps:
        for position in np.flatnonzero(step.newly_unmasked[0]):
            unmask[position - len(prompt)] = step.index
        for position in np.flatnonzero(step.newly_locked[0]):
            lock[position] = step.index
    return {
        "model": lm.name,
        "steps": decoder.settings.total_steps,
        "prompt_length": len(prompt),
        "unmask": unmask,
        "lock": lock,
    }


@frozen(kw_only=True)
class RecordedLocks(LockRule):
    """The paper's lock rule with all of its arithmetic and a prescribed verdict.

    at: by sequence, the step from which a position may lock, one number per position.
    """

    at: tuple[tuple[int, ...], ...]

    def converged(self, state: State, reading: Reading, z: Slots) -> Flags:
        LockRule.converged(self, state, reading, z)
        if [len(steps) for steps in self.at] != state.canvas.lengths.tolist():
            raise ValueError(
                f"at must give a step for each of the {state.canvas.lengths.tolist()} positions"
            )
        return np.concatenate(self.at)[reading.slots[z]] <= state.step


def stretch(decoder: Decoder, prompts: Sequence[Sequence[int]], vocab_size: int) -> Decoder:
    """Return a decoder that replays the recorded schedule, stretched to other prompts and another gen_length.

    decoder: a decoder whose compute rule is a LockRule.
    prompts: the token ids of the prompts.
    vocab_size: the size of the vocabulary, from which the replayed tokens are drawn.
    """
    settings = decoder.settings
    rule = decoder.compute
    recorded = json.loads(RECORDED.read_text("utf-8"))
    assert isinstance(rule, LockRule)
    unmask = np.array(recorded["unmask"])
    lock = np.array(recorded["lock"])
    prompt_length = recorded["prompt_length"]
    scale = settings.total_steps / recorded["steps"]
    generated = np.arange(settings.gen_length)
    source = generated * len(unmask) // settings.gen_length
    order = np.lexsort((generated, unmask[source]))
    unmask_at = np.empty_like(generated)
    unmask_at[order] = generated * settings.total_steps // settings.gen_length
    lock_scaled = np.where(lock < 0, settings.total_steps, np.round(lock * scale)).astype(int)
    lock_generated = np.maximum(lock_scaled[prompt_length:][source], unmask_at)
    tokens = np.random.default_rng(0).integers(2, vocab_size, (len(prompts), settings.gen_length))
    replay = []
    for row in tokens:
        commits = zip(unmask_at.tolist(), generated.tolist(), row.tolist(), strict=True)
        replay.append(list(commits))
    schedule = []
    for prompt in prompts:
        lock_prompt = lock_scaled[np.arange(len(prompt)) * prompt_length // len(prompt)]
        schedule.append(tuple(np.concatenate((lock_prompt, lock_generated)).tolist()))
    return replace(
        decoder,
        unmask=Replay(replay),
        compute=RecordedLocks(epsilon=rule.epsilon, at=tuple(schedule)),
    )


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(record(load("stories"))) + "\n", encoding="utf-8")
