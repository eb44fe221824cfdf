"""Refusals in the words of the page: the settings' labels instead of their names in the library."""

from __future__ import annotations

import re

from surelock.decoding.choices import flat_settings

_LABELS = {"prompt": "Prompt", "lanes": "Lanes", "compute": "Computes", "unmask": "Writes"}
_NONE = re.compile(r", or None for [^,;]*|, or one per sequence")


def labels() -> dict[str, str]:
    """The label of every name that a refusal can begin with; the shared settings come before those of a rule."""
    found = dict(_LABELS)
    for flat, each in flat_settings().items():
        found.setdefault(flat, each.setting.label)
        found.setdefault(each.name, each.setting.label)
    return found


def in_words(problem: str) -> str:
    """A refusal as the page says it. Names with an underscore are replaced wherever they stand, others, which are also
    plain words, at its beginning only.
    """
    known = labels()
    first, *rest = re.split(r"(?<=\w)\b", problem, maxsplit=1)
    told = known.get(first, first) + "".join(rest)
    told = re.sub(r"\b[a-z]+(?:_[a-z]+)+\b", lambda found: known.get(found[0], found[0]), told)
    return _NONE.sub("", told)
