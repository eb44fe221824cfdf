"""The masked diffusion objective: predict the masked tokens, masking rate t uniform, loss weighted 1/t (LLaDA, Eq. 3).

With the rate drawn first and each token masked with probability t, the number of masked tokens k varies about t * N.
Integrating over t leaves k uniform on 1..N and the loss weighted N/k (LLaDA, Eq. 6): the same expectation with less
variance. That form is used, and the k of a batch are stratified over 1..N.

A window may begin with a prompt that is never masked; the same objective then holds for the rest of it given the prompt
(LLaDA's supervised fine-tuning, Eq. 5). It is what a model meets that continues a text block by block.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from surelock.model.bound import conditional_bound
from surelock.model.network import Network

MOST_DRAWS = 4096  # computed at once


def prompt_lengths(rng: np.random.Generator, rows: int, length: int, share: float) -> NDArray[np.int64]:
    """[rows]: uniform on 0..length - 1 in a random `share` of the rows, 0 in the others."""
    return np.where(rng.random(rows) < share, rng.integers(0, length, rows), 0)


def make_batch(windows: NDArray[np.int64], masks: NDArray[np.bool_], mask_id: int) -> tuple[Tensor, ...]:
    """The masked windows [B, N]; of each of the K masks its place among the B * N, its token and its weight.

    The weights make sum(weight * nats) the mean over windows of the nats per masked token. That mean estimates the
    upper bound in nats per token: (1/N) (N/k) sum over the k masked.
    """
    weights = np.broadcast_to(1 / (masks.sum(axis=1, keepdims=True) * len(windows)), masks.shape)
    made = np.where(masks, mask_id, windows), np.flatnonzero(masks), windows[masks], weights[masks].astype(np.float32)
    return tuple(map(torch.from_numpy, made))


def batch_loss(network: Network, noisy: Tensor, index: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """The objective on a batch, in nats per token; the head runs on the masked positions alone."""
    logits = network.logits(network.hidden(noisy).flatten(0, 1)[index])
    return (F.cross_entropy(logits.float(), target, reduction="none") * weight).sum()


# --- the held-out loss: an upper bound on the text's description length, comparable over tokenizers per character -----


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
