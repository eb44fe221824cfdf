"""The masked diffusion objective: predict the masked tokens, masking rate t uniform, loss weighted 1/t (LLaDA, Eq. 3).

With the rate drawn first and each token masked with probability t, the number of masked tokens k varies about t * N.
Integrating over t leaves k uniform on 1..N and the loss weighted N/k (LLaDA, Eq. 6): the same expectation with less
variance. That form is used, and the k of a batch are stratified over 1..N.

A window may begin with a prompt that is never masked; the same objective then holds for the rest of it given the prompt
(LLaDA's supervised fine-tuning, Eq. 5). It is what a model meets that continues a text block by block.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from surelock.model.bound import conditional_bound
from surelock.model.network import Network, rotary_table


class Batch(NamedTuple):
    """Windows with masks, and the flat list of what is to be predicted.

    noisy [B, N] int64; places [K] int64 into the B * N positions; target [K] int64; weight [K] float32. K depends on
    (B, N) alone, so that compiled code sees one shape; what is not needed has weight 0.
    """

    noisy: Tensor
    places: Tensor
    target: Tensor
    weight: Tensor

    def to(self, device: torch.device) -> Batch:
        return Batch(*(x.to(device, non_blocking=True) for x in self))


def prompt_lengths(rng: np.random.Generator, rows: int, length: int, share: float) -> NDArray[np.int64]:
    """[rows]: uniform on 0..length - 1 in a random `share` of the rows, 0 in the others."""
    return np.where(rng.random(rows) < share, rng.integers(0, length, rows), 0)


def make_batch(windows: NDArray[np.int64], masks: NDArray[np.bool_], mask_id: int, capacity: int) -> Batch:
    """Mask the windows. The weights make sum(weight * nats) the mean over windows of the nats per masked token.

    That mean estimates the upper bound in nats per token: (1/N) (N/k) sum over the k masked.
    """
    index = np.flatnonzero(masks)
    if len(index) > capacity:
        raise ValueError(f"{len(index)} masked tokens do not fit into {capacity}")
    per_window = 1.0 / (masks.sum(axis=1, keepdims=True) * len(windows))
    padding = (0, capacity - len(index))
    return Batch(
        torch.from_numpy(np.where(masks, mask_id, windows)),
        torch.from_numpy(np.pad(index, padding)),
        torch.from_numpy(np.pad(windows[masks], padding)),
        torch.from_numpy(np.pad(np.broadcast_to(per_window, masks.shape)[masks], padding).astype(np.float32)),
    )


def nats(network: Network, noisy: Tensor, index: Tensor, target: Tensor) -> Tensor:
    """-log p(target) [K] in float32 at the K listed positions; the head runs on those alone."""
    x = network.embed(noisy)
    rotary = rotary_table(network.config, noisy.shape[1], x.dtype, noisy.device)
    attend = _attend_plainly if noisy.device.type == "cpu" else _attend_fused
    for block in network.blocks:
        x = block(x, rotary, attend)
    logits = network.logits(network.norm(x).flatten(0, 1)[index])
    return F.cross_entropy(logits.float(), target, reduction="none")


def batch_loss(network: Network, noisy: Tensor, index: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """The objective on a batch, in nats per token."""
    return (nats(network, noisy, index, target) * weight).sum()


def _attend_plainly(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention by two products: at these lengths a third faster to train on a CPU than torch's fused one."""
    rows, length, heads, size = q.shape
    groups = heads // k.shape[2]
    k, v = (x.repeat_interleave(groups, dim=2) if groups > 1 else x for x in (k, v))
    q, k, v = (x.transpose(1, 2).reshape(rows * heads, length, size) for x in (q, k, v))
    shares = torch.bmm(q * size**-0.5, k.transpose(1, 2)).softmax(dim=-1).to(v.dtype)
    return torch.bmm(shares, v).view(rows, heads, length, size).transpose(1, 2)


def _attend_fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    grouped = q.shape[2] != k.shape[2]
    q, k, v = (x.transpose(1, 2) for x in (q, k, v.to(q.dtype)))
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=grouped).transpose(1, 2)


# --- the held-out loss: an upper bound on the text's description length, comparable over tokenizers per character -----

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
