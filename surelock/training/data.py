"""Stories from text files, and the windows of tokens that training sees."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SEPARATOR = "<|endoftext|>"
_LAST = ".!?\"')"
_FEWEST_CHARACTERS = 80
_MOST_CAPITALS = 0.3


def read_stories(path: str | Path) -> list[str]:
    """The stories of a UTF-8 text file in which a line holding only `<|endoftext|>` closes each.

    Raises ValueError when the file cannot be read or holds no story.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read as text: {error}") from error
    stories = [story.strip() for story in text.split(SEPARATOR)]
    stories = [story for story in stories if story]
    if not stories:
        raise ValueError(f"{path} holds no story")
    return stories


def is_whole(story: str) -> bool:
    """False for what should not be learnt from: truncated records, records that begin mid-way, tables of contents."""
    letters = [c for c in story if c.isalpha()]
    return (
        len(story) >= _FEWEST_CHARACTERS
        and story[-1] in _LAST
        and (story[0].isupper() or story[0] in "\"'")
        and sum(c.isupper() for c in letters) < _MOST_CAPITALS * len(letters)
    )


class Corpus:
    """Stories as token streams, shuffled anew in each epoch; a batch is a pure function of (seed, step).

    That makes the data position a number: an interrupted run continues with the very windows that it would have seen.
    """

    def __init__(
        self, stories: Iterable[Sequence[int]], eos_id: int, seed: int, lengths: Sequence[int], batch_tokens: int
    ) -> None:
        """stories: token ids without EOS, one is appended to each. Raises ValueError when there are none.

        lengths: of the windows, one length per step, in turn; batch_tokens: tokens in a step, rounded down to windows.
        """
        self.stories = [np.array([*story, eos_id], dtype=np.int32) for story in stories]
        if not self.stories:
            raise ValueError("the corpus holds no story")
        self.seed, self.lengths, self.batch_tokens = seed, tuple(lengths), batch_tokens
        self.rows = [max(1, batch_tokens // length) for length in lengths]
        self.tokens = sum(map(len, self.stories))
        self._shuffled = lru_cache(maxsize=2)(self._shuffle)

    def _shuffle(self, stream: int, epoch: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """All tokens of an epoch in shuffled order of the stories, and where each story starts."""
        order = np.random.default_rng([self.seed, stream, epoch]).permutation(len(self.stories))
        lengths = np.array([len(self.stories[i]) for i in order])
        return np.concatenate([self.stories[i] for i in order]), np.cumsum(lengths) - lengths

    def batch(self, step: int) -> NDArray[np.int64]:
        """[rows, length]: half of the windows start where a story starts, the others tile the stream.

        A model that is to continue openings must know them at position 0, and tiling alone hardly ever shows one there.
        """
        turn, place = divmod(step, len(self.lengths))
        rows, length = self.rows[place], self.lengths[place]
        before = turn * sum(self.rows) + sum(self.rows[:place])
        aligned = range(before // 2, (before + rows) // 2)
        windows = [self._aligned(index, length) for index in aligned]
        begin = step * self.batch_tokens // 2
        windows += [self._tiled(begin + i * length, length) for i in range(rows - len(aligned))]
        return np.stack(windows).astype(np.int64)

    def _aligned(self, index: int, length: int) -> NDArray[np.int32]:
        epoch, story = divmod(index, len(self.stories))
        tokens, starts = self._shuffled(0, epoch)
        return tokens.take(range(starts[story], starts[story] + length), mode="wrap")

    def _tiled(self, offset: int, length: int) -> NDArray[np.int32]:
        epoch, begin = divmod(offset, self.tokens)
        return self._shuffled(1, epoch)[0].take(range(begin, begin + length), mode="wrap")
