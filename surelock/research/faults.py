"""Counts faults of a text without a reader: repetitions, and names that nothing introduces."""

import re
from collections.abc import Iterable

from surelock.research.renaming import NO_NAMES

_STUCK = re.compile(r"\b(\w+) \1\b|(.{2,12}?)\2{3,}", re.DOTALL)
_WORD = re.compile(r"\b[A-Z][a-z]+\b")
_KINSHIP = r"friends?|brothers?|sisters?|cousins?|sons?|daughters?|boy|girl"
_TITLES = r"Mr\.?|Mrs\.?|Miss|Aunt|Auntie|Uncle"
_CREATURES = r"dog|cat|bird|bear|rabbit|bunny|frog|fox|mouse"
#: The words before a name that introduce the name.
_INTRODUCED = re.compile(
    rf"(?:(?:named|called|with|am|I'm|name (?:is|was)|{_TITLES}|(?:{_KINSHIP}|{_CREATURES}),?)"
    rf"|(?:named|called|with|(?:{_KINSHIP}),?) [A-Z][a-z]+(?:, [A-Z][a-z]+)*,? and) $"
)
_SENTENCES_BEGIN = """
Thank Thanks Look Suddenly Finally Everyone Everybody Eventually Sure Tell Just Maybe Please Let Come Yay Stop
Goodbye Bye Sorry Nobody Someone Meanwhile Instead Later Soon
"""
#: Words that stories for children write only at the beginning of a sentence. They are no names.
_STARTERS = frozenset(_SENTENCES_BEGIN.split())
_BEFORE = 60  # characters before a name in which its introduction is searched


def repeated(text: str) -> int:
    """Return the number of repetitions in a text.

    They are: sentences of at least three words that occurred before, words that occur twice in a row, and strings of 2
    to 12 characters that occur four times in a row.
    """
    sentences = [" ".join(re.findall(r"\w+", part.lower())) for part in re.split(r"[.!?]+", text)]
    long = [sentence for sentence in sentences if sentence.count(" ") >= 2]
    return len(long) - len(set(long)) + len(_STUCK.findall(text))


def ordinary_words(texts: Iterable[str]) -> frozenset[str]:
    """Return the words that occur without a capital. They are no names; with a capital they begin a sentence."""
    return frozenset(word for text in texts for word in re.findall(r"\b[a-z]+\b", text))


def strangers(prompt: str, text: str, ordinary: frozenset[str]) -> list[str]:
    """Return the names in a continuation that neither the prompt contains nor the text introduces.

    Such a name is a changed name ("Mateo ... Kateo"), or that of a character who appears without an introduction.

    ordinary: the words of many texts that are no names, see `ordinary_words`.
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
