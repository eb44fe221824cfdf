"""What a model is trained on: stories from text files, the same about others, windows of tokens."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
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


# --- stories told again about others ----------------------------------------------------------------------------------

# Half of the children in a corpus may be called Lily or Tom, and a small model then learns that name instead of reading
# the one that stands in the story. Where any name may stand, only reading helps.

_INTRODUCED = re.compile(r"\b(?:named|called) (?!Mrs?\b)([A-Z][a-z]{1,11})\b(?! [A-Z])")
_WORD = re.compile(r"\b[A-Za-z][a-z]+\b")
_OPENING = re.compile(r"[^aeiouy]*[aeiouy]+", re.IGNORECASE)
_PRONOUNS = {"she": ("she", "her", "hers", "herself"), "he": ("he", "him", "his", "himself")}
_MOST_LOWER_CASE = 0.01  # of a name's occurrences: "Sunny" is a word as well
_CLEAR_MAJORITY = 1.5
_SHORTEST, _LONGEST = 3, 9
_MOST_DRAWS = 1000


class Names:
    """The names that a corpus introduces at least twice ("a girl named ..."), by the pronoun that their stories use."""

    def __init__(self, stories: Sequence[str]) -> None:
        introduced = Counter(chain.from_iterable(_INTRODUCED.findall(story) for story in stories))
        words, pronouns = Counter[str](), {kind: Counter[str]() for kind in _PRONOUNS}
        for story in stories:
            counts = Counter(_WORD.findall(story))
            words.update(counts)
            present = introduced.keys() & counts.keys()
            for kind, forms in _PRONOUNS.items():
                pronouns[kind].update(dict.fromkeys(present, sum(counts[form] for form in forms)))
        known = [n for n, k in introduced.items() if k > 1 and words[n.lower()] <= _MOST_LOWER_CASE * words[n]]
        self.kinds = {name: _kind(pronouns["she"][name], pronouns["he"][name]) for name in sorted(known)}

    def rename(self, story: str, rng: np.random.Generator) -> str:
        """The story with every known name in it replaced throughout, by another or an invented one of the same kind.

        Different names stay different. Invented names make half: the opening of one name and the end of another, so
        that they fall into several pieces of a tokenizer. A name stays where its kind offers no other.
        """
        present = dict.fromkeys(word for word in _WORD.findall(story) if word in self.kinds)
        others: dict[str, str] = {}
        for name in present:
            pool = [other for other, kind in self.kinds.items() if kind == self.kinds[name]]
            for _ in range(_MOST_DRAWS):
                a, b = (pool[i] for i in rng.integers(0, len(pool), 2))
                drawn = _invented(a, b) if rng.random() < 0.5 else a
                if drawn not in others.values() and drawn not in present:
                    others[name] = drawn
                    break
        return _WORD.sub(lambda match: others.get(match[0], match[0]), story)


def _kind(she: int, he: int) -> str:
    return "she" if she > _CLEAR_MAJORITY * he else "he" if he > _CLEAR_MAJORITY * she else "either"


def _invented(a: str, b: str) -> str:
    """The first name's opening, through its first vowels, and what follows the second's; `a` where they do not fit."""
    first, second = _OPENING.match(a), _OPENING.match(b)
    invented = a[: first.end()] + b[second.end() :] if first and second else a
    return invented if _SHORTEST <= len(invented) <= _LONGEST else a
