"""No n-gram twice (`no_repeat_ngram_size`, as transformers calls it), for tokens that come in any order."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from surelock.values import Flags, Whole


def repeating_tokens(tokens: Whole, masked: Flags, size: int) -> Whole:
    """Return the (position, token) pairs that would complete an n-gram a second time: [2, K] int64, by position.

    tokens: [N] int64, one sequence, prompt included.
    masked: [N] bool.
    size: the length of an n-gram, in tokens.
    """
    if len(tokens) < size:
        return np.empty((2, 0), dtype=np.int64)
    windows = sliding_window_view(tokens, size)
    masks = sliding_window_view(masked, size)
    left = masks.sum(axis=1)
    ours = np.flatnonzero(left == 1)
    others = np.flatnonzero(left <= 1)
    hole = ours + masks[ours].argmax(axis=1)
    # The other one is whole already, or the same token completes both ("so so _ so so").
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
