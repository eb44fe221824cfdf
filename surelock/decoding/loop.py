"""`decode` and `generate`: they drive a run and an engine step by step."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from numbers import Integral
from operator import index
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from tqdm import tqdm

from surelock.decoding.algorithm import Run
from surelock.decoding.arguments import decoder_of
from surelock.decoding.compute import ComputeRule
from surelock.decoding.ends import written
from surelock.decoding.events import Event
from surelock.decoding.lengths import check_length
from surelock.decoding.settings import DecodeSettings
from surelock.decoding.step import Engine, Plan, Step
from surelock.decoding.unmasking import Replay, UnmaskPolicy
from surelock.decoding.word_lists import like, read_lists, settled
from surelock.errors import shown

if TYPE_CHECKING:
    from surelock.model.language_model import LanguageModel

Prompts = str | Sequence[str] | Sequence[Sequence[int]]


def decode(
    lm: LanguageModel,
    prompts: Prompts,
    settings: DecodeSettings | None = None,
    *,
    compute: ComputeRule | None = None,
    unmask: UnmaskPolicy | None = None,
    events: Iterable[Event] = (),
    observe: bool = False,
    top_k: int = 0,
    keep_logits: bool = False,
    blanks: bool = True,
    **overrides: Any,
) -> Steps:
    """Decode a batch of prompts (Algorithm 1). Yields one `Step` per denoising step.

    lm: the model, from `surelock.load`.
    prompts: a text, a list of texts, or a list of lists of token ids. A prompt may contain `lm.mask_id` anywhere: every
    masked position gets a token. For blanks with lists of words, which `lm.encode` reads, the number of tokens is
    chosen first, see `surelock.settled`.
    settings: lengths, steps, temperature, seed.
    compute: the rule that chooses which rows a step computes. `Everything()` is LLaDA's sampler.
    unmask: the policy that chooses which masked positions a step commits.
    events: interventions; an event is applied before the step that it names.
    observe: report confidence and step-wise KL of every computed row. This changes no decision. If it is False, a step
    reads only the rows that a rule watches or whose token may be committed. For all other rows the last layer computes
    only keys and values, except in a shifted network.
    top_k: number of most likely tokens to report of a computed row. A value above 0 implies `observe`.
    keep_logits: report the logits of committed positions, which `surelock.commit_error` needs.
    blanks: whether n underscores in a text, n at least 2, become n masks, see `LanguageModel.encode`.
    overrides: single settings by the names of their flags, such as gen_length=64 and epsilon=1e-3.

    A setting, rule or policy that is not passed comes from `lm.recommended`, as on the command line. Settings, a rule
    or a policy that is passed is used unchanged, except for the values in `overrides`.

    The run of a sequence does not depend on its batch, except by rounding: a matrix product of more rows may round
    differently.

    The call raises ValueError for arguments that the model cannot decode. The iterator raises ValueError for an event
    that does not fit the state of the run, and NonFiniteLogits for logits that are NaN or infinite.
    """
    vocab_size = lm.engine.config.vocab_size
    if not isinstance(top_k, int) or not 0 <= top_k <= vocab_size:
        raise ValueError(
            f"top_k must be a whole number from 0 to the vocabulary's size, not {shown(top_k)}"
        )
    decoder = decoder_of(lm.recommended, settings, compute, unmask, events, overrides)
    encoded = encode_prompts(lm, prompts, decoder.settings, blanks)
    run = Run(lm.shape, encoded, decoder, observe=observe, top_k=top_k)
    if isinstance(decoder.unmask, Replay):
        if decoder.settings.stop_at_end:
            raise ValueError(
                "stop_at_end must be False under the policy 'replay', which holds tokens also behind the end"
            )
        decoder.unmask.check_against(run.canvas, run.schedule.steps.tolist(), vocab_size)
    return Steps(run, lm.engine, keep_logits)


class Steps(Iterator[Step]):
    """An iterator over the steps of a run.

    It borrows a memory from the engine for the run, and returns that memory when the run is over.

    run: the run.
    plan: the `Plan` of the last step; None before the first step.

    Raises what `Run.plan` and `Run.take` raise.
    """

    def __init__(self, run: Run, engine: Engine, keep_logits: bool) -> None:
        self.run = run
        self._engine = engine
        self._keep_logits = keep_logits
        self.plan: Plan | None = None
        self._memory: Any = None
        self._is_over = False

    @property
    def memory(self) -> Any:
        """The engine's memory for this run, borrowed at the first access. Raises ValueError when the run is over."""
        if self._is_over:
            raise ValueError("the run is over, and its memory given back")
        if self._memory is None:
            self._memory = self._engine.memory(self.run.layout)
        return self._memory

    def __next__(self) -> Step:
        if self._is_over:
            raise StopIteration
        step = None
        try:
            memory = self.memory
            begun = time.perf_counter()
            plan = self.run.plan()
            if plan is None:
                raise StopIteration
            self.plan = plan
            planned = time.perf_counter() - begun
            reading = self._engine.read(memory, plan)
            begun = time.perf_counter()
            read_lists(self._engine, memory, plan, reading)
            taken = self.run.take(reading)
            seconds = planned + reading.seconds + time.perf_counter() - begun
            logits = None
            if self._keep_logits:
                logits = self._engine.logits(memory, _committed(self.run, plan, taken))
            step = replace(taken, seconds=seconds, commit_logits=logits)
            return step
        finally:
            if step is None:
                self.close()

    def close(self) -> None:
        """Return the memory to the engine. The iterator yields no further steps."""
        memory = self._memory
        self._is_over = True
        self._memory = None
        if memory is not None:
            self._engine.release(memory)

    def __del__(self) -> None:
        self.close()


def encode_prompts(
    lm: LanguageModel, prompts: Prompts, settings: DecodeSettings, blanks: bool = True
) -> list[list[int]]:
    """Return the token ids of every prompt, [B] lists.

    Raises ValueError for a prompt that the model cannot decode. The message has the prompt's number, from 1.
    """
    if isinstance(prompts, str):
        prompts = [prompts]
    if not isinstance(prompts, Sequence) or not prompts or isinstance(prompts[0], Integral):
        raise ValueError(
            "prompts must be a text, or a list of at least one text or one list of token ids"
        )
    encoded = []
    for b, prompt in enumerate(prompts):
        is_text = isinstance(prompt, str)
        ids = lm.encode(prompt, blanks=blanks) if is_text else _ids(lm, b, prompt)
        encoded.append(ids)
    config = lm.engine.config
    for b, ids in enumerate(encoded):
        if not ids:
            raise ValueError(f"prompt {b + 1} is empty: give at least one token")
        check_length(lm, b + 1, len(ids), settings.gen_length)
        if not all(0 <= i < config.vocab_size for i in ids):
            raise ValueError(f"prompt {b + 1} holds token ids outside 0 to {config.vocab_size - 1}")
    if isinstance(settings.seed, tuple) and len(settings.seed) != len(encoded):
        raise ValueError(
            f"seed is given for {len(settings.seed)} sequences, but there are {len(encoded)} prompts"
        )
    return [settled(lm, ids, settings.gen_length, number=b + 1) for b, ids in enumerate(encoded)]


def _ids(lm: LanguageModel, b: int, prompt: Sequence[int]) -> list[int]:
    try:
        if not isinstance(prompt, bytes | bytearray):  # the numbers in bytes are no token ids
            return like(prompt, [index(i) for i in prompt], lm.mask_id)
    except TypeError:
        pass
    raise ValueError(
        f"prompt {b + 1} must be a text or a list of whole numbers, not {shown(prompt)}"
    )


@overload
def generate(
    lm: LanguageModel, prompts: str, settings: DecodeSettings | None = None, **more: Any
) -> str: ...
@overload
def generate(
    lm: LanguageModel, prompts: Prompts, settings: DecodeSettings | None = None, **more: Any
) -> Any: ...
def generate(
    lm: LanguageModel,
    prompts: Prompts,
    settings: DecodeSettings | None = None,
    *,
    compute: ComputeRule | None = None,
    unmask: UnmaskPolicy | None = None,
    events: Iterable[Event] = (),
    batch: int | None = None,
    blanks: bool = True,
    **overrides: Any,
) -> str | list[str]:
    """Decode to the end and return the generated texts, cut at their first end token.

    For a prompt with masks the returned text is the whole text, prompt included. If `prompts` is a single text, the
    result is a single text, otherwise a list of texts. Arguments that are not described here are those of `decode`.

    batch: number of prompts that are decoded together; None decodes all together. The batch does not change the seeds:
    prompt b (from 0) has seed + b.

    A call that takes more than two seconds shows its progress in a terminal.

    Raises what `decode` and its iterator raise. Raises ValueError for a model without a tokenizer, for a wrong batch,
    and for events with more than one batch.
    """
    decoder = decoder_of(lm.recommended, settings, compute, unmask, events, overrides)
    settings = decoder.settings
    lm.decode([])  # raises ValueError for a model without a tokenizer, before work begins
    encoded = encode_prompts(lm, prompts, settings, blanks)
    size = len(encoded) if batch is None else batch
    if not isinstance(size, int) or size < 1:
        raise ValueError(f"batch must be a whole number of at least 1, not {shown(batch)}")
    if decoder.events and size < len(encoded):
        raise ValueError("events need all prompts in one batch: leave out batch, or events")
    texts = []
    batches = [encoded[start : start + size] for start in range(0, len(encoded), size)]
    most_steps = 0
    for part in batches:
        masks = max(ids.count(lm.mask_id) for ids in part)
        most_steps += decoder.steps_of(masks)
    with tqdm(total=most_steps, unit="step", delay=2, leave=False, disable=None) as progress:
        for part in batches:
            seeds = tuple(settings.seed_of(b) for b in range(len(texts), len(texts) + len(part)))
            seeded = replace(decoder, settings=replace(settings, seed=seeds))
            tokens = np.empty((0, 0), dtype=np.int64)
            for step in decode(lm, part, **seeded.keywords()):
                progress.update()
                tokens = step.tokens
            for prompt, ids in zip(part, tokens.tolist(), strict=True):
                length = len(prompt) + settings.gen_length
                texts.append(written(lm, prompt, ids[-length:]))  # without the pads on the left
    return texts[0] if isinstance(prompts, str) else texts


def _committed(run: Run, plan: Plan, step: Step) -> np.ndarray:
    """Return the row numbers [K] of the committed positions in the plan; len(plan.slots) if one was not computed."""
    slots = run.canvas.flat(step.newly_unmasked)
    return np.where(np.isin(slots, plan.slots), np.searchsorted(plan.slots, slots), len(plan.slots))
