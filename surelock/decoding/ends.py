"""Where a text ends: at its first EOS, or at the end of its turn."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from surelock.model.language_model import LanguageModel


def first_end(ids: Sequence[int], ends: Collection[int]) -> int:
    """Return the number of ids before the first one that is among `ends`."""
    return next((i for i, token in enumerate(ids) if token in ends), len(ids))


def cut_at_end(ids: Sequence[int], ends: Collection[int]) -> list[int]:
    """Return the ids before the first one that is among `ends`."""
    return list(ids[: first_end(ids, ends)])


def text_of(lm: LanguageModel, ids: Sequence[int]) -> str:
    """Return the text of generated token ids, up to their first end."""
    return lm.decode(cut_at_end(ids, lm.ends))
