"""Faults of a text that can be counted without a reader: what it says twice, and names that come back changed."""

import re
from collections.abc import Iterable

from surelock.research.renaming import NO_NAMES

_STUCK = re.compile(r"\b(\w+) \1\b|(.{2,12}?)\2{3,}", re.DOTALL)
_WORD = re.compile(r"\b[A-Z][a-z]+\b")
_KINSHIP = r"friends?|brothers?|sisters?|cousins?|sons?|daughters?|boy|girl"
_TITLES = r"Mr\.?|Mrs\.?|Miss|Aunt|Auntie|Uncle"
_CREATURES = r"dog|cat|bird|bear|rabbit|bunny|frog|fox|mouse"
#: What stands before a name that a text introduces.
_INTRODUCED = re.compile(
    rf"(?:(?:named|called|with|am|I'm|name (?:is|was)|{_TITLES}|(?:{_KINSHIP}|{_CREATURES}),?)"
    rf"|(?:named|called|with|(?:{_KINSHIP}),?) [A-Z][a-z]+(?:, [A-Z][a-z]+)*,? and) $"
)
_SENTENCES_BEGIN = """
Thank Thanks Look Suddenly Finally Everyone Everybody Eventually Sure Tell Just Maybe Please Let Come Yay Stop
Goodbye Bye Sorry Nobody Someone Meanwhile Instead Later Soon
"""
#: Words that stories for children write at the beginning of a sentence alone.
_STARTERS = frozenset(_SENTENCES_BEGIN.split())
_BEFORE = 60  # characters in which an introduction stands


def repeated(text: str) -> int:
    """Sentences of three words or more that the text had before; words twice in a row, and strings of 2 to 12
    characters four times in a row.
    """
    sentences = [" ".join(re.findall(r"\w+", part.lower())) for part in re.split(r"[.!?]+", text)]
    long = [sentence for sentence in sentences if sentence.count(" ") >= 2]
    return len(long) - len(set(long)) + len(_STUCK.findall(text))


def ordinary_words(texts: Iterable[str]) -> frozenset[str]:
    """The words that any of the texts writes without a capital: those are no names where a sentence begins."""
    return frozenset(word for text in texts for word in re.findall(r"\b[a-z]+\b", text))


def strangers(prompt: str, text: str, ordinary: frozenset[str]) -> list[str]:
    """The names in a continuation that neither its prompt has nor anything introduces: a name that came back changed
    ("Mateo … Kateo"), or somebody who walked in.

    ordinary: of many texts, by `ordinary_words`.
    """
    whole = prompt + text
    seen: set[str] = set()
    unknown = []
    for match in _WORD.finditer(whole):
        name = match[0]
        if name in NO_NAMES | _STARTERS or name.lower() in ordinary:
            continue
        before = whole[max(0, match.start() - _BEFORE) : match.start()]
        is_new = name not in seen and match.start() >= len(prompt)
        if is_new and not _INTRODUCED.search(before):
            unknown.append(name)
        seen.add(name)
    return unknown
