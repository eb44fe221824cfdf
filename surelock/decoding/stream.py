"""A run in the shape of transformers' streamers: the prompt, drafts of the open block, and blocks as they are done."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from surelock.decoding.settings import DecodeSettings
from surelock.decoding.step import Step

if TYPE_CHECKING:
    from torch import Tensor


class Streamer(Protocol):
    """What `model.generate(streamer=...)` of transformers takes. `put_draft` is what diffusion models call beside."""

    def put(self, value: Tensor) -> Any:
        """Tokens [1, n] that stay: the prompt first, then what was generated."""
        ...

    def end(self) -> Any:
        """There is no more."""
        ...


def stream(steps: Iterable[Step], streamer: Streamer, settings: DecodeSettings) -> Iterator[Step]:
    """The same steps, each shown to a streamer on its way, such as transformers' `TextDiffusionStreamer`.

    steps: of one sequence, from `surelock.decode` with these settings. The streamer gets the prompt, after each step
    the open block as a draft (where it has `put_draft`), each block when nothing of it is masked, and the end: int64
    [1, n] on the CPU. A masked position of a draft is its most likely token where the steps tell it (`top_k` of at
    least 1), else the mask. What an event masks again later was shown for good. Raises ValueError for a batch.
    """
    from torch import from_numpy  # not before a streamer wants it

    length, block, shown = settings.gen_length, settings.block_length or settings.gen_length, 0
    for step in steps:
        if len(step.tokens) != 1:
            raise ValueError(f"a streamer shows one sequence, not a batch of {len(step.tokens)}")
        if step.index == 0:
            streamer.put(from_numpy(step.tokens[:, :-length]))
        draft = getattr(streamer, "put_draft", None)
        if draft is not None and shown < length:
            draft(from_numpy(_draft(step)[:, _generated(shown, block, length)]))
        while shown < length and not step.masked[:, (part := _generated(shown, block, length))].any():
            streamer.put(from_numpy(step.tokens[:, part]))
            shown += block
        yield step
    streamer.end()


def _generated(start: int, count: int, length: int) -> slice:
    """Some of the last `length` positions."""
    return slice(start - length, start - length + count or None)


def _draft(step: Step) -> NDArray[np.int64]:
    """The step's tokens, masks replaced by what is most likely there, where that is known."""
    if step.top_ids is None:
        return step.tokens
    return np.where(step.masked & step.computed, step.top_ids[..., 0], step.tokens)
