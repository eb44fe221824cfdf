"""A check that a canvas is not longer than the model can read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from surelock.model.language_model import LanguageModel


def check_length(lm: LanguageModel, number: int, tokens: int, gen_length: int) -> None:
    """Raise ValueError for a canvas that is longer than the model can read.

    number: number of the prompt in its batch, from 1. tokens: number of its tokens. gen_length: number of positions
    after it.
    """
    most = lm.engine.config.max_length
    if tokens + gen_length > most:
        more = f"which with gen_length {gen_length} is more than the {most} positions"
        raise ValueError(f"prompt {number} has {tokens} tokens, {more} of {lm.name}")
