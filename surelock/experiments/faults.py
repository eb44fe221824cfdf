"""Faults of a story that can be counted without a reader: sentences said twice, names from nowhere, stuck words.

A count finds what is plainly wrong and not what is dull; it is for comparing samplers and models, not for praise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from surelock.experiments import estimates
from surelock.model.language_model import LanguageModel

_SENTENCE_END = re.compile(r"[.!?]+")
_CAPITALISED = re.compile(r"\b[A-Z][a-z]+\b")
_INSIDE_SENTENCE = re.compile(r"[a-z,;] $")
_INTRODUCED = re.compile(r"\b(?:named|called) ([A-Z][a-z]+)\b")
_STUCK = re.compile(r"\b(\w+) \1\b|(.{2,12}?)\2{3,}", re.DOTALL)
#: Capitalised words that are nobody new: everybody has a mother.
_NOBODY_NEW = re.compile(
    "mom(my)?|mum(my)?|mama|dad(dy)?|papa|(grand)?(mother|father)|grand(ma|pa)|granny|aunt|uncle|mrs?|miss|god|santa|"
    "christmas|hello|hi|hey|oh|ow|wow|yes|yay|yum|yuck|mmm|hooray|thanks|boo"
)


@dataclass(frozen=True, slots=True)
class Faults:
    """Of one continuation. sentences: those of three words or more ("Tom said" is none); again: how many of them it had
    said before; strangers: names that neither the opening nor "named" nor "called" introduced, broken ones included;
    stuck: words said twice in a row, and strings of 2 to 12 characters that come four times in a row.
    """

    sentences: int
    again: int
    strangers: list[str]
    stuck: list[str]

    def as_dict(self) -> dict[str, int | list[str]]:
        return asdict(self)


def find_faults(opening: str, text: str, is_word: Callable[[str], bool]) -> Faults:
    """The faults of `text`, which continues `opening`.

    is_word tells ordinary words (lower case) from names: every sentence begins with a capital. A last sentence that the
    length cut off counts as one.
    """
    said = [" ".join(re.findall(r"\w+", part.lower())) for part in _SENTENCE_END.split(text)]
    said = [sentence for sentence in said if sentence.count(" ") >= 2]
    stuck = [match[0] for match in _STUCK.finditer(text)]
    return Faults(len(said), len(said) - len(set(said)), _strangers(opening, text, is_word), stuck)


def _strangers(opening: str, text: str, is_word: Callable[[str], bool]) -> list[str]:
    known = {word.lower() for word in re.findall(r"\w+", opening)}
    known |= {name.lower() for name in _INTRODUCED.findall(text)}
    names = {}
    for match in _CAPITALISED.finditer(text):
        name = match[0].lower()
        if name in known or _NOBODY_NEW.fullmatch(name):
            continue
        if _INSIDE_SENTENCE.search(text, 0, match.start()) or not is_word(name):
            names[match[0]] = None
    return list(names)


def count_faults(lm: LanguageModel, openings: Sequence[str], texts: Sequence[str]) -> list[dict[str, Any]]:
    """The faults of each text, as `Faults.as_dict` gives them; a word is what the model has a token of its own for."""

    def is_word(word: str) -> bool:
        return len(lm.encode(f" {word}")) == 1

    return [find_faults(*pair, is_word).as_dict() for pair in zip(openings, texts, strict=True)]


def clean(faults: Sequence[dict[str, Any]]) -> list[bool]:
    """Which continuations have no fault at all."""
    return [not any(fault[kind] for kind in ("again", "strangers", "stuck")) for fault in faults]


def shares(*runs: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Shares of the continuations with a fault of each kind, and of clean ones; `_se`: standard errors over openings.

    Several runs are of the same openings: an opening counts once, with its mean.
    """
    row = {}
    kinds = {kind: [[bool(fault[kind]) for fault in run] for run in runs] for kind in ("again", "strangers", "stuck")}
    for name, values in {**kinds, "clean": [clean(run) for run in runs]}.items():
        estimate = estimates.mean(np.mean(values, axis=0).tolist())
        row |= {name: estimate.value, f"{name}_se": estimate.error}
    return row
