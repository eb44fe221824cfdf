"""What would a masked position become, and what is it scored by? The part of UpdateMASK that sees posteriors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from surelock.decoding.ngrams import repeating_tokens
from surelock.decoding.noise import BatchNoise
from surelock.decoding.posterior import StepRows
from surelock.decoding.settings import DecodeSettings
from surelock.decoding.state import State
from surelock.decoding.unmasking import UnmaskPolicy
from surelock.model.language_model import LanguageModel


def choose_tokens(logits: Tensor, banned: list[int], temperature: float, uniform: Tensor | None) -> Tensor:
    """Candidate tokens [C] of raw logits [C, V]: the argmax, or Gumbel-max over exp(logit) / (-log uniform)^T.

    uniform: [C, V] float64 in (0, 1), None at temperature 0; overwritten. banned tokens (the mask, a suppressed EOS)
    never win.
    """
    if uniform is not None:
        logits = uniform.log_().neg_().log_().mul_(-temperature).add_(logits)
    columns = [logits[:, token] for token in banned]
    before = [column.clone() for column in columns]
    for column in columns:
        column.fill_(-torch.inf)
    chosen = logits.max(dim=-1).indices  # the first among equals, as argmax, which takes three times as long on a CPU
    for column, was in zip(columns, before, strict=True):
        column.copy_(was)
    return chosen


def _entropy(p: Tensor) -> Tensor:
    return torch.special.entr(p).sum(dim=-1).neg_()


def _margin(p: Tensor) -> Tensor:
    first, second = p.topk(2, dim=-1).values.unbind(dim=-1)
    return first - second


#: Scores [C] from the raw temperature-1 posterior p [C, V], by the name that a policy's `scores` has.
SCORES: dict[str, Callable[[Tensor], Tensor]] = {"entropy": _entropy, "margin": _margin}


class Chooser:
    """Candidate tokens and scores of the positions that a step may commit."""

    def __init__(self, lm: LanguageModel, settings: DecodeSettings, policy: UnmaskPolicy) -> None:
        self._settings, self._scores = settings, policy.scores
        self._size, self._vocab_size = settings.no_repeat_ngram_size, lm.network.config.vocab_size
        self._ends = [i for i in (lm.eos_id, lm.eot_id) if i is not None]
        self._late = self._ends if settings.suppress_eos_confidence else []
        self._banned = [lm.mask_id]
        if settings.suppress_eos and lm.eos_id is not None:
            self._banned.append(lm.eos_id)

    def late(self, tokens: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of the tokens are committed last."""
        return np.isin(tokens, self._late) if self._late else np.zeros(len(tokens), dtype=bool)

    def repeats(self, state: State, rows: StepRows) -> NDArray[np.int64]:
        """What `no_repeat_ngram_size` forbids in this step, [2, K]: rows and tokens, ascending."""
        canvas = state.canvas
        if not self._size or not len(rows.choosers):
            return _NOTHING
        pairs = []
        for b in range(canvas.batch):
            part = canvas.slots_of(b)
            positions, tokens = repeating_tokens(canvas.tokens[part], canvas.masked[part], self._size)
            pairs.append((positions + part.start, tokens))
        at, tokens = np.concatenate(pairs, axis=1)
        kept = np.isin(at, rows.slots[rows.choosers]) & ~np.isin(tokens, self._ends)
        at, tokens = at[kept], tokens[kept]
        _, place, counts = np.unique(at, return_inverse=True, return_counts=True)
        # Where nothing else is left to choose (a tiny vocabulary), repeating is better than committing a mask.
        left = (counts < self._vocab_size - len(self._banned))[place]
        return np.stack((np.searchsorted(rows.slots, at[left]), tokens[left]))

    def choose(
        self, z: Tensor, p: Tensor, start: int, rows: StepRows, repeats: NDArray[np.int64], noise: BatchNoise
    ) -> Tensor:
        """Of a chunk of rows that begins at `start`: its choosers' candidate tokens and scores, [2, C] float64.

        z, p: the chunk's logits and posteriors [R, V]. float64 holds ids exactly; scores by "noise" are not made here.
        """
        first, last = np.searchsorted(rows.choosers, (start, start + len(z)))
        choosers = rows.choosers[first:last]
        if not len(choosers) or self._scores is None:
            return torch.empty(2, 0, dtype=torch.float64, device=z.device)
        index = torch.from_numpy(choosers - start).to(z.device)
        uniform = noise.gumbel(rows.slots[choosers]) if self._settings.temperature > 0 else None
        chosen = self._candidates(z, start, choosers, index, repeats, uniform)
        del uniform  # before the scores' own copy of the posteriors is made
        score = SCORES[self._scores](p.index_select(0, index)) if self._scores in SCORES else p[index, chosen]
        return torch.stack((chosen.to(torch.float64), score.to(torch.float64)))

    def _candidates(
        self,
        z: Tensor,
        start: int,
        choosers: NDArray[np.int64],
        index: Tensor,
        repeats: NDArray[np.int64],
        uniform: Tensor | None,
    ) -> Tensor:
        """The candidate token of each chooser. Overwrites uniform."""
        first, last = np.searchsorted(repeats[0], (start, start + len(z)))
        at, forbidden = repeats[:, first:last]
        # Copying most of the rows would cost more than looking at all; noise is drawn for the choosers alone.
        in_place = uniform is None and not len(at) and 2 * len(choosers) >= len(z)
        logits = z if in_place else z.index_select(0, index)
        if len(at):
            at = np.searchsorted(choosers, at)
            places, tokens = torch.from_numpy(np.stack((at, forbidden))).to(z.device)
            logits[places, tokens] = -torch.inf
        chosen = choose_tokens(logits, self._banned, self._settings.temperature, uniform)
        return chosen[index] if in_place else chosen


_NOTHING = np.empty((2, 0), dtype=np.int64)
