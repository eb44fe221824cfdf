"""Tasks: the prompts of a run over many prompts, with their token ids and decoders."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import field, replace

from surelock.decoding.decoder import Decoder
from surelock.decoding.loop import decode
from surelock.decoding.recommended import recommended
from surelock.decoding.step import Step
from surelock.decoding.totals import TotalsCounter
from surelock.decoding.word_lists import settled
from surelock.model.language_model import LanguageModel
from surelock.trace.prompts import Prompt
from surelock.values import Json, frozen


@frozen
class Task:
    """A prompt with its token ids and its decoder, whose seed is a number."""

    prompt: Prompt
    tokens: list[int]
    decoder: Decoder
    head: Json  # the first fields of its line in the results, which do not depend on the run

    @property
    def id(self) -> str:
        """The id of the prompt, as text."""
        return str(self.prompt.id)


@frozen
class Decoded:
    """A task with its run."""

    task: Task
    totals: TotalsCounter
    steps: list[Step] = field(default_factory=list)  # steps that contain only the task's sequence


def task_of(
    lm: LanguageModel, prompt: Prompt, number: int, overrides: Json, how: dict[str, bool]
) -> Task:
    """Return the task of a prompt.

    number: number of the prompt, from 0. It is added to the seed.
    overrides: settings of all prompts, a short spelling.
    how: arguments of `LanguageModel.encode`, where the prompt names none.

    Raises ValueError, which names the prompt and its line, for a prompt that cannot be decoded.
    """
    how = {**how, **prompt.encoding}
    seed = {"seed": overrides.get("seed", lm.generation.get("seed", 0)) + number}
    try:
        decoder = recommended(lm.generation, overrides | seed | prompt.settings)
        tokens = _tokens(lm, prompt, how, decoder.settings.gen_length)
        decode(lm, [tokens], **decoder.keywords())  # only for its checks: no step is computed
    except ValueError as error:
        said = re.sub(r"\bprompt 1\b", lambda _: prompt.name, str(error), count=1)
        if prompt.settings and said == str(error):
            said = f"{prompt.name}: {said}"
        if prompt.where and said != str(error):
            said = f"{prompt.where}: {said}"
        raise ValueError(said) from error
    head = {
        "id": prompt.id,
        "model": lm.name,
        "prompt": prompt.text,
        **how,
        "settings": decoder.to_plain(),
    }
    return Task(prompt, tokens, decoder, head)


def _tokens(lm: LanguageModel, prompt: Prompt, how: dict[str, bool], gen_length: int) -> list[int]:
    """Return the token ids of a prompt, settled. Raises ValueError, whose message names "prompt 1"."""
    try:
        return settled(lm, lm.encode(prompt.text, **how), gen_length)
    except ValueError as error:
        raise ValueError(f"prompt 1: {error}") from error


def joint_decoder(batch: Sequence[Task]) -> Decoder:
    """Return the decoder of a batch of tasks whose decoders differ only in their seeds."""
    decoder = batch[0].decoder
    seeds = tuple(task.decoder.settings.seed_of(0) for task in batch)
    return replace(decoder, settings=replace(decoder.settings, seed=seeds))


def batches(tasks: Sequence[Task], size: int) -> Iterator[list[Task]]:
    """Yield batches of at most `size` tasks whose decoders differ only in their seeds."""
    kinds: dict[str, list[Task]] = {}
    for task in tasks:
        settings = replace(task.decoder.settings, seed=0)
        decoder = replace(task.decoder, settings=settings)
        kinds.setdefault(json.dumps(decoder.to_plain()), []).append(task)
    for same in kinds.values():
        yield from (same[at : at + size] for at in range(0, len(same), size))
