"""The sequences of a batch on one flat axis, one behind the other: padding exists only where a Step is shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Integral
from operator import index

import numpy as np
import torch
from numpy.typing import NDArray

from surelock.decoding.settings import DecodeSettings
from surelock.model.language_model import LanguageModel


def encode_prompts(
    lm: LanguageModel, prompts: Sequence[str] | Sequence[Sequence[int]], settings: DecodeSettings
) -> list[list[int]]:
    """Token ids of each prompt. Raises ValueError for whatever the model cannot continue, naming the prompt."""
    if not isinstance(prompts, Sequence) or isinstance(prompts, str) or not prompts or isinstance(prompts[0], Integral):
        raise ValueError("prompts must be a list of at least one text or one list of token ids")
    encoded = [lm.encode(prompt) if isinstance(prompt, str) else _ids(b, prompt) for b, prompt in enumerate(prompts)]
    config = lm.network.config
    for b, ids in enumerate(encoded):
        if not ids:
            raise ValueError(f"prompt {b} is empty: give at least one token")
        if len(ids) + settings.gen_length > config.max_length:
            raise ValueError(
                f"prompt {b} has {len(ids)} tokens, which with gen_length {settings.gen_length} is more than the "
                f"{config.max_length} positions of {lm.name}"
            )
        if not all(0 <= i < config.vocab_size for i in ids):
            raise ValueError(f"prompt {b} holds token ids outside 0 to {config.vocab_size - 1}")
        if lm.mask_id in ids:
            raise ValueError(f"prompt {b} holds the mask token (id {lm.mask_id}) at position {ids.index(lm.mask_id)}")
    if isinstance(settings.seed, tuple) and len(settings.seed) != len(encoded):
        raise ValueError(f"seed is given for {len(settings.seed)} sequences, but there are {len(encoded)} prompts")
    return encoded


def _ids(b: int, prompt: Iterable[int]) -> list[int]:
    try:
        return [index(i) for i in prompt]
    except TypeError:
        raise ValueError(f"prompt {b} must be a text or a list of whole numbers, not {prompt!r}") from None


class Canvas:
    """Prompts followed by masks. All arrays are flat, over `total` slots: the sequences' positions, one after another.

    lengths, starts [B]: positions of each sequence and its first slot. sequence, position [total]: what a slot is.
    is_prompt [total]. tokens [total] int64 and masked [total] bool change as the run unmasks.
    """

    def __init__(self, prompts: Sequence[Sequence[int]], settings: DecodeSettings, mask_id: int, pad_id: int) -> None:
        prompt_lengths = np.array([len(prompt) for prompt in prompts])
        self.lengths = prompt_lengths + settings.gen_length
        self.starts = np.concatenate(([0], np.cumsum(self.lengths)[:-1]))
        self.total = int(self.lengths.sum())
        self.batch = len(prompts)
        self._edges = np.append(self.starts, self.total)
        self.sequence = np.repeat(np.arange(self.batch), self.lengths)
        self.position = np.arange(self.total) - self.starts[self.sequence]
        self.is_prompt = self.position < prompt_lengths[self.sequence]
        self.generated_from = self.starts + prompt_lengths
        self.mask_id = mask_id
        self.pad_id = pad_id
        self.tokens = np.full(self.total, mask_id)
        self.tokens[self.is_prompt] = np.concatenate([np.asarray(prompt) for prompt in prompts])
        self.masked = ~self.is_prompt
        width = int(self.lengths.max())
        self._shape = (self.batch, width)
        self._cells = self.sequence * width + (width - self.lengths)[self.sequence] + self.position

    def slots_of(self, b: int) -> slice:
        """The slots of sequence b."""
        return slice(int(self.starts[b]), int(self.starts[b] + self.lengths[b]))

    def slot(self, b: int, position: int) -> int:
        """The slot of a sequence's position."""
        return int(self.starts[b]) + position

    def commit(self, slots: NDArray[np.int64], tokens: NDArray[np.int64]) -> None:
        self.tokens[slots] = tokens
        self.masked[slots] = False

    def mask(self, slots: NDArray[np.int64]) -> None:
        self.tokens[slots] = self.mask_id
        self.masked[slots] = True

    def split(self, slots: NDArray[np.int64]) -> list[slice]:
        """Where each sequence's part of ascending `slots` lies."""
        edges = np.searchsorted(slots, self._edges)
        return [slice(a, b) for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)]

    def counts(self, slots: NDArray[np.int64]) -> list[int]:
        """How many of ascending `slots` each sequence has."""
        return [part.stop - part.start for part in self.split(slots)]

    def mark(self, slots: NDArray[np.int64]) -> NDArray[np.bool_]:
        """[total] bool, true at `slots`."""
        marked = np.zeros(self.total, dtype=bool)
        marked[slots] = True
        return marked

    def grid(self, values: NDArray, fill: object, slots: NDArray[np.int64] | slice = slice(None)) -> torch.Tensor:
        """Values of `slots` as a left-padded tensor [B, N, ...], `fill` at pads and everywhere else."""
        if len(values) == self.batch * self._shape[1]:  # no pads, and all slots
            return torch.from_numpy(values.reshape(*self._shape, *values.shape[1:]).copy())
        out = np.full((self.batch * self._shape[1], *values.shape[1:]), fill, dtype=values.dtype)
        out[self._cells[slots]] = values
        return torch.from_numpy(out.reshape(*self._shape, *values.shape[1:]))
