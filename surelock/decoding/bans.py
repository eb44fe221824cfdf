"""Tokens that a candidate must not become: an end of the text before words of the prompt, and repeated n-grams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from surelock.decoding.ngrams import repeating_tokens
from surelock.decoding.state import Flags, Slots
from surelock.decoding.step import NO_PAIRS, Whole

if TYPE_CHECKING:
    from surelock.decoding.algorithm import Run


def check_vocabulary(run: Run) -> None:
    """Raise ValueError if `no_repeat_ngram_size` could leave a candidate without an allowed token.

    A token that repeats an n-gram already occurs in the sequence. So a vocabulary larger than the sequence always has
    an allowed token.
    """
    shape = run.shape
    words = shape.network.vocab_size - len({shape.mask_id, *shape.ends})
    length = int(run.canvas.lengths.max())
    if words < length:
        why = f"of {words} words some must come twice in {length} positions"
        raise ValueError(f"no_repeat_ngram_size must be 0 for this model: {why}")


def barred(run: Run, candidates: Slots) -> Whole:
    """Return `Choice.barred`, [2, K] int64, for candidates [C] of a step, ascending slots."""
    canvas = run.canvas
    inner = candidates < canvas.given_until[canvas.sequence[candidates]]
    ends = barred_ends(inner, run.shape.ends)
    if not run.settings.no_repeat_ngram_size or not len(candidates):
        return ends
    return np.unique(np.concatenate((ends, _repeats(run, candidates)), axis=1), axis=1)


def barred_ends(inner: Flags, ends: Sequence[int]) -> Whole:
    """Return `Choice.barred`, [2, K] int64, for candidates that must not become an end of the text.

    inner: [C] bool, whether the candidate is such a candidate. ends: the token ids that end a text.
    """
    rows = np.flatnonzero(inner)
    if not len(rows):
        return NO_PAIRS
    tokens = np.tile(np.array(ends, dtype=np.int64), len(rows))
    return np.stack((np.repeat(rows, len(ends)), tokens))


def _repeats(run: Run, candidates: Slots) -> Whole:
    """Return the pairs that `no_repeat_ngram_size` forbids, [2, K] int64. An end of the text is never forbidden."""
    canvas = run.canvas
    pairs = []
    for part in canvas.parts:
        tokens = canvas.tokens[part]
        masked = canvas.masked[part]
        positions, repeats = repeating_tokens(tokens, masked, run.settings.no_repeat_ngram_size)
        pairs.append(np.stack((positions + part.start, repeats)))
    slots, tokens = np.concatenate(pairs, axis=1)
    kept = np.isin(slots, candidates) & ~np.isin(tokens, run.shape.ends)
    return np.stack((np.searchsorted(candidates, slots[kept]), tokens[kept]))
