"""Where a text ends: at its first EOS, or at the end of its turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from surelock.model.language_model import LanguageModel


def first_end(ids: Sequence[int], eos_id: int | None) -> int:
    """Return the number of ids before the first EOS."""
    return next((i for i, token in enumerate(ids) if token == eos_id), len(ids))


def cut_at_eos(ids: Sequence[int], *ends: int | None) -> list[int]:
    """Return the ids before the first one that is among `ends`."""
    return list(ids[: min((first_end(ids, end) for end in ends), default=None)])


def text_of(lm: LanguageModel, ids: Sequence[int]) -> str:
    """Return the text of generated token ids, up to the first EOS or end of turn."""
    return lm.decode(cut_at_eos(ids, lm.eos_id, lm.eot_id))
