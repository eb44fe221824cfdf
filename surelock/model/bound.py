"""A masked diffusion model's upper bound on -log p(text), by Monte Carlo over masks (LLaDA, Eq. 6)."""

from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F

from surelock.decoding.algorithm import NonFiniteLogits
from surelock.model.network import Network
from surelock.values import Flags, Floats, Json, Whole


def stratified_counts(
    rng: np.random.Generator, strata: Whole, total: int, length: int | Whole
) -> Whole:
    """Return the number of tokens to mask in every window, [B] int64, drawn uniformly from 1 to `length`.

    strata: [B] int64, by window, its stratum, from 0 to total - 1. total: the number of strata.
    """
    return 1 + np.floor((strata + rng.random(len(strata))) / total * length).astype(np.int64)


def draw_masks(
    rng: np.random.Generator, counts: Whole, length: int, prompts: Whole | int = 0
) -> Flags:
    """Return [B, length] bool: row b marks counts[b] positions, drawn uniformly from the positions after its prompt.

    prompts: by row, the length of its prompt, or one length for all rows.
    """
    in_prompt = np.arange(length) < np.reshape(prompts, (-1, 1))
    keys = np.where(in_prompt, np.inf, rng.random((len(counts), length)))
    return keys.argsort(axis=1).argsort(axis=1) < counts[:, None]


@torch.no_grad()
def conditional_bound(
    network: Network,
    tokens: Whole,
    prefix: int,
    *,
    draws: int,
    rng: np.random.Generator,
    mask_id: int,
    batch: int | None = None,
) -> Floats:
    """Estimate an upper bound on -log p(tokens[prefix:] | tokens[:prefix]) (LLaDA, Eq. 6).

    Returns [draws] float64, in nats. The mean of these numbers is the estimate.

    tokens: [N] int64.
    prefix: the number of tokens at the beginning that are not scored.
    draws: the number of masks, which must be even.
    rng: the source of random numbers.
    batch: the number of masks in one forward pass; None puts all into one pass.

    A draw masks k of the n scored tokens, and weights their loss by n / k. k is uniform on 1..n and stratified: there
    are draws / 2 strata, with two draws per stratum. In a block-causal network the bound is the sum of the bounds of
    its blocks; the bound of a block is conditional on all tokens before the block.

    Raises ValueError for an odd number of draws, and if no token is scored. Raises NonFiniteLogits for a logit that is
    NaN or infinite.
    """
    size = network.config.block_size
    if size is not None and len(tokens) > (prefix // size + 1) * size:
        edges = [prefix, *range((prefix // size + 1) * size, len(tokens), size), len(tokens)]
        options: Json = {"draws": draws, "rng": rng, "mask_id": mask_id, "batch": batch}
        parts = [
            conditional_bound(network, tokens[:stop], start, **options)
            for start, stop in pairwise(edges)
        ]
        return np.sum(parts, axis=0)
    length = len(tokens) - prefix
    if length < 1 or draws < 2 or draws % 2:
        raise ValueError(
            f"at least one token and an even number of draws are needed, not {length} and {draws}"
        )
    strata = np.tile(np.arange(draws // 2), 2)
    counts = stratified_counts(rng, strata, draws // 2, length)
    masks = draw_masks(rng, counts, len(tokens), prefix)
    size = batch or draws
    batches = [masks[start : start + size] for start in range(0, draws, size)]
    losses = np.concatenate([_masked_loss(network, tokens, part, mask_id) for part in batches])
    if not np.isfinite(losses).all():
        raise NonFiniteLogits("a logit of the network is NaN or infinite")
    return length * losses / counts


def _masked_loss(network: Network, tokens: Whole, masks: Flags, mask_id: int) -> Floats:
    """Return, by row of `masks`, the sum of -log p of its masked tokens, [B] float64, in nats."""
    texts = np.tile(tokens, (len(masks), 1))
    index = torch.from_numpy(np.flatnonzero(masks))
    noisy = torch.from_numpy(np.where(masks, mask_id, texts)).to(network.embed.weight.device)
    hidden = network.hidden(noisy)
    logits = network.logits(hidden.flatten(0, 1)[index.to(hidden.device)])
    target = torch.from_numpy(texts[masks]).to(logits.device)
    wide = torch.promote_types(logits.dtype, torch.float32)
    nats = F.cross_entropy(logits.to(wide), target, reduction="none").double().numpy(force=True)
    row = index.numpy() // len(tokens)
    return np.asarray(np.bincount(row, nats, minlength=len(masks)), dtype=np.float64)
