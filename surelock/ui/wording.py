"""Rewrites error messages for the page: labels of settings replace names of settings."""

import re

from surelock.decoding.spelling import flat_settings

_LABELS = {"prompt": "Prompt", "lanes": "Lanes", "compute": "Computes", "unmask": "Writes"}
_NONE = re.compile(r", or None for [^,;]*|, or one per sequence")


def in_words(problem: str) -> str:
    """Return a message with the labels of settings in place of their names.

    A name with an underscore is replaced everywhere. A name without an underscore may be a plain word: it is replaced
    only at the beginning.
    """
    labels = dict(_LABELS)
    for name, flat in flat_settings().items():  # shared settings come before the settings of a rule
        labels.setdefault(name, flat.setting.label)
        labels.setdefault(flat.name, flat.setting.label)
    first, *rest = re.split(r"(?<=\w)\b", problem, maxsplit=1)
    text = labels.get(first, first) + "".join(rest)
    text = re.sub(r"\b[a-z]+(?:_[a-z]+)+\b", lambda match: labels.get(match[0], match[0]), text)
    return _NONE.sub("", text)
