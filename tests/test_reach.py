"""How far a late row misleads, by hand: one row's keys and values of other tokens, all else as it is."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import surelock
from surelock.engines.cache import Rows
from surelock.engines.torch import PackedForward
from surelock.research import reach


def test_one_row_is_late(stories_in_torch: surelock.LanguageModel) -> None:
    lm, read, length = stories_in_torch, 20, 40
    now = np.random.default_rng(0).integers(5, 500, length)
    now[18:] = lm.mask_id
    then = now.copy()
    then[15:] = lm.mask_id
    told = reach._misled(lm, then, now, read)
    late = [(d, i) for d, i in reach._around(read, length) if then[i] == now[i]]
    assert [d for d, _ in told] == [d for d, _ in late] and 3 not in {d for d, i in late if i < read}
    every = torch.arange(length)

    def posterior(i: int | None) -> torch.Tensor:
        packed = PackedForward(lm.network, length)
        packed(torch.from_numpy(then), Rows(every, every, [length], [length]))
        rows = every if i is None else every[every != i]
        hidden = packed(torch.from_numpy(now)[rows], Rows(rows, rows, [len(rows)], [length]))
        return lm.network.logits(hidden[rows == read]).double().log_softmax(-1)[0]

    with torch.inference_mode():
        full = posterior(None)
        by_hand = [float((full.exp() * (full - posterior(i))).sum()) for _, i in late]
    assert [nats for _, nats in told] == pytest.approx(by_hand, rel=1e-2, abs=1e-7)
    assert max(by_hand) > 1e-4  # late rows are late


def test_nothing_is_late_where_nothing_changed(stories_in_torch: surelock.LanguageModel) -> None:
    tokens = np.full(40, stories_in_torch.mask_id)
    assert max(nats for _, nats in reach._misled(stories_in_torch, tokens, tokens, 20)) < 1e-8
