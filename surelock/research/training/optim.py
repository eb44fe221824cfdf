"""Muon for the matrices inside the blocks, AdamW for the embedding, the head and the norms.

Muon (Jordan et al., 2024): momentum, then the nearest orthogonal matrix by a Newton-Schulz iteration. Fused matrices
are orthogonalised part by part: q, k and v are three maps, gate and up two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from surelock.model.network import Network

_QUINTIC = (3.4445, -4.7750, 2.0315)
Gather = Callable[[Tensor], None]


class Optimizer:
    """Both optimisers behind one `step(rate)`; `rate` in 0..1 scales the peak learning rates."""

    def __init__(
        self, network: Network, muon_rate: float, adam_rate: float, decay: float, rank: int = 0, world: int = 1
    ) -> None:
        """decay: decoupled weight decay per unit of learning rate, matrices only.

        rank, world: each of `world` processes orthogonalises its share, then `step` sums the shares.
        """
        named = dict(network.named_parameters())
        self.matrices = {name: p for name, p in named.items() if name.startswith("blocks.") and p.dim() == 2}
        self.momentum = {name: torch.zeros_like(p) for name, p in self.matrices.items()}
        rest = [p for name, p in named.items() if name not in self.matrices]
        self.adam = torch.optim.AdamW(rest, lr=adam_rate, betas=(0.9, 0.95), weight_decay=0.0)
        self.parts = {name: _parts(name, network) for name in self.matrices}
        self.muon_rate, self.adam_rate, self.decay = muon_rate, adam_rate, decay
        self.rank, self.world = rank, world

    @torch.no_grad()
    def step(self, rate: float, gather: Gather | None = None) -> None:
        """One update from the gradients in place. gather sums a tensor over the processes, in place."""
        for group in self.adam.param_groups:
            group["lr"] = self.adam_rate * rate
        self.adam.step()
        updates = self._updates(gather)
        for name, weight in self.matrices.items():
            weight.mul_(1 - self.muon_rate * rate * self.decay)
            weight.add_(updates[name], alpha=-self.muon_rate * rate)

    def _updates(self, gather: Gather | None) -> dict[str, Tensor]:
        """The orthogonalised updates by name, each part scaled by sqrt(max(1, rows / columns))."""
        updates = {}
        by_shape: dict[torch.Size, list[tuple[Tensor, Tensor]]] = defaultdict(list)
        for name, weight in self.matrices.items():
            assert weight.grad is not None, name
            momentum = self.momentum[name].lerp_(weight.grad, 0.05)
            nesterov = weight.grad.lerp(momentum, 0.95)
            updates[name] = torch.zeros_like(weight)
            sources, targets = (x.split(self.parts[name]) for x in (nesterov, updates[name]))
            for source, target in zip(sources, targets, strict=True):
                by_shape[source.shape].append((source, target))
        for pairs in by_shape.values():
            mine = pairs[self.rank :: self.world]
            if not mine:
                continue
            result = orthogonalize(torch.stack([source for source, _ in mine]))
            for (source, target), update in zip(mine, result, strict=True):
                target.copy_(update * max(1.0, source.shape[0] / source.shape[1]) ** 0.5)
        if gather is not None:
            flat = torch.cat([update.flatten() for update in updates.values()])
            gather(flat)
            sizes = [update.numel() for update in updates.values()]
            updates = {n: f.view_as(u) for (n, u), f in zip(updates.items(), flat.split(sizes), strict=True)}
        return updates

    def state_dict(self) -> dict[str, Any]:
        return {"adam": self.adam.state_dict(), "momentum": self.momentum}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.adam.load_state_dict(state["adam"])
        for name, value in self.momentum.items():
            value.copy_(state["momentum"][name])


def orthogonalize(matrices: Tensor) -> Tensor:
    """[B, m, n] -> about U V^T of each matrix's U S V^T, in bfloat16: five quintic Newton-Schulz steps."""
    x = matrices.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    a, b, c = _QUINTIC
    for _ in range(5):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


def _parts(name: str, network: Network) -> list[int]:
    """The heights of the maps that a fused matrix holds."""
    config = network.config
    if name.endswith("qkv.weight"):
        kv = config.n_kv_heads * config.head_size
        return [config.n_heads * config.head_size, kv, kv]
    if name.endswith("gate_up.weight"):
        return [config.d_ff, config.d_ff]
    return [network.get_parameter(name).shape[0]]
