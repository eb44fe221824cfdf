"""LLaDA's network as public modelling code writes it: dense, nothing packed, no cache. Only `bench llada` uses it.

Separate q, k, v, gate and up projections; RMS norm and rotary embedding in float32, whatever the weights are; every
forward computes the logits of all positions.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from surelock.model.config import NetworkConfig
from surelock.model.network import Layer, Network


class PlainNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) in float32, cast down, times its weight."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        super().__init__()
        self.weight = _frozen(weight)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(dim=-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


class PlainBlock(nn.Module):
    """One block of `PlainLlada`, its weights views of the packed ones."""

    def __init__(self, layer: Layer, config: NetworkConfig) -> None:
        super().__init__()
        self.config = config
        widths = [heads * config.head_size for heads in layer.heads]
        biases = (None,) * 3 if layer.qkv_bias is None else layer.qkv_bias.split(widths)
        parts = zip(layer.qkv.split(widths), biases, strict=True)
        self.q_proj, self.k_proj, self.v_proj = (_linear(weight, bias) for weight, bias in parts)
        self.gate_proj, self.up_proj = (_linear(weight) for weight in layer.gate_up.chunk(2))
        self.attn_out, self.ff_out = _linear(layer.attn_out), _linear(layer.ff_out)
        self.attn_norm = PlainNorm(layer.attn_norm, config.norm_eps)
        self.ff_norm = PlainNorm(layer.ff_norm, config.norm_eps)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        h = self.attn_norm(x)
        q, k, v = (self._heads(projection(h)) for projection in (self.q_proj, self.k_proj, self.v_proj))
        q, k = (_rotated(part, cos, sin) for part in (q, k))
        groups = self.config.n_heads // self.config.n_kv_heads
        if groups > 1:
            k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
        attended = F.scaled_dot_product_attention(q, k, v)
        x = x + self.attn_out(attended.transpose(1, 2).flatten(-2))
        h = self.ff_norm(x)
        return x + self.ff_out(F.silu(self.gate_proj(h)) * self.up_proj(h))

    def _heads(self, x: Tensor) -> Tensor:
        """[B, N, heads * head_size] -> [B, heads, N, head_size]."""
        return x.unflatten(-1, (-1, self.config.head_size)).transpose(1, 2)


class PlainLlada(nn.Module):
    """A network in the LLaDA layout with the weights of ours, in the same memory.

    Raises ValueError for a network that is not in that layout (q and k norms, shifted logits).
    """

    def __init__(self, network: Network) -> None:
        super().__init__()
        config = network.config
        if config.qk_norm or config.shifted:
            raise ValueError("bench llada needs a checkpoint in the LLaDA layout: its sampler knows no other")
        self.config = config
        self.embed = _frozen(network.embed.weight)
        self.head = _frozen(network.head_weight)
        self.blocks = nn.ModuleList(PlainBlock(layer, config) for layer in network.layers)
        self.norm = PlainNorm(network.norm.weight, config.norm_eps)
        self._tables: dict[int, tuple[Tensor, Tensor]] = {}

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens [B, N] int64 -> logits [B, N, vocab_size] in the weights' dtype."""
        x = F.embedding(tokens, self.embed)
        cos, sin = self._rotary(tokens.shape[1])
        for block in self.blocks:
            x = block(x, cos, sin)
        return F.linear(self.norm(x), self.head)

    def _rotary(self, length: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines [length, head_size] in float32, made once for a length."""
        if length not in self._tables:
            steps = torch.arange(0, self.config.head_size, 2, dtype=torch.float32, device=self.embed.device)
            frequencies = 1.0 / self.config.rope_theta ** (steps / self.config.head_size)
            angles = torch.outer(torch.arange(length, dtype=torch.float32, device=self.embed.device), frequencies)
            angles = torch.cat((angles, angles), dim=-1)
            self._tables[length] = angles.cos(), angles.sin()
        return self._tables[length]


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    wide = x.float()
    first, second = wide.chunk(2, dim=-1)
    return (wide * cos + torch.cat((-second, first), dim=-1) * sin).to(x.dtype)


def _linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    layer.weight = _frozen(weight)
    if bias is not None:
        layer.bias = _frozen(bias)
    return layer


def _frozen(tensor: Tensor) -> nn.Parameter:
    return nn.Parameter(tensor, requires_grad=False)
