"""Classifier-free guidance (LLaDA's `cfg_scale`): a second pass that does not see the prompt."""

from __future__ import annotations

import torch
from torch import Tensor


def guided_logits(logits: Tensor, blind: Tensor, scale: float) -> Tensor:
    """blind + (scale + 1) (logits - blind), of the pass with the prompt and the one with every prompt token masked.

    Both [R, V] of one dtype; computed in float32 or better, given in theirs.
    """
    wide = torch.promote_types(logits.dtype, torch.float32)
    blind = blind.to(wide)
    return torch.add(blind, logits.to(wide) - blind, alpha=scale + 1).to(logits.dtype)
