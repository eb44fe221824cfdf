"""The held-out loss: an upper bound on the text's description length, comparable over tokenizers per character."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from surelock.model.bound import conditional_bound
from surelock.model.network import Network

MOST_DRAWS = 4096  # computed at once


@dataclass(frozen=True, slots=True)
class Bound:
    """An upper bound on -log p(text), with Monte Carlo standard errors: of the masks, not of the choice of text."""

    nats_per_token: float
    nats_per_token_error: float
    bits_per_character: float
    bits_per_character_error: float
    stories: int
    tokens: int
    characters: int
    draws: int
    window: int

    def as_dict(self) -> dict[str, float | int]:
        return asdict(self)


def evaluate(
    network: Network,
    stories: Sequence[Sequence[int]],
    characters: int,
    *,
    mask_id: int,
    eos_id: int,
    window: int = 256,
    draws: int = 16,
    seed: int = 0,
    show_progress: bool = False,
) -> Bound:
    """Bound the nats of each story and its EOS; windows hold one story, or an equal part of one longer than `window`.

    stories: token ids without EOS; characters: of the stories' text, the denominator of bits_per_character.
    draws per window (even): two in each of draws / 2 strata of the number of masked tokens, whose difference gives the
    standard error. The masks depend on (seed, window's number) alone, so checkpoints with one tokenizer see the same.
    """
    if not 2 <= draws <= MOST_DRAWS or draws % 2:
        raise ValueError(f"draws must be an even number from 2 to {MOST_DRAWS}, not {draws}")
    windows = [part for story in stories for part in _split(np.array([*story, eos_id], dtype=np.int64), window)]
    total, variance = 0.0, 0.0
    for number, tokens in enumerate(tqdm(windows, desc="evaluating", unit="window", disable=not show_progress)):
        rng = np.random.default_rng([seed, number])
        bounds = conditional_bound(network, tokens, 0, draws=draws, rng=rng, mask_id=mask_id).reshape(2, -1)
        total += float(bounds.mean())
        variance += float(((bounds[0] - bounds[1]) ** 2).sum()) / bounds.size**2
    count = sum(map(len, windows))
    error, to_bits = math.sqrt(variance), 1 / (math.log(2) * characters)
    return Bound(
        nats_per_token=total / count,
        nats_per_token_error=error / count,
        bits_per_character=total * to_bits,
        bits_per_character_error=error * to_bits,
        stories=len(stories),
        tokens=count,
        characters=characters,
        draws=draws,
        window=window,
    )


def _split(tokens: NDArray[np.int64], window: int) -> Iterator[NDArray[np.int64]]:
    yield from np.array_split(tokens, -(-len(tokens) // window))
