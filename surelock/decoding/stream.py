"""Streaming to transformers' streamers: the prompt, drafts of the open block, and blocks when they are complete."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from surelock.decoding.settings import DecodeSettings
from surelock.decoding.step import Step
from surelock.values import Whole

if TYPE_CHECKING:
    from torch import Tensor


class Streamer(Protocol):
    """A streamer for transformers' `model.generate(streamer=...)`. Streamers for diffusion models have `put_draft`."""

    def put(self, value: Tensor) -> Any:
        """Take final tokens [1, n]: the prompt first, then the blocks in order."""
        ...

    def end(self) -> Any:
        """Take note that no more tokens follow."""
        ...


def stream(steps: Iterable[Step], streamer: Streamer, settings: DecodeSettings) -> Iterator[Step]:
    """Show the steps to a streamer, such as transformers' `TextDiffusionStreamer`, and yield them unchanged.

    steps: the steps of one sequence, from `surelock.decode` with the same settings.
    streamer: receives the prompt up to its first mask; after a step a draft of the open block, if the streamer has
    `put_draft`; a block when none of its positions is masked; and the end. Tokens are int64 [1, n] on the CPU.
    settings: the run's settings.

    At masked positions a draft has the most likely token if the steps have `top_k` of at least 1, otherwise the mask. A
    block that the streamer has received is not sent again if an event masks one of its positions. Raises ValueError for
    a batch.
    """
    from torch import from_numpy  # torch is imported only for a streamer

    length = block = shown = 0  # positions generated, of a block, and sent to the streamer
    for step in steps:
        if len(step.tokens) != 1:
            raise ValueError(f"a streamer shows one sequence, not a batch of {len(step.tokens)}")
        if step.index == 0:
            length = step.tokens.shape[1] - int(step.given[0].argmin())
            block = settings.block_length or length
            streamer.put(from_numpy(step.tokens[:, :-length]))
        draft = getattr(streamer, "put_draft", None)
        if draft is not None and shown < length:
            draft(from_numpy(_draft(step)[:, _generated(shown, block, length)]))
        while shown < length:
            part = _generated(shown, block, length)
            if step.masked[:, part].any():
                break
            streamer.put(from_numpy(step.tokens[:, part]))
            shown += block
        yield step
    streamer.end()


def _generated(start: int, count: int, length: int) -> slice:
    """Return the positions `start` to `start + count` of the last `length` positions, counted from the end."""
    return slice(start - length, start - length + count or None)


def _draft(step: Step) -> Whole:
    if step.top_ids is None:
        return step.tokens
    return np.where(step.masked & step.computed, step.top_ids[..., 0], step.tokens)
