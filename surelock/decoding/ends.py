"""Where a text ends: at its first EOS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from surelock.model.language_model import LanguageModel


def first_end(ids: Sequence[int], eos_id: int | None) -> int:
    """How many of the ids come before the first EOS."""
    return next((i for i, token in enumerate(ids) if token == eos_id), len(ids))


def cut_at_eos(ids: Sequence[int], eos_id: int | None) -> list[int]:
    """The ids before the first EOS."""
    return list(ids[: first_end(ids, eos_id)])


def text_of(lm: LanguageModel, ids: Sequence[int]) -> str:
    """The text of generated token ids, up to the model's first EOS."""
    return lm.decode(cut_at_eos(ids, lm.eos_id))
