"""Forbid repeated n-grams (`no_repeat_ngram_size`, as in transformers), for tokens that are written in any order."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from surelock.values import Flags, Whole


def repeating_tokens(tokens: Whole, masked: Flags, size: int) -> Whole:
    """Return (position, token) pairs that would complete an n-gram a second time: [2, K] int64, sorted by position.

    tokens: [N] int64, one sequence, prompt included.
    masked: [N] bool.
    size: the length of an n-gram, in tokens.
    """
    # The code compares windows of `size` tokens: `ours` with one mask, the hole, `others` with at most one mask.
    if len(tokens) < size:
        return np.empty((2, 0), dtype=np.int64)
    windows = sliding_window_view(tokens, size)
    masks = sliding_window_view(masked, size)
    left = masks.sum(axis=1)
    ours = np.flatnonzero(left == 1)
    others = np.flatnonzero(left <= 1)
    hole = ours + masks[ours].argmax(axis=1)
    # Two windows repeat an n-gram if the other window has no mask, or if the same hole completes both: "so so _ so so".
    whole = left[others] == 0
    shared = others + masks[others].argmax(axis=1) == hole[:, None]
    alike = (whole | shared) & (ours[:, None] != others)
    for k in range(size):
        alike &= (
            (windows[ours, k, None] == windows[others, k]) | masks[ours, k, None] | masks[others, k]
        )
    near, far = np.nonzero(alike)
    position = hole[near]
    shift = others[far] - ours[near]
    token = tokens[position + shift]
    once_more = whole[far] | (tokens.take(position - shift, mode="clip") == token)
    return np.unique(np.stack((position, token))[:, once_more], axis=1)
