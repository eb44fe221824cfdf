"""LLaDA's own sampling loop, as its public generate.py does it, written anew; only `bench llada` uses it.

Every step runs the dense network on the whole canvas, makes the logits of all its positions, draws float64 Gumbel noise
for all of them (none at temperature 0), and takes confidences from a float64 softmax over all of them. Low-confidence
remasking, semi-autoregressive blocks, no guidance.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from surelock.decoding.settings import DecodeSettings


@torch.no_grad()
def llada_generate(
    network: Callable[[Tensor], Tensor], prompts: Tensor, settings: DecodeSettings, mask_id: int
) -> Tensor:
    """prompts [B, L] int64 of one length -> [B, L + gen_length] int64.

    network: tokens [B, N] -> logits [B, N, V]. Of the settings gen_length, steps, block_length and temperature count.
    """
    batch, start = prompts.shape
    canvas = torch.full((batch, start + settings.gen_length), mask_id, device=prompts.device)
    canvas[:, :start] = prompts
    length, steps = settings.gen_length // settings.blocks, settings.total_steps // settings.blocks
    for block in range(settings.blocks):
        end = start + (block + 1) * length
        counts = transfers((canvas[:, end - length : end] == mask_id).sum(dim=1), steps)
        for step in range(steps):
            masked = canvas == mask_id
            logits = network(canvas)
            chosen = with_noise(logits, settings.temperature).argmax(dim=-1)
            posterior = logits.to(torch.float64).softmax(dim=-1)
            confidence = posterior.gather(-1, chosen[..., None])[..., 0]
            confidence[:, end:] = -torch.inf
            confidence = torch.where(masked, confidence, -torch.inf)
            chosen = torch.where(masked, chosen, canvas)
            for b in range(batch):
                best = confidence[b].topk(int(counts[b, step])).indices
                canvas[b, best] = chosen[b, best]
    return canvas


def with_noise(logits: Tensor, temperature: float) -> Tensor:
    """What the argmax is taken of: exp(logit) / (-log uniform)^temperature in float64, the logits at temperature 0."""
    if temperature == 0:
        return logits
    wide = logits.to(torch.float64)
    return wide.exp() / (-torch.rand_like(wide).log()) ** temperature


def transfers(masked: Tensor, steps: int) -> Tensor:
    """How many positions each step of a block commits, [B, steps]: even shares of masked [B], the rest first."""
    share, rest = masked // steps, masked % steps
    return share[:, None] + (torch.arange(steps, device=masked.device) < rest[:, None])
