"""Stories told again about others: the same text, its characters under other names.

Half of the children in a corpus may be called Lily or Tom, and a small model then learns that name instead of reading
the one that stands in the story. Where any name may stand, only reading helps.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain

import numpy as np

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
